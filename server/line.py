"""From a session's orders to the engine: picks the decoder, and says when there is room for more audio."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from server.audio import RAW, RawDecoder
from server.channel import Channel
from server.containers import OUTPUT_RATE, ContainerDecoder
from server.orders import AbandonStream, FinishStream, FlushDone, FlushStream, Hear, Meter, OpenStream, Order, Report
from server.worker import Worker

MOST_FLUSHES = 16  # under way at a time: each costs the engine as much as some tenths of a second of audio
LONGEST_PATIENCE = 0.25  # seconds: how often to look at a decoder's pipe, which wakes nobody


class Line:
    """Lives on the event loop; `obey` never blocks."""

    def __init__(self, worker: Worker, report: Callable[[Report], None], *, buffer_seconds: float, buffer_bytes: int) -> None:
        self.meter = Meter()
        self._worker = worker
        self._report = report
        self._buffer_seconds = buffer_seconds
        self._buffer_bytes = buffer_bytes
        self._channel: Channel | None = None
        self._raw: RawDecoder | None = None
        self._container: ContainerDecoder | None = None
        self._flushes = 0  # under way

    def obey(self, order: Order) -> None:
        """Raises ProtocolError if the audio is not what it was said to be."""
        if isinstance(order, OpenStream):
            self._open(order)
            return
        if self._channel is None:
            return
        match order:
            case Hear(data):
                self._hear(data)
            case FlushStream(name):
                self._flushes += 1
                (self._container or self._channel).flush(name)
            case FinishStream():
                (self._container or self._channel).finish()
            case AbandonStream():
                if self._container is not None:
                    self._container.abandon()
                self._channel.abandon()

    @property
    def is_full(self) -> bool:
        decoding = self._container.waiting_bytes if self._container is not None else 0
        return self.meter.lag > self._buffer_seconds or decoding > self._buffer_bytes or self._flushes >= MOST_FLUSHES

    async def room(self) -> None:
        """Waits until more audio or another flush may come, or until nobody listens any more."""
        while self.is_full and self._channel is not None and not self._channel.is_over:
            woken = asyncio.Event()
            self._channel.wake = woken.set
            try:
                async with asyncio.timeout(LONGEST_PATIENCE):  # wait_for can swallow a cancellation, and this would wait for ever
                    await woken.wait()
            except TimeoutError:
                continue

    def _open(self, order: OpenStream) -> None:
        options = order.options
        if order.encoding in RAW:
            self._raw = RawDecoder(order.encoding, order.channels)
        else:
            options = dataclasses.replace(options, sample_rate=OUTPUT_RATE)
        self._channel = self._worker.open(options, self._reported, self.meter, self._buffer_seconds)
        if self._raw is None:
            self._container = ContainerDecoder(order.encoding, self._channel)

    def _reported(self, report: Report) -> None:
        self._flushes -= isinstance(report, FlushDone)
        self._report(report)

    def _hear(self, data: bytes) -> None:
        assert self._channel is not None
        if self._container is not None:
            self._container.decode(data)
        elif self._raw is not None:
            samples = self._raw.decode(data)
            if len(samples):
                self._channel.hear(samples)
