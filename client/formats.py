"""A transcript as text, json, srt or vtt; written as it grows, or in one go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from client.events import Closed, Event, Segment, Word

Format = Literal["text", "json", "srt", "vtt"]
FORMATS: tuple[Format, ...] = ("text", "json", "srt", "vtt")
SUFFIXES: dict[Format, str] = {"text": ".txt", "json": ".json", "srt": ".srt", "vtt": ".vtt"}

LONGEST_CUE = 84  # characters: two lines of a subtitle
LONGEST_CUE_SECONDS = 7.0


@dataclass
class Transcript:
    """All that was said of one recording."""

    segments: list[Segment] = field(default_factory=list)
    duration: float = 0.0
    model: str = ""

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    @property
    def words(self) -> list[Word]:
        return [word for segment in self.segments for word in segment.words]

    def hear(self, event: Event) -> None:
        """Takes what belongs to it from a session's events."""
        if isinstance(event, Segment):
            self.segments.append(event)
        elif isinstance(event, Closed):
            self.duration = event.received

    def to(self, format: Format, **extra: Any) -> str:
        writer = Writer(format)
        return writer.begin() + "".join(map(writer.segment, self.segments)) + writer.end(self, **extra)


class Writer:
    """What to write at the beginning, for each segment as it comes, and at the end, so that a file grows while one speaks.

    A JSON document can only be written at the end.
    """

    def __init__(self, format: Format) -> None:
        if format not in FORMATS:
            raise ValueError(f"format={format}: expected one of {', '.join(FORMATS)}")
        self._format = format
        self._cues = 0

    def begin(self) -> str:
        return "WEBVTT\n" if self._format == "vtt" else ""

    def segment(self, segment: Segment) -> str:
        if self._format == "text":
            return segment.text + "\n"
        if self._format == "json":
            return ""
        return "".join(self._cue(*cue) for cue in cues(segment))

    def end(self, transcript: Transcript, **extra: Any) -> str:
        if self._format != "json":
            return ""
        document = {
            **extra,
            "text": transcript.text,
            "duration": transcript.duration,
            "model": transcript.model,
            "segments": [asdict(segment) for segment in transcript.segments],
        }
        return json.dumps(document, ensure_ascii=False) + "\n"

    def _cue(self, start: float, end: float, text: str) -> str:
        self._cues += 1
        if self._format == "vtt":
            return f"\n{clock(start, '.')} --> {clock(end, '.')}\n{text}\n"
        between = "\n" if self._cues > 1 else ""
        return f"{between}{self._cues}\n{clock(start, ',')} --> {clock(end, ',')}\n{text}\n"


def cues(segment: Segment) -> Iterator[tuple[float, float, str]]:
    """Start, end and text of each: the segment, or as many of its words as can be read at a time."""
    words: list[Word] = []
    for word in segment.words or (Word(segment.text, segment.start, segment.end, segment.confidence),):
        characters = sum(len(known.text) + 1 for known in words) + len(word.text)
        if words and (characters > LONGEST_CUE or word.end - words[0].start > LONGEST_CUE_SECONDS):
            yield words[0].start, words[-1].end, " ".join(known.text for known in words)
            words = []
        words.append(word)
    yield words[0].start, words[-1].end, " ".join(word.text for word in words)


def clock(seconds: float, mark: str) -> str:
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{mark}{rest % 1000:03d}"
