"""The engine's thread: one stream's failure is its own, and a dead engine is told to everybody."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
import pytest

from model import Engine, Event, Recognizer, StreamOptions
from server.audio import Samples
from server.channel import Channel, Posts
from server.orders import Failed, Finished, FlushDone, Meter, Report, Said
from server.worker import Worker
from tests.server.conftest import noise

POISON = np.full(1, 0.5, np.float32)


class FragileEngine(Engine):
    """Dies of poison: at its taking, in a step, or altogether."""

    poisoned: set[int]
    deadly = False
    when = "step"

    def accept(self, stream: int, samples: Samples) -> None:
        if samples is POISON:
            if self.when == "accept":
                raise ValueError("poison")
            self.poisoned.add(stream)
            if self.when == "thread":
                raise SystemExit
            samples = np.zeros(16_000, np.float32)
        super().accept(stream, samples)

    def step(self, streams: Iterable[int] | None = None) -> dict[int, list[Event]]:
        names = list(streams) if streams is not None else [name for name in self if self.is_ready(name)]
        if self.poisoned & set(names):
            raise RuntimeError("poison")
        return super().step(names)


class Listener:
    def __init__(self, worker: Worker, options: StreamOptions | None = None) -> None:
        self.reports: list[Report] = []
        self.over = threading.Event()
        self.channel: Channel = worker.open(options or StreamOptions(), self.report, Meter(), bound=3600)

    def report(self, report: Report) -> None:
        self.reports.append(report)
        if isinstance(report, Finished | Failed):
            self.over.set()

    @property
    def events(self) -> list[Event]:
        return [event for report in self.reports if isinstance(report, Said) for event in report.events]

    @property
    def last(self) -> Report:
        assert self.over.wait(60)
        return self.reports[-1]


def deliver(posts: Posts) -> None:
    for report, what in posts:
        report(what)


def start(recognizer: Recognizer, engine: Engine | None = None) -> Worker:
    worker = Worker(recognizer.batch() if engine is None else engine, deliver, lambda wakes: None)
    worker.start()
    return worker


def fragile(recognizer: Recognizer, when: str) -> FragileEngine:
    engine = FragileEngine(recognizer.network)
    engine.poisoned, engine.when = set(), when
    return engine


def test_audio_that_comes_during_a_flush_waits_for_its_end(recognizer: Recognizer) -> None:
    worker = start(recognizer)
    parts = [noise(1.3, seed) for seed in range(3)]
    listener = Listener(worker)
    for number, part in enumerate(parts):
        listener.channel.hear(part)
        listener.channel.flush(str(number))
    listener.channel.finish()
    assert listener.last == Finished()
    stream = recognizer.stream()
    expected = [event for part in parts for event in stream.accept(part) + stream.flush()]
    assert listener.events == expected
    assert [report.id for report in listener.reports if isinstance(report, FlushDone)] == ["0", "1", "2"]
    assert listener.channel.meter.lag == 0
    worker.stop()
    assert not worker.is_alive


@pytest.mark.parametrize("when", ["accept", "step"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_hits_only_the_stream_that_caused_it(recognizer: Recognizer, when: str) -> None:
    worker = start(recognizer, fragile(recognizer, when))
    samples = noise(3, seed=1)
    well = [Listener(worker) for _ in range(4)]
    for listener in well:
        listener.channel.hear(samples[:20_000])
    ill = Listener(worker)
    ill.channel.hear(samples)
    ill.channel.hear(POISON)
    for listener in well:
        listener.channel.hear(samples[20_000:])
        listener.channel.finish()
    expected = recognizer.stream()
    said = expected.accept(samples) + expected.finish()
    for listener in well:
        assert listener.last == Finished()
        assert listener.events == said
    failed = ill.last
    assert isinstance(failed, Failed)
    assert failed.error.code == "engine_failed"
    assert worker.is_alive
    ill.channel.hear(samples)  # too late: nobody cares
    again = Listener(worker)
    again.channel.hear(samples)
    again.channel.finish()
    assert again.last == Finished()
    assert again.events == said
    worker.stop()


def test_a_dead_engine_fails_everybody_and_whoever_comes_later(recognizer: Recognizer) -> None:
    worker = start(recognizer, fragile(recognizer, "thread"))
    others = [Listener(worker) for _ in range(3)]
    for listener in others:
        listener.channel.hear(noise(1, seed=1))
    killer = Listener(worker)
    killer.channel.hear(POISON)
    for listener in [*others, killer]:
        assert isinstance(listener.last, Failed)
    worker._thread.join(10)
    assert not worker.is_alive
    late = Listener(worker)
    late.channel.hear(noise(1, seed=1))
    assert isinstance(late.last, Failed)


def test_abandoned_streams_leave_the_engine(recognizer: Recognizer) -> None:
    engine = recognizer.batch()
    worker = start(recognizer, engine)
    listener, other = Listener(worker), Listener(worker)
    listener.channel.hear(noise(1, seed=1))
    listener.channel.abandon()
    other.channel.hear(noise(1, seed=1))
    other.channel.finish()
    assert other.last == Finished()
    assert len(engine) == 0
    assert not listener.over.is_set()
    worker.stop()


def test_a_stream_without_audio_says_nothing(recognizer: Recognizer) -> None:
    worker = start(recognizer)
    listener = Listener(worker)
    listener.channel.flush("a")
    listener.channel.finish()
    assert listener.last == Finished()
    assert listener.reports == [FlushDone("a"), Finished()]
    worker.stop()


def test_only_streams_in_company_wait_for_each_other(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("server.worker.time.sleep", waits.append)
    worker = Worker(recognizer.batch(), deliver, lambda wakes: None, gather=0.5)
    worker.start()
    alone = Listener(worker)
    for piece in np.array_split(noise(2, seed=1), 20):
        alone.channel.hear(piece)
    alone.channel.finish()
    assert alone.last == Finished()
    assert waits == []
    both = [Listener(worker) for _ in range(2)]
    for piece in np.array_split(noise(2, seed=2), 20):
        for listener in both:
            listener.channel.hear(piece)
    for listener in both:
        listener.channel.finish()
        assert listener.last == Finished()
    assert waits
    assert all(0 < wait <= 0.5 for wait in waits)
    worker.stop()
