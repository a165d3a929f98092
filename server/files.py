"""Whole files: through the same decoder, session and engine as a live stream, as fast as there is room."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import islice
from typing import IO, Any

from starlette.requests import ClientDisconnect, Request

from server.audio import RAW, Samples
from server.containers import OUTPUT_RATE, UndecodableError, decode_file
from server.hall import Hall
from server.live import Attachment, Live
from server.messages import Audio, Closed, Error, ProtocolError, SegmentEnd, ServerMessage, Start, Stop

READ_BYTES = 64 << 10
ANY_AUDIO = "a recording, such as wav, flac, ogg, mp3, m4a or webm"
FRAMES_AT_ONCE = 64  # decoded in one go in a thread: a second or two of audio


async def transcribe_file(hall: Hall, file: IO[bytes], start: Start) -> AsyncGenerator[ServerMessage, None]:
    """All messages of the session, to `closed`. Raises FullError before anything else, ProtocolError where the file is at fault."""
    live = hall.open()
    attachment = live.attach()
    deadline = time.monotonic() + hall.settings.upload_seconds
    feeding = asyncio.create_task(_feed(live, file, start), name="file")
    try:
        while messages := await _take(attachment, feeding, deadline):
            for message in messages:
                if isinstance(message, Error):
                    raise ProtocolError(message)
                yield message
    finally:
        hall.discard(live)  # before anything is awaited: when the client has gone, every await here is cancelled
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def collect(request: Request, messages: AsyncGenerator[ServerMessage, None]) -> tuple[list[SegmentEnd], float]:
    """The segments of a file and its seconds, when all has been said; raises ClientDisconnect once nobody waits for them."""
    segments: list[SegmentEnd] = []
    duration = 0.0
    async with aclosing(messages):
        async for message in messages:
            if isinstance(message, SegmentEnd):
                segments.append(message)
            elif isinstance(message, Closed):
                duration = message.received
            if await request.is_disconnected():  # nobody waits for the rest
                raise ClientDisconnect
    return segments, duration


async def _take(attachment: Attachment, feeding: asyncio.Task[None], deadline: float) -> list[ServerMessage]:
    """What comes next, nothing at the end; or raises what stopped the feeding, or that time is up."""
    if feeding.done():
        feeding.result()
    taking = asyncio.create_task(attachment.take(), name="take")
    waiting: set[asyncio.Task[Any]] = {taking} if feeding.done() else {taking, feeding}
    try:
        while not taking.done():
            done, waiting = await asyncio.wait(waiting, timeout=deadline - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise ProtocolError(Error("too_slow", "not done in time; expected a shorter file", accepted="a shorter file"))
            if feeding.done():
                feeding.result()
        return taking.result()
    finally:
        taking.cancel()


async def _feed(live: Live, file: IO[bytes], start: Start) -> None:
    if start.encoding in RAW:
        live.feed(start)
        while data := await asyncio.to_thread(file.read, READ_BYTES):
            await _hear(live, data)
    else:
        live.feed(dataclasses.replace(start, encoding="pcm_f32le", sample_rate=OUTPUT_RATE, channels=1))
        decoded = decode_file(file, start.encoding)
        while data := await asyncio.to_thread(_next_samples, decoded, start):
            await _hear(live, data)
    live.feed(Stop())


async def _hear(live: Live, data: bytes) -> None:
    await live.line.room()
    live.feed(Audio(data))


def _next_samples(decoded: Iterator[Samples], start: Start) -> bytes:
    try:
        return b"".join(samples.astype("<f4").tobytes() for samples in islice(decoded, FRAMES_AT_ONCE))
    except UndecodableError as problem:
        accepted = ANY_AUDIO if start.encoding == "auto" else f"audio that is {start.encoding}"
        message = f"file: {problem}; expected {accepted}"
        raise ProtocolError(Error("bad_audio", message, "file", None, accepted, fatal=True)) from problem
