"""A stand-in for the package sounddevice, with one device that can be as difficult as real ones are."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from client.audio import Samples

INVALID_RATE, INVALID_CHANNELS, HOST_ERROR = -9997, -9998, -9999  # PortAudio's codes


class PortAudioError(Exception):
    def __str__(self) -> str:
        return " ".join(map(str, self.args))


class FakeSounddevice:
    """Plays a recording into the microphone at whatever rate it was opened with, then breaks off."""

    PortAudioError = PortAudioError
    default = SimpleNamespace(device=(0, 0))

    def __init__(self, rate: int = 44_100, channels: int = 1) -> None:
        self.own_rate = rate
        self.rates: tuple[int, ...] = (rate,)
        self.channels = channels
        self.least_channels = 1
        self.played: Samples = np.zeros(0, np.float32)  # at the rate that it is opened with
        self.error: PortAudioError | None = None  # at opening
        self.dies_silently = False  # instead of saying that it is over
        self.opened: list[tuple[int, int]] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeSounddevice:
        monkeypatch.setitem(sys.modules, "sounddevice", self)
        return self

    def query_devices(self) -> list[dict[str, Any]]:
        return [{"name": "Fake", "max_input_channels": self.channels, "default_samplerate": float(self.own_rate)}]

    def InputStream(self, **options: Any) -> FakeStream:
        if self.error is not None:
            raise self.error
        if options["samplerate"] not in self.rates:
            raise PortAudioError("Error opening InputStream: Invalid sample rate", INVALID_RATE)
        if options["channels"] < self.least_channels:
            raise PortAudioError("Error opening InputStream: Invalid number of channels", INVALID_CHANNELS)
        self.opened.append((options["samplerate"], options["channels"]))
        return FakeStream(self, **options)


class FakeStream:
    def __init__(
        self, card: FakeSounddevice, *, channels: int, blocksize: int, callback: Callable[..., None],
        finished_callback: Callable[[], None], **_: object,
    ) -> None:  # fmt: skip
        self._card = card
        self._channels = channels
        self._block = blocksize
        self._heard = callback
        self._finished = finished_callback
        self._thread = threading.Thread(target=self._play)

    def start(self) -> None:
        self._thread.start()

    def abort(self) -> None:
        self._thread.join()

    def close(self) -> None: ...

    def _play(self) -> None:
        for start in range(0, len(self._card.played), self._block):
            block = self._card.played[start : start + self._block]
            self._heard(np.repeat(block[:, None], self._channels, axis=1), len(block), None, None)
        if not self._card.dies_silently:
            self._finished()
