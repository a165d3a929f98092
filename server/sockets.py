"""uvicorn's protocols, bounded where it sets no bounds: requests that never come, clients that never read, floods of trifles."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from server.settings import Settings

LARGEST_HEAD = 1 << 18  # bytes, with what came along with it in one piece
MOST_PIPELINED = 16  # requests of one connection that wait for the answer to an earlier one
MOST_FRAGMENTS = 1024  # of one message: each costs memory, even an empty one


class Patience:
    """Drops a connection at the end of a time that was set, unless it is set anew or called off before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, transport: asyncio.Transport) -> None:
        self.call_off()
        self._timer = self._loop.call_later(seconds, transport.abort)  # a close would wait for those who do not read

    def call_off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BoundedHttp(HttpToolsProtocol):
    """A request's head must come in time: the first one after the connection, others after the answer to the one before.

    uvicorn waits for ever once a byte has come, or as long as none has. A body is the application's concern: server/upload.py.
    """

    def __init__(self, *arguments: Any, settings: Settings, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settings = settings
        self._for_request, self._for_reading = Patience(self.loop), Patience(self.loop)
        self._running: RequestResponseCycle | None = None
        self._head_bytes = 0  # that came since the last whole head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._for_request.set(self._settings.request_seconds, transport)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("A request's head is too large.")

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many requests at once")  # the parser gives up, and the client gets a 400
        self._for_request.call_off()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._for_request.set(self._settings.request_seconds, self.transport)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # otherwise the next request is here already
            self._for_request.set(self._settings.request_seconds, self.transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._for_reading.set(self._settings.send_seconds, self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._for_reading.call_off()

    def connection_lost(self, exc: Exception | None) -> None:
        self._for_request.call_off()
        self._for_reading.call_off()
        if self._running is not None:  # uvicorn tells only the request that came last, which may still wait for its turn
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Tells the application how to drop a connection at once; is not to be flooded with what the application never sees."""

    def __init__(self, *arguments: Any, settings: Settings, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._for_goodbye = Patience(self.loop)
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["monoscribe.abort"] = self.transport.abort
            try:
                await inner(scope, receive, send)
            finally:
                if self.initial_response is not None:
                    self.handshake_complete = True  # it was turned down in good order: uvicorn would log an error
                if not self.disconnected:
                    self._for_goodbye.set(settings.send_seconds, self.transport)

        self.app = app

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:  # the request was turned down before uvicorn looks, which would never tell
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < MOST_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message of over {MOST_FRAGMENTS} frames")
            self.handle_parser_exception()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # who does not read gets no pongs: they would pile up

    def connection_lost(self, exc: Exception | None) -> None:
        self._for_goodbye.call_off()
        super().connection_lost(exc)
