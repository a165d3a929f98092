"""A real server to talk to, and a wire to it that can be cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from model import Recognizer
from server.settings import Settings
from tests.server.conftest import RunningServer, anyio_backend, recognizer, run_server, start_server

__all__ = ["anyio_backend", "recognizer", "start_server"]


@pytest.fixture(scope="session")
def server(recognizer: Recognizer) -> Iterator[RunningServer]:
    with run_server(Settings(port=0), recognizer) as running:
        yield running


class Wire:
    """Carries bytes to a server until it is cut, which may be after a number of bytes from the client."""

    def __init__(self, target: int) -> None:
        self.target: int | None = target  # None: nobody is there
        self.port = 0
        self.cuts: list[int] = []  # bytes after which the next connections break
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._accept, "127.0.0.1", 0), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Breaks what is open, as a network does: without a goodbye."""
        self._loop.call_soon_threadsafe(self._cut)

    def stop(self) -> None:
        async def end() -> None:
            self._server.close()
            self._cut()
            await asyncio.sleep(0.05)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._cut()  # who came in between, or had not sent all that it was to send
            await asyncio.sleep(0.05)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)  # here and not in the task: one that is cancelled before it began would leave it open
        self._tasks.append(self._loop.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.target is None:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers.add(far_writer)
        limit = self.cuts.pop(0) if self.cuts else None
        await asyncio.gather(self._carry(reader, far_writer, limit), self._carry(far_reader, writer, None))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
        carried = 0
        with suppress(OSError):
            while data := await reader.read(1000):
                if limit is not None and carried + len(data) > limit:
                    self._cut()
                    return
                carried += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Wire]:
    wire = Wire(server.port)
    wire.start()
    yield wire
    wire.stop()
