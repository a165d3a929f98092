"""Sounds without speech, so that a model learns to say nothing of them: melodies with drums, hums, clicks, gusts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from model.features import SAMPLE_RATE

Signal = npt.NDArray[np.float64]
MAJOR = 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12, 14, 16]) / 12)
BEATS = (0.12, 0.25, 0.25, 0.5, 1.0)  # seconds


def sound(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """(samples,) of two to nine seconds."""
    count = int(SAMPLE_RATE * rng.uniform(2, 9))
    kinds = (music, music, hum, clicks, gusts)
    made = kinds[rng.integers(len(kinds))](rng, count)
    made *= 10 ** (rng.uniform(-30, -1) / 20) / np.abs(made).max()
    made += rng.standard_normal(count) * 10 ** (rng.uniform(-80, -45) / 20)
    return made.clip(-1, 1).astype(np.float32)


def music(rng: np.random.Generator, count: int) -> Signal:
    made, base, start = np.zeros(count), rng.uniform(60, 500), 0
    while start < count:
        beat = int(SAMPLE_RATE * rng.choice(BEATS) * rng.uniform(0.8, 1.2))
        for step in rng.choice(MAJOR, rng.integers(1, 5), replace=False):
            length = min(count - start, int(beat * rng.uniform(1, 3)))
            made[start : start + length] += note(rng, base * step * rng.choice([0.5, 1, 2]), length)
        if rng.random() < 0.5:
            length = min(count - start, int(SAMPLE_RATE * 0.15))
            dying = np.exp(-np.arange(length) / SAMPLE_RATE * rng.uniform(15, 60))
            made[start : start + length] += rng.uniform(0.2, 2) * coloured(rng, length, rng.uniform(-1, 2)) * dying
        start += beat
    return made


def note(rng: np.random.Generator, pitch: float, count: int) -> Signal:
    time = np.arange(count) / SAMPLE_RATE
    vibrato = rng.uniform(0, 2e-4) * np.sin(2 * np.pi * rng.uniform(4, 7) * time)
    rolloff = rng.uniform(0, 0.6)
    harmonics = [
        rng.uniform() * np.exp(-rolloff * harmonic) * np.sin(2 * np.pi * pitch * harmonic * (time + vibrato))
        for harmonic in range(1, rng.integers(2, 13))
        if pitch * harmonic < SAMPLE_RATE / 2
    ]
    made: Signal = sum(harmonics, np.zeros(count))
    return made * np.minimum(1, time / rng.uniform(0.003, 0.1)) * np.exp(-time * rng.uniform(0.2, 8))


def hum(rng: np.random.Generator, count: int) -> Signal:
    time, pitch = np.arange(count) / SAMPLE_RATE, rng.uniform(45, 1500)
    tones = [rng.uniform() * np.sin(2 * np.pi * pitch * harmonic * time) for harmonic in range(1, rng.integers(2, 6))]
    return sum(tones, rng.uniform(0, 0.3) * coloured(rng, count, 1))


def clicks(rng: np.random.Generator, count: int) -> Signal:
    made, length = 0.02 * coloured(rng, count, 1), SAMPLE_RATE // 20
    for start in rng.integers(0, count - length, rng.integers(3, 60)):
        dying = np.exp(-np.arange(length) / rng.uniform(20, 300))
        made[start : start + length] += rng.uniform(0.1, 1) * coloured(rng, length, rng.uniform(-1, 1)) * dying
    return made


def gusts(rng: np.random.Generator, count: int) -> Signal:
    swells = np.interp(np.arange(count), np.linspace(0, count, 12), np.abs(rng.standard_normal(12)))
    return coloured(rng, count, rng.uniform(0, 2)) * (0.2 + swells)


def coloured(rng: np.random.Generator, count: int, slope: float) -> Signal:
    """Noise whose power falls by frequency to the power of `slope`: 0 white, 1 pink, 2 brown."""
    spectrum = np.fft.rfft(rng.standard_normal(count))
    made: Signal = np.fft.irfft(spectrum * np.arange(1, len(spectrum) + 1) ** (-slope / 2), count)
    made /= max(1e-9, np.abs(made).max())
    return made
