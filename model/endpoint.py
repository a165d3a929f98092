"""Where one stretch of speech ends and the next begins.

The recogniser starts anew at every endpoint, so that an hour of audio works as well as a sentence. What a stream says must not
depend on how its audio was chunked, so every entry of the memory is judged by itself, whether it came alone or with others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from model.features import FRAMES_PER_SECOND

HANGOVER = 2.0  # seconds: text belongs to something loud that was heard less than this ago, so silence says nothing


@dataclass(frozen=True)
class EndpointConfig:
    """All in seconds."""

    silence: float = 0.8  # a pause this long ends a segment
    impatience: float = 20.0  # a segment longer than this is ended by ...
    short_silence: float = 0.32  # ... a pause this long
    quiet: float = 0.4  # of that pause, at least this much must be quiet, unless ...
    wordless: float = 2.0  # ... no word came for this long
    longest: float = 40.0  # a segment is cut here, come what may

    def __post_init__(self) -> None:
        if not 0.1 <= self.silence <= 10:
            raise ValueError(f"silence={self.silence}: expected 0.1..10 seconds")
        if not self.impatience < self.longest <= 120:
            raise ValueError(f"longest={self.longest}: expected more than impatience={self.impatience} and at most 120 seconds")
        for name in ("impatience", "short_silence", "quiet", "wordless"):
            if not 0 <= getattr(self, name) <= 120:
                raise ValueError(f"{name}={getattr(self, name)}: expected 0..120 seconds")


def to_entries(seconds: float, reduction: int) -> int:
    """At least one."""
    return max(1, round(seconds * FRAMES_PER_SECOND / reduction))


def recently_loud(loud: Tensor, since_loud: Tensor, hangover: int) -> Tensor:
    """Which of the entries (B, T) come less than `hangover` after a loud one; since_loud (B,) counts the entries before."""
    entries = torch.arange(loud.shape[1])
    last = torch.where(loud, entries, -1 - since_loud[:, None]).cummax(1).values
    return entries - last < hangover


class Endpointer:
    """Follows one stream. Counts entries of the memory, of `reduction` frames each."""

    def __init__(self, config: EndpointConfig, reduction: int) -> None:
        entries = partial(to_entries, reduction=reduction)
        self.silence = entries(config.silence)
        self.short_silence = min(self.silence, entries(config.short_silence))
        self.impatience = entries(config.impatience)
        self.quiet = min(self.short_silence, entries(config.quiet))
        self.wordless = max(self.silence, entries(config.wordless))
        self.longest = entries(config.longest)
        self.since_loud = entries(HANGOVER)  # nothing was heard yet
        self.reset()

    def reset(self) -> None:
        self.length = 0  # entries since the last endpoint
        self.since_said = 0
        self.said = False  # any text since the last endpoint

    def advance(self, loud: Sequence[bool], said: Container[int]) -> int | None:
        """Takes note of new entries: which are loud, and the numbers of those at which text was said.

        Stops behind the first entry that is an endpoint and returns how many it took, or None if there is none among them.
        """
        for entry, is_loud in enumerate(loud):
            is_said = entry in said
            self.length += 1
            self.since_loud = 0 if is_loud else self.since_loud + 1
            self.since_said = 0 if is_said else self.since_said + 1
            self.said = self.said or is_said
            if self._is_endpoint():
                return entry + 1
        return None

    def _is_endpoint(self) -> bool:
        if self.length >= self.longest:
            return True
        if self.since_said < (self.silence if self.length < self.impatience else self.short_silence):
            return False
        return self.since_loud >= self.quiet or (self.said and self.since_said >= self.wordless)
