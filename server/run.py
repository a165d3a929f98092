"""Starts a server and ends it well."""

from __future__ import annotations

import asyncio
import logging
import sys
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from model import ModelFileError, Recognizer
from server.app import create_app
from server.settings import Settings

logger = logging.getLogger(__name__)


class AbortableProtocol(WebSocketsSansIOProtocol):
    """Tells the application how to drop a connection at once: uvicorn's own close waits for clients that do not read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["monoscribe.abort"] = self.transport.abort
            await inner(scope, receive, send)

        self.app = app


class DrainingServer(uvicorn.Server):
    """Owns the signal: uvicorn would close every WebSocket before the application hears of the end."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, drain_seconds: float) -> None:
        super().__init__(config)
        self.app = app
        self._drain_seconds = drain_seconds
        self._drain: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: Any = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.begin_drain)

    def begin_drain(self) -> None:
        """Once: a while for those who are speaking. Again: what was heard is still said, but nothing more is heard."""
        if not self.started:
            self.should_exit = True
            return
        seconds = self._drain_seconds if self._drain is None else 0.0
        if self._drain is not None:
            self._drain.cancel()
        self._drain = asyncio.create_task(self._drain_then_exit(seconds), name="drain")

    async def _drain_then_exit(self, seconds: float) -> None:
        try:
            await self.app.state.hall.drain(seconds)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("the drain failed")
        self.should_exit = True


def build_server(settings: Settings, recognizer: Recognizer) -> DrainingServer:
    app = create_app(settings, recognizer)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ws=AbortableProtocol,
        ws_max_size=settings.max_message_bytes,
        ws_ping_interval=None,  # a pong would wait behind the audio of a client that we slow down; idle_seconds finds the dead
        ws_per_message_deflate=False,  # audio does not shrink, and each connection would pay for it
        access_log=False,
        log_config=None,
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=5,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )
    return DrainingServer(config, app, settings.drain_seconds)


def serve(settings: Settings) -> int:
    try:
        recognizer = Recognizer.load(settings.model or None)
    except ModelFileError as error:
        print(f"monoscribe serve: {error}", file=sys.stderr)
        return 1
    build_server(settings, recognizer).run()
    return 0
