"""The load benchmark's clients, briefly: they pace themselves, hear the answers, and say who failed."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.asyncio.server import ServerConnection, serve

from benchmarks.load_clients import Load, run_clients
from tests.server.conftest import RunningServer, noise, pcm

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
