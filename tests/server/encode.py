"""Recordings in the containers that clients send."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np

from server.audio import Samples

CODECS = {"webm": ("webm", "libopus"), "ogg": ("ogg", "libopus"), "flac": ("flac", "flac"), "mp3": ("mp3", "libmp3lame")}
CODECS |= {"wav": ("wav", "pcm_s16le"), "mp4": ("mp4", "aac")}


def encode(samples: Samples, name: str, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    container, codec = CODECS[name]
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=48_000 if codec == "libopus" else rate)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.round(samples * 32767).astype(np.int16).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = rate
        resampler = av.AudioResampler(stream.format, "mono", stream.rate, frame_size=stream.frame_size or 1024)
        for piece in [*resampler.resample(frame), *resampler.resample(None), None]:
            output.mux(stream.encode(piece))
    return file.getvalue()
