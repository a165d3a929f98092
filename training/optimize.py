"""What a step does to gradients and weights: one flat gradient, L2, clipping, weight noise, dropout, the moving average."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.conv_lstm import ConvLSTM


def flat_gradient(parameters: Sequence[nn.Parameter]) -> Tensor:
    """One tensor of which every parameter's gradient is a view: averaged, measured and clipped in one go."""
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters), device=parameters[0].device)
    first = 0
    for parameter in parameters:
        parameter.grad = flat[first : first + parameter.numel()].view_as(parameter)
        first += parameter.numel()
    return flat


@torch.no_grad()
def add_l2(parameters: Sequence[nn.Parameter], weight: float) -> None:
    """The gradient of weight / 2 * |w|^2 over all matrices and filters, as a part of the loss: clipped with the rest of it."""
    if not weight:
        return
    for parameter in parameters:
        if parameter.dim() > 1 and parameter.grad is not None:
            parameter.grad.add_(parameter, alpha=weight)


def clip(gradient: Tensor, largest: float) -> float:
    """Shortens the gradient to the norm `largest`, and returns the norm that it had."""
    norm = float(gradient.norm())
    if norm > largest:
        gradient *= largest / norm
    return norm


def noisy_weights_of(network: nn.Module) -> list[nn.Parameter]:
    """The weights of all LSTM layers and embeddings: those that the paper adds noise to."""
    return [
        parameter
        for module in network.modules()
        if isinstance(module, nn.LSTM | ConvLSTM | nn.Embedding)
        for parameter in module.parameters()
        if parameter.dim() > 1
    ]


@contextmanager
def weight_noise(weights: Sequence[nn.Parameter], deviation: float) -> Iterator[None]:
    """Within it the weights carry Gaussian noise; after it they are what they were, to the last bit."""
    if not deviation:
        yield
        return
    clean = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight in weights:
            weight.add_(torch.randn_like(weight), alpha=deviation)
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, before in zip(weights, clean, strict=True):
                weight.copy_(before)


def drop_outputs(layers: Iterable[nn.Module], share: float) -> None:
    """From now on, in training, a share of each layer's units says nothing: the same ones for a whole utterance (B, T, D)."""

    def drop(layer: nn.Module, _: Any, result: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
        output, state = result
        kept = functional.dropout(output.new_ones(len(output), 1, output.shape[2]), share, layer.training)
        return output * kept, state

    if share:
        for layer in layers:
            layer.register_forward_hook(drop)


def keep_still(network: nn.Module, learns: tuple[str, ...]) -> list[nn.Module]:
    """From now on only the parameters of the parts `learns` get a gradient; with none named, all do.

    Returns the modules without a parameter that learns: batch normalisation in them is to use what it knows.
    """
    names = [name for name, _ in network.named_parameters()]
    for part in learns:
        if not any(is_of(name, part) for name in names):
            raise ValueError(f"learns={part!r}: no parameter is of that part; expected, for example, 'encoder' or {names[0]!r}")
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(not learns or any(is_of(name, part) for part in learns))
    if not learns:
        return []
    return [module for module in network.modules() if not any(parameter.requires_grad for parameter in module.parameters())]


def is_of(name: str, part: str) -> bool:
    """Whether a parameter of that name belongs to that part of the network: encoder.lstms.0.projection.weight to encoder.lstms."""
    return name == part or name.startswith(f"{part}.")


@torch.no_grad()
def update_average(average: Mapping[str, Tensor], now: Mapping[str, Tensor], decay: float, step: int) -> None:
    """Moves the average towards the weights of `now`; in the first steps faster, so that it forgets how they were initialised."""
    decay = min(decay, (1 + step) / (10 + step))
    names = [name for name, tensor in now.items() if tensor.is_floating_point()]
    torch._foreach_lerp_([average[name] for name in names], [now[name] for name in names], 1 - decay)
