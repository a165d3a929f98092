"""Front end: samples to normalised log-mel frames with deltas, in a streaming way.

The audio counts as preceded by digital silence. So every hop of samples gives exactly one frame from the first one on, and a
stream has no beginning to treat apart: frame t covers the 25 ms that end with hop t.

Deltas look ahead, and so a frame comes out `LOOKAHEAD` hops after its own. Whoever ends a stream appends that much silence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.config import REDUCTION, FeatureConfig
from model.state import State
from model.torchaudio_import import torchaudio

SAMPLE_RATE = 16_000
HOP = SAMPLE_RATE // 100  # 10 ms
WINDOW = SAMPLE_RATE // 40  # 25 ms
OVERLAP = WINDOW - HOP
FFT_SIZE = 512
LOWEST_FREQUENCY = 20.0
FRAMES_PER_SECOND = SAMPLE_RATE // HOP
POWER_FLOOR = 1e-6  # of a mel band: about -80 dB of full scale, below any microphone's noise
LOG_FLOOR = math.log(POWER_FLOOR)

DELTA_WINDOW = 5
DELTA_REACH = DELTA_WINDOW // 2
DEPTH = 3  # static, delta, delta-delta
LOOKAHEAD = DELTA_REACH * (DEPTH - 1)  # frames
CONTEXT = 2 * LOOKAHEAD
FLUSH_FRAMES = 40  # of silence that ends every stream: it lets the last sounds through the deltas and the encoder's memory

# The normaliser follows the mean of speech, not of the pauses: a frame counts if it is loud, that is, not far below that mean.
PRIOR_FRAMES = 100.0  # the training set's mean counts as this many frames of the stream
MEMORY_FRAMES = 1000.0  # older frames are forgotten exponentially
LOUD_BELOW_MEAN = 4.0  # nats of power: 17 dB
IMPATIENCE = 0.5 / FRAMES_PER_SECOND  # nats per frame by which the bar sinks while nothing is loud: whispers get heard, too
BLOCK = REDUCTION  # frames that are judged and normalised together


@dataclass(frozen=True)
class FeatureState(State):
    samples: Tensor  # (B, OVERLAP) the last samples
    mels: Tensor  # (B, CONTEXT, bins) the last log-mel frames
    mean: Tensor  # (B, bins) of the loud frames
    count: Tensor  # (B, 1) how many frames that mean stands for
    quiet: Tensor  # (B, 1) frames since the last loud one


class Features(nn.Module):
    """Samples (B, hops * HOP) to frames (B, hops, bins, DEPTH), LOOKAHEAD frames late, and which hops (B, hops) are loud."""

    window: Tensor
    filterbank: Tensor
    deltas: Tensor
    prior_mean: Tensor
    prior_deviation: Tensor

    def __init__(self, config: FeatureConfig) -> None:
        super().__init__()
        self.config = config
        filterbank = torchaudio.functional.melscale_fbanks(
            FFT_SIZE // 2 + 1, LOWEST_FREQUENCY, SAMPLE_RATE / 2, config.mel_bins, SAMPLE_RATE
        )
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("filterbank", filterbank, persistent=False)
        self.register_buffer("deltas", delta_kernel(), persistent=False)
        self.register_buffer("prior_mean", torch.zeros(config.bins))
        self.register_buffer("prior_deviation", torch.ones(config.bins, DEPTH))

    def initial_state(self, streams: int) -> FeatureState:
        return FeatureState(
            samples=self.window.new_zeros(streams, OVERLAP),
            mels=self.window.new_full((streams, CONTEXT, self.config.bins), LOG_FLOOR),
            mean=self.prior_mean.expand(streams, -1).clone(),
            count=self.window.new_full((streams, 1), PRIOR_FRAMES),
            quiet=self.window.new_zeros(streams, 1),
        )

    def forward(self, samples: Tensor, state: FeatureState) -> tuple[Tensor, Tensor, FeatureState]:
        samples = torch.cat([state.samples, samples], dim=1)  # (B, OVERLAP + hops * HOP)
        frames, loud, state = self.normalized(self.log_mel(samples), state)
        return frames, loud, FeatureState(samples[:, -OVERLAP:], state.mels, state.mean, state.count, state.quiet)

    def log_mel(self, samples: Tensor) -> Tensor:
        """Samples (B, OVERLAP + hops * HOP) to log-mel frames (B, hops, bins)."""
        windows = samples.unfold(1, WINDOW, HOP) * self.window  # (B, hops, WINDOW)
        spectrum = torch.fft.rfft(windows, n=FFT_SIZE)
        power = torch.addcmul(spectrum.real.square(), spectrum.imag, spectrum.imag)  # (B, hops, FFT_SIZE // 2 + 1)
        bands = power @ self.filterbank
        if self.config.energy:
            bands = torch.cat([bands, power.sum(-1, keepdim=True)], dim=-1)
        return bands.clamp(min=POWER_FLOOR).log()

    def normalized(self, mels: Tensor, state: FeatureState) -> tuple[Tensor, Tensor, FeatureState]:
        """Log-mel frames (B, hops, bins) to normalised frames (B, hops, bins, DEPTH), LOOKAHEAD frames late, and loud (B, hops)."""
        means, loud, (mean, count, quiet) = running_mean(mels, state.mean, state.count, state.quiet)
        mels = torch.cat([state.mels, mels], dim=1)
        windows = mels.unfold(1, CONTEXT + 1, 1).transpose(2, 3)  # (B, hops, CONTEXT + 1, bins)
        stack = (self.deltas @ windows).transpose(2, 3)  # (B, hops, bins, DEPTH)
        stack[..., 0] -= means
        frames = stack / self.prior_deviation
        return frames, loud, FeatureState(state.samples, mels[:, -CONTEXT:], mean, count, quiet)


def delta_kernel() -> Tensor:
    """(DEPTH, CONTEXT + 1): what torchaudio's deltas make of CONTEXT + 1 frames, for the middle one."""
    impulses = torch.eye(CONTEXT + 1)
    columns = [impulses]
    for _ in range(DEPTH - 1):
        columns.append(torchaudio.functional.compute_deltas(columns[-1], win_length=DELTA_WINDOW))
    return torch.stack([column[:, LOOKAHEAD] for column in columns])


