"""What `benchmarks/attention.py` times is what the model computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.attention import HIDDEN, MEMORY, growth, hard_attention, softmax_attention
from model.attention import first_alpha, monotonic_attention


@pytest.mark.parametrize(("entries", "outputs"), [(500, 30), (9, 200)], ids=["outputs end first", "the memory ends first"])
def test_both_attentions_are_the_models(entries: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    memory, keys, queries, direction = (
        rng.uniform(-1, 1, size).astype(np.float32) for size in ((entries, MEMORY), (entries, HIDDEN), (outputs, HIDDEN), HIDDEN)
    )
    energies = torch.tanh(torch.from_numpy(queries)[:, None] + torch.from_numpy(keys)) @ torch.from_numpy(direction)
    alpha, steps = first_alpha(torch.from_numpy(memory)[None]), []
    for row in energies:
        alpha = monotonic_attention((row[None] > 0).float(), alpha, "hard")
        steps.append(alpha)
    chosen = torch.cat(steps)
    assert len(chosen.unique(dim=0)) > 2  # it moves on
    assert bool(chosen[-1].any()) == (outputs < entries)
    problem = (memory, keys, queries, direction, 0.0)
    np.testing.assert_array_equal(hard_attention(*problem), (chosen @ torch.from_numpy(memory)).numpy())
    np.testing.assert_allclose(
        softmax_attention(*problem), (energies.softmax(-1) @ torch.from_numpy(memory)).numpy(), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_growth_is_the_power_of_the_length(power: float) -> None:
    lengths = (10, 100, 1000, 2000)
    assert growth(lengths, [3e-6 * length**power for length in lengths]) == pytest.approx(power)
