"""Plans of epochs: everything once, nothing too long, always the same."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.features import FLUSH_FRAMES, FRAMES_PER_SECOND, LOG_FLOOR
from training.batches import collate, plan_epoch
from training.cache import CachedUtterance, FeatureCache


def corpus(count: int, seed: int = 0) -> list[CachedUtterance]:
    rng = random.Random(seed)
    return [CachedUtterance(str(n), "text", f"speaker{n % 7}", "", 0, rng.randint(50, 1500)) for n in range(count)]


def flat(plan: list[list[list[int]]]) -> list[int]:
    return [index for step in plan for batch in step for index in batch]


@given(count=st.integers(1, 300), seed=st.integers(0, 9), replicas=st.integers(1, 3), seconds=st.sampled_from([0.0, 5.0, 30.0]))
def test_an_epoch_has_everything_within_bounds(count: int, seed: int, replicas: int, seconds: float) -> None:
    utterances = corpus(count, seed)
    plan = plan_epoch(utterances, seed=seed, epoch=3, seconds=seconds, count=8, replicas=replicas)
    assert all(len(step) == replicas for step in plan)
    times = Counter(flat(plan))
    assert set(times) == set(range(count))
    if replicas == 1:
        assert set(times.values()) == {1}
    for step in plan:
        for batch in step:
            padded = max(utterances[index].frames + FLUSH_FRAMES for index in batch) * len(batch)
            assert len(batch) <= 8 if not seconds else padded <= seconds * FRAMES_PER_SECOND or len(batch) == 1


def test_utterances_of_a_batch_are_of_like_length() -> None:
    utterances = corpus(1000)
    for step in plan_epoch(utterances, seed=1, epoch=0, count=8):
        frames = [utterances[index].frames for index in step[0]]
        assert max(frames) - min(frames) < 0.25 * max(frames)


def test_a_plan_depends_on_seed_and_epoch_alone() -> None:
    utterances = corpus(200)
    plans = [plan_epoch(utterances, seed=seed, epoch=epoch, seconds=20.0) for seed, epoch in [(1, 1), (1, 1), (1, 2), (2, 1)]]
    assert plans[0] == plans[1]
    assert plans[0] != plans[2] != plans[3] != plans[0]


def test_a_speaker_has_at_most_the_cap() -> None:
    utterances = corpus(200)
    plans = [plan_epoch(utterances, seed=1, epoch=epoch, seconds=20.0, speaker_cap=5) for epoch in range(8)]
    for plan in plans:
        assert set(Counter(utterances[index].speaker for index in flat(plan)).values()) == {5}
    assert len({index for plan in plans for index in flat(plan)}) > 7 * 5  # another choice in each epoch


def test_utterances_of_speakers_unnamed_are_not_capped() -> None:
    utterances = [replace(utterance, speaker="" if number % 2 else "one") for number, utterance in enumerate(corpus(200))]
    drawn = Counter(
        utterances[index].speaker for index in flat(plan_epoch(utterances, seed=1, epoch=0, seconds=20.0, speaker_cap=5))
    )
    assert drawn == {"": 100, "one": 5}


def test_a_batch_is_padded_with_silence(cache: FeatureCache) -> None:
    chosen = [cache.utterances[0], cache.utterances[9]]
    batch = collate(cache, chosen, [[5, 6], [7]], multiple=4)
    assert batch.mels.dtype == torch.float32
    assert batch.mels.shape[1] % 4 == 0
    assert batch.frames.tolist() == [-(-(utterance.frames + FLUSH_FRAMES) // 4) * 4 for utterance in chosen]
    assert batch.labels.tolist() == [[5, 6], [7, 0]]
    assert batch.label_lengths.tolist() == [2, 1]
    np.testing.assert_array_equal(batch.mels[0, : chosen[0].frames], cache.mels(chosen[0]).astype(np.float32))
    assert batch.mels[0, chosen[0].frames :].unique().tolist() == [np.float32(LOG_FLOOR)]
    assert batch.seconds == pytest.approx(int(batch.frames.sum()) / 100)


def test_twice_is_every_utterance_and_then_every_one_again(cache: FeatureCache) -> None:
    batch = collate(cache, cache.utterances[:3], [[5, 6], [7], [8]], multiple=4)
    both = batch.twice()
    for name in ("mels", "frames", "labels", "label_lengths"):
        first, second = getattr(both, name).chunk(2)
        assert torch.equal(first, getattr(batch, name))
        assert torch.equal(second, getattr(batch, name))
