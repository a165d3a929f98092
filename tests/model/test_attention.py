from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from model.attention import AdditiveEnergy, BilinearEnergy, chunkwise_attention, first_alpha, make_energy, monotonic_attention
from model.config import AttentionConfig

probabilities = (
    st.integers(2, 30)
    .flatmap(lambda entries: arrays("float64", (4, 2, entries), elements=st.floats(0.0, 0.9)))
    .map(torch.from_numpy)
)  # (U, B, T)
decisions = (
    st.integers(2, 30)
    .flatmap(lambda entries: arrays("float64", (4, 2, entries), elements=st.sampled_from([0.0, 0.0, 1.0]), fill=st.nothing()))
    .map(torch.from_numpy)
)


def alphas(p: Tensor, mode: str) -> list[Tensor]:
    alpha, steps = first_alpha(p[0][..., None]), []
    for each in p:
        alpha = monotonic_attention(each, alpha, mode)  # type: ignore[arg-type]
        steps.append(alpha)
    return steps


def brute_force(p: Tensor) -> list[Tensor]:
    """The sum over paths that the paper's eq. alpha_ij is."""
    _, rows, entries = p.shape
    previous, steps = first_alpha(p[0][..., None]), []
    for each in p:
        alpha = torch.zeros(rows, entries, dtype=p.dtype)
        for j in range(entries):
            for k in range(j + 1):
                alpha[:, j] += each[:, j] * previous[:, k] * (1 - each[:, k:j]).prod(1)
        previous = alpha
        steps.append(alpha)
    return steps


@given(p=probabilities)
def test_recursive_is_the_sum_over_paths(p: Tensor) -> None:
    for found, expected in zip(alphas(p, "recursive"), brute_force(p), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@given(p=probabilities)
def test_parallel_is_recursive(p: Tensor) -> None:
    p = p * min(1.0, 10 / p.shape[2])  # the product of (1 - p) stays above 1e-10, where the closed form is exact
    for found, expected in zip(alphas(p, "parallel"), alphas(p, "recursive"), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@given(p=decisions)
def test_all_modes_agree_on_decisions(p: Tensor) -> None:
    for recursive, parallel, hard in zip(alphas(p, "recursive"), alphas(p, "parallel"), alphas(p, "hard"), strict=True):
        assert torch.equal(recursive, hard)
        torch.testing.assert_close(parallel, hard, rtol=0, atol=1e-6)


@given(p=probabilities | decisions, mode=st.sampled_from(["recursive", "parallel"]))
def test_alpha_is_a_distribution_over_what_was_reached(p: Tensor, mode: str) -> None:
    reached = torch.ones(p.shape[1], dtype=p.dtype)
    for alpha in alphas(p, mode):
        assert (alpha >= 0).all()
        assert (alpha.sum(1) <= reached + 1e-9).all()
        reached = alpha.sum(1)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("energy", [-30.0, 0.0, 30.0])
def test_gradients_stay_finite(energy: float, width: int) -> None:
    energies = torch.full((2, 2000), energy)
    energies[:, ::7] = -energy
    energies.requires_grad_()
    alpha = first_alpha(energies[..., None])
    for _ in range(5):
        alpha = monotonic_attention(energies.sigmoid(), alpha, "parallel")
    weights = chunkwise_attention(alpha, energies, width)
    (weights @ torch.arange(2000.0)).sum().backward()
    assert weights.isfinite().all()
    assert energies.grad is not None
    assert energies.grad.isfinite().all()


def test_additive_energy_by_hand() -> None:
    energy = make_energy(AttentionConfig(hidden=4), 2, 3, -4.0)
    assert isinstance(energy, AdditiveEnergy)
    assert energy.scale.item() == pytest.approx(0.5)
    assert energy.bias.item() == -4.0
    state, memory = torch.randn(1, 2), torch.randn(5, 3)
    found = energy(energy.query(state), energy.keys(memory))
    inner = torch.tanh(state @ energy.query_weight.weight.T + memory @ energy.memory_weight.weight.T + energy.memory_weight.bias)
    v = energy.direction / (energy.direction**2).sum().sqrt()
    torch.testing.assert_close(found, 0.5 * (inner @ v) - 4.0)


def test_bilinear_energy_by_hand() -> None:
    energy = make_energy(AttentionConfig(energy="bilinear", hidden=16), 2, 3, -1.0)
    assert isinstance(energy, BilinearEnergy)
    state, memory = torch.randn(1, 2), torch.randn(5, 3)
    found = energy(energy.query(state), energy.keys(memory))
    torch.testing.assert_close(found, 0.25 * (memory @ energy.memory_weight.weight.T @ state[0]) - 1.0)


@given(p=probabilities, width=st.integers(1, 6), spread=st.sampled_from([1.0, 100.0]))
def test_chunkwise_by_hand(p: Tensor, width: int, spread: float) -> None:
    """However high an energy is elsewhere: a softmax over a few entries depends on those alone."""
    alpha = alphas(p, "recursive")[1]
    rows, entries = alpha.shape
    u = torch.randn(rows, entries, dtype=p.dtype, generator=torch.Generator().manual_seed(0)) * spread
    expected = torch.zeros_like(alpha)
    for k in range(entries):
        window = slice(max(0, k - width + 1), k + 1)
        expected[:, window] += alpha[:, k : k + 1] * u[:, window].softmax(-1)
    torch.testing.assert_close(chunkwise_attention(alpha, u, width), expected, rtol=0, atol=1e-8)
