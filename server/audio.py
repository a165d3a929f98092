"""Raw audio to samples, and what a stream's first bytes betray about it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from server.messages import Encoding, Error, ProtocolError

Samples = npt.NDArray[np.float32]

MAGIC: dict[bytes, str] = {b"OggS": "ogg", b"\x1aE\xdf\xa3": "webm", b"fLaC": "flac", b"RIFF": "wav"}
MAGIC_LENGTH = 4


def _mulaw_table() -> Samples:
    """ITU-T G.711: sign, exponent and mantissa, all bits inverted."""
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = ((2 * mantissa + 33) << exponent) - 33
    return (np.where(code & 128, -magnitude, magnitude) * 4 / 32768).astype(np.float32)


def _alaw_table() -> Samples:
    """ITU-T G.711: sign, exponent and mantissa, every other bit inverted."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = np.where(exponent == 0, 2 * mantissa + 1, (2 * mantissa + 33) << np.maximum(exponent - 1, 0))
    return (np.where(code & 128, magnitude, -magnitude) * 8 / 32768).astype(np.float32)


def _finite(samples: Samples) -> Samples:
    """Channels are mixed, and a sum of infinities is no number."""
    return np.clip(np.nan_to_num(samples, nan=0.0), -1, 1)


_MULAW, _ALAW = _mulaw_table(), _alaw_table()

RAW: dict[str, tuple[int, Callable[[bytes], Samples]]] = {  # bytes per sample, and how to read them
    "pcm_s16le": (2, lambda data: np.frombuffer(data, "<i2").astype(np.float32) * np.float32(1 / 32768)),
    "pcm_f32le": (4, lambda data: _finite(np.frombuffer(data, "<f4").astype(np.float32))),
    "mulaw": (1, lambda data: _MULAW[np.frombuffer(data, np.uint8)]),
    "alaw": (1, lambda data: _ALAW[np.frombuffer(data, np.uint8)]),
}


class RawDecoder:
    """Takes bytes however they were cut; what does not fill a frame yet waits for the rest."""

    def __init__(self, encoding: Encoding, channels: int) -> None:
        width, self._read = RAW[encoding]
        self._encoding = encoding
        self._channels = channels
        self._frame = width * channels
        self._rest = b""
        self._head: bytes | None = b""  # None once it has been looked at

    def decode(self, data: bytes) -> Samples:
        self._look_at_head(data)
        data = self._rest + data
        whole = len(data) - len(data) % self._frame
        self._rest = data[whole:]
        samples = self._read(data[:whole])
        if self._channels == 1:
            return samples
        mixed: Samples = samples.reshape(-1, self._channels).mean(axis=1, dtype=np.float32)
        return mixed

    def _look_at_head(self, data: bytes) -> None:
        """A container sent as raw samples would be heard as noise: better say so."""
        if self._head is None:
            return
        self._head += data[:MAGIC_LENGTH]
        if len(self._head) < MAGIC_LENGTH:
            return
        found = MAGIC.get(self._head[:MAGIC_LENGTH])
        self._head = None
        if found:
            raise ProtocolError(bad_audio(self._encoding, f"the audio is {found}", f"raw samples, or encoding={found}"))


def bad_audio(encoding: Encoding, found: str, accepted: str) -> Error:
    return Error("bad_audio", f"encoding={encoding}: {found}; expected {accepted}", "encoding", encoding, accepted, fatal=True)
