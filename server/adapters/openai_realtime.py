"""OpenAI's Realtime transcription: `/v1/realtime`. A delta only appends there, as our text does."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from server.adapters.parameters import check_language, read_number, read_object, refused
from server.messages import (
    Audio,
    ClientMessage,
    Encoding,
    Error,
    Flush,
    Flushed,
    ProtocolError,
    SegmentEnd,
    ServerMessage,
    Start,
    Text,
)
from server.pump import Frame, Reply

FORMATS: dict[str, tuple[Encoding, int]] = {  # and the rate, unless the format says one
    "audio/pcm": ("pcm_s16le", 24_000),
    "audio/pcmu": ("mulaw", 8_000),
    "audio/pcma": ("alaw", 8_000),
}
MESSAGES = "one of session.update, input_audio_buffer.append, input_audio_buffer.commit, input_audio_buffer.clear"
LEAST_PAUSE, LONGEST_PAUSE = 100, 10_000  # milliseconds; less than we can do is meant as "soon"


class Realtime:
    """An item is a segment; or, without turn detection, all that was said between two commits."""

    can_resume = False

    def __init__(self) -> None:
        self._start = Start(sample_rate=FORMATS["audio/pcm"][1], status_interval=0)
        self._is_open = False
        self._is_manual = False  # no turn detection: only a commit ends an item
        self._session: dict[str, Any] = {  # as the client is told
            "format": {"type": "audio/pcm", "rate": self._start.sample_rate},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": round(self._start.endpointing * 1000)},
        }
        self._id = _name("sess")
        self._is_fresh = False  # audio has come since the last commit
        self._flushes: deque[str] = deque()  # commits and clears under way
        self._is_answered = False  # the commit under way has ended an item
        self._item: str | None = None
        self._last_item: str | None = None
        self._parts: list[SegmentEnd] = []  # of the item
        self._gap = ""  # before the next delta

    def opening(self, query: Mapping[str, str]) -> ClientMessage | Reply | None:
        if query.get("intent", "transcription") != "transcription":
            raise refused("intent", query["intent"], "transcription")
        return Reply(_event("session.created", session=self._described()))

    def incoming(self, frame: Frame) -> Iterable[ClientMessage | Reply]:
        try:
            return self._take(read_object(frame, f"a JSON object with type {MESSAGES}"))
        except ProtocolError as problem:
            if self._is_open:
                raise
            return [Reply(_error(problem.error))]  # a session that has not begun would end by it

    def outgoing(self, message: ServerMessage) -> Iterable[Frame]:
        if isinstance(message, Error):
            return [_error(message)]
        if isinstance(message, Flushed):
            return self._flushed()
        if self._flushes and self._flushes[0] == "clear":  # said about audio that was taken back
            return []
        if isinstance(message, Text):
            return self._hear(message)
        if isinstance(message, SegmentEnd):
            return self._end_segment(message)
        return []

    # ------------------------------------------------------------ from the client
    def _take(self, message: dict[str, Any]) -> list[ClientMessage | Reply]:
        match message.get("type"):
            case "session.update":
                self._update(_dict("session", message.get("session")))
                return [Reply(_event("session.updated", session=self._described()))]
            case "input_audio_buffer.append":
                data = _decode(message.get("audio"))
                self._is_fresh = self._is_fresh or bool(data)
                return [*self._opened(), Audio(data)]
            case "input_audio_buffer.commit":
                if not self._is_fresh:
                    raise refused("type", "input_audio_buffer.commit", "input_audio_buffer.append before: there is no new audio")
                return self._flush("commit")
            case "input_audio_buffer.clear":
                return self._flush("clear")
            case other:
                raise refused("type", other, MESSAGES)

    def _opened(self) -> list[ClientMessage | Reply]:
        if self._is_open:
            return []
        self._is_open = True
        return [self._start]

    def _flush(self, kind: str) -> list[ClientMessage | Reply]:
        self._is_fresh = False
        self._flushes.append(kind)
        return [*self._opened(), Flush()]

    def _update(self, session: dict[str, Any]) -> None:
        if session.get("type", "transcription") != "transcription":
            raise refused("session.type", session["type"], "transcription")
        if session.get("include"):
            raise refused("session.include", session["include"], "none")
        wish = _dict("session.audio.input", _dict("session.audio", session.get("audio")).get("input"))
        transcription = _dict("session.audio.input.transcription", wish.get("transcription"))
        check_language("session.audio.input.transcription.language", transcription.get("language"))
        start, is_manual = self._start, self._is_manual
        if wish.get("format") is not None:
            start = _with_format(start, _dict("session.audio.input.format", wish["format"]))
        if "turn_detection" in wish:
            is_manual = wish["turn_detection"] is None
            start = _with_pause(start, _dict("session.audio.input.turn_detection", wish["turn_detection"]))
        if self._is_open and start != self._start:
            raise refused("session.audio.input", wish, "the same format and pause as before the first audio")
        self._start, self._is_manual = start, is_manual
        known = {"format", "transcription", "turn_detection", "noise_reduction"}
        self._session |= {name: value for name, value in wish.items() if name in known}

    def _described(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {"input": self._session},
        }

    # ------------------------------------------------------------ to the client
    def _hear(self, text: Text) -> list[Frame]:
        told: list[Frame] = []
        if self._item is None:
            self._item = _name("item")
            if not self._is_manual:
                start = round(text.time * 1000)
                told.append(_event("input_audio_buffer.speech_started", audio_start_ms=start, item_id=self._item))
        kind = "conversation.item.input_audio_transcription.delta"
        told.append(_event(kind, item_id=self._item, content_index=0, delta=self._gap + text.text))
        self._gap = ""
        return told

    def _end_segment(self, segment: SegmentEnd) -> list[Frame]:
        self._parts.append(segment)
        self._gap = " "
        if self._is_manual:
            return []
        self._is_answered = bool(self._flushes)
        end = round(segment.end * 1000)
        return [_event("input_audio_buffer.speech_stopped", audio_end_ms=end, item_id=self._item), *self._end_item()]

    def _flushed(self) -> list[Frame]:
        is_answered, self._is_answered = self._is_answered, False
        if self._flushes.popleft() == "clear":
            self._forget_item()
            return [_event("input_audio_buffer.cleared")]
        return [] if is_answered else self._end_item()

    def _end_item(self) -> list[Frame]:
        item = self._item or _name("item")
        text = " ".join(part.text for part in self._parts)
        seconds = round(sum(part.end - part.start for part in self._parts), 3)
        previous, self._last_item = self._last_item, item
        self._forget_item()
        kind = "conversation.item.input_audio_transcription.completed"
        usage = {"type": "duration", "seconds": seconds}
        return [
            _event("input_audio_buffer.committed", item_id=item, previous_item_id=previous),
            _event(kind, item_id=item, content_index=0, transcript=text, usage=usage),
        ]

    def _forget_item(self) -> None:
        self._item, self._parts, self._gap = None, [], ""


def _with_format(start: Start, format: dict[str, Any]) -> Start:
    name = format.get("type", "audio/pcm")
    if not isinstance(name, str) or name not in FORMATS:
        raise refused("session.audio.input.format.type", name, f"one of {', '.join(FORMATS)}")
    encoding, rate = FORMATS[name]
    rate = read_number("session.audio.input.format.rate", format.get("rate", rate), 8_000, 48_000)
    return dataclasses.replace(start, encoding=encoding, sample_rate=rate)


def _with_pause(start: Start, detection: dict[str, Any]) -> Start:
    name = "session.audio.input.turn_detection"
    if detection.get("type", "server_vad") != "server_vad":
        raise refused(f"{name}.type", detection["type"], "server_vad, or turn_detection=null")
    pause = detection.get("silence_duration_ms")
    if pause is None:
        return start
    return dataclasses.replace(
        start, endpointing=max(LEAST_PAUSE, read_number(f"{name}.silence_duration_ms", pause, 0, LONGEST_PAUSE)) / 1000
    )


def _decode(audio: object) -> bytes:
    try:
        return base64.b64decode(audio if isinstance(audio, str) else "?", validate=True)
    except ValueError:
        raise refused("audio", audio, "audio as base64") from None


def _dict(name: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise refused(name, value, "a JSON object")
    return value


def _name(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(10)}"


def _event(kind: str, **fields: object) -> str:
    return json.dumps({"type": kind, "event_id": _name("event"), **fields})


def _error(error: Error) -> str:
    kind = "server_error" if error.code in ("engine_failed", "at_capacity") else "invalid_request_error"
    return _event("error", error={"type": kind, "code": error.code, "message": error.message, "param": error.field})
