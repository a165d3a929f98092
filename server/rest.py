"""Files over HTTP: `POST /v1/transcribe`, and what there is to choose from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from server import formats
from server.codec import to_json
from server.files import collect, transcribe_file
from server.formats import MEDIA_TYPES, Format
from server.hall import RETRY_AFTER, FullError, Hall
from server.messages import Encoding, Error, ProtocolError, SegmentEnd, ServerMessage, Start
from server.upload import receive_upload

STATUSES: dict[str, int] = {"too_large": 413, "too_slow": 504, "at_capacity": 503, "engine_failed": 500, "bad_audio": 415}
NDJSON = "application/x-ndjson"
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}

router = APIRouter(prefix="/v1", tags=["files"])


@router.post("/transcribe", openapi_extra=BODY, summary="Transcribe a file")
async def transcribe(
    request: Request,
    format: Annotated[Format, Query(description="of the answer")] = "json",
    stream: Annotated[
        bool, Query(description="answer with the messages of the stream protocol, one per line, as they come")
    ] = False,
    encoding: Annotated[Encoding, Query(description="auto recognises every container; raw samples need to be named")] = "auto",
    sample_rate: Annotated[int, Query(ge=8_000, le=48_000, description="of raw samples")] = 16_000,
    channels: Annotated[int, Query(ge=1, le=8, description="of raw samples")] = 1,
    words: Annotated[bool, Query(description="whether segments carry their words, in json")] = True,
    endpointing: Annotated[float, Query(ge=0.1, le=10, description="seconds of pause that end a segment")] = Start().endpointing,
    beam: Annotated[int, Query(ge=0, le=16, description="hypotheses to follow: 0, as many as the server lets, its max_beam")] = 1,
) -> Response:
    """The file is the body, or the field `file` of a form. What is said equals what a live stream of the same audio says."""
    hall: Hall = request.app.state.hall
    start = Start(
        encoding=encoding, sample_rate=sample_rate, channels=channels, interim=stream, words=True,
        endpointing=endpointing, beam=beam, status_interval=0,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        upload = await stack.enter_async_context(receive_upload(request, hall))
        messages = transcribe_file(hall, upload.file, start)
        first = await anext(messages)  # whatever is wrong from the beginning still gets a status of its own
        if stream:
            kept = stack.pop_all()
            return StreamingResponse(_lines(request, first, messages, kept), media_type=NDJSON)
        segments, duration = await collect(request, messages)
    return _answer(format, segments, duration, hall.model, words)


@router.get("/models", summary="The model that is served")
async def models(request: Request) -> dict[str, Any]:
    return {"object": "list", "data": [_describe(request.app.state.hall.model)]}


@router.get("/models/{name:path}", summary="The same, by its name")
async def model(request: Request, name: str) -> dict[str, Any]:
    known = request.app.state.hall.model
    if name != known:
        raise HTTPException(404, f"expected {known}")
    return _describe(known)


async def refuse_request(request: Request, problem: Exception) -> Response:
    """What is not served here, said in the form of all other errors: clients of others look for their message there."""
    assert isinstance(problem, HTTPException)
    message = f"{request.method} {request.url.path[:80]}: {problem.detail}; /docs tells what is served"
    return JSONResponse({"error": {"code": "not_served", "message": message}}, problem.status_code, problem.headers)


async def refuse_protocol_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, ProtocolError)
    return error_response(problem.error, STATUSES.get(problem.error.code, 400))


async def refuse_full(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, FullError)
    request.app.state.metrics.failed(problem.error)
    return error_response(problem.error, 503)


def _describe(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "monoscribe"}


def error_response(error: Error, status: int) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER)} if status == 503 else {}
    told = {name: value for name, value in vars(error).items() if name not in ("type", "fatal") and value is not None}
    return JSONResponse({"error": told}, status, headers)


def _answer(format: Format, segments: list[SegmentEnd], duration: float, model: str, words: bool) -> Response:
    if format == "json":
        return JSONResponse(formats.as_json(segments, duration, model, words=words))
    write = {"text": formats.as_text, "srt": formats.as_srt, "vtt": formats.as_vtt}[format]
    return Response(write(segments), media_type=MEDIA_TYPES[format])


async def _lines(
    request: Request, first: ServerMessage, messages: AsyncGenerator[ServerMessage, None], kept: AsyncExitStack
) -> AsyncIterator[str]:
    """The status has gone out: from here on, what goes wrong is told as a message."""
    async with kept, aclosing(messages):
        yield to_json(first) + "\n"
        try:
            async for message in messages:
                if await request.is_disconnected():
                    return
                yield to_json(message) + "\n"
        except ProtocolError as problem:
            yield to_json(problem.error) + "\n"
