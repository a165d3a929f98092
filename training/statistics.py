"""The prior of the normaliser: mean and deviation of a training set's features."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from model.features import BLOCK, LOG_FLOOR, LOUD_BELOW_MEAN, Features
from training.cache import FeatureCache

UTTERANCES = 1000
LEAST_DEVIATION = 0.01  # nats: recordings of 8 kHz have bands with nothing in them, which are not to be blown up


@torch.no_grad()
def feature_statistics(features: Features, cache: FeatureCache, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Mean (bins,) of the frames that the normaliser counts, and deviation (bins, DEPTH) of what it makes of all frames."""
    chosen = random.Random(seed).sample(cache.utterances, min(UTTERANCES, len(cache.utterances)))
    clips = [torch.tensor(cache.mels(utterance), dtype=torch.float32) for utterance in chosen]
    counted = []
    for mels in clips:
        level = mels.mean(-1)
        speech = level[level > level.max() - 1.5 * LOUD_BELOW_MEAN].mean()
        counted.append(mels[(level > speech - LOUD_BELOW_MEAN) & (level > LOG_FLOOR + 1)])
    mean = torch.cat(counted).mean(0)
    probe = Features(features.config)
    probe.prior_mean.copy_(mean)
    whole = [mels[: len(mels) // BLOCK * BLOCK] for mels in clips if len(mels) >= BLOCK]
    if not whole or not mean.isfinite().all():
        raise ValueError(f"data: no sound in {len(clips)} recordings; expected more than silence")
    frames = torch.cat([probe.normalized(mels[None], probe.initial_state(1))[0][0] for mels in whole])
    return mean, frames.square().mean(0).sqrt().clamp(min=LEAST_DEVIATION)
