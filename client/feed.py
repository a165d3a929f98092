"""Sends a recording to a session while somebody else listens to what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from client.audio import Samples
from client.events import AudioError, ClientError
from client.session import Session


@asynccontextmanager
async def feeding(session: Session, chunks: Iterator[Samples], *, realtime: bool = False) -> AsyncIterator[None]:
    """Sends and stops, beside what happens inside. Audio that cannot be read fails the session: whoever iterates hears of it."""
    sender = asyncio.create_task(_feed(session, chunks, realtime), name="feeding")
    try:
        yield
        await sender
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)


async def _feed(session: Session, chunks: Iterator[Samples], realtime: bool) -> None:
    begun, sent = time.monotonic(), 0.0
    try:
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:  # reading may wait; the session must not
            for piece in _pieces(chunk, session.options.sample_rate) if realtime else [chunk]:
                sent += len(piece) / session.options.sample_rate
                if realtime:
                    await asyncio.sleep(begun + sent - time.monotonic())
                await session.send(piece)
        await session.stop()
    except ClientError as error:
        await session.fail(error)
    except Exception as error:
        await session.fail(AudioError(f"The audio cannot be read: {error!r}."))


def _pieces(chunk: Samples, rate: int) -> Iterator[Samples]:
    """As a microphone would deliver it."""
    step = rate // 10
    return (chunk[start : start + step] for start in range(0, len(chunk), step))
