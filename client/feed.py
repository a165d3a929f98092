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
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:  # reading may wait; the session must not
            await session.send(chunk)
        await session.stop()
    except ClientError as error:
        await session.fail(error)
    except Exception as error:
        await session.fail(AudioError(f"The audio cannot be read: {error!r}."))


def paced(chunks: Iterator[Samples], rate: int) -> Iterator[Samples]:
    """As a microphone would deliver it: small pieces, each when it has been spoken. Waits in the caller's thread."""
    begun, passed = time.monotonic(), 0
    for chunk in chunks:
        for start in range(0, len(chunk), rate // 10):
            piece = chunk[start : start + rate // 10]
            passed += len(piece)
            time.sleep(max(0.0, begun + passed / rate - time.monotonic()))
            yield piece
