"""Sends a recording to a session while somebody else listens to what it says."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress

from client.audio import Samples
from client.events import AudioError, ClientError
from client.session import Session

MOST_READ = 8  # chunks in advance


@asynccontextmanager
async def feeding(session: Session, chunks: Iterator[Samples]) -> AsyncIterator[None]:
    """Sends and stops, beside what happens inside. Audio that cannot be read fails the session: whoever iterates hears of it."""
    sender = asyncio.create_task(_feed(session, chunks), name="feeding")
    try:
        yield
        await sender
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)


async def _feed(session: Session, chunks: Iterator[Samples]) -> None:
    try:
        async for chunk in _read_aside(chunks):
            await session.send(chunk)
        await session.stop()
    except ClientError as error:
        await session.fail(error)
    except Exception as error:
        await session.fail(AudioError(f"The audio cannot be read: {error!r}."))


async def _read_aside(chunks: Iterator[Samples]) -> AsyncIterator[Samples]:
    """Reads in a thread: a pipe may keep it waiting, and the session must go on. A daemon: nobody waits for it at the end."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Samples | Exception | None] = asyncio.Queue(maxsize=MOST_READ)

    def put(item: Samples | Exception | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def read() -> None:
        with suppress(CancelledError, RuntimeError):  # the loop is gone, and with it whoever wanted the audio
            try:
                for chunk in chunks:
                    put(chunk)
                put(None)
            except Exception as error:
                put(error)

    threading.Thread(target=read, name="reading", daemon=True).start()
    while (item := await queue.get()) is not None:
        if isinstance(item, Exception):
            raise item
        yield item


def paced(chunks: Iterator[Samples], rate: int) -> Iterator[Samples]:
    """As a microphone would deliver it: small pieces, each when it has been spoken. Waits in the caller's thread."""
    begun, passed = time.monotonic(), 0
    for chunk in chunks:
        for start in range(0, len(chunk), rate // 10):
            piece = chunk[start : start + rate // 10]
            passed += len(piece)
            time.sleep(max(0.0, begun + passed / rate - time.monotonic()))
            yield piece
