"""Muon: matrices of hidden layers step in the direction of their orthogonalised momentum (Jordan et al., 2024).

Adam scales every weight by itself, so that a step moves a matrix mostly along the few directions in which its gradients agree. Here
all directions of the momentum count alike. The step has the size that Adam's would have (Liu et al., 2025: a root mean square of
0.2 times the rate), so that both share one learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from model.conv_lstm import ConvLSTM

SMALLEST = 64  # a matrix with a shorter side (an embedding, an output layer) is left to Adam
MOMENTUM = 0.95
ADAMS_SIZE = 0.2
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic that draws singular values to about 1 fastest


def hidden_matrices(network: nn.Module) -> list[tuple[nn.Parameter, int]]:
    """The matrices for Muon, each with the number of gates that are stacked in it: every gate is a matrix of its own."""
    return [
        (parameter, 4 if isinstance(module, nn.LSTM | ConvLSTM) else 1)
        for module in network.modules()
        for parameter in module.parameters(recurse=False)
        if parameter.dim() == 2 and min(parameter.shape) >= SMALLEST
    ]


@torch.no_grad()
def orthogonalized(matrices: Tensor) -> Tensor:
    """For each matrix U S V' of (B, rows, columns) about U V', by Newton and Schulz's iteration: products only."""
    wide = matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT
    near: Tensor = wide / (wide.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    first, third, fifth = COEFFICIENTS
    for _ in range(ITERATIONS):
        square = near @ near.mT
        near = first * near + (third * square + fifth * square @ square) @ near
    return near if matrices.shape[-2] <= matrices.shape[-1] else near.mT


class Muon(torch.optim.Optimizer):
    """Under several replicas each orthogonalises its share of the matrices, and they add up what they have."""

    def __init__(
        self, matrices: Sequence[tuple[nn.Parameter, int]], rank: int = 0, replicas: int = 1, precision: torch.dtype = torch.float32
    ) -> None:
        super().__init__([parameter for parameter, _ in matrices], dict(lr=0.0))
        self.rank, self.replicas, self.precision = rank, replicas, precision
        self.gates = [gates for _, gates in matrices]
        self.owners = shares([parameter.numel() * min(parameter.shape) // gates for parameter, gates in matrices], replicas)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        parameters: list[Tensor] = group["params"]
        flat = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
        updates = flat.split([parameter.numel() for parameter in parameters])
        for parameter, gates, owner, update in zip(parameters, self.gates, self.owners, updates, strict=True):
            assert parameter.grad is not None
            momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            momentum.lerp_(parameter.grad, 1 - MOMENTUM)
            if owner == self.rank:
                ahead = parameter.grad.lerp(momentum, MOMENTUM)  # Nesterov's
                direction = orthogonalized(ahead.view(gates, -1, parameter.shape[1]).to(self.precision))
                update.copy_(direction.flatten()).mul_(ADAMS_SIZE * max(direction.shape[-2:]) ** 0.5)
        if self.replicas > 1:
            dist.all_reduce(flat)
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.add_(update.view_as(parameter), alpha=-group["lr"])


def shares(costs: Iterable[int], replicas: int) -> list[int]:
    """Which replica does which piece: the dearest first, each to the one that has least to do so far."""
    costs = list(costs)
    loads, owners = [0] * replicas, [0] * len(costs)
    for piece in sorted(range(len(costs)), key=lambda index: -costs[index]):
        owners[piece] = loads.index(min(loads))
        loads[owners[piece]] += costs[piece]
    return owners
