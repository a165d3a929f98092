"""Starts a server and ends it well."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import gc
import logging
import shutil
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
import uvicorn
from fastapi import FastAPI

from model import ModelFileError, Recognizer
from server.app import create_app
from server.logs import set_up_logs
from server.relay import Relay
from server.settings import Settings
from server.sockets import BoundedHttp, BoundedWebSocket

logger = logging.getLogger("monoscribe")

UNUSABLE = 78  # exit code, as in sysexits.h: what was set cannot work, and trying again will not help


class DrainingServer(uvicorn.Server):
    """Owns the signal: uvicorn would close every WebSocket before the application hears of the end."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, drain_seconds: float) -> None:
        super().__init__(config)
        self.on_started: Callable[[], None] = lambda: None
        self.app = app
        self._drain_seconds = drain_seconds
        self._drain: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told_early = False  # a signal came before there was a loop

    async def startup(self, sockets: Any = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._told_early:
            self.should_exit = True
        else:
            self.on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or not self.started:
            self._told_early = True
        else:
            self._loop.call_soon_threadsafe(self.begin_drain)

    def begin_drain(self) -> None:
        """Once: a while for those who are speaking. Again: what was heard is still said, but nothing more is heard."""
        seconds = self._drain_seconds if self._drain is None else 0.0
        if self._drain is not None:
            self._drain.cancel()
        logger.info("draining", extra={"sessions": len(self.app.state.hall), "seconds": seconds})
        self._drain = asyncio.create_task(self._drain_then_exit(seconds), name="drain")

    async def _drain_then_exit(self, seconds: float) -> None:
        try:
            await self.app.state.hall.drain(seconds)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("the drain failed")
        self.should_exit = True


def build_server(settings: Settings, recognizer: Recognizer, relay: Relay | None = None) -> DrainingServer:
    app = create_app(settings, recognizer, relay)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=cast(Any, partial(BoundedHttp, settings=settings)),  # uvicorn calls it, and asks nothing else of it
        ws=cast(Any, partial(BoundedWebSocket, settings=settings)),
        ws_max_size=settings.max_message_bytes,
        ws_ping_interval=None,  # a pong would wait behind the audio of a client that we slow down; idle_seconds finds the dead
        ws_per_message_deflate=False,  # audio does not shrink, and each connection would pay for it
        access_log=False,  # a query may hold a key
        log_config=None,
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=5,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )
    return DrainingServer(config, app, settings.drain_seconds)


def serve(settings: Settings) -> int:
    """Until a signal ends it. Returns the exit code."""
    set_up_logs(settings)
    try:
        listener = bind(settings)
    except OSError as error:
        hint = "; choose another with --port" if error.errno == errno.EADDRINUSE else ""
        print(f"monoscribe serve: host={settings.host}, port={settings.port}: {error.strerror or error}{hint}", file=sys.stderr)
        return UNUSABLE
    with listener:
        if settings.workers == 1:
            return run_process(settings, listener)
        from server.workers import Supervisor  # which starts processes with what is here

        return Supervisor(settings, listener).run() if load_model(settings) is not None else UNUSABLE


def bind(settings: Settings) -> socket.socket:
    """With several processes each has a socket of its own on the same port, and the kernel deals connections out evenly.

    From one socket in common, whichever process is quickest would take nearly all of them.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.workers > 1:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def bind_others(settings: Settings) -> list[socket.socket]:
    """The ports that some clients of others expect."""
    return [bind(dataclasses.replace(settings, port=port)) for port in (settings.vosk_port,) if port]


def run_process(settings: Settings, listener: socket.socket, relay: Relay | None = None) -> int:
    torch.set_num_threads(1)  # one thread steps the model; the other cores are for other processes
    recognizer = load_model(settings)
    if recognizer is None:
        return UNUSABLE
    try:
        if settings.wyoming_port:  # which will be bound on the loop, where it is too late for a plain word
            bind(dataclasses.replace(settings, port=settings.wyoming_port)).close()
        others = bind_others(settings)
    except OSError as error:
        ports = f"vosk_port={settings.vosk_port}, wyoming_port={settings.wyoming_port}"
        print(f"monoscribe serve: host={settings.host}, {ports}: {error.strerror or error}", file=sys.stderr)
        return UNUSABLE
    server = build_server(settings, recognizer, relay)
    gc.collect()
    gc.freeze()  # what is here stays: looking through it for garbage would hold all streams up for a sixth of a second each time
    if relay is None or relay.is_first:
        server.on_started = lambda: greet(settings, listener)
    server.run(sockets=[listener, *others] if relay is None else [listener, *others, relay.listen()])
    return 0


def load_model(settings: Settings) -> Recognizer | None:
    try:
        return Recognizer.load(settings.model or None)
    except ModelFileError as error:
        print(f"monoscribe serve: {error}", file=sys.stderr)
        return None


def greet(settings: Settings, listener: socket.socket) -> None:
    """What to do next, and what to be careful about."""
    port = listener.getsockname()[1]
    shown = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host
    host = f"[{shown}]" if ":" in shown else shown
    scheme, stream = ("https", "wss") if settings.tls_certificate else ("http", "ws")
    if not settings.is_local and not settings.keys:
        logger.warning("anyone who can reach this address can use it: set api_keys", extra={"host": settings.host})
    where = "" if (scheme, host, port) == ("http", "127.0.0.1", Settings.port) else f" --server {stream}://{host}:{port}"
    print(f"Monoscribe: {scheme}://{host}:{port}/  (live streams: {stream}://{host}:{port}/v1/stream)")
    print(f"  microphone: {own_name()} mic{where}")
    print(f"  file:       {own_name()} file{where} PATH")
    print("  Ctrl-C ends it.", flush=True)


def own_name() -> str:
    """How the user can call this program again: by its path, unless a shell would find it."""
    program = Path(sys.argv[0])
    if program.name != "monoscribe" or shutil.which("monoscribe") == str(program.absolute()):
        return "monoscribe"
    return str(program)
