"""Augmentation of log-mel features: what a microphone, a room or a masked stretch would have done to them."""

from __future__ import annotations

from dataclasses import replace

import torch

from model.features import LOG_FLOOR
from training.batches import Batch
from training.recipe import Augmentation


def augment(batch: Batch, options: Augmentation, step: int) -> Batch:
    if step < options.from_step:
        return batch
    mels = batch.mels
    if options.gain:
        gain = (torch.rand(len(mels), 1, 1) * 2 - 1) * options.gain
        mels = torch.where(mels > LOG_FLOOR, mels + gain, mels).clamp(min=LOG_FLOOR)
    return replace(batch, mels=mels)
