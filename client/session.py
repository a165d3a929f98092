"""A live session with a server: audio in, events out, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket

from client.address import explain_refusal, is_loopback, stream_address
from client.audio import Audio, to_bytes
from client.conversation import KEEPALIVE, Conversation, Options
from client.events import ClientError, ConnectionFailedError, Event, Flushed, Interrupted, ServerError

OPEN_SECONDS = 10.0  # for a connection to come about
SILENCE_SECONDS = 30.0  # a server that says nothing for so long is gone: it sends a status every second
KEEPALIVE_SECONDS = 10.0
FIRST_WAIT, LONGEST_WAIT = 0.1, 3.0  # seconds between two attempts
MOST_UNREAD = 100_000  # events; a day of speech


class Session:
    """Made by `connect`. One task may send while another iterates; both see the error if the session fails."""

    def __init__(self, url: str, key: str, options: Options, *, buffer_seconds: float, reconnect_seconds: float) -> None:
        self._address = stream_address(url)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._conversation = Conversation(options, buffer_seconds)
        self._reconnect_seconds = reconnect_seconds
        self._events: deque[Event] = deque()
        self._changed = asyncio.Condition()
        self._to_send = asyncio.Event()
        self._opened = asyncio.Event()
        self._error: ClientError | None = None
        self._heard_at = 0.0
        self._flushes = 0
        self._flushed: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def options(self) -> Options:
        return self._conversation.options

    @property
    def model(self) -> str:
        """The name of the model that listens."""
        return self._conversation.model

    def untold(self) -> bytes:
        """The audio, as it was sent, of which no segment has come: for whoever wants to keep it when the session failed."""
        return self._conversation.unsettled()

    async def send(self, audio: Audio) -> None:
        """Samples as an array (float -1..1 or int16), or bytes in the session's encoding.

        Waits while the buffer is full: the server is slower, or away.
        """
        data = to_bytes(audio, self.options)
        async with self._changed:
            self._check()
            if len(self._events) > MOST_UNREAD:
                raise ClientError(f"{len(self._events)} events are unread; iterate over the session while you send.")
            await self._changed.wait_for(lambda: self._conversation.has_room or self._error is not None)
            self._check()
        self._conversation.append(data)
        self._to_send.set()

    async def flush(self) -> None:
        """Has everything sent so far finalised, as if the audio ended here; returns when it has been said."""
        self._check()
        self._flushes += 1
        name = f"flush-{self._flushes}"
        self._conversation.flush(name)
        self._to_send.set()
        async with self._changed:
            await self._changed.wait_for(lambda: name in self._flushed or self._error is not None)
            if name not in self._flushed:
                self._check()
            self._flushed.discard(name)

    async def stop(self) -> None:
        """No more audio will come. What is still to be said comes as events, the last of them `Closed`."""
        self._conversation.stop()
        self._to_send.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        async with self._changed:
            await self._changed.wait_for(lambda: self._events or self._error is not None or self._conversation.is_over)
        if self._events:
            return self._events.popleft()
        self._check()
        raise StopAsyncIteration

    # ------------------------------------------------------------ behind it
    async def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name="monoscribe session")
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait({self._task, opened}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        self._check()

    async def fail(self, error: ClientError) -> None:
        """Ends the session with an error of the user's side."""
        self._error = self._error or error
        await self.close()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        """Watches over the connections; whatever ends it wakes everyone who waits."""
        try:
            await self._converse()
        except ClientError as error:
            self._error = error
        except asyncio.CancelledError:
            self._error = self._error or ClientError("The session was closed.")
            raise
        except Exception as error:  # a bug, here or in the server: those who wait must hear of it
            self._error = ClientError(f"The session failed: {error!r}.")
            self._error.__cause__ = error
        finally:
            await asyncio.shield(self._notify())

    async def _converse(self) -> None:
        broken_at: float | None = None
        wait = FIRST_WAIT
        while not self._conversation.is_over:
            self._opened.clear()
            try:
                await self._connect_once()
                reason = "the server ended the connection"
            except (OSError, TimeoutError, websockets.WebSocketException) as error:
                reason = explain_refusal(error, self._address)
                if not self._conversation.is_open:
                    raise ConnectionFailedError(reason) from error
            if self._conversation.is_over:
                return
            if self._opened.is_set() or broken_at is None:  # it worked for a while: a new break
                broken_at, wait = time.monotonic(), FIRST_WAIT
                await self._tell([Interrupted(reason)])
            if time.monotonic() - broken_at > self._reconnect_seconds:
                raise ConnectionFailedError(f"No connection for {self._reconnect_seconds:.0f} s: {reason}")
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _connect_once(self) -> None:
        """From the handshake to the end of one connection."""
        address = f"{self._address}?{urlencode(self._conversation.opening())}"
        extra: dict[str, Any] = {"proxy": None} if is_loopback(self._address) else {}
        try:
            socket = await connect_socket(
                address,
                additional_headers=self._headers,
                open_timeout=OPEN_SECONDS,
                close_timeout=1,
                ping_interval=None,  # a pong would wait behind the audio of a server that slows us down; see _watch
                compression=None,
                max_size=None,
                **extra,
            )
        except websockets.InvalidStatus as refusal:
            self._refused(refusal)
            raise
        async with socket:
            self._heard_at = time.monotonic()
            tasks = [asyncio.create_task(job(socket)) for job in (self._read, self._write, self._watch)]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)  # the reader ends with one, after the last message
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, websockets.ConnectionClosed):
                raise result

    def _refused(self, refusal: websockets.InvalidStatus) -> None:
        """The server let nobody in, and said why in its answer."""
        try:
            error = json.loads(refusal.response.body or b"")["error"]
            code, message = str(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            return
        if code != "at_capacity" or not self._conversation.is_open:  # whoever comes back waits for room
            self._conversation.refused(code, message)

    async def _read(self, socket: ClientConnection) -> None:
        while True:
            frame = await socket.recv()
            self._heard_at = time.monotonic()
            try:
                events = self._conversation.hear(str(frame))
            except ServerError as error:
                if error.code != "at_capacity" or not self._conversation.is_open:
                    raise
                events = []
            if not self._opened.is_set() and self._conversation.next_is_known:
                self._opened.set()
                self._to_send.set()
            await self._tell(events)

    async def _write(self, socket: ClientConnection) -> None:
        with suppress(websockets.ConnectionClosed):  # the reader may still have something to read
            while True:
                self._to_send.clear()
                while (frame := self._conversation.next_frame()) is not None:
                    await socket.send(frame)
                await self._to_send.wait()

    async def _watch(self, socket: ClientConnection) -> None:
        """Ends a connection on which nothing comes any more, as when a cable was pulled."""
        with suppress(websockets.ConnectionClosed):
            while time.monotonic() - self._heard_at < SILENCE_SECONDS:
                await asyncio.sleep(KEEPALIVE_SECONDS)
                async with asyncio.timeout(SILENCE_SECONDS):
                    await socket.send(KEEPALIVE)
            socket.transport.abort()

    async def _tell(self, events: list[Event]) -> None:
        self._flushed |= {event.id for event in events if isinstance(event, Flushed)}
        self._events.extend(events)
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def connect(
    url: str = "ws://127.0.0.1:8000",
    *,
    api_key: str = "",
    buffer_seconds: float = 600.0,
    reconnect_seconds: float = 60.0,
    **options: Any,
) -> AsyncIterator[Session]:
    """A session with the server at `url` (host and port are enough).

    `options` are the fields of `Options`: sample_rate, encoding, channels, interim, words, endpointing, beam.
    Audio that may have to be sent again is kept, at most `buffer_seconds` of it; a server that is away for longer than
    `reconnect_seconds` ends the session with a ConnectionFailedError.
    """
    session = Session(url, api_key, make_options(options), buffer_seconds=buffer_seconds, reconnect_seconds=reconnect_seconds)
    try:
        await session.open()
        yield session
    finally:
        await session.close()


def make_options(options: dict[str, Any]) -> Options:
    known = Options.__dataclass_fields__
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise TypeError(f"{unknown}={options[unknown]!r}: no such option; expected one of {', '.join(known)}")
    return Options(**options)
