"""The load benchmark's clients, briefly: they pace themselves, hear the answers, and say who failed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve

from benchmarks import vosk_server
from benchmarks.load import Driver, climb, read_options
from benchmarks.load_clients import Load, Outcome, run_clients
from benchmarks.load_target import Target
from benchmarks.soak import MATERIAL, soak, trend
from tests.server.conftest import RunningServer, noise, pcm
from tests.server.talk import connected

pytestmark = pytest.mark.anyio


async def test_native_clients(server: RunningServer) -> None:
    load = Load(server.stream_url, "native", streams=3, seconds=1.5, chunk=0.1, warm_up=0, audio=pcm(noise(2, seed=1)))
    outcome = await asyncio.to_thread(run_clients, load, None)
    assert outcome.failures == []
    assert outcome.characters > 0
    assert outcome.lags
    assert min(outcome.lags) > 0


async def test_vosk_clients() -> None:
    async def reply(socket: ServerConnection) -> None:
        async for message in socket:
            if isinstance(message, bytes):
                await socket.send(json.dumps({"partial": "a"}))
            elif "eof" in message:
                await socket.send(json.dumps({"text": "a b"}))
                return

    async with serve(reply, "127.0.0.1", 0) as peer:
        port = next(iter(peer.sockets)).getsockname()[1]
        load = Load(f"ws://127.0.0.1:{port}", "vosk", streams=2, seconds=0.5, chunk=0.1, warm_up=0, audio=bytes(32_000))
        outcome = await asyncio.to_thread(run_clients, load, None)
    assert outcome.failures == []
    assert outcome.characters == 2 * len("a b")
    assert len(outcome.lags) >= 2


async def test_a_server_that_is_not_there() -> None:
    load = Load("ws://127.0.0.1:9", "native", streams=2, seconds=0.5, chunk=0.1, warm_up=0, audio=bytes(32_000))
    outcome = await asyncio.to_thread(run_clients, load, None)
    assert len(outcome.failures) == 2


async def test_a_climb_finds_the_most_streams_that_do_not_wait_too_long(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With clients that only say how long they would have waited, if the server could bear 37 of them."""
    driver = Driver(read_options([]))
    tried: list[int] = []

    def run(load: Load) -> Outcome:
        tried.append(load.streams)
        return Outcome(lags=[0.05 if load.streams <= 37 else 0.5])

    monkeypatch.setattr(driver, "run", run)
    found = climb(driver, Target(server.stream_url, "native", os.getpid()))
    assert 35 <= found["streams"] <= 37
    assert len(tried) == len(set(tried)) < 12
    monkeypatch.setattr(driver, "run", lambda load: Outcome(lags=[0.5]))
    assert climb(driver, Target(server.stream_url, "native", os.getpid()))["streams"] == 0


async def test_a_soak_in_small(server: RunningServer, tmp_path: Path) -> None:
    load = Load(server.stream_url, "native", streams=2, seconds=6, chunk=0.1, warm_up=0, audio=pcm(noise(4, seed=1)))
    target = Target(server.stream_url, "native", os.getpid())
    found = await asyncio.to_thread(soak, load, target, lambda load: run_clients(load, None), tmp_path / "soak.png")
    assert found["failures"] == 0
    assert len(found["tenths"]) == 10
    spoken = [tenth for tenth in found["tenths"] if np.isfinite(tenth["p50"])]  # there are pauses
    assert len(spoken) > 3
    for tenth in spoken:
        assert tenth["memory"] > 10
        assert tenth["step"] > 0
        assert 0 < tenth["p50"] <= tenth["p95"] <= tenth["p99"]
    assert (tmp_path / "soak.png").stat().st_size > 1000


@given(st.integers(0, 1000), st.floats(0.5, 2))
def test_growth_is_told_from_noise(seed: int, size: float) -> None:
    noise = np.random.default_rng(seed).standard_normal(10)
    quiet = 100 + 0.1 * noise * MATERIAL
    assert trend(quiet).is_flat
    assert not trend(quiet + size * np.arange(10)).is_flat
    assert trend(quiet - size * np.arange(10)).is_flat
    assert trend(100 + 30 * (-1.0) ** np.arange(10)).is_flat
    leak = trend(100 + size * np.arange(10))
    assert leak.growth == pytest.approx(8 * size)  # of the nine tenths that count
    assert leak.error == pytest.approx(0, abs=1e-6)


class Parrot:
    """What vosk's package offers of itself, with a recogniser that repeats how much it heard."""

    def __init__(self, model: object, rate: float) -> None:
        self._heard, self._rate = 0, rate

    def SetWords(self, wanted: bool) -> None: ...

    def AcceptWaveform(self, data: bytes) -> bool:
        self._heard += len(data)
        return False

    def PartialResult(self) -> str:
        return json.dumps({"partial": str(self._heard)})

    def FinalResult(self) -> str:
        return json.dumps({"text": f"{self._heard} at {self._rate:.0f}"})


async def test_the_vosk_server_of_the_benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    package = SimpleNamespace(KaldiRecognizer=Parrot, Model=lambda folder: None, SetLogLevel=lambda level: None)
    monkeypatch.setitem(sys.modules, "vosk", package)
    serving = asyncio.create_task(vosk_server.run(Path("nowhere")))
    shown = ""
    while "ws://" not in shown:
        await asyncio.sleep(0.05)
        shown += capsys.readouterr().out
    async with connected(shown.split()[-1]) as socket:
        await socket.send('{"config": {"sample_rate": 8000}}')
        for size in (100, 60):
            await socket.send(bytes(size))
        await socket.send('{"eof" : 1}')
        heard = [json.loads(frame) async for frame in socket]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert heard == [{"partial": "100"}, {"partial": "160"}, {"text": "160 at 8000"}]
