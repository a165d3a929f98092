"""Deepgram's live protocol: `/v1/listen`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from server.adapters.parameters import check_language, read_number, read_object, refused
from server.audio import RAW
from server.messages import (
    Audio,
    ClientMessage,
    Closed,
    Encoding,
    Error,
    Flush,
    Flushed,
    Keepalive,
    Ready,
    SegmentEnd,
    ServerMessage,
    Start,
    Status,
    Stop,
    Text,
)
from server.pump import Frame, Reply

ENCODINGS: dict[str, Encoding] = {
    "linear16": "pcm_s16le", "mulaw": "mulaw", "alaw": "alaw", "flac": "flac", "opus": "ogg", "ogg-opus": "ogg",
}  # fmt: skip
HINTS = {  # how to write, what to expect, how to book it: the text is no less true without
    "model", "version", "punctuate", "smart_format", "numerals", "filler_words", "measurements", "no_delay", "keyterm", "keywords",
    "language_hint", "tag", "extra", "mip_opt_out",
}  # fmt: skip
OWN = {"channels", "encoding", "endpointing", "interim_results", "language", "sample_rate", "utterance_end_ms", "vad_events"}
OFF = ("false", "0", "")  # what we do not do may be asked for in the negative
MESSAGES: dict[str, type[Keepalive] | type[Flush] | type[Stop]] = {"KeepAlive": Keepalive, "Finalize": Flush, "CloseStream": Stop}
LEAST_PAUSE, LONGEST_PAUSE = 100, 10_000  # milliseconds; less than we can do is meant as "soon"
STATUS_INTERVAL = 0.2  # seconds: how often to look whether an utterance has ended


class Deepgram:
    can_resume = False

    def __init__(self) -> None:
        self._id = str(uuid.uuid4())  # not the session's name, which is a secret
        self._model = ""
        self._channels = 1
        self._interim = self._vad_events = False
        self._ends_speech = True  # whether the end of a segment is called the end of speech
        self._utterance_end: float | None = None  # seconds
        self._text = ""  # of the current segment
        self._since = 0.0  # where the current segment begins
        self._finalizing = 0
        self._held: SegmentEnd | None = None  # until it is known whether a Finalize brought it about
        self._last_word_end: float | None = None  # of an utterance whose end has not been told
        self._processed = 0.0
        self._answered = False  # the Finalize under way has brought about a result

    def opening(self, query: Mapping[str, str]) -> ClientMessage | None:
        for name, value in query.items():
            if name not in HINTS | OWN and value.lower() not in OFF:
                raise refused(name, value, f"{name} to be left out: it is not served here")
        check_language("language", query.get("language"))
        self._interim = _is_true(query, "interim_results")
        self._vad_events = _is_true(query, "vad_events")
        if query.get("utterance_end_ms", "").lower() not in OFF:
            self._utterance_end = read_number("utterance_end_ms", query["utterance_end_ms"], 1, 60_000) / 1000
        self._channels = read_number("channels", query.get("channels", "1"), 1, 8)
        encoding = self._encoding(query)
        return Start(
            encoding=encoding,
            sample_rate=read_number("sample_rate", query["sample_rate"], 8_000, 48_000) if encoding in RAW else Start.sample_rate,
            channels=self._channels,
            endpointing=self._pause(query.get("endpointing", "true").lower()),
            status_interval=STATUS_INTERVAL if self._utterance_end is not None else 0,
        )

    def incoming(self, frame: Frame) -> Iterable[ClientMessage | Reply]:
        if isinstance(frame, bytes):
            return [Audio(frame) if frame else Stop()]  # nothing at all is how old clients end
        accepted = f"one of {', '.join(MESSAGES)}"
        kind = read_object(frame, f"audio, or {accepted}").get("type")
        if not isinstance(kind, str) or kind not in MESSAGES:
            raise refused("type", kind, accepted)
        self._finalizing += kind == "Finalize"
        return [MESSAGES[kind]()]

    def outgoing(self, message: ServerMessage) -> Iterable[Frame]:
        return [json.dumps(told) for told in [*self._release(message), *self._tell(message)]]

    def _release(self, message: ServerMessage) -> list[dict[str, Any]]:
        """The segment that waited for what comes after it."""
        if self._held is None:
            return []
        held, self._held = self._held, None
        return [self._final(held, from_finalize=isinstance(message, Flushed))]

    def _tell(self, message: ServerMessage) -> list[dict[str, Any]]:
        match message:
            case Ready():
                self._model = message.model
            case Text(text, time):
                return self._hear(text, time)
            case SegmentEnd():
                self._text = ""
                self._last_word_end = message.end
                if self._finalizing:
                    self._held = message
                    return []
                return [self._final(message, from_finalize=False)]
            case Flushed():
                return self._flushed()
            case Status(processed=processed):
                ended = self._utterance_ended(self._processed)  # of the last time: its texts have come by now
                self._processed = processed
                return ended
            case Error():
                fault = {"variant": message.code, "description": message.message, "code": message.code, "message": message.message}
                return [{"type": "Error", **fault}]
            case Closed() if message.reason != "error":
                return [*self._utterance_ended(message.processed), self._metadata(message)]
        return []

    def _hear(self, text: str, time: float) -> list[dict[str, Any]]:
        told = []
        if not self._text:
            told += self._utterance_ended(time)
            if self._vad_events:
                told.append({"type": "SpeechStarted", "channel": [0, 1], "timestamp": time})
        self._text += text
        if self._interim:
            told.append(self._results(self._text, self._since, time))
        return told

    def _flushed(self) -> list[dict[str, Any]]:
        """A Finalize is answered, even if there was nothing to say."""
        self._finalizing -= 1
        answered, self._answered = self._answered, False
        return [] if answered else [self._results("", self._since, self._since, is_final=True, from_finalize=True)]

    def _utterance_ended(self, now: float) -> list[dict[str, Any]]:
        end = self._last_word_end
        if self._utterance_end is None or end is None or self._text or now - end < self._utterance_end:
            return []
        self._last_word_end = None
        return [{"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": end}]

    def _final(self, segment: SegmentEnd, *, from_finalize: bool) -> dict[str, Any]:
        self._answered = from_finalize
        words = [
            {"word": word.text, "start": word.start, "end": word.end, "confidence": word.confidence, "punctuated_word": word.text}
            for word in segment.words or ()
        ]
        since, self._since = self._since, segment.end
        return self._results(
            segment.text, since, segment.end, segment.confidence, words,
            is_final=True, speech_final=self._ends_speech and not from_finalize, from_finalize=from_finalize,
        )  # fmt: skip

    def _results(
        self,
        text: str,
        start: float,
        end: float,
        confidence: float = 0.0,
        words: list[dict[str, Any]] | None = None,
        *,
        is_final: bool = False,
        speech_final: bool = False,
        from_finalize: bool = False,
    ) -> dict[str, Any]:
        model = {"name": self._model, "version": "", "arch": "monoscribe"}
        return {
            "type": "Results",
            "channel_index": [0, 1],
            "start": start,
            "duration": round(max(0.0, end - start), 3),
            "is_final": is_final,
            "speech_final": speech_final,
            "from_finalize": from_finalize,
            "channel": {"alternatives": [{"transcript": text, "confidence": confidence, "words": words or []}]},
            "metadata": {"request_id": self._id, "model_info": model, "model_uuid": self._model},
        }

    def _metadata(self, closed: Closed) -> dict[str, Any]:
        return {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self._id,
            "sha256": "",
            "created": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duration": closed.received,
            "channels": self._channels,
        }

    def _encoding(self, query: Mapping[str, str]) -> Encoding:
        name = query.get("encoding")
        if name is None:
            return "auto"
        if name not in ENCODINGS:
            raise refused("encoding", name, f"one of {', '.join(ENCODINGS)}, or none for a container")
        if ENCODINGS[name] in RAW and "sample_rate" not in query:
            raise refused("sample_rate", "", f"whole number 8000..48000, with encoding={name}")
        return ENCODINGS[name]

    def _pause(self, endpointing: str) -> float:
        """Seconds. Without endpointing, text is final after the same pauses, but no end of speech is told."""
        if endpointing in ("true", "false"):
            self._ends_speech = endpointing == "true"
            return Start.endpointing
        return max(LEAST_PAUSE, read_number("endpointing", endpointing, 0, LONGEST_PAUSE)) / 1000


def _is_true(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "false").lower()
    if value not in ("true", "false"):
        raise refused(name, value, "true or false")
    return value == "true"
