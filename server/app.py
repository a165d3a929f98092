"""The application: routes, and what lives as long as the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

from model import Recognizer
from server.codec import protocol_schema
from server.hall import Hall
from server.pump import Native, serve_websocket
from server.settings import Settings

PAGE = Path(__file__).parent / "page"
KEY_PARAMETER = "api_key"  # in the query, for browsers: they cannot set headers of a WebSocket


def create_app(settings: Settings, recognizer: Recognizer) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        hall = Hall(settings, recognizer)
        hall.start()
        app.state.hall = hall
        try:
            yield
        finally:
            await hall.stop()

    app = FastAPI(title="Monoscribe", lifespan=lifespan)

    @app.websocket("/v1/stream")
    async def stream(websocket: WebSocket) -> None:
        await serve_websocket(websocket, app.state.hall, Native(), protocol_query(websocket))

    @app.get("/v1/schema.json")
    async def schema() -> JSONResponse:
        return JSONResponse(protocol_schema())

    app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    return app


def protocol_query(websocket: WebSocket) -> Mapping[str, str]:
    return {name: value for name, value in websocket.query_params.items() if name != KEY_PARAMETER}
