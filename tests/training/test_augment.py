"""Augmentation does what it says, and nothing before its step."""

from __future__ import annotations

import pytest
import soxr
import torch

from model.config import FeatureConfig
from model.features import BLOCK, LOG_FLOOR, Features
from tests.conftest import babble
from training.augment import at_tempo, augment_mels, mask_frames, warped
from training.batches import Batch
from training.recipe import Augmentation


def batch_of(mels: torch.Tensor) -> Batch:
    rows, frames, _ = mels.shape
    return Batch(mels, torch.full((rows,), frames), torch.ones(rows, 1, dtype=torch.long), torch.ones(rows, dtype=torch.long))


@pytest.fixture
def mels() -> torch.Tensor:
    torch.manual_seed(0)
    mels = torch.randn(50, 40, 20) - 4
    mels[:, 30:] = LOG_FLOOR
    return mels


def test_gain_moves_a_whole_utterance(mels: torch.Tensor) -> None:
    louder = augment_mels(batch_of(mels), Augmentation(gain=2.0), step=0).mels
    gain = (louder - mels)[:, :30]
    for row in gain:
        assert float(row.max() - row.min()) < 1e-4
    assert 1.0 < float(gain.abs().max()) <= 2.0
    assert float(gain.std()) > 0.5
    assert bool((louder[:, 30:] == LOG_FLOOR).all())  # digital silence stays


def test_noise_adds_power_to_some_utterances(mels: torch.Tensor) -> None:
    noisy = augment_mels(batch_of(mels), Augmentation(noise=0.5), step=0).mels
    assert bool((noisy >= mels - 1e-5).all())
    changed = (noisy != mels).flatten(1).any(1)
    assert 10 < int(changed.sum()) < 40
    assert bool((noisy[:, 30:] == LOG_FLOOR).all())
    everywhere = augment_mels(batch_of(mels), Augmentation(noise=1.0), step=0).mels
    assert bool((everywhere != mels).flatten(1).any(1).all())


def test_the_telephone_takes_the_high_frequencies_away() -> None:
    """As on a recording that is sampled at 8 kHz on its way, whose features are computed from the sound."""
    samples = babble(2, seed=3)
    narrow = soxr.resample(soxr.resample(samples, 16_000, 8_000), 8_000, 16_000)
    features = Features(FeatureConfig())
    wide, narrow = (features.log_mel(torch.from_numpy(sound)[None]) for sound in (samples, narrow))
    simulated = torch.cat([augment_mels(batch_of(wide), Augmentation(telephone=1.0), step=0).mels for _ in range(20)])
    lost = (simulated == LOG_FLOOR).all(1)  # (20, bins)
    assert bool((wide[0, :, 65:] > LOG_FLOOR + 1).any())
    assert bool(lost[:, 61:].all())
    assert not bool(lost[:, :56].any())
    assert bool((narrow[0, :, 62:].mean(0) < LOG_FLOOR + 0.5).all())
    assert torch.equal(simulated[0][:, ~lost[0]], wide[0][:, ~lost[0]])
    some = augment_mels(batch_of(wide.repeat(100, 1, 1)), Augmentation(telephone=0.5), step=0).mels
    assert 20 < int((some[:, :, -1] == LOG_FLOOR).all(1).sum()) < 80


def test_masks_are_stretches_within_their_bounds() -> None:
    torch.manual_seed(0)
    options = Augmentation(time_masks=1, time_mask_frames=10, frequency_masks=1, frequency_mask_bins=4)
    frames = mask_frames(torch.ones(200, 60, 20, 3), torch.full((200,), 40), options, step=0)[..., 0]
    silent_frames = (frames == 0).all(2)  # (B, T)
    silent_bins = (frames == 0).all(1)  # (B, bins)
    assert int(silent_frames.sum(1).max()) == 10
    assert int(silent_bins.sum(1).max()) == 4
    assert not bool(silent_frames[:, 40:].any())  # within the utterance
    for mask in (silent_frames, silent_bins):
        starts = (mask.int().diff(dim=1, prepend=torch.zeros(200, 1, dtype=torch.int)) == 1).sum(1)
        assert int(starts.max()) == 1  # one stretch
    whole = silent_frames[:, :, None] | silent_bins[:, None, :]
    assert torch.equal(frames == 0, whole)


def test_nothing_happens_before_its_step(mels: torch.Tensor) -> None:
    options = Augmentation(from_step=10, gain=1.0, noise=1.0, time_masks=1, time_mask_frames=9)
    assert augment_mels(batch_of(mels), options, step=9).mels is mels
    frames = torch.ones(2, 8, 4, 3)
    assert mask_frames(frames, torch.tensor([8, 8]), options, step=9) is frames
    assert augment_mels(batch_of(mels), options, step=10).mels is not mels


def test_tempo_stretches_time(mels: torch.Tensor) -> None:
    slower = at_tempo(batch_of(mels), 1.5)
    assert slower.mels.shape == (50, 60, 20)
    assert slower.frames.tolist() == [60] * 50
    torch.testing.assert_close(slower.mels[:, :40].mean(), mels[:, :27].mean(), rtol=0, atol=0.1)


def test_warp_by_hand() -> None:
    mels = torch.arange(5.0).expand(2, 3, 5)  # bin k holds k
    found = warped(mels, torch.tensor([0.5, 1.5]))
    assert found[0, 0].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert found[1, 2].tolist() == [0.0, 1.5, 3.0, 4.0, 4.0]


def test_tempo_changes_lengths_together(mels: torch.Tensor) -> None:
    batch = batch_of(mels)
    slower = at_tempo(batch, 1.1)
    assert slower.mels.shape == (50, 44, 20)
    assert set(slower.frames.tolist()) == {44}
    torch.testing.assert_close(slower.mels[:, 0], mels[:, 0])
    changed = augment_mels(batch, Augmentation(tempo=0.2), step=0)
    assert changed.mels.shape[1] % BLOCK == 0
    assert int(changed.frames.max()) <= changed.mels.shape[1]
    assert at_tempo(batch, 1.1, reduction=16).mels.shape[1] == 48


def test_warping_moves_bins() -> None:
    ramp = torch.arange(20.0).expand(3, 5, 20)
    moved = warped(ramp, torch.tensor([1.0, 0.5, 2.0]))
    torch.testing.assert_close(moved[0], ramp[0])
    torch.testing.assert_close(moved[1, 0], torch.arange(20) / 2)
    torch.testing.assert_close(moved[2, 0], (torch.arange(20.0) * 2).clamp(max=19))
