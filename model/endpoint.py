"""Where one stretch of speech ends and the next begins.

The recogniser starts anew at every endpoint, so that an hour of audio works as well as a sentence. What a stream says must not
depend on how its audio was chunked, so an endpoint may fall only on certain entries of the memory, known in advance: whoever
advances a stream goes at most `entries_to_check` far and then asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.features import FRAMES_PER_SECOND

HANGOVER = 50  # entries: text belongs to something loud that was heard at most this long ago, so silence says nothing


@dataclass(frozen=True)
class EndpointConfig:
    """All in seconds."""

    silence: float = 0.8  # a pause this long ends a segment
    impatience: float = 20.0  # a segment longer than this is ended by ...
    short_silence: float = 0.32  # ... a pause this long
    quiet: float = 0.4  # of that pause, at least this much must be quiet, unless ...
    wordless: float = 2.0  # ... no word came for this long
    longest: float = 40.0  # a segment is cut here, come what may
    check: float = 0.2  # how often to look, once the pause is long enough

    def __post_init__(self) -> None:
        if not 0.1 <= self.silence <= 10:
            raise ValueError(f"silence={self.silence}: expected 0.1..10 seconds")
        if not self.impatience < self.longest <= 120:
            raise ValueError(f"longest={self.longest}: expected more than impatience={self.impatience} and at most 120 seconds")
        for name in ("impatience", "short_silence", "quiet", "wordless", "check"):
            if not 0 <= getattr(self, name) <= 120:
                raise ValueError(f"{name}={getattr(self, name)}: expected 0..120 seconds")


def recently_loud(loud: Tensor, since_loud: Tensor) -> Tensor:
    """Which of the entries (B, T) come less than HANGOVER after a loud one; since_loud (B,) counts the entries before."""
    entries = torch.arange(loud.shape[1])
    last = torch.where(loud, entries, -1 - since_loud[:, None]).cummax(1).values
    return entries - last < HANGOVER


class Endpointer:
    """Follows one stream. Counts entries of the memory, of `reduction` frames each."""

    def __init__(self, config: EndpointConfig, reduction: int) -> None:
        def entries(seconds: float) -> int:
            return max(1, round(seconds * FRAMES_PER_SECOND / reduction))

        self.silence = entries(config.silence)
        self.short_silence = min(self.silence, entries(config.short_silence))
        self.impatience = entries(config.impatience)
        self.quiet = min(self.short_silence, entries(config.quiet))
        self.wordless = max(self.silence, entries(config.wordless))
        self.longest = entries(config.longest)
        self.check = min(self.short_silence, entries(config.check))
        self.since_loud = HANGOVER  # nothing was heard yet
        self.reset()

    def reset(self) -> None:
        self.length = 0  # entries since the last endpoint
        self.since_said = 0
        self.said = False  # any text since the last endpoint

    def entries_to_check(self) -> int:
        pause = self._pause()
        wait = pause - self.since_said if self.since_said < pause else self.check - (self.since_said - pause) % self.check
        if self.length < self.impatience:
            wait = min(wait, self.impatience - self.length)
        return min(wait, self.longest - self.length)

    def advance(self, loud: list[bool], said_at: list[int]) -> None:
        """Takes note of new entries: which were loud, and at which of them text was said."""
        self.length += len(loud)
        last_loud = max((entry for entry, is_loud in enumerate(loud) if is_loud), default=None)
        self.since_loud = self.since_loud + len(loud) if last_loud is None else len(loud) - 1 - last_loud
        self.since_said = len(loud) - 1 - said_at[-1] if said_at else self.since_said + len(loud)
        self.said = self.said or bool(said_at)

    def is_endpoint(self) -> bool:
        """Whether the recogniser is to start anew. Says no between the entries at which an endpoint may fall."""
        if self.length >= self.longest:
            return True
        beyond = self.since_said - self._pause()
        if beyond < 0 or beyond % self.check:
            return False
        return self.since_loud >= self.quiet or (self.said and self.since_said >= self.wordless)

    def _pause(self) -> int:
        return self.silence if self.length < self.impatience else self.short_silence
