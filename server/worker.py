"""The engine's thread: the only one that touches the model. Streams put audio in from any thread; reports come out in batches.

It steps as soon as any stream has enough audio, so a stream alone never waits; while a step runs, others gather for the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from model import Engine, Event, StreamOptions
from server.channel import Channel, Command, Posts
from server.messages import Error
from server.orders import AbandonStream, Failed, Finished, FinishStream, FlushDone, FlushStream, Meter, Report, Said

logger = logging.getLogger(__name__)

ENGINE_FAILED = Error("engine_failed", "the recogniser failed; this is the server's fault", fatal=True)


@dataclass(frozen=True)
class Step:
    """What one step did, for the metrics."""

    seconds: float
    streams: int
    audio: float  # seconds, of all streams together


@dataclass
class _Stream:
    """A channel's other end, in the worker's thread."""

    name: int  # the engine's
    fed: float = 0.0  # seconds
    held: deque[Command] = field(default_factory=deque)  # what came while a flush was under way
    flushing: str | None = None
    is_fresh: bool = False  # audio came since the last flush; without any, there is nothing to finalise


class Worker:
    """`post` delivers reports where they are wanted: it is called from the worker's thread and must not block."""

    def __init__(
        self,
        engine: Engine,
        post: Callable[[Posts], None],
        wake: Callable[[list[Callable[[], None]]], None],
        *,
        on_step: Callable[[Step], None] = lambda step: None,
        gather: float = 0.0,
    ) -> None:
        self._engine = engine
        self._post = post
        self._wake = wake
        self._on_step = on_step
        self._gather = gather
        self._changed = threading.Condition()
        self._inbox: list[tuple[Channel, Command]] = []
        self._stopping = False
        self._dead = False
        self._busy_since: float | None = None
        self._last_round = 0.0
        self._streams: dict[Channel, _Stream] = {}
        self._posts: Posts = []  # reports of this round
        self._wakes: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._dead

    def busy_for(self) -> float:
        """Seconds that the current step has taken so far."""
        since = self._busy_since
        return time.monotonic() - since if since is not None else 0.0

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, options: StreamOptions, report: Callable[[Report], None], meter: Meter, bound: float) -> Channel:
        """A new stream; `report` is called through `post`. It holds at most about `bound` seconds of unprocessed audio."""
        return Channel(self, options, report, meter, bound)

    def put(self, channel: Channel, command: Command) -> None:
        with self._changed:
            if self._dead:
                self._post([(channel.report, Failed(ENGINE_FAILED))])
                return
            self._inbox.append((channel, command))
            self._changed.notify()

    def post(self, posts: Posts) -> None:
        self._post(posts)

    # ------------------------------------------------------------ the worker's thread
    def _run(self) -> None:
        torch.set_num_threads(1)
        try:
            while self._wait_for_work():
                self._take_inbox()
                self._step()
                self._send_reports()
        except BaseException:
            logger.exception("the engine's thread died")
        finally:
            self._die()

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not self._stopping and not self._inbox and not self._ready():
                self._changed.wait(timeout=1.0)
        pause = self._last_round + self._gather - time.monotonic()
        # A fuller batch costs less per stream. Measured at 80 streams: 0.59 of a core instead of 0.89, for 7 ms more of median lag;
        # how many streams a core sustains does not depend on it, and a stream alone does not wait (docs/operations.md).
        if pause > 0 and len(self._streams) > 1:
            time.sleep(pause)
        self._last_round = time.monotonic()
        return not self._stopping

    def _ready(self) -> list[tuple[Channel, _Stream]]:
        return [(channel, stream) for channel, stream in self._streams.items() if self._engine.is_ready(stream.name)]

    def _take_inbox(self) -> None:
        with self._changed:
            inbox, self._inbox = self._inbox, []
        for channel, command in inbox:
            if channel.is_over:
                continue
            if isinstance(command, AbandonStream):
                self._forget(channel)
                continue
            stream = self._streams.get(channel)
            try:
                if stream is None:
                    stream = self._streams[channel] = _Stream(self._engine.open(channel.options))
                stream.held.append(command)
                self._obey(channel, stream)
            except Exception:
                self._fail(channel)

    def _obey(self, channel: Channel, stream: _Stream) -> None:
        """Passes on what waits for this stream, up to the next flush: the engine takes no audio while one is under way."""
        while stream.held and stream.flushing is None:
            command = stream.held.popleft()
            if isinstance(command, FlushStream):
                self._flush(channel, stream, command.id)
            elif isinstance(command, FinishStream):
                self._finish(channel, stream)
            elif not isinstance(command, AbandonStream):
                self._engine.accept(stream.name, command)
                stream.fed += len(command) / channel.options.sample_rate
                stream.is_fresh = True

    def _flush(self, channel: Channel, stream: _Stream, name: str) -> None:
        if stream.is_fresh:
            self._engine.flush(stream.name)
            stream.flushing, stream.is_fresh = name, False
        else:
            self._posts.append((channel.report, FlushDone(name)))

    def _finish(self, channel: Channel, stream: _Stream) -> None:
        stream.held.clear()
        if stream.is_fresh:
            self._engine.finish(stream.name)
        else:
            self._posts.append((channel.report, Finished()))
            self._forget(channel)

    def _send_reports(self) -> None:
        posts, self._posts = self._posts, []
        wakes, self._wakes = self._wakes, []
        if posts:
            self._post(posts)
        if wakes:
            self._wake(wakes)

    def _step(self) -> None:
        ready = self._ready()
        if not ready:
            return
        began = self._busy_since = time.monotonic()
        before = sum(self._engine.pending(stream.name) for _, stream in ready)
        try:
            said = self._engine.step()
        except Exception:
            logger.exception("a step failed")
            said = self._step_one_by_one(ready)
        self._busy_since = None
        after = 0.0
        for channel, stream in ready:
            if channel not in self._streams:  # it failed
                continue
            events = said.get(stream.name)
            if events:
                self._posts.append((channel.report, Said(tuple(events))))
            after += self._after_step(channel, stream)
        self._on_step(Step(time.monotonic() - began, len(ready), before - after))

    def _after_step(self, channel: Channel, stream: _Stream) -> float:
        """Returns the seconds that the stream still has pending."""
        if stream.name not in self._engine:
            channel.progressed(channel.meter.received)
            self._posts.append((channel.report, Finished()))
            self._forget(channel)
            return 0.0
        pending = self._engine.pending(stream.name)
        wake = channel.progressed(stream.fed - pending)
        if wake is not None:
            self._wakes.append(wake)
        if stream.flushing is not None and not self._engine.is_ready(stream.name):
            self._posts.append((channel.report, FlushDone(stream.flushing)))
            stream.flushing = None
            try:
                self._obey(channel, stream)
            except Exception:
                self._fail(channel)
        return pending

    def _step_one_by_one(self, ready: list[tuple[Channel, _Stream]]) -> dict[int, list[Event]]:
        """After a step that failed and changed nothing: finds the stream that caused it."""
        said: dict[int, list[Event]] = {}
        for channel, stream in ready:
            try:
                events = self._engine.step([stream.name])
            except Exception:
                self._fail(channel)
                continue
            for name, new in events.items():  # what others had said before the failure comes along
                said.setdefault(name, []).extend(new)
        return said

    def _fail(self, channel: Channel) -> None:
        logger.exception("a stream failed")
        self._forget(channel)
        self._posts.append((channel.report, Failed(ENGINE_FAILED)))

    def _forget(self, channel: Channel) -> None:
        stream = self._streams.pop(channel, None)
        channel.is_over = True
        channel.room.set()
        if stream is not None and stream.name in self._engine:
            self._engine.close(stream.name)

    def _die(self) -> None:
        """Whoever still waits for this thread must hear that nothing will come."""
        with self._changed:
            self._dead = True
            waiting = list(self._streams) + [channel for channel, _ in self._inbox]
            self._inbox = []
        self._streams.clear()
        self._send_reports()
        for channel in waiting:
            channel.room.set()
        self._post([(channel.report, Failed(ENGINE_FAILED)) for channel in dict.fromkeys(waiting)])