def running_mean(
    frames: Tensor, mean: Tensor, count: Tensor, quiet: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """The mean of the loud frames so far, after each block.

    frames (B, T, bins), mean (B, bins), count (B, 1), quiet (B, 1) -> means (B, T, bins), loud (B, T), the last mean, count, quiet.
    """
    if frames.shape[1] % BLOCK:
        raise ValueError(f"{frames.shape[1]} frames: expected a multiple of {BLOCK}")
    means, louds = [], []
    levels = frames.mean(-1)  # (B, T)
    for block, level in zip(frames.split(BLOCK, dim=1), levels.split(BLOCK, dim=1), strict=True):
        bar = mean.mean(-1, keepdim=True) - LOUD_BELOW_MEAN - IMPATIENCE * quiet  # (B, 1)
        loud = level > bar.clamp(min=LOG_FLOOR + 1)
        counted = loud.to(block.dtype)
        fresh = counted.sum(1, keepdim=True)  # (B, 1)
        kept = count * (1 - fresh / MEMORY_FRAMES)
        count = kept + fresh
        mean = (kept * mean + (counted[:, None] @ block)[:, 0]) / count
        quiet = (quiet + BLOCK) * (fresh == 0)
        means.append(mean)
        louds.append(loud)
    return torch.stack(means, dim=1).repeat_interleave(BLOCK, dim=1), torch.cat(louds, dim=1), (mean, count, quiet)


def clean(samples: Tensor) -> Tensor:
    """Samples that the front end can take: what is not a number is silence, what is beyond full scale is clipped."""
    return samples.nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0).clamp(-1.0, 1.0)
