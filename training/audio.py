"""Audio files of corpora to mono samples at the model's rate."""

from __future__ import annotations

import os
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from model.features import SAMPLE_RATE

LOWEST_RATE, HIGHEST_RATE = 1000, 768_000
Samples = npt.NDArray[np.float32]


class AudioError(ValueError):
    """A file that holds no audio we can read."""


def read_audio(path: Path) -> Samples:
    """Mono samples at the model's rate: by libsndfile, or by ffmpeg what that does not read (SPHERE with shorten, AAC, …)."""
    try:
        found = path.is_file()
    except OSError as error:  # a name that no file can have, a folder that may not be looked into
        raise AudioError(f"{path}: {error.strerror}") from error
    if not found:
        raise AudioError(f"{path}: no such file")
    try:
        samples, rate = soundfile.read(os.fsencode(path), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, MemoryError):  # a damaged header may claim any length
        samples, rate = _by_ffmpeg(path)
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise AudioError(f"{path}: {rate} Hz: expected {LOWEST_RATE}..{HIGHEST_RATE}")
    mono: Samples = samples.mean(axis=1)
    resampled: Samples = mono if rate == SAMPLE_RATE else soxr.resample(mono, rate, SAMPLE_RATE)
    return resampled


def _by_ffmpeg(path: Path) -> tuple[Samples, int]:
    """Samples (T, channels) and their rate."""
    try:
        with av.open(str(path)) as container:
            stream = container.streams.audio[0]
            resampler = av.AudioResampler(format="fltp")
            frames = [converted for frame in container.decode(stream) for converted in resampler.resample(frame)]
            blocks = [frame.to_ndarray() for frame in (*frames, *resampler.resample(None))]
            rate = stream.rate
    except (av.FFmpegError, IndexError, MemoryError, ValueError, OSError) as error:
        raise AudioError(f"{path}: {error}") from error
    if not blocks:
        raise AudioError(f"{path}: no audio")
    return np.concatenate(blocks, axis=1).T.astype(np.float32), int(rate)
