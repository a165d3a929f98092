"""A finished transcript as json, text, srt or vtt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from server.messages import SegmentEnd, WordTime

Format = Literal["json", "text", "srt", "vtt"]
MEDIA_TYPES: dict[Format, str] = {
    "json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
LONGEST_CUE = 84  # characters: two lines of a subtitle
LONGEST_CUE_SECONDS = 7.0


def plain_text(segments: Sequence[SegmentEnd]) -> str:
    return " ".join(segment.text for segment in segments)


def as_json(segments: Sequence[SegmentEnd], duration: float, model: str, *, words: bool = True) -> dict[str, Any]:
    left_out = {"type", "seq"} if words else {"type", "seq", "words"}
    told = [{name: value for name, value in asdict(segment).items() if name not in left_out} for segment in segments]
    return {"text": plain_text(segments), "duration": duration, "model": model, "segments": told}


def as_text(segments: Sequence[SegmentEnd]) -> str:
    return "".join(segment.text + "\n" for segment in segments)


def as_srt(segments: Sequence[SegmentEnd]) -> str:
    return "\n".join(
        f"{number}\n{clock(start, ',')} --> {clock(end, ',')}\n{text}\n"
        for number, (start, end, text) in enumerate(cues(segments), 1)
    )


def as_vtt(segments: Sequence[SegmentEnd]) -> str:
    return "WEBVTT\n" + "".join(f"\n{clock(start, '.')} --> {clock(end, '.')}\n{text}\n" for start, end, text in cues(segments))


def cues(segments: Sequence[SegmentEnd]) -> Iterator[tuple[float, float, str]]:
    """Start, end and text of each: a segment, or as many of its words as can be read at a time."""
    for segment in segments:
        words: list[WordTime] = []
        for word in segment.words or (WordTime(segment.text, segment.start, segment.end, segment.confidence),):
            characters = sum(len(known.text) + 1 for known in words) + len(word.text)
            if words and (characters > LONGEST_CUE or word.end - words[0].start > LONGEST_CUE_SECONDS):
                yield _cue(words)
                words = []
            words.append(word)
        yield _cue(words)


def clock(seconds: float, mark: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{mark}{rest % 1000:03d}"


def _cue(words: Sequence[WordTime]) -> tuple[float, float, str]:
    return words[0].start, words[-1].end, " ".join(word.text for word in words)
