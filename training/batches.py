"""Batches of utterances of like length, in an order that depends on nothing but the seed: resuming finds its place by number."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.features import FLUSH_FRAMES, FRAMES_PER_SECOND, LOG_FLOOR
from training.cache import CachedUtterance, FeatureCache

LENGTH_JITTER = 0.1  # so that an utterance does not meet the same neighbours in every epoch


@dataclass(frozen=True)
class Batch:
    mels: Tensor  # (B, T, bins) log-mel features, padded with digital silence
    frames: Tensor  # (B,) how many of them are the utterance's, the silence that ends a stream included
    labels: Tensor  # (B, U) symbols, padded with 0
    label_lengths: Tensor  # (B,)

    def to(self, device: torch.device) -> Batch:
        return Batch(self.mels.to(device), self.frames.to(device), self.labels.to(device), self.label_lengths.to(device))

    def twice(self) -> Batch:
        """Every utterance, and then every one again."""
        return Batch(*(torch.cat([part, part]) for part in (self.mels, self.frames, self.labels, self.label_lengths)))

    @property
    def seconds(self) -> float:
        return float(self.frames.sum()) / FRAMES_PER_SECOND


def plan_epoch(
    utterances: Sequence[CachedUtterance],
    *,
    seed: int,
    epoch: int,
    seconds: float = 0.0,
    count: int = 0,
    replicas: int = 1,
    speaker_cap: int = 0,
) -> list[list[list[int]]]:
    """Steps of an epoch; a step has one batch per replica, each a list of indices into `utterances`.

    A batch holds at most `seconds` of audio, padding included (one longer utterance is a batch of its own), or `count` utterances.
    Batches of a step are of like length, so that no replica waits; where batches run out, a replica repeats one of the others.
    With `speaker_cap`, an epoch draws at most that many utterances of one speaker; where nobody is named, all.
    """
    rng = random.Random(f"{seed} {epoch}")
    chosen = _capped(utterances, speaker_cap, rng) if speaker_cap else list(range(len(utterances)))
    length = {index: utterances[index].frames * rng.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER) for index in chosen}
    chosen.sort(key=lambda index: (length[index], index))
    if seconds:
        batches = _by_seconds(utterances, chosen, seconds)
    else:
        batches = [chosen[start : start + count] for start in range(0, len(chosen), count)]
    missing = -len(batches) % replicas
    batches += [rng.choice(batches) for _ in range(missing)]
    steps = [batches[start : start + replicas] for start in range(0, len(batches), replicas)]
    rng.shuffle(steps)
    return steps


def _by_seconds(utterances: Sequence[CachedUtterance], ordered: Sequence[int], seconds: float) -> list[list[int]]:
    batches: list[list[int]] = []
    longest = 0
    for index in ordered:
        frames = utterances[index].frames + FLUSH_FRAMES
        longest = max(longest, frames)
        if not batches or longest * (len(batches[-1]) + 1) > seconds * FRAMES_PER_SECOND:
            batches.append([])
            longest = frames
        batches[-1].append(index)
    return batches


def _capped(utterances: Sequence[CachedUtterance], cap: int, rng: random.Random) -> list[int]:
    by_speaker: dict[str, list[int]] = defaultdict(list)
    for index, utterance in enumerate(utterances):
        by_speaker[utterance.speaker].append(index)
    chosen = by_speaker.pop("", [])  # speakers that nobody named: each may be another person
    for indices in by_speaker.values():
        chosen += rng.sample(indices, min(cap, len(indices)))
    return chosen


def collate(cache: FeatureCache, utterances: Sequence[CachedUtterance], labels: Sequence[list[int]], multiple: int) -> Batch:
    """The batch of `utterances`, its length a multiple of `multiple` frames."""
    frames = [-(-(utterance.frames + FLUSH_FRAMES) // multiple) * multiple for utterance in utterances]
    mels = np.full((len(utterances), max(frames), cache.bins), LOG_FLOOR, dtype=np.float32)
    padded = torch.zeros(len(labels), max(1, max(map(len, labels))), dtype=torch.long)
    for row, utterance in enumerate(utterances):
        mels[row, : utterance.frames] = cache.mels(utterance)
        padded[row, : len(labels[row])] = torch.tensor(labels[row], dtype=torch.long)
    return Batch(torch.from_numpy(mels), torch.tensor(frames), padded, torch.tensor([len(label) for label in labels]))
