"""Sessions of other processes: a client that resumes at the wrong one is passed on to the one that keeps its session.

Every process listens on a socket file of its own besides the common port, and a session's name begins with its process's number.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import websockets
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, unix_connect

from server.codec import to_json
from server.messages import Error, Resume

logger = logging.getLogger(__name__)

SEPARATOR = "."
BACKLOG = 128
LONGEST_SEND = 30.0  # seconds: a client that does not read holds nobody else up
POLICY, OUR_FAULT, ORDERLY, BROKEN = 1008, 1011, 1000, 1006


class Relay:
    def __init__(self, index: int, folder: str, *, with_tls: bool = False) -> None:
        self._index = index
        self._with_tls = with_tls
        self._folder = Path(folder)

    def listen(self) -> socket.socket:
        path = self._path(self._index)
        path.unlink(missing_ok=True)  # of a process that died
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(BACKLOG)
        return listener

    @property
    def is_first(self) -> bool:
        return self._index == 0

    @property
    def prefix(self) -> str:
        return f"{self._index}{SEPARATOR}"

    def owner(self, session: str) -> Path | None:
        """Where to pass a resume on to, if that session is another process's."""
        index, separator, _ = session.partition(SEPARATOR)
        if not separator or not index.isdecimal() or len(index) > 3 or int(index) == self._index:
            return None
        path = self._path(int(index))
        return path if path.exists() else None

    async def pass_on(self, websocket: WebSocket, path: Path, resume: Resume) -> None:
        """Both ways, until either side ends."""
        query = urlencode({"session": resume.session, "seq": resume.seq})
        headers = {name: value for name, value in websocket.headers.items() if name in ("authorization", "x-api-key")}
        if "api_key" in websocket.query_params:
            headers["x-api-key"] = websocket.query_params["api_key"]
        scheme, tls = ("wss", _trusting()) if self._with_tls else ("ws", None)
        address = f"{scheme}://localhost/v1/stream?{query}"
        options: dict[str, Any] = {"ping_interval": None, "max_size": None, "compression": None, "ssl": tls}
        with suppress(RuntimeError, WebSocketDisconnect):  # the client may go at any time
            try:
                async with unix_connect(str(path), address, additional_headers=headers, **options) as inner:
                    await _both_ways(websocket, inner)
                code = inner.close_code or OUR_FAULT
            except websockets.InvalidStatus:
                await websocket.send_text(to_json(unknown_session(resume)))
                code = POLICY
            except OSError:
                logger.exception("a session could not be passed on")
                code = OUR_FAULT
            await websocket.close(code)

    def _path(self, index: int) -> Path:
        return self._folder / f"{index}.socket"


async def _both_ways(outer: WebSocket, inner: ClientConnection) -> None:
    tasks = [asyncio.create_task(_inwards(outer, inner)), asyncio.create_task(_outwards(inner, outer))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done() and tasks[0].exception() is None and tasks[0].result() != ORDERLY:
            inner.transport.abort()  # broken off there: broken off here, and the session waits
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _inwards(outer: WebSocket, inner: ClientConnection) -> int:
    while True:
        event = await outer.receive()
        if event["type"] == "websocket.disconnect":
            return int(event.get("code") or BROKEN)
        await inner.send(event["bytes"] if event.get("bytes") is not None else event["text"])


async def _outwards(inner: ClientConnection, outer: WebSocket) -> None:
    with suppress(websockets.ConnectionClosed):
        async for frame in inner:
            async with asyncio.timeout(LONGEST_SEND):
                await (outer.send_text(frame) if isinstance(frame, str) else outer.send_bytes(frame))


def _trusting() -> ssl.SSLContext:
    """Nobody else can be at the other end of our own socket file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def unknown_session(resume: Resume) -> Error:
    message = f"session={resume.session}: nothing to resume; it is over, or broke off too long ago"
    return Error("unknown_session", message, "session", resume.session, fatal=True)
