"""The head of a WAV that comes through a pipe, where nobody can seek and the lengths in it mean nothing."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import IO

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
DTYPES = {(PCM, 16): "<i2", (FLOAT, 32): "<f4"}
ENDLESS = 0x7FFF0000  # bytes; programs that cannot know write this or more
LONGEST_CHUNK = 1 << 20  # bytes: of what comes before the samples


@dataclass(frozen=True)
class WavHeader:
    rate: int
    channels: int
    dtype: str  # of numpy
    length: int | None = None  # bytes of samples; None: until the pipe ends

    @property
    def frame_bytes(self) -> int:
        return int(self.dtype[2:]) * self.channels

    @property
    def seconds(self) -> float | None:
        return None if self.length is None else self.length / self.frame_bytes / self.rate


def read_wav_header(pipe: IO[bytes]) -> tuple[WavHeader | None, bytes]:
    """The header, after which the pipe stands at the first sample; or None and everything that was read."""
    head = _read(pipe, 12)
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None, head
    header: WavHeader | None = None
    while True:
        start = _read(pipe, 8)
        head += start
        if len(start) < 8:
            return None, head
        name, size = start[:4], struct.unpack("<I", start[4:])[0]
        if name == b"data":
            if header is None:
                return None, head
            return replace(header, length=size if 0 < size < ENDLESS else None), b""
        if size > LONGEST_CHUNK:
            return None, head
        body = _read(pipe, size + size % 2)
        head += body
        if name == b"fmt " and len(body) >= 16:
            header = _parse_format(body)


def _parse_format(body: bytes) -> WavHeader | None:
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
    if kind == EXTENSIBLE and len(body) >= 26:
        kind = struct.unpack("<H", body[24:26])[0]
    dtype = DTYPES.get((kind, bits))
    return WavHeader(rate, channels, dtype) if dtype and channels and rate else None


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = b""
    while len(data) < size and (more := pipe.read(size - len(data))):
        data += more
    return data
