"""OpenAI's file transcription: `POST /v1/audio/transcriptions`."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.datastructures import FormData

from server import formats
from server.adapters.parameters import check_language, refused
from server.files import collect, transcribe_file
from server.formats import MEDIA_TYPES, plain_text
from server.hall import Hall
from server.messages import Closed, ProtocolError, SegmentEnd, ServerMessage, Start, Text
from server.upload import receive_upload

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
GRANULARITIES = ("segment", "word")
HINTS = ("file", "model", "prompt", "temperature", "chunking_strategy")  # what is no hint, we check
LEAST_CONFIDENCE = 1e-5  # whose logarithm is still a number

router = APIRouter(prefix="/v1/audio", tags=["clients of others"])


@dataclass(frozen=True)
class Wish:
    format: str = "json"
    stream: bool = False
    granularities: tuple[str, ...] = ("segment",)


@router.post("/transcriptions", summary="Transcribe a file, as OpenAI does")
async def transcriptions(request: Request) -> Response:
    """A form with `file` and OpenAI's other fields."""
    hall: Hall = request.app.state.hall
    async with AsyncExitStack() as stack:
        upload = await stack.enter_async_context(receive_upload(request, hall))
        wish = read_wish(upload.fields)
        messages = transcribe_file(hall, upload.file, Start(encoding="auto", interim=wish.stream, status_interval=0))
        await anext(messages)  # whatever is wrong from the beginning still gets a status of its own
        if wish.stream:
            return StreamingResponse(_events(request, messages, stack.pop_all()), media_type="text/event-stream")
        segments, duration = await collect(request, messages)
    return _answer(wish, segments, duration)


def read_wish(fields: FormData) -> Wish:
    """Raises ProtocolError where we would answer something else than was asked for."""
    granularities: list[str] = []
    wish: dict[str, Any] = {}
    for name, value in fields.multi_items():
        match name.removesuffix("[]"):
            case "response_format":
                wish["format"] = _choice(name, value, FORMATS)
            case "stream":
                wish["stream"] = _choice(name, str(value).lower(), ("true", "false")) == "true"
            case "timestamp_granularities":
                granularities.append(_choice(name, value, GRANULARITIES))
            case "language":
                check_language(name, value)
            case other if other not in HINTS:
                raise refused(name, value, f"one of {', '.join(HINTS)}, language, response_format, stream, timestamp_granularities")
    if granularities:
        wish["granularities"] = tuple(granularities)
    found = Wish(**wish)
    if found.stream and found.format != "json":
        raise refused("response_format", found.format, "json, with stream=true")
    if granularities and found.format != "verbose_json":
        raise refused("response_format", found.format, "verbose_json, with timestamp_granularities")
    return found


def _choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise refused(name, value, f"one of {', '.join(choices)}")
    return value


def _answer(wish: Wish, segments: list[SegmentEnd], duration: float) -> Response:
    match wish.format:
        case "text":
            return Response(plain_text(segments) + "\n", media_type=MEDIA_TYPES["text"])
        case "srt":
            return Response(formats.as_srt(segments), media_type=MEDIA_TYPES["srt"])
        case "vtt":
            return Response(formats.as_vtt(segments), media_type=MEDIA_TYPES["vtt"])
    told: dict[str, Any] = {"text": plain_text(segments), "usage": {"type": "duration", "seconds": math.ceil(duration)}}
    if wish.format == "verbose_json":
        told |= {"task": "transcribe", "language": "english", "duration": duration}
        if "segment" in wish.granularities:
            told["segments"] = [_segment(number, segment) for number, segment in enumerate(segments)]
        if "word" in wish.granularities:
            words = [word for segment in segments for word in segment.words or ()]
            told["words"] = [{"word": word.text, "start": word.start, "end": word.end} for word in words]
    return JSONResponse(told)


def _segment(number: int, segment: SegmentEnd) -> dict[str, Any]:
    """With all the fields that a typed client expects; we have no tokens, and what was recognised was no silence."""
    text = segment.text.encode()
    return {
        "id": number,
        "seek": 0,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": round(math.log(max(segment.confidence, LEAST_CONFIDENCE)), 4),
        "compression_ratio": round(len(text) / len(zlib.compress(text)), 4),
        "no_speech_prob": 0.0,
    }


async def _events(request: Request, messages: AsyncGenerator[ServerMessage, None], kept: AsyncExitStack) -> AsyncIterator[str]:
    """The status has gone out: from here on, what goes wrong is told as an event."""
    segments: list[SegmentEnd] = []
    gap = ""  # between the last segment and what comes next
    async with kept, aclosing(messages):
        try:
            async for message in messages:
                if await request.is_disconnected():
                    return
                match message:
                    case Text(text):
                        yield _event({"type": "transcript.text.delta", "delta": gap + text})
                        gap = ""
                    case SegmentEnd():
                        segments.append(message)
                        gap = " "
                    case Closed():
                        yield _event({"type": "transcript.text.done", "text": plain_text(segments)})
        except ProtocolError as problem:
            error = {"message": problem.error.message, "code": problem.error.code, "param": problem.error.field}
            yield _event({"error": {"type": "invalid_request_error", **error}})


def _event(told: dict[str, Any]) -> str:
    return f"data: {json.dumps(told)}\n\n"
