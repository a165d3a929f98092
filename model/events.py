"""What a recogniser says: characters as they are decided, and finished stretches of speech."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Emission:
    """Characters to append to the text. `time` (seconds) is how much of the audio was in when they were decided.

    `heard` is how much was in when they were said: a beam search says first, and decides later.
    """

    text: str
    time: float
    confidence: float
    heard: float


@dataclass(frozen=True)
class Word:
    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Segment:
    """A finished stretch of speech. Its text is that of its emissions, put together."""

    text: str
    start: float
    end: float
    words: tuple[Word, ...]


Event = Emission | Segment


@dataclass(frozen=True)
class Transcript:
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(word for segment in self.segments for word in segment.words)
