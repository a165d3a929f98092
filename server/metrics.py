"""What Prometheus is told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from server.live import Live
from server.messages import Closed, Error, ServerMessage, Text
from server.worker import Step

LAG_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)
STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 5)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's own name: set when several processes report as one


class Metrics:
    """Counters of one process; with several processes, `page` adds them up."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._sessions = Gauge("monoscribe_sessions", "Open sessions", registry=registry, multiprocess_mode="livesum")
        self._count: Callable[[], int] = lambda: 0
        self._closed = Counter("monoscribe_sessions_closed", "Sessions that ended, by reason", ["reason"], registry=registry)
        self._audio = Counter("monoscribe_audio_seconds", "Audio processed", registry=registry)
        self._busy = Counter(
            "monoscribe_busy_seconds", "Time spent in steps; over audio seconds: the real-time factor", registry=registry
        )
        self._characters = Counter("monoscribe_characters", "Characters said", registry=registry)
        self._steps = Histogram("monoscribe_step_seconds", "Time of one step", buckets=STEP_BUCKETS, registry=registry)
        self._batch = Histogram(
            "monoscribe_batch_streams", "Streams that one step advanced", buckets=BATCH_BUCKETS, registry=registry
        )
        self._lag = Histogram(
            "monoscribe_emission_lag_seconds",
            "From the arrival of the audio that decided a character to its sending",
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        self._errors = Counter("monoscribe_errors", "Errors told to clients, by code", ["code"], registry=registry)

    def stepped(self, step: Step) -> None:
        self._steps.observe(step.seconds)
        self._batch.observe(step.streams)
        self._audio.inc(max(0.0, step.audio))
        self._busy.inc(step.seconds)

    def said(self, live: Live, message: ServerMessage) -> None:
        match message:
            case Text():
                self._characters.inc(len(message.text))
                arrived = live.meter.arrival(message.time)
                if arrived is not None:
                    self._lag.observe(time.monotonic() - arrived)
            case Error():
                self.failed(message)
            case Closed():
                self._closed.labels(message.reason).inc()

    def failed(self, error: Error) -> None:
        self._errors.labels(error.code).inc()

    def count_sessions(self, count: Callable[[], int]) -> None:
        """Where to ask how many sessions there are."""
        self._count = count

    def page(self) -> bytes:
        self._sessions.set(self._count())
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
