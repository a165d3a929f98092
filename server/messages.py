"""The native protocol's messages: the one place where their fields and bounds stand. docs/protocol.md explains them.

Client and server exchange JSON objects told apart by `type`, and the client's audio as binary frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from model import EndpointConfig

PROTOCOL_VERSION = 1

# `auto`: any container, recognised by its first bytes
Encoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "webm", "ogg", "flac", "mp3", "wav", "auto"]

CloseReason = Literal["stopped", "error", "idle", "too_long", "draining"]
ErrorCode = Literal[
    "bad_message",  # not JSON, unknown type, a field out of its bounds
    "bad_audio",  # the audio is not what `encoding` says
    "out_of_order",  # a message that makes no sense now
    "unknown_session",  # nothing to resume under that name
    "resume_gap",  # resumed too late: what the client lacks is no longer kept
    "slow_reader",  # the client does not read what the server says
    "engine_failed",  # our fault
    "at_capacity",
    "unauthorized",
    "forbidden_origin",
    "too_large",
    "too_slow",
]

STRICT = ConfigDict(extra="forbid")


# ---------------------------------------------------------------- from the client
@dataclass(frozen=True)
class Start:
    """What the client sends and wants. Every field has a default; the query of the address may carry them instead."""

    __pydantic_config__ = STRICT
    type: Literal["start"] = "start"
    encoding: Encoding = "pcm_s16le"
    sample_rate: Annotated[int, Field(ge=8_000, le=48_000)] = 16_000  # of raw audio; a container says its own
    channels: Annotated[int, Field(ge=1, le=8)] = 1  # of raw audio, interleaved; several are mixed into one
    interim: bool = True  # whether to send `text`
    words: bool = True  # whether segments carry their words
    endpointing: Annotated[float, Field(ge=0.1, le=10)] = EndpointConfig().silence  # seconds of pause that end a segment
    beam: Annotated[int, Field(ge=0, le=16)] = 1  # hypotheses to follow; 0: as many as the server lets
    status_interval: Annotated[float, Field(ge=0, le=60)] = 1.0  # seconds between two `status`; 0: none unless asked for


@dataclass(frozen=True)
class Resume:
    """Goes on with a session whose connection broke. `seq` is the last message that the client got of it."""

    __pydantic_config__ = STRICT
    session: Annotated[str, Field(min_length=1, max_length=100)]
    seq: Annotated[int, Field(ge=0)] = 0
    type: Literal["resume"] = "resume"


@dataclass(frozen=True)
class Flush:
    """Everything sent so far is finalised, as if the audio ended here; then comes `flushed` with that `id`."""

    __pydantic_config__ = STRICT
    id: Annotated[str, Field(max_length=100)] = ""
    type: Literal["flush"] = "flush"


@dataclass(frozen=True)
class Stop:
    """No more audio will come: everything is finalised, then comes `closed`."""

    __pydantic_config__ = STRICT
    type: Literal["stop"] = "stop"


@dataclass(frozen=True)
class Keepalive:
    """A sign of life; answered with a `status`."""

    __pydantic_config__ = STRICT
    type: Literal["keepalive"] = "keepalive"


@dataclass(frozen=True)
class Audio:
    """A binary frame."""

    data: bytes


ControlMessage = Start | Resume | Flush | Stop | Keepalive
ClientMessage = ControlMessage | Audio


# ---------------------------------------------------------------- from the server
@dataclass(frozen=True)
class Ready:
    """The session is open, or goes on. The client's next byte of audio is number `bytes`."""

    session: str
    accepted: Start
    model: str
    resumed: bool = False
    bytes: int = 0
    resume_seconds: float = 0.0  # how long a broken session is kept
    protocol: int = PROTOCOL_VERSION
    type: Literal["ready"] = "ready"


@dataclass(frozen=True)
class Text:
    """Characters to append. `time`: seconds of the audio that were in when they were decided; `heard`: when they were said."""

    text: str
    time: float
    confidence: float
    heard: float
    seq: int = 0
    type: Literal["text"] = "text"


@dataclass(frozen=True)
class WordTime:
    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class SegmentEnd:
    """A finished stretch of speech: the texts since the last one, put together."""

    text: str
    start: float
    end: float
    confidence: float
    words: tuple[WordTime, ...] | None = None
    seq: int = 0
    type: Literal["segment"] = "segment"


@dataclass(frozen=True)
class Flushed:
    """Everything sent before the flush `id` has been said."""

    id: str
    seq: int = 0
    type: Literal["flushed"] = "flushed"


@dataclass(frozen=True)
class Status:
    """Seconds of audio received and processed; the difference is the lag. Audio up to `bytes` need not be kept for a resume."""

    received: float
    processed: float
    bytes: int
    draining: bool = False  # the server is about to go: stop soon
    type: Literal["status"] = "status"


@dataclass(frozen=True)
class Error:
    """Something was wrong. Unless it is fatal, the session goes on as if that message had not come."""

    code: ErrorCode
    message: str
    field: str | None = None
    value: str | None = None
    accepted: str | None = None
    fatal: bool = False
    seq: int | None = None  # of those about an open session; whoever was not let in has nothing to resume
    type: Literal["error"] = "error"


@dataclass(frozen=True)
class Closed:
    """The last message of a session: all that was heard has been said."""

    reason: CloseReason
    received: float
    processed: float
    bytes: int
    segments: int
    characters: int
    seq: int = 0
    type: Literal["closed"] = "closed"


Numbered = Text | SegmentEnd | Flushed | Error | Closed  # kept for a resume
ServerMessage = Ready | Numbered | Status


class ProtocolError(ValueError):
    """A message that cannot be taken; `error` tells the client why."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error
