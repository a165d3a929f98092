"""A stream's way into the engine's thread, from any other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from model import StreamOptions
from server.audio import Samples
from server.messages import Error
from server.orders import AbandonStream, Failed, FinishStream, FlushStream, Meter, Report

Command = Samples | FlushStream | FinishStream | AbandonStream
Posts = list[tuple[Callable[[Report], None], Report]]


class Inbox(Protocol):
    """The worker, as its channels see it."""

    def put(self, channel: Channel, command: Command) -> None: ...
    def post(self, posts: Posts) -> None: ...


class Channel:
    """A stream, from outside the worker's thread. Nothing here blocks; whoever feeds it waits for `room` first."""

    def __init__(self, inbox: Inbox, options: StreamOptions, report: Callable[[Report], None], meter: Meter, bound: float) -> None:
        self.options = options
        self.report = report
        self.meter = meter
        self.room = threading.Event()
        self.room.set()
        self.wake: Callable[[], None] | None = None  # called once, on the loop, when there is room again
        self.is_over = False  # the worker has forgotten it
        self._bound = bound
        self._inbox = inbox

    def hear(self, samples: Samples) -> None:
        self.meter.arrive(len(samples) / self.options.sample_rate, time.monotonic())
        if self.meter.lag > self._bound:
            self.room.clear()
        self._inbox.put(self, samples)

    def flush(self, name: str) -> None:
        self._inbox.put(self, FlushStream(name))

    def finish(self) -> None:
        self._inbox.put(self, FinishStream())

    def abandon(self) -> None:
        self._inbox.put(self, AbandonStream())

    def fail(self, error: Error) -> None:
        """For a decoder: the audio that comes is none."""
        self.abandon()
        self._inbox.post([(self.report, Failed(error))])

    def progressed(self, processed: float) -> Callable[[], None] | None:
        """From the worker's thread. Returns whom to wake, if there is room now."""
        self.meter.processed = max(self.meter.processed, min(processed, self.meter.received))
        if self.meter.lag > self._bound:
            return None
        self.room.set()
        wake, self.wake = self.wake, None
        return wake
