"""Wyoming, which Home Assistant speaks: events over plain TCP, at a port of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error as ErrorEvent
from wyoming.event import Event, Eventable, async_read_event, async_write_event
from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info
from wyoming.ping import Ping, Pong

from server.adapters.parameters import check_language, read_number, refused
from server.hall import FullError, Hall
from server.live import Attachment, Live
from server.messages import Audio, Closed, Error, ProtocolError, SegmentEnd, Start, Stop, Text

logger = logging.getLogger(__name__)

LANGUAGE = "en"
SAMPLE_BYTES = 2
LINGER = 2.0  # seconds
READ_BYTES = 64 << 10
BROKEN = (AttributeError, KeyError, TypeError, RecursionError)  # what the package raises at an event that is none
GONE = (ConnectionError, EOFError, TimeoutError)


@asynccontextmanager
async def serve_wyoming(hall: Hall) -> AsyncIterator[None]:
    """If a port is set for it."""
    settings = hall.settings
    if not settings.wyoming_port:
        yield
        return
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(tasks) >= 2 * settings.max_sessions:
            writer.close()
            return
        task = asyncio.create_task(Connection(hall, reader, writer).run(), name="wyoming")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if settings.keys:
        logger.warning("wyoming knows no keys: anyone who can reach its port can use it", extra={"port": settings.wyoming_port})
    shared = True if settings.workers > 1 else None
    server = await asyncio.start_server(connected, settings.host, settings.wyoming_port, reuse_port=shared)
    try:
        yield
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class TooLargeError(Exception):
    """No ValueError: the package would take it for the end."""


class Bounded:
    """A reader for the package, which would read whatever length a client names."""

    def __init__(self, reader: asyncio.StreamReader, bound: int) -> None:
        self._reader = reader
        self._bound = bound
        self.has_ended = False  # the package makes no difference between the end and a line that is no JSON

    async def readline(self) -> bytes:
        line = await self._reader.readline()
        self.has_ended = not line
        return line

    async def readexactly(self, size: int) -> bytes:
        if size > self._bound:
            raise TooLargeError(size)
        return await self._reader.readexactly(size)


class Connection:
    """One recording after another, until the client goes."""

    def __init__(self, hall: Hall, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hall = hall
        self._reader = Bounded(reader, hall.settings.max_message_bytes)
        self._stream = reader
        self._writer = writer

    async def run(self) -> None:
        try:
            await self._serve()
        except ProtocolError as problem:
            await self._complain(problem.error)
        except FullError as full:
            await self._complain(full.error)
        except GONE:
            logger.debug("a wyoming client has gone")
        except Exception:
            logger.exception("a wyoming connection failed")
        finally:
            self._writer.close()

    async def _serve(self) -> None:
        while (event := await self._next()) is not None:
            if AudioStart.is_type(event.type):
                if not await self._transcribe(read_start(event)):
                    return
            elif AudioChunk.is_type(event.type) or AudioStop.is_type(event.type):
                raise refused("type", event.type, "audio-start before")
            else:
                await self._answer(event)

    async def _answer(self, event: Event) -> None:
        """What has nothing to do with audio, and may come at any time."""
        if Describe.is_type(event.type):
            await self._send(describe(self._hall.model))
        elif Ping.is_type(event.type):
            await self._send(Pong(Ping.from_event(event).text))
        elif Transcribe.is_type(event.type):
            check_language("language", event.data.get("language"))

    async def _transcribe(self, start: Start) -> bool:
        """Returns whether the recording came to its end; if the server ended it, what the client still sends means nothing."""
        live = self._hall.open()
        attachment = live.attach()
        live.feed(start)
        listening = asyncio.create_task(self._listen(live, start), name="wyoming listening")
        telling = asyncio.create_task(self._tell(attachment), name="wyoming telling")
        try:
            await asyncio.wait({listening, telling}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
            await telling
            return listening.done()
        finally:
            self._hall.discard(live)
            listening.cancel()
            telling.cancel()
            await asyncio.gather(listening, telling, return_exceptions=True)

    async def _listen(self, live: Live, start: Start) -> None:
        while (event := await self._next()) is not None:
            if AudioChunk.is_type(event.type):
                check_chunk(event, start)
                await live.line.room()
                live.feed(Audio(event.payload or b""))
            elif AudioStop.is_type(event.type):
                live.feed(Stop())
                return
            else:
                await self._answer(event)
        raise EOFError

    async def _tell(self, attachment: Attachment) -> None:
        """The text as it comes, and at the end once more in one piece, for clients that wait for that."""
        segments: list[str] = []
        gap = ""
        await self._send(TranscriptStart(language=LANGUAGE))
        while messages := await attachment.take():
            for message in messages:
                match message:
                    case Text(text):
                        await self._send(TranscriptChunk(gap + text))
                        gap = ""
                    case SegmentEnd(text):
                        segments.append(text)
                        gap = " "
                    case Error():
                        raise ProtocolError(message)
                    case Closed():
                        await self._send(Transcript(" ".join(segments), language=LANGUAGE))
                        await self._send(TranscriptStop())

    async def _next(self) -> Event | None:
        try:
            async with asyncio.timeout(self._hall.settings.idle_seconds):
                event = await async_read_event(cast(asyncio.StreamReader, self._reader))
        except TooLargeError as problem:
            raise refused("length", problem.args[0], f"up to {self._hall.settings.max_message_bytes} bytes") from problem
        except BROKEN as problem:
            raise refused("event", str(problem), "an event of the Wyoming protocol") from problem
        if event is None and not self._reader.has_ended:
            raise refused("event", "(no JSON)", "an event of the Wyoming protocol")
        if event is not None and not (isinstance(event.type, str) and isinstance(event.data, dict)):
            raise refused("event", event.type, "an event of the Wyoming protocol")
        return event

    async def _send(self, event: Eventable) -> None:
        if self._writer.is_closing():  # uvloop would raise a RuntimeError
            raise ConnectionResetError
        async with asyncio.timeout(self._hall.settings.send_seconds):
            await async_write_event(event.event(), self._writer)

    async def _complain(self, error: Error) -> None:
        with suppress(*GONE):
            await self._send(ErrorEvent(error.message, error.code))
            self._writer.write_eof()
            async with asyncio.timeout(LINGER):  # to close on what it still sends would take the error away from it
                while await self._stream.read(READ_BYTES):
                    pass


def read_start(event: Event) -> Start:
    width = event.data.get("width")
    if width != SAMPLE_BYTES:
        raise refused("width", width, f"{SAMPLE_BYTES} bytes per sample")
    return Start(
        sample_rate=read_number("rate", event.data.get("rate"), 8_000, 48_000),
        channels=read_number("channels", event.data.get("channels"), 1, 8),
        status_interval=0,
    )


def check_chunk(event: Event, start: Start) -> None:
    """Every chunk says once more what it is: what contradicts the start would be heard as nonsense."""
    for name, begun in (("rate", start.sample_rate), ("width", SAMPLE_BYTES), ("channels", start.channels)):
        value = event.data.get(name, begun)
        if value != begun:
            raise refused(name, value, f"{begun}, as in audio-start")


def describe(name: str) -> Info:
    made_by = Attribution(name="Monoscribe", url="")
    model = AsrModel(name=name, attribution=made_by, installed=True, description=None, version=None, languages=[LANGUAGE])
    program = AsrProgram(
        name="monoscribe",
        attribution=made_by,
        installed=True,
        description="Online speech recognition",
        version=None,
        models=[model],
        supports_transcript_streaming=True,
    )
    return Info(asr=[program])
