"""A session without sockets, threads or clocks: messages in, messages and orders out.

    client's messages ─┐                    ┌─ messages to the client
    engine's reports  ─┼─▶ Session.feed() ──┤
    ticks of a clock  ─┘                    └─ orders to the engine

Every way through it ends with exactly one `Closed`, after which it answers nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from model import Emission, EndpointConfig, Event, StreamOptions
from server.messages import (
    Audio,
    ClientMessage,
    Closed,
    CloseReason,
    Error,
    Flush,
    Flushed,
    Keepalive,
    ProtocolError,
    Ready,
    Resume,
    SegmentEnd,
    ServerMessage,
    Start,
    Status,
    Stop,
    Text,
    WordTime,
)
from server.orders import (
    AbandonStream,
    Draining,
    End,
    Failed,
    Finished,
    FinishStream,
    FlushDone,
    FlushStream,
    Hear,
    Invalid,
    Meter,
    OpenStream,
    Order,
    Report,
    Said,
    Tick,
)
from server.settings import SessionLimits

Input = ClientMessage | Report | Tick | Invalid | Draining | End
Output = ServerMessage | Order

MOST_ERRORS = 20  # a client that has sent this much nonsense will not come to its senses

CLOSE_CODES: dict[CloseReason, int] = {"stopped": 1000, "idle": 1000, "too_long": 1000, "draining": 1012, "error": 1008}
OUR_FAULT = 1011


class Session:
    def __init__(self, name: str, limits: SessionLimits, meter: Meter, model: str = "") -> None:
        self.name = name
        self.phase: Literal["new", "open", "ending", "over"] = "new"
        self.accepted = Start()
        self.has_begun = False  # the client knows its name, and can resume it
        self.bytes = 0  # of audio, taken: a resumed client goes on from here
        self.seq = 0  # of the last numbered message
        self.close_code = CLOSE_CODES["stopped"]
        self._limits = limits
        self._meter = meter
        self._model = model
        self._reason: CloseReason = "stopped"
        self._draining = False
        self._errors = 0
        self._segments = 0
        self._characters = 0
        self._stirred = True  # the client gave a sign of life since the last tick
        self._opened_at: float | None = None
        self._stirred_at = 0.0
        self._status_at = 0.0

    def feed(self, message: Input) -> list[Output]:
        if self.phase == "over":
            return []
        match message:
            case Said(events):
                return [said for event in events for said in self._say(event)]
            case FlushDone(name):
                return [Flushed(name, self._number())]
            case Finished():
                return [self._close()]
            case Failed(error):
                return self._fail(error)
            case Tick(now):
                return self._tick(now)
            case Invalid(error):
                return self._complain(error)
            case Draining():
                self._draining = True
                return [self.status()] if self.phase == "open" else []
            case End(reason):
                return self._end(reason)
            case _:
                return self._from_client(message)

    def ready(self, *, resumed: bool) -> Ready:
        return Ready(self.name, self.accepted, self._model, resumed, self.bytes, self._limits.resume)

    def status(self) -> Status:
        received, processed = round(self._meter.received, 3), round(self._meter.processed, 3)
        return Status(received, min(received, processed), self.bytes, self._draining)

    def _from_client(self, message: ClientMessage) -> list[Output]:
        self._stirred = True
        if self.phase == "new":
            if isinstance(message, Start):
                return self._start(message)
            if isinstance(message, Resume):
                return self._fail(Error("unknown_session", f"session={message.session}: nothing to resume", "session"))
            opening = self._start(Start())
            return opening + self.feed(message)
        match message:
            case Keepalive():
                return [self.status()]
            case Stop():
                return self._end("stopped")
            case Audio(data) if self.phase == "open":
                self.bytes += len(data)
                return [Hear(data)] if data else []
            case Flush(name) if self.phase == "open":
                return [FlushStream(name)]
        when = "after the start" if self.phase == "open" else "after the stop"
        accepted = "audio, flush, stop or keepalive" if self.phase == "open" else "keepalive, until closed comes"
        kind = "audio" if isinstance(message, Audio) else message.type
        return self._complain(Error("out_of_order", f"type={kind}: came {when}; expected {accepted}", "type", kind, accepted))

    def _start(self, start: Start) -> list[Output]:
        start = dataclasses.replace(start, beam=start.beam or self._limits.beam)
        try:
            options = stream_options(start, self._limits)
        except ProtocolError as problem:
            return self._fail(problem.error)
        self.phase, self.accepted, self.has_begun = "open", start, True
        return [self.ready(resumed=False), OpenStream(options, start.encoding, start.channels)]

    def _end(self, reason: CloseReason) -> list[Output]:
        if self.phase == "ending":
            return []
        self._reason = reason
        if self.phase == "new":
            return [self._close()]
        self.phase = "ending"
        return [FinishStream()]

    def _fail(self, error: Error) -> list[Output]:
        abandon: list[Output] = [AbandonStream()] if self.phase in ("open", "ending") else []
        self._reason = "error"
        told = self._numbered(error, fatal=True)
        closed = self._close()
        if error.code == "engine_failed":
            self.close_code = OUR_FAULT
        return [*abandon, told, closed]

    def _complain(self, error: Error) -> list[Output]:
        self._errors += 1
        if error.fatal or self._errors >= MOST_ERRORS or self.phase == "new":
            return self._fail(error)
        return [self._numbered(error)]

    def _numbered(self, error: Error, *, fatal: bool = False) -> Error:
        """So that a resume brings it again. Before the start there is nothing to resume, and a client may know other numbers."""
        return dataclasses.replace(error, fatal=fatal, seq=self._number() if self.has_begun else None)

    def _close(self) -> Closed:
        self.phase = "over"
        self.close_code = CLOSE_CODES[self._reason]
        status = self.status()
        return Closed(self._reason, status.received, status.processed, self.bytes, self._segments, self._characters, self._number())

    def _tick(self, now: float) -> list[Output]:
        if self._opened_at is None:
            self._opened_at = self._status_at = now
        if self._stirred or self._meter.lag > 1:  # whoever waits for us is not idle
            self._stirred, self._stirred_at = False, now
        if self.phase == "new" and now - self._stirred_at > self._limits.idle:
            return self._end("idle")
        if self.phase != "open":
            return []
        if now - self._opened_at > self._limits.longest:
            return self._end("too_long")
        if now - self._stirred_at > self._limits.idle:
            return self._end("idle")
        interval = self.accepted.status_interval
        if interval and now - self._status_at >= interval:
            self._status_at = now
            return [self.status()]
        return []

    def _say(self, event: Event) -> list[Output]:
        if isinstance(event, Emission):
            self._characters += len(event.text)
            if not self.accepted.interim:
                return []
            return [Text(event.text, round(event.time, 3), event.confidence, round(event.heard, 3), self._number())]
        self._segments += 1
        words = tuple(WordTime(word.text, word.start, word.end, word.confidence) for word in event.words)
        confidence = round(sum(word.confidence for word in words) / len(words), 4) if words else 0.0
        told = words if self.accepted.words else None
        return [SegmentEnd(event.text, event.start, event.end, confidence, told, self._number())]

    def _number(self) -> int:
        self.seq += 1
        return self.seq


def stream_options(start: Start, limits: SessionLimits) -> StreamOptions:
    """What the engine is asked for."""
    if start.beam > limits.beam:
        accepted = f"whole number 0..{limits.beam}"
        raise ProtocolError(Error("bad_message", f"beam={start.beam}: expected {accepted}", "beam", str(start.beam), accepted))
    try:
        return StreamOptions(start.sample_rate, EndpointConfig(silence=start.endpointing), start.beam)
    except ValueError as problem:
        raise ProtocolError(Error("bad_message", str(problem), str(problem).partition("=")[0])) from problem
