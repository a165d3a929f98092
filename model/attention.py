"""Monotonic attention: which entries of the memory an output step attends to.

Names follow the paper: memory h (B, T, D), decoder state s (B, D'), energies e (B, T), choosing probabilities p = sigmoid(e),
and the distribution alpha (B, T) over entries, whose sum is at most 1: what is missing went past the last entry.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import AttentionConfig

NEGLIGIBLE = 1e-6  # weight that a previous step may have left behind
SMALLEST = 1e-10  # the denominator of the parallel form is clipped to SMALLEST..1, as in the paper


class AdditiveEnergy(nn.Module):
    """g v/|v| . tanh(W s + V h + b) + r"""

    def __init__(self, query_size: int, memory_size: int, hidden: int, initial_scale: float, initial_bias: float) -> None:
        super().__init__()
        self.query_weight = nn.Linear(query_size, hidden, bias=False)
        self.memory_weight = nn.Linear(memory_size, hidden, bias=True)
        self.direction = nn.Parameter(torch.empty(hidden).uniform_(-1, 1))
        self.scale = nn.Parameter(torch.tensor(initial_scale))
        self.bias = nn.Parameter(torch.tensor(initial_bias))

    def query(self, state: Tensor) -> Tensor:
        """(..., query_size) -> (..., hidden): needed once per output step."""
        query: Tensor = self.query_weight(state)
        return query

    def keys(self, memory: Tensor) -> Tensor:
        """(..., memory_size) -> (..., hidden): needed once per entry."""
        keys: Tensor = self.memory_weight(memory)
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Energies (...) of queries and keys (..., hidden) that broadcast against each other."""
        direction: Tensor = self.scale * self.direction / self.direction.norm()
        return torch.tanh(query + keys) @ direction + self.bias


class BilinearEnergy(nn.Module):
    """g s . W h + r, the scaled energy of the paper's translation experiments."""

    def __init__(self, query_size: int, memory_size: int, hidden: int, initial_scale: float, initial_bias: float) -> None:
        super().__init__()
        self.memory_weight = nn.Linear(memory_size, query_size, bias=False)
        self.scale = nn.Parameter(torch.tensor(initial_scale))
        self.bias = nn.Parameter(torch.tensor(initial_bias))

    def query(self, state: Tensor) -> Tensor:
        return state

    def keys(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.memory_weight(memory)
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.scale * (query * keys).sum(-1) + self.bias


Energy = AdditiveEnergy | BilinearEnergy


def make_energy(config: AttentionConfig, query_size: int, memory_size: int, initial_bias: float) -> Energy:
    kind = AdditiveEnergy if config.energy == "additive" else BilinearEnergy
    return kind(query_size, memory_size, config.hidden, config.initial_scale or 1 / math.sqrt(config.hidden), initial_bias)


def monotonic_attention(p: Tensor, previous: Tensor, mode: Literal["recursive", "parallel", "hard"]) -> Tensor:
    """The distribution alpha_i (B, T) over entries, from the choosing probabilities p_i and alpha_{i-1} (B, T).

    recursive: the recurrence itself. Exact for any p, but T steps one after the other.
    parallel:  the paper's closed form with cumulative sums and products. Fast. Where the product of (1 - p) falls below 1e-10
               within the span of `previous`, weight behind is lost; before that span p has no effect and is taken as 0, since
               a confident model is sure of entries that it left behind, too.
    hard:      p and `previous` must be 0 or 1: the first chosen entry from the previous one on. No gradient.

    The first step of a sequence has `previous` one at entry 0.
    """
    if mode == "recursive":
        q = torch.zeros_like(p[:, 0])
        passed = torch.ones_like(q)
        alpha = []
        for j in range(p.shape[1]):
            q = passed * q + previous[:, j]
            alpha.append(p[:, j] * q)
            passed = 1 - p[:, j]
        return torch.stack(alpha, dim=1)
    if mode == "parallel":
        p = p * (previous.cumsum(1) > NEGLIGIBLE)
        log_passed = torch.log((1 - p).clamp(min=SMALLEST)).cumsum(1)
        passed = functional.pad(log_passed, (1, -1)).exp()  # exclusive product of (1 - p)
        return p * passed * (previous / passed.clamp(SMALLEST, 1)).cumsum(1)
    reached = previous.cumsum(1)  # 1 from the previous entry on
    chosen = p * reached
    return chosen * ((chosen.cumsum(1) - chosen) == 0)


def next_start(alpha: Tensor) -> Tensor:
    """`alpha` (B, T) moved on by one entry: where the next scan begins if no entry may be chosen twice."""
    return functional.pad(alpha, (1, -1))


def first_alpha(entries: Tensor) -> Tensor:
    """alpha_0 (B, T) for a memory (B, T, D): one at the first entry."""
    alpha = entries.new_zeros(entries.shape[:2])
    alpha[:, 0] = 1
    return alpha


def chunkwise_attention(alpha: Tensor, energies: Tensor, width: int) -> Tensor:
    """Expected weights (B, T) of a softmax over the `width` entries that end with the chosen one (monotonic chunkwise attention).

    beta_j = sum over k in j..j+width-1 of alpha_k exp(u_j) / sum over l in k-width+1..k of exp(u_l). With width 1 it is alpha.
    """
    if width == 1:
        return alpha
    windows = functional.pad(energies, (width - 1, 0), value=-torch.inf).unfold(1, width, 1)  # (B, T, width) over k-width+1..k
    shares = alpha[..., None] * windows.softmax(-1)
    ahead = functional.pad(shares.flip(2), (0, 0, 0, width - 1)).unfold(1, width, 1)  # (B, T, width, width) over k in j..j+width-1
    return ahead.diagonal(dim1=2, dim2=3).sum(-1)  # of each window, the share of entry j
