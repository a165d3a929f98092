"""Between a WebSocket and a session: frames in, frames out. A dialect translates: every protocol that we speak is served here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from server.codec import parse_control, parse_query, to_json
from server.hall import RETRY_AFTER, FullError, Hall
from server.live import Attachment, Live
from server.messages import Audio, ClientMessage, Error, Flush, ProtocolError, Resume, ServerMessage
from server.orders import End, Invalid

TRY_AGAIN_LATER = 1013
POLICY = 1008
OUR_FAULT = 1011
ORDERLY = 1000
BROKEN = 1006

Frame = str | bytes
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reply:
    """A frame that a dialect sends by itself, without asking the session."""

    frame: Frame


class Dialect(Protocol):
    """One per connection; may keep state. Raises ProtocolError at what it cannot take."""

    can_resume: bool  # whether a session may go on over another connection

    def opening(self, query: Mapping[str, str]) -> ClientMessage | Reply | None:
        """The first message, if the address carries it; or a greeting, where the server is to speak first."""

    def incoming(self, frame: Frame) -> Iterable[ClientMessage | Reply]: ...

    def outgoing(self, message: ServerMessage) -> Iterable[Frame]: ...


class Native:
    """The protocol of docs/protocol.md."""

    can_resume = True

    def opening(self, query: Mapping[str, str]) -> ClientMessage | None:
        return parse_query(query)

    def incoming(self, frame: Frame) -> Iterable[ClientMessage | Reply]:
        return [Audio(frame) if isinstance(frame, bytes) else parse_control(frame)]

    def outgoing(self, message: ServerMessage) -> Iterable[Frame]:
        return [to_json(message)]


class ElsewhereError(Exception):
    """The client wants to go on with a session that another process keeps."""

    def __init__(self, resume: Resume) -> None:
        super().__init__(resume.session)
        self.resume = resume


class Connection:
    """Carries one session at a time; a resume as the first message swaps the fresh one for the old."""

    def __init__(self, websocket: WebSocket, hall: Hall, dialect: Dialect, live: Live, attachment: Attachment) -> None:
        self._websocket = websocket
        self._hall = hall
        self._dialect = dialect
        self._live = live
        self._attachment = attachment

    async def run(self, first: ClientMessage | Reply | Invalid | None) -> None:
        if first is not None and not isinstance(first, Reply):
            self._live.feed(first)
        greeting = first if isinstance(first, Reply) else None
        reader = asyncio.create_task(self._read(greeting), name="reader")
        writer = asyncio.create_task(self._write(), name="writer")
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and not writer.cancelled() and writer.exception() is None:
                await self._close(writer.result())
        finally:
            for task in (reader, writer):
                task.cancel()
            results = await asyncio.gather(reader, writer, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect | TimeoutError | ElsewhereError):
                    logger.error("a connection failed", exc_info=result, extra={"session": self._live.name})
            if results[0] == ORDERLY:  # it said goodbye without a stop: its audio is worth the same
                self._feed(End("stopped"))
            self._hall.leave(self._live, self._attachment)
            if results[0] != ORDERLY and not self._dialect.can_resume:
                self._hall.discard(self._live)
        if isinstance(results[0], ElsewhereError):
            await pass_on(self._websocket, self._hall, results[0].resume)

    async def _read(self, greeting: Reply | None) -> int:
        """Returns the code with which the client closed."""
        if greeting is not None:  # comes before anything else, however quick the client is
            await self._send(greeting.frame)
        while True:
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return int(event.get("code") or BROKEN)
            frame: Frame = event["bytes"] if event.get("bytes") is not None else event["text"]
            try:
                for item in self._dialect.incoming(frame):
                    await self._pass_on(item)
            except ProtocolError as problem:
                self._feed(Invalid(problem.error))

    def _feed(self, message: ClientMessage | Invalid | End) -> None:
        """Unless another connection has taken the session: it went on from the byte before this, and will bring it again."""
        if self._live.attachment is self._attachment:
            self._live.feed(message)

    async def _pass_on(self, item: ClientMessage | Reply) -> None:
        if isinstance(item, Reply):
            await self._send(item.frame)
            return
        if isinstance(item, Audio | Flush):
            await self._live.line.room()  # meanwhile nothing is read, and the client's socket fills up
        if isinstance(item, Resume) and self._live.session.phase == "new":
            if self._hall.relay is not None and self._hall.relay.owner(item.session) is not None:
                raise ElsewhereError(item)
            live, attachment = self._hall.resume(item)
            fresh, fresh_attachment = self._live, self._attachment
            self._live, self._attachment = live, attachment
            fresh_attachment.end(ORDERLY)
            self._hall.leave(fresh, fresh_attachment)
            return
        self._feed(item)

    async def _write(self) -> int:
        """Returns the code to close with."""
        while True:
            attachment = self._attachment
            messages = await attachment.take()
            for message in messages:
                for frame in self._dialect.outgoing(message):
                    await self._send(frame)
            if not messages and attachment is self._attachment:
                return attachment.close_code or ORDERLY

    async def _send(self, frame: Frame) -> None:
        if self._websocket.application_state is WebSocketState.DISCONNECTED:  # reader and writer both send: the other one noticed
            raise WebSocketDisconnect(BROKEN)
        try:
            async with asyncio.timeout(self._hall.settings.send_seconds):
                await (self._websocket.send_text(frame) if isinstance(frame, str) else self._websocket.send_bytes(frame))
        except TimeoutError:
            logger.warning("a client does not read: dropped", extra={"session": self._live.name})
            abort(self._websocket)
            raise

    async def _close(self, code: int) -> None:
        try:
            async with asyncio.timeout(self._hall.settings.send_seconds):
                await self._websocket.close(code)
        except TimeoutError:
            abort(self._websocket)
        except (WebSocketDisconnect, RuntimeError):  # it went first
            logger.debug("the client closed first", extra={"session": self._live.name})


async def serve_websocket(websocket: WebSocket, hall: Hall, dialect: Dialect, query: Mapping[str, str]) -> None:
    """From the handshake, which access control has let through, to the end."""
    first: ClientMessage | Reply | Invalid | None
    try:
        first = dialect.opening(query)
    except ProtocolError as problem:
        first = Invalid(problem.error)
    if isinstance(first, Resume) and hall.relay is not None and hall.relay.owner(first.session) is not None:
        await websocket.accept()
        await pass_on(websocket, hall, first)
        return
    try:
        if isinstance(first, Resume):
            live, attachment = hall.resume(first)
            first = None
        else:
            live = hall.open()
            attachment = live.attach()
    except FullError as full:
        await refuse(websocket, dialect, full.error, status=503, code=TRY_AGAIN_LATER)
        return
    except ProtocolError as problem:
        await refuse(websocket, dialect, problem.error, status=404, code=POLICY)
        return
    try:
        await websocket.accept()
    except BaseException:
        hall.leave(live, attachment)
        raise
    await Connection(websocket, hall, dialect, live, attachment).run(first)


async def pass_on(websocket: WebSocket, hall: Hall, resume: Resume) -> None:
    assert hall.relay is not None
    owner = hall.relay.owner(resume.session)
    if owner is None:  # it went in this very moment
        await websocket.close(POLICY)
        return
    hall.relayed += 1
    try:
        await hall.relay.pass_on(websocket, owner, resume)
    finally:
        hall.relayed -= 1


async def refuse(websocket: WebSocket, dialect: Dialect, error: Error, *, status: int, code: int) -> None:
    """With an HTTP status for those who can see it. A page cannot: it is let in, told, and sent away."""
    websocket.app.state.metrics.failed(error)
    if "origin" not in websocket.headers:
        headers = {"Retry-After": str(RETRY_AFTER)} if status == 503 else {}
        body = {"error": {"code": error.code, "message": error.message}}
        await websocket.send_denial_response(JSONResponse(body, status, headers))
        return
    await websocket.accept()
    for frame in dialect.outgoing(error):
        await (websocket.send_text(frame) if isinstance(frame, str) else websocket.send_bytes(frame))
    await websocket.close(code)


def abort(websocket: WebSocket) -> None:
    """Drops the connection without waiting for a client that does not read; an orderly close would wait for it."""
    drop = websocket.scope.get("monoscribe.abort")
    if drop is not None:
        drop()
