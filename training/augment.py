"""Augmentation: what a microphone, a room, or a masked stretch would have done to the features."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from model.config import REDUCTION
from model.features import LOG_FLOOR
from training.batches import Batch
from training.recipe import Augmentation

SIGNAL_TO_NOISE = (1.0, 7.0)  # nats of power: 4 to 30 dB
NOISE_JITTER = 0.5  # nats, from frame to frame
COLOUR_POINTS = 6  # of the random curve over frequency that colours the noise
COLOUR_DEVIATION = 1.5  # nats
TELEPHONE_BAND = (0.70, 0.76)  # of the bins, which reach to 8 kHz: what is below 3.4 to 4 kHz


def augment_mels(batch: Batch, options: Augmentation, step: int, reduction: int = REDUCTION) -> Batch:
    """Tempo, vocal tract, telephone, noise and gain, on log-mel features of a cache; `reduction` frames are one entry."""
    if step < options.from_step:
        return batch
    if options.tempo:
        batch = at_tempo(batch, 1 + options.tempo * (2 * float(torch.rand(())) - 1), reduction)
    mels = batch.mels
    if options.warp:
        mels = warped(mels, 1 + options.warp * (2 * torch.rand(len(mels)) - 1))
    if options.telephone:
        mels = torch.where(torch.rand(len(mels), 1, 1) < options.telephone, by_telephone(mels), mels)
    if options.noise:
        noisy = torch.rand(len(mels), 1, 1) < options.noise
        mels = torch.where(noisy & (mels > LOG_FLOOR), torch.logaddexp(mels, coloured_noise(mels)), mels)
    if options.gain:
        gain = (torch.rand(len(mels), 1, 1) * 2 - 1) * options.gain
        mels = torch.where(mels > LOG_FLOOR, mels + gain, mels).clamp(min=LOG_FLOOR)
    return replace(batch, mels=mels)


def at_tempo(batch: Batch, factor: float, reduction: int = REDUCTION) -> Batch:
    """The batch as if spoken `factor` times as slowly; lengths stay multiples of `reduction` frames."""
    length = max(1, round(batch.mels.shape[1] * factor / reduction)) * reduction
    mels = functional.interpolate(batch.mels.transpose(1, 2), size=length, mode="linear").transpose(1, 2)
    frames = (batch.frames * factor / reduction).ceil().long() * reduction
    return replace(batch, mels=mels, frames=frames.clamp(max=length))


def warped(mels: Tensor, factors: Tensor) -> Tensor:
    """Bin k of each utterance (B, T, bins) becomes what was at bin k * factor (B,); beyond the last bin, the last one."""
    last = mels.shape[2] - 1
    places = (torch.arange(last + 1) * factors[:, None]).clamp(max=last)  # (B, bins)
    below = places.floor().long()
    share = (places - below)[:, None]
    low = mels.gather(2, below[:, None].expand_as(mels))
    high = mels.gather(2, (below + 1).clamp(max=last)[:, None].expand_as(mels))
    return low + share * (high - low)


def by_telephone(mels: Tensor) -> Tensor:
    """Without the high frequencies, as sound comes that was sampled at 8 kHz on its way."""
    low, high = TELEPHONE_BAND
    bins = mels.shape[2]
    highest = bins * (low + (high - low) * torch.rand(len(mels), 1, 1))
    return mels.masked_fill(torch.arange(bins) >= highest, LOG_FLOOR)


def coloured_noise(mels: Tensor) -> Tensor:
    """Log-mel features (B, T, bins) of steady noise whose level follows that of the speech in `mels`."""
    rows, frames, bins = mels.shape
    level = mels.mean(-1).amax(1)[:, None, None] - 2.0  # about the mean of loud frames
    low, high = SIGNAL_TO_NOISE
    distance = low + (high - low) * torch.rand(rows, 1, 1)
    points = COLOUR_DEVIATION * torch.randn(rows, 1, COLOUR_POINTS)
    colour = functional.interpolate(points, size=bins, mode="linear", align_corners=True)
    return level - distance + colour + NOISE_JITTER * torch.randn(rows, frames, bins)


def mask_frames(frames: Tensor, lengths: Tensor, options: Augmentation, step: int) -> Tensor:
    """SpecAugment (Park et al., 2019) without warping: bands and stretches of frames (B, T, bins, depth) become 0."""
    if step < options.from_step:
        return frames
    rows, steps, bins, _ = frames.shape
    keep = torch.ones(rows, steps, bins, dtype=torch.bool)
    for _ in range(options.frequency_masks):
        keep &= ~_stretch(torch.full((rows,), bins), bins, options.frequency_mask_bins)[:, None, :]
    for _ in range(options.time_masks):
        keep &= ~_stretch(lengths.cpu(), steps, options.time_mask_frames)[:, :, None]
    return frames * keep[..., None].to(frames.device)


def _stretch(lengths: Tensor, size: int, longest: int) -> Tensor:
    """A random stretch (B, size) of up to `longest` places within each row's length."""
    length = torch.rand(len(lengths)) * longest
    start = torch.rand(len(lengths)) * (lengths - length).clamp(min=0)
    places = torch.arange(size)
    return (places >= start[:, None]) & (places < (start + length)[:, None])
