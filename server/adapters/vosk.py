"""vosk-server's protocol: PCM16 in, and for every message of audio exactly one reply, a partial text or a finished one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from server.adapters.parameters import read_number, read_object, refused
from server.messages import (
    Audio,
    ClientMessage,
    Closed,
    Error,
    Flush,
    Flushed,
    Keepalive,
    SegmentEnd,
    ServerMessage,
    Start,
    Status,
    Stop,
    Text,
)
from server.pump import Frame, Reply

MESSAGES = 'audio, {"config": {...}}, {"reset": 1} or {"eof": 1}'
CONFIG = "config with sample_rate, words, max_alternatives"
MOST_ALTERNATIVES = 100  # there is only ever one, but asking for more changes the shape of a result


class Vosk:
    """Each audio is followed by a keepalive, whose answer comes in order with the texts: it becomes the reply."""

    can_resume = False

    def __init__(self) -> None:
        self._start = Start(status_interval=0)
        self._is_open = False
        self._owed = 0  # replies to audio
        self._partial = ""
        self._segments: list[SegmentEnd] = []  # finished, and not told yet
        self._words = True
        self._alternatives = 0

    def opening(self, query: Mapping[str, str]) -> ClientMessage | None:
        return None

    def incoming(self, frame: Frame) -> Iterable[ClientMessage | Reply]:
        if isinstance(frame, bytes):
            self._owed += 1
            return [*self._opened(), Audio(frame), Keepalive()]
        message = read_object(frame, MESSAGES)
        if "config" in message:
            self._configure(message["config"])
            return []
        if "eof" in message:
            return [*self._opened(), Stop()]
        if "reset" in message:
            return [*self._opened(), Flush()]
        raise refused("message", frame, MESSAGES)

    def outgoing(self, message: ServerMessage) -> Iterable[Frame]:
        match message:
            case Text(text):
                self._partial += text
            case SegmentEnd():
                self._partial = ""
                self._segments.append(message)
            case Status() if self._owed:
                self._owed -= 1
                return [self._result(self._segments[:1]) if self._segments else json.dumps({"partial": self._partial})]
            case Flushed():
                return [self._result(self._segments)]
            case Closed() if message.reason != "error":
                return [self._result(self._segments)]
            case Error():
                return [json.dumps({"error": message.message})]
        return []

    def _opened(self) -> list[ClientMessage]:
        if self._is_open:
            return []
        self._is_open = True
        return [self._start]

    def _configure(self, config: object) -> None:
        if not isinstance(config, dict):
            raise refused("config", config, CONFIG)
        for name, value in config.items():
            if name == "sample_rate":
                self._set_rate(read_number(name, value, 8_000, 48_000))
            elif name == "words":
                self._words = bool(value)
            elif name == "max_alternatives":
                self._alternatives = read_number(name, value, 0, MOST_ALTERNATIVES)
            elif value:  # a list of phrases or another model would change the text
                raise refused(name, value, CONFIG)

    def _set_rate(self, rate: int) -> None:
        if self._is_open and rate != self._start.sample_rate:
            raise refused("sample_rate", rate, f"{self._start.sample_rate}, as before the first audio")
        self._start = dataclasses.replace(self._start, sample_rate=rate)

    def _result(self, segments: list[SegmentEnd]) -> str:
        """All of them in one; they count as told."""
        words = [
            {"conf": word.confidence, "start": word.start, "end": word.end, "word": word.text}
            for segment in segments
            for word in segment.words or ()
        ]
        told: dict[str, Any] = {"result": words} if self._words and words else {}
        told["text"] = " ".join(segment.text for segment in segments)
        if self._alternatives:
            confidence = sum(segment.confidence for segment in segments) / max(1, len(segments))
            told = {"alternatives": [{"confidence": confidence, **told}]}
        self._segments = self._segments[len(segments) :]
        return json.dumps(told)
