"""The loss of a batch: a weighted sum of parts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from model.network import Network
from training.batches import Batch
from training.recipe import Recipe


def objective(network: Network, batch: Batch, recipe: Recipe) -> tuple[Tensor, dict[str, float]]:
    """The loss to descend, per label, and its parts by name."""
    with torch.no_grad():
        frames, _, _ = network.features.normalized(batch.mels, network.features.initial_state(len(batch.mels)))
    memory, _ = network.encoder(frames, network.encoder.initial_state(len(frames)))  # (B, T, D)
    lengths = batch.frames // network.config.encoder.reduction
    labels = batch.label_lengths.sum()
    parts: dict[str, Tensor] = {}
    if recipe.loss.ctc:
        scores = network.ctc(memory).log_softmax(-1)  # (B, T, symbols)
        total = functional.ctc_loss(
            scores.transpose(0, 1), batch.labels, lengths, batch.label_lengths, blank=network.symbols.blank, reduction="sum"
        )
        parts["ctc"] = total / labels
    loss = torch.stack([getattr(recipe.loss, name) * part for name, part in parts.items()]).sum()
    return loss, {name: float(part.detach()) for name, part in parts.items()}
