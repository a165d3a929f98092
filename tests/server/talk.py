"""A client for the tests, over the real `websockets` package."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import websockets
from websockets.asyncio.client import ClientConnection, connect

from model import Transcript
from server.codec import parse_server, to_json
from server.messages import Closed, ControlMessage, Numbered, SegmentEnd, ServerMessage, Text


@dataclass
class Heard:
    """All that a session said."""

    messages: list[ServerMessage] = field(default_factory=list)
    code: int | None = None

    def of(self, kind: type[ServerMessage]) -> list[ServerMessage]:
        return [message for message in self.messages if isinstance(message, kind)]

    @property
    def numbers(self) -> list[int]:
        return [message.seq for message in self.messages if isinstance(message, Numbered) and message.seq is not None]

    @property
    def segments(self) -> list[SegmentEnd]:
        return [message for message in self.messages if isinstance(message, SegmentEnd)]

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    @property
    def characters(self) -> str:
        """The append-only text, with a space where a segment ended."""
        parts: list[str] = [""]
        for message in self.messages:
            if isinstance(message, Text):
                parts[-1] += message.text
            elif isinstance(message, SegmentEnd):
                parts.append("")
        return " ".join(part for part in parts if part)

    @property
    def closed(self) -> Closed:
        return next(message for message in self.messages if isinstance(message, Closed))


def assert_same(heard: Heard, transcript: Transcript) -> None:
    """The invariant: over the wire comes what the recogniser says of the whole recording."""
    assert transcript.text, "a test that compares nothing"
    assert heard.text == transcript.text
    assert heard.characters == transcript.text
    told = [
        (segment.text, segment.start, segment.end, [(w.text, w.start, w.end) for w in segment.words or ()])
        for segment in heard.segments
    ]
    assert told == [(s.text, s.start, s.end, [(w.text, w.start, w.end) for w in s.words]) for s in transcript.segments]


@asynccontextmanager
async def connected(url: str, **options: object) -> AsyncIterator[ClientConnection]:
    async with connect(url, proxy=None, ping_interval=None, **options) as socket:  # type: ignore[arg-type]
        yield socket


async def send(socket: ClientConnection, message: ControlMessage) -> None:
    await socket.send(to_json(message))


async def hear(socket: ClientConnection, heard: Heard | None = None) -> Heard:
    """Everything until the server closes."""
    heard = heard or Heard()
    try:
        async for frame in socket:
            heard.messages.append(parse_server(str(frame)))
    except websockets.ConnectionClosedError:
        pass
    heard.code = socket.close_code
    return heard


async def converse(url: str, items: Iterable[bytes | ControlMessage], **options: object) -> Heard:
    """Sends while it listens, as clients do."""
    async with connected(url, **options) as socket:
        listening = asyncio.create_task(hear(socket))
        try:
            for item in items:
                await (socket.send(item) if isinstance(item, bytes) else send(socket, item))
        except websockets.ConnectionClosed:
            pass
        return await asyncio.wait_for(listening, 120)


def chunks(data: bytes, seed: int, smallest: int = 1, largest: int = 20_000) -> list[bytes]:
    choose = random.Random(seed)
    pieces = []
    position = 0
    while position < len(data):
        size = choose.randint(smallest, largest)
        pieces.append(data[position : position + size])
        position += size
    return pieces
