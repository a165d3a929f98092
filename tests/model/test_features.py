from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.config import FeatureConfig
from model.features import (
    BLOCK,
    CONTEXT,
    FFT_SIZE,
    HOP,
    LOG_FLOOR,
    LOOKAHEAD,
    LOWEST_FREQUENCY,
    OVERLAP,
    POWER_FLOOR,
    SAMPLE_RATE,
    WINDOW,
    Features,
    clean,
)
from model.torchaudio_import import torchaudio
from tests.conftest import babble
from tests.model.chunks import chunk_sizes, split

HOPS = 60


def features(**options: object) -> Features:
    module = Features(FeatureConfig(**options))  # type: ignore[arg-type]
    module.prior_mean.fill_(-4.0)
    module.prior_deviation.fill_(2.0)
    return module


def test_log_mel_is_torchaudios() -> None:
    module, samples = features(), torch.from_numpy(babble(1.0))[None]
    reference = torchaudio.transforms.MelSpectrogram(
        SAMPLE_RATE, n_fft=FFT_SIZE, win_length=WINDOW, hop_length=HOP, f_min=LOWEST_FREQUENCY, n_mels=80, center=False
    )
    margin = (FFT_SIZE - WINDOW) // 2  # torch centres a window that is shorter than the transform
    padded = torch.nn.functional.pad(samples, (OVERLAP + margin, margin))
    expected = reference(padded).clamp(min=POWER_FLOOR).log().transpose(1, 2)
    found = module.log_mel(torch.nn.functional.pad(samples, (OVERLAP, 0)))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


def test_deltas_are_torchaudios() -> None:
    module = features()
    mels = torch.randn(1, 32, 80)
    padded = torch.cat([torch.full((1, CONTEXT, 80), LOG_FLOOR), mels], dim=1).transpose(1, 2)
    deltas = torchaudio.functional.compute_deltas(padded)
    double = torchaudio.functional.compute_deltas(deltas)
    frames, _, _ = module.normalized(mels, module.initial_state(1))
    inner = slice(CONTEXT, -LOOKAHEAD)  # away from the edges, where torchaudio repeats the last frame
    for depth, expected in ((1, deltas), (2, double)):
        found = frames[:, LOOKAHEAD:, :, depth] * 2.0
        torch.testing.assert_close(found, expected[:, :, inner].transpose(1, 2), rtol=0, atol=1e-4)


@given(sizes=chunk_sizes(HOPS, multiple=BLOCK))
def test_chunked_equals_whole(sizes: list[int]) -> None:
    module, samples = features(), torch.from_numpy(babble(HOPS * HOP / SAMPLE_RATE))[None]
    whole, loud, _ = module(samples, module.initial_state(1))
    state, parts, louds = module.initial_state(1), [], []
    for chunk in split(samples, [size * HOP for size in sizes], dim=1):
        frames, loud_part, state = module(chunk, state)
        parts.append(frames)
        louds.append(loud_part)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-5)
    assert torch.equal(torch.cat(louds, 1), loud)


@given(cut=st.integers(1, HOPS // BLOCK - 1).map(lambda blocks: blocks * BLOCK))
def test_later_audio_changes_nothing_earlier(cut: int) -> None:
    module, samples = features(), torch.from_numpy(babble(HOPS * HOP / SAMPLE_RATE))[None]
    other = samples.clone()
    other[:, cut * HOP :] = torch.randn_like(other[:, cut * HOP :])
    first, _, _ = module(samples, module.initial_state(1))
    second, _, _ = module(other, module.initial_state(1))
    torch.testing.assert_close(first[:, :cut], second[:, :cut], rtol=0, atol=1e-5)


def test_gain_is_normalised_away() -> None:
    module, samples = features(), torch.from_numpy(babble(20.0))[None].clamp(-0.09, 0.09)
    _, _, loud = module(samples * 10, module.initial_state(1))
    _, _, plain = module(samples, module.initial_state(1))
    assert float((loud.mean - plain.mean).mean()) == pytest.approx(math.log(100), rel=0.1)


def test_pauses_do_not_count() -> None:
    module = features()
    speech = torch.from_numpy(babble(5.0))[None]
    _, _, state = module(speech, module.initial_state(1))
    _, loud, after = module(torch.zeros(1, 10 * SAMPLE_RATE), state)
    assert not loud[:, 20:].any()
    assert after.quiet.item() == pytest.approx(1000, abs=40)
    torch.testing.assert_close(after.mean, state.mean, rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("silence", np.zeros(SAMPLE_RATE, np.float32)),
        ("clipping", np.sign(np.sin(np.arange(SAMPLE_RATE) / 20)).astype(np.float32) * 50),
        ("offset", np.full(SAMPLE_RATE, 0.5, np.float32)),
        ("not a number", np.full(SAMPLE_RATE, np.nan, np.float32)),
        ("infinite", np.full(SAMPLE_RATE, -np.inf, np.float32)),
    ],
)
def test_odd_signals_give_finite_frames(name: str, samples: np.ndarray) -> None:
    module = features()
    frames, _, state = module(clean(torch.from_numpy(samples))[None], module.initial_state(1))
    assert frames.isfinite().all(), name
    assert state.mean.isfinite().all()


def test_energy_is_one_more_bin() -> None:
    module = features(mel_bins=40, energy=True)
    frames, _, _ = module(torch.from_numpy(babble(0.12))[None], module.initial_state(1))
    assert frames.shape == (1, 12, 41, 3)
