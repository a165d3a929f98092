"""Every format that a corpus comes in gives the same samples."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.conftest import babble
from tests.training.sphere import BLOCK, write_sphere
from training.audio import AudioError, read_audio

SAMPLES = (babble(0.8)[: 48 * BLOCK] * 32768).astype(np.int16)


@pytest.mark.parametrize("shorten", [False, True])
def test_sphere(shorten: bool, tmp_path: Path) -> None:
    write_sphere(tmp_path / "a.wv1", SAMPLES, shorten=shorten)
    if shorten:
        assert (tmp_path / "a.wv1").stat().st_size < 1024 + SAMPLES.nbytes
    np.testing.assert_array_equal(read_audio(tmp_path / "a.wv1"), SAMPLES / np.float32(32768))


def test_other_rates_and_channels(tmp_path: Path) -> None:
    stereo = np.stack([SAMPLES, -SAMPLES], axis=1)
    soundfile.write(tmp_path / "stereo.wav", stereo, 8_000)
    assert np.abs(read_audio(tmp_path / "stereo.wav")).max() < 1e-6
    assert len(read_audio(tmp_path / "stereo.wav")) == 2 * len(SAMPLES)


def test_what_is_no_audio(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no audio at all")
    with pytest.raises(AudioError, match=r"text\.wav"):
        read_audio(tmp_path / "text.wav")
    with pytest.raises(AudioError, match="no such file"):
        read_audio(tmp_path / "nothing.wav")
    with pytest.raises(AudioError, match=r"(?i)name too long"):
        read_audio(tmp_path / ("a" * 300))
    with pytest.raises(AudioError, match="no such file"):
        read_audio(tmp_path)


@pytest.mark.parametrize("rate", [1, 7, 2**31 - 1])
def test_rates_that_nobody_records_at(rate: int, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", SAMPLES, 16_000)
    content = bytearray((tmp_path / "a.wav").read_bytes())
    struct.pack_into("<I", content, 24, rate)
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(AudioError, match=rf"a\.wav: {rate} Hz: expected 1000\.\.768000"):
        read_audio(tmp_path / "a.wav")


def test_a_header_that_claims_too_much(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", SAMPLES, 16_000)
    content = bytearray((tmp_path / "a.flac").read_bytes())
    content[21] |= 0x0F  # the number of samples, 36 bits: 50 days
    content[22:26] = b"\xff" * 4
    (tmp_path / "a.flac").write_bytes(content)
    assert len(read_audio(tmp_path / "a.flac")) == len(SAMPLES)


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", SAMPLES, 16_000)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.wav"))
    (tmp_path / "a.wav").rename(odd)
    assert len(read_audio(odd)) == len(SAMPLES)
