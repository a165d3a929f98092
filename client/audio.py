"""Samples to bytes, and to a rate that the server takes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from client.conversation import Options
from client.events import AudioError

Samples = npt.NDArray[np.float32]
Audio = bytes | bytearray | memoryview | npt.NDArray[np.float32] | npt.NDArray[np.float64] | npt.NDArray[np.int16]

LOWEST_RATE, HIGHEST_RATE = 8_000, 48_000  # what the protocol takes
FULL_SCALE = 32_768


def to_bytes(audio: Audio, options: Options) -> bytes:
    """In the encoding of the session. An array is mono, or has one column per channel."""
    if not isinstance(audio, np.ndarray):
        return bytes(audio)
    channels = 1 if audio.ndim == 1 else audio.shape[1]
    if audio.ndim > 2 or channels != options.channels:
        raise AudioError(f"audio.shape={audio.shape}: expected {options.channels} channel(s), one column each.")
    if options.encoding == "pcm_f32le":
        return (audio.astype(np.float64) / (FULL_SCALE if audio.dtype == np.int16 else 1)).astype("<f4").tobytes()
    if options.encoding != "pcm_s16le":
        raise AudioError(f"encoding={options.encoding}: expected bytes; arrays need pcm_s16le or pcm_f32le.")
    if audio.dtype == np.int16:
        return audio.astype("<i2").tobytes()
    if audio.dtype not in (np.float32, np.float64):
        raise AudioError(f"audio.dtype={audio.dtype}: expected float32, float64 or int16.")
    scaled = np.round(np.nan_to_num(audio.astype(np.float64)) * FULL_SCALE)
    return np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype("<i2").tobytes()


def to_mono(audio: npt.NDArray[np.floating]) -> Samples:
    """Mixes columns into one."""
    mixed = audio if audio.ndim == 1 else audio.mean(axis=1)
    return np.ascontiguousarray(mixed, dtype=np.float32)


def accepted_rate(rate: int) -> int:
    """The rate to send audio of `rate` at: the same where the server takes it, otherwise a whole part or a multiple of it."""
    if rate > HIGHEST_RATE:
        return rate // math.ceil(rate / HIGHEST_RATE)
    return rate * math.ceil(LOWEST_RATE / rate)


class Resampler:
    """By a whole factor, up or down; what it says does not depend on how the audio was cut. Delays by half its filter.

    Only for rates beyond the protocol's bounds: the server resamples everything else, and better.
    """

    LOBES = 16  # zero crossings of the filter's sinc on either side

    def __init__(self, rate: int) -> None:
        self.rate = accepted_rate(rate)
        self._down = max(1, round(rate / self.rate))
        self._up = max(1, round(self.rate / rate))
        half = self.LOBES * max(self._down, self._up)
        positions = np.arange(-half, half + 1)
        cutoff = 0.95 / max(self._down, self._up)
        self._filter = (cutoff * np.sinc(cutoff * positions) * np.hanning(2 * half + 3)[1:-1] * self._up).astype(np.float32)
        self._kept = np.zeros(len(self._filter) - 1, dtype=np.float32)
        self._phase = 0

    def __call__(self, samples: Samples) -> Samples:
        if self._up == self._down == 1 or not len(samples):
            return samples
        if self._up > 1:
            samples = np.concatenate([samples[:, None], np.zeros((len(samples), self._up - 1), np.float32)], axis=1).ravel()
        padded = np.concatenate([self._kept, samples])
        self._kept = padded[len(padded) - len(self._kept) :]
        filtered = np.convolve(padded, self._filter, mode="valid")[self._phase :: self._down]
        self._phase = (self._phase - len(samples)) % self._down
        return filtered.astype(np.float32)
