"""The real command in processes of its own: it starts, drains on SIGTERM without losing a character, and ends with 0."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch
from websockets.asyncio.client import ClientConnection

from model import Recognizer
from model.files import ModelCard, save_model
from model.network import Network
from server.codec import parse_server
from server.messages import Closed, Keepalive, Ready, Status, Stop
from tests.server.conftest import noise, pcm
from tests.server.talk import Heard, assert_same, connected, hear, send

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
STREAMS = 20
HAS_PROC = Path("/proc").is_dir()


@pytest.fixture(scope="module")
def model_folder(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, network, ModelCard(name="gibberish"), torch.float32)
    return folder


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "monoscribe.py", "serve", "--port", "0", "--model", str(folder), *flags]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MONOSCRIBE_")}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        assert found, process.communicate(timeout=10)
        yield process, int(found[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def until_ready(port: int) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        for _ in range(600):
            try:
                if (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError("never ready")


async def speak(socket: ClientConnection, data: bytes, told: asyncio.Event) -> Heard:
    """Paced, so that the signal comes in the middle; stops by itself at the end of the audio."""
    heard = Heard()
    listening = asyncio.create_task(hear(socket, heard))
    try:
        for position in range(0, len(data), 3200):
            await socket.send(data[position : position + 3200])
            await asyncio.sleep(0.03)
            if position == 3200 * 20:
                told.set()
        await send(socket, Stop())
    except Exception:
        assert heard.messages  # the server went first
    return await asyncio.wait_for(listening, 60)


@pytest.mark.parametrize("drain_seconds", ["0", "60"])
async def test_sigterm_in_the_middle_of_many_streams_loses_no_character(
    model_folder: Path, recognizer: Recognizer, drain_seconds: str
) -> None:
    recordings = [noise(6, seed) for seed in range(STREAMS)]
    with serving(model_folder, "--drain-seconds", drain_seconds) as (process, port):
        await until_ready(port)
        url = f"ws://127.0.0.1:{port}/v1/stream"
        told = [asyncio.Event() for _ in recordings]

        async def one(number: int) -> Heard:
            async with connected(url) as socket:
                return await speak(socket, pcm(recordings[number]), told[number])

        speaking = [asyncio.create_task(one(number)) for number in range(STREAMS)]
        await asyncio.gather(*(event.wait() for event in told))
        process.send_signal(signal.SIGTERM)
        everything = await asyncio.gather(*speaking)
        _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    for heard, samples in zip(everything, recordings, strict=True):
        assert_same(heard, recognizer.transcribe(samples[: heard.closed.bytes // 2]))
        assert heard.closed.received == heard.closed.processed
        assert any(isinstance(message, Status) and message.draining for message in heard.messages)
        if drain_seconds == "0":
            assert heard.closed.reason == "draining"
            assert heard.code == 1012
        else:
            assert heard.closed.reason == "stopped"
            assert heard.closed.bytes == 2 * len(samples)


async def test_while_it_drains_nobody_new_comes_in_and_a_second_signal_hurries(model_folder: Path, recognizer: Recognizer) -> None:
    samples = noise(2, seed=1)
    with serving(model_folder, "--drain-seconds", "600") as (process, port):
        await until_ready(port)
        async with connected(f"ws://127.0.0.1:{port}/v1/stream") as socket, httpx.AsyncClient(trust_env=False) as client:
            await socket.send(pcm(samples))
            await send(socket, Keepalive())
            process.send_signal(signal.SIGTERM)
            while (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.05)
            assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
            refused = await client.post(f"http://127.0.0.1:{port}/v1/transcribe?encoding=pcm_s16le", content=pcm(samples))
            assert refused.status_code == 503
            process.send_signal(signal.SIGINT)
            heard = await hear(socket)
        _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, errors
    assert heard.closed.reason == "draining"
    assert_same(heard, recognizer.transcribe(samples))


async def test_several_processes_share_a_port_pass_resumes_on_and_are_replaced(model_folder: Path, recognizer: Recognizer) -> None:
    samples = noise(3, seed=2)
    data = pcm(samples)
    with serving(model_folder, "--workers", "2") as (process, port):
        await until_ready(port)
        url = f"ws://127.0.0.1:{port}/v1/stream"
        await both_ready(url)
        owners = set()
        for _ in range(6):
            heard = Heard()
            async with connected(url) as socket:
                await socket.send(data[:30_000])
                ready = parse_server(str(await socket.recv()))
                assert isinstance(ready, Ready)
                socket.transport.abort()
            owners.add(ready.session.partition(".")[0])
            while not any(isinstance(message, Closed) for message in heard.messages):
                seq = max(heard.numbers, default=0)
                async with connected(f"{url}?session={ready.session}&seq={seq}") as socket:
                    resumed = parse_server(str(await socket.recv()))
                    assert isinstance(resumed, Ready)
                    await socket.send(data[resumed.bytes :])
                    await send(socket, Stop())
                    await hear(socket, heard)
            assert_same(heard, recognizer.transcribe(samples))
            assert heard.code == 1000
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            stopped = re.search(r'monoscribe_sessions_closed_total\{reason="stopped"\} (\S+)', page)
            assert stopped
            assert float(stopped[1]) >= 6
        if HAS_PROC:
            await replace_one(process.pid, url)
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def children(pid: int) -> set[int]:
    """Those that serve."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in listed if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


async def replace_one(pid: int, url: str) -> None:
    """Kills one of the processes that serve, and waits until another serves in its place."""
    before = children(pid)
    assert len(before) == 2
    os.kill(min(before), signal.SIGKILL)
    while len(children(pid) - before) != 1:  # noqa: ASYNC110 (another process)
        await asyncio.sleep(0.1)
    await both_ready(url)


@pytest.mark.skipif(not HAS_PROC, reason="looks for processes in /proc")
async def test_orphans_go(model_folder: Path) -> None:
    with serving(model_folder, "--workers", "2") as (process, _):
        orphans = children(process.pid)
        assert orphans
        process.kill()
        while any(is_running(orphan) for orphan in orphans):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def both_ready(url: str) -> None:
    """Opens connections until each process has answered one."""
    seen: set[str] = set()
    for _ in range(600):
        try:
            async with connected(url) as socket:
                await send(socket, Stop())
                heard = await hear(socket)
        except OSError:  # of one that has just died
            continue
        assert isinstance(heard.messages[0], Ready)
        seen.add(heard.messages[0].session.partition(".")[0])
        if len(seen) == 2:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"only {seen} answered")
