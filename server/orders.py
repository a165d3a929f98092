"""What a session and the engine's side say to each other: orders go down, reports come up. Both are plain values."""

from __future__ import annotations

from dataclasses import dataclass

from model import Event, StreamOptions
from server.messages import CloseReason, Encoding, Error


@dataclass
class Meter:
    """How far a stream's audio has come, in seconds. Written by the engine's side, read by the session."""

    received: float = 0.0
    processed: float = 0.0

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
