"""The application: routes, and what lives as long as the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from model import Recognizer
from server.access import KEY_PARAMETER, Access
from server.adapters import LIVE, openai_files
from server.adapters.wyoming import serve_wyoming
from server.codec import protocol_schema
from server.hall import FullError, Hall
from server.live import Live
from server.logs import SessionLog
from server.messages import Error, ProtocolError, ServerMessage
from server.metrics import Metrics
from server.pump import POLICY, Dialect, Native, refuse, serve_websocket
from server.relay import Relay
from server.rest import error_response, refuse_full, refuse_protocol_error, refuse_request, router
from server.settings import Settings

PAGE = Path(__file__).parent / "page"
GUARDED = "/v1/"  # what needs a key, where there are keys


def create_app(settings: Settings, recognizer: Recognizer, relay: Relay | None = None) -> FastAPI:
    metrics = Metrics()
    access = Access(settings)
    log = SessionLog(with_text=settings.log_text)

    def said(live: Live, message: ServerMessage) -> None:
        metrics.said(live, message)
        log.said(live, message)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        hall = Hall(settings, recognizer, on_message=said, on_step=metrics.stepped, relay=relay)
        metrics.count_sessions(lambda: len(hall))
        app.state.hall = hall
        hall.start()
        try:
            async with serve_wyoming(hall):
                yield
        finally:
            await hall.stop()

    app = FastAPI(
        title="Monoscribe",
        description="Online speech recognition. Live streams: docs/protocol.md.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load their scripts from other servers; ours is page/docs.html
        redoc_url=None,
    )
    app.state.access = access
    app.state.metrics = metrics
    app.add_exception_handler(ProtocolError, refuse_protocol_error)
    app.add_exception_handler(FullError, refuse_full)
    app.add_exception_handler(HTTPException, refuse_request)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_middleware(AccessControl, access=access, metrics=metrics)
    if settings.origins:
        app.add_middleware(CORSMiddleware, allow_origins=settings.origins, allow_methods=["*"], allow_headers=["*"])
    app.include_router(router)
    app.include_router(openai_files.router)
    _add_operations(app, metrics)

    for path, dialect in ({"/v1/stream": Native} | LIVE).items():
        _add_live(app, path, dialect)
    if settings.vosk_port:
        app.add_middleware(OwnPort, port=settings.vosk_port, path="/v1/vosk")

    @app.get("/v1/schema.json", tags=["operations"], summary="JSON schema of the stream protocol")
    async def schema() -> JSONResponse:
        return JSONResponse(protocol_schema())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    return app


async def serve_dialect(websocket: WebSocket, dialect: Dialect) -> None:
    """A WebSocket of any protocol that we speak, behind the same door."""
    refusal = websocket.app.state.access.refusal(websocket)
    if refusal is not None:
        status, error = refusal
        await refuse(websocket, dialect, error, status=status, code=POLICY)
        return
    query = {name: value for name, value in websocket.query_params.items() if name != KEY_PARAMETER}
    await serve_websocket(websocket, websocket.app.state.hall, dialect, query)


class OwnPort:
    """Clients that know one protocol only find it at a port of its own, whatever path they ask for."""

    def __init__(self, app: ASGIApp, port: int, path: str) -> None:
        self._app = app
        self._port = port
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and (scope.get("server") or ("", None))[1] == self._port:
            scope = {**scope, "path": self._path, "raw_path": self._path.encode()}
        await self._app(scope, receive, send)


class AccessControl:
    """For HTTP. Plain ASGI: a wrapped request would not notice that its client has gone."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        self._app = app
        self._access = access
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and scope["path"].startswith(GUARDED) and scope["method"] != "OPTIONS":
            refusal = self._access.refusal(HTTPConnection(scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, error = refusal
        self._metrics.failed(error)
        await error_response(error, status)(scope, receive, send)


def _add_live(app: FastAPI, path: str, dialect: Callable[[], Dialect]) -> None:
    @app.websocket(path)
    async def live(websocket: WebSocket) -> None:
        await serve_dialect(websocket, dialect())


def _add_operations(app: FastAPI, metrics: Metrics) -> None:
    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", tags=["operations"], summary="Whether the process works; if not, restart it")
    async def healthz() -> PlainTextResponse:
        return _yes_or_no(app.state.hall.is_healthy)

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", tags=["operations"], summary="Whether new sessions are welcome")
    async def readyz() -> PlainTextResponse:
        return _yes_or_no(app.state.hall.is_ready)

    @app.get("/metrics", tags=["operations"], summary="For Prometheus")
    async def show_metrics() -> Response:
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)


def _yes_or_no(answer: bool) -> PlainTextResponse:
    return PlainTextResponse("ok\n" if answer else "no\n", 200 if answer else 503)


async def _refuse_invalid(request: Request, problem: Exception) -> Response:
    """FastAPI's own complaint about a parameter, in our words."""
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    name, value, accepted = str(first["loc"][-1]), str(first.get("input"))[:40], str(first["msg"]).removeprefix("Input should be ")
    return error_response(Error("bad_message", f"{name}={value}: expected {accepted}", name, value, accepted), 422)
