"""What a session tells its user. Times are seconds of the audio that was sent, however many connections carried it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """Characters to append to the current segment. `time` is how much of the audio was in when they were decided.

    `heard` is where in it they were heard: with a beam, a little before.
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
    """The current segment is over: the texts since the last one, put together."""

    text: str
    start: float
    end: float
    confidence: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Flushed:
    """Everything sent before the flush of that name has been said."""

    id: str


@dataclass(frozen=True)
class Status:
    """Seconds of audio that the server has received and processed. `draining`: it is about to go; the session will move on."""

    received: float
    processed: float
    draining: bool = False


@dataclass(frozen=True)
class Interrupted:
    """The connection broke; the session tries again, and keeps the audio meanwhile."""

    reason: str


@dataclass(frozen=True)
class Resumed:
    """The session goes on where it was.

    If `restarted`, the server no longer knew the session: the texts since the last segment are void and come again.
    `lost` is how many seconds of audio were no longer kept by then; none, unless a segment outgrew the buffer.
    """

    restarted: bool = False
    lost: float = 0.0


@dataclass(frozen=True)
class Complaint:
    """The server did not understand something and went on without it."""

    code: str
    message: str


@dataclass(frozen=True)
class Closed:
    """The last event: all that was sent has been said."""

    received: float
    processed: float
    segments: int


Event = Text | Segment | Flushed | Status | Interrupted | Resumed | Complaint | Closed


class ClientError(Exception):
    """Something that a user should read: the message is a whole sentence, and says what to do where that is known."""


class ConnectionFailedError(ClientError):
    """No server, or none any more."""


class ServerError(ClientError):
    """The server said no. `code` is one of docs/protocol.md's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AudioError(ClientError):
    """Audio that cannot be read, or is not what it was said to be."""
