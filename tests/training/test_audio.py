"""Every format that a corpus comes in gives the same samples."""

from __future__ import annotations

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
