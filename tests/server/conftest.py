"""A small random model that says plenty of gibberish, and a real uvicorn on a real port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from model import Recognizer
from model.files import ModelCard
from model.network import Network
from server.audio import Samples
from server.hall import Hall
from server.run import DrainingServer, bind, bind_others, build_server
from server.settings import Settings
from tests.conftest import babble


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def recognizer(network: Network) -> Recognizer:
    return Recognizer(network, ModelCard(name="gibberish"))


def noise(seconds: float, seed: int) -> Samples:
    """Something to be said something about, in exact 16-bit values."""
    return (np.round(np.clip(babble(seconds, seed), -1, 1) * 32767) / 32768).astype(np.float32)


def pcm(samples: Samples) -> bytes:
    return np.round(samples * 32768).astype("<i2").tobytes()


@dataclass
class RunningServer:
    server: DrainingServer
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    port: int

    @property
    def hall(self) -> Hall:
        hall: Hall = self.server.app.state.hall
        return hall

    @property
    def stream_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def run_server(settings: Settings, recognizer: Recognizer) -> Iterator[RunningServer]:
    """In a thread of this process, so that tests can look inside."""
    server = build_server(settings, recognizer)
    started = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        serving = asyncio.create_task(server.serve(sockets=[bind(settings), *bind_others(settings)]))
        while not server.started and not serving.done():  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.01)
        started.set()
        await serving

    def run() -> None:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:  # uvloop where there is one, as in production
            runner.run(main())

    thread = threading.Thread(target=run, name="uvicorn")
    thread.start()
    assert started.wait(60)
    assert server.started
    running = RunningServer(server, loops[0], thread, server.servers[0].sockets[0].getsockname()[1])
    try:
        yield running
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


ServerFactory = Callable[..., RunningServer]


@pytest.fixture
def start_server(recognizer: Recognizer) -> Iterator[ServerFactory]:
    """Starts servers with the settings that a test needs."""
    contexts = []

    def start(**settings: object) -> RunningServer:
        context = run_server(Settings(**{"port": 0, **settings}), recognizer)  # type: ignore[arg-type]
        contexts.append(context)
        return context.__enter__()

    yield start
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def server(recognizer: Recognizer) -> Iterator[RunningServer]:
    with run_server(Settings(port=0), recognizer) as running:
        yield running
