"""NIST SPHERE files as the discs of the Linguistic Data Consortium hold them: plain, and compressed with shorten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

HEADER_BYTES = 1024
BLOCK = 256  # samples
DIFFERENCES, QUIT = 1, 4  # commands of shorten


def write_sphere(path: Path, samples: npt.NDArray[np.int16], *, shorten: bool = False) -> None:
    """16 bit, 16 kHz, mono. With `shorten` the number of samples must be a multiple of BLOCK."""
    coding = "pcm,embedded-shorten-v2.00" if shorten else "pcm"
    header = (
        f"NIST_1A\n   {HEADER_BYTES}\n"
        f"channel_count -i 1\nsample_count -i {len(samples)}\nsample_rate -i 16000\nsample_n_bytes -i 2\n"
        f"sample_byte_format -s2 01\nsample_sig_bits -i 16\nsample_coding -s{len(coding)} {coding}\nend_head\n"
    )
    body = shortened(samples) if shorten else samples.astype("<i2").tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header.encode().ljust(HEADER_BYTES) + body)


def shortened(samples: npt.NDArray[np.int16]) -> bytes:
    """Shorten, version 2 (Robinson, 1994): each block as Rice codes of the differences from sample to sample."""
    assert len(samples) % BLOCK == 0
    bits = "".join(long(value) for value in (5, 1, BLOCK, 0, 0, 0))  # 16 bit little-endian, channels, block, no prediction, no mean
    last = 0
    for block in samples.reshape(-1, BLOCK).tolist():
        differences = [after - before for before, after in zip([last, *block], block, strict=False)]
        last = block[-1]
        size = max(1, int(np.mean(np.abs(differences))).bit_length())
        bits += rice(DIFFERENCES, 2) + rice(size, 3)
        bits += "".join(rice(2 * d if d >= 0 else -2 * d - 1, size + 1) for d in differences)
    bits += rice(QUIT, 2)
    bits += "0" * (-len(bits) % 32)
    return b"ajkg\x02" + int(bits, 2).to_bytes(len(bits) // 8, "big")


def rice(value: int, low_bits: int) -> str:
    low = format(value & ((1 << low_bits) - 1), f"0{low_bits}b") if low_bits else ""
    return "0" * (value >> low_bits) + "1" + low


def long(value: int) -> str:
    return rice(value.bit_length(), 2) + rice(value, value.bit_length())
