"""What a session and the engine's side say to each other: orders go down, reports come up. Both are plain values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from model import Event, StreamOptions
from server.messages import CloseReason, Encoding, Error

MOST_ARRIVALS = 256  # of audio that a meter remembers: some seconds' worth, of a live stream


@dataclass
class Meter:
    """How far a stream's audio has come, in seconds. Written by the engine's side, read by the session."""

    received: float = 0.0
    processed: float = 0.0
    _arrivals: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST_ARRIVALS))

    def arrive(self, seconds: float, now: float) -> None:
        self.received += seconds
        self._arrivals.append((self.received, now))

    def arrival(self, position: float) -> float | None:
        """When the audio up to that position had come in. Positions are asked for in order."""
        while self._arrivals and self._arrivals[0][0] < position:
            self._arrivals.popleft()
        return self._arrivals[0][1] if self._arrivals else None

    @property
    def lag(self) -> float:
        return max(0.0, self.received - self.processed)


# ---------------------------------------------------------------- orders: from the session
@dataclass(frozen=True)
class OpenStream:
    options: StreamOptions
    encoding: Encoding
    channels: int


@dataclass(frozen=True)
class Hear:
    data: bytes


@dataclass(frozen=True)
class FlushStream:
    id: str


@dataclass(frozen=True)
class FinishStream:
    """Say all that is left, then report `Finished`."""


@dataclass(frozen=True)
class AbandonStream:
    """Forget the stream at once."""


Order = OpenStream | Hear | FlushStream | FinishStream | AbandonStream


# ---------------------------------------------------------------- reports: to the session
@dataclass(frozen=True)
class Said:
    events: tuple[Event, ...]


@dataclass(frozen=True)
class FlushDone:
    id: str


@dataclass(frozen=True)
class Finished:
    pass


@dataclass(frozen=True)
class Failed:
    error: Error


Report = Said | FlushDone | Finished | Failed


# ---------------------------------------------------------------- and from those who run the session
@dataclass(frozen=True)
class Tick:
    """The time, in seconds of any steady clock, now and then."""

    now: float


@dataclass(frozen=True)
class Invalid:
    """The client sent something that is no message."""

    error: Error


@dataclass(frozen=True)
class Draining:
    """The server will go soon."""


@dataclass(frozen=True)
class End:
    """Finish, whatever the client wants: everything heard so far will be said."""

    reason: CloseReason
