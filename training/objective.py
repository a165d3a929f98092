"""The loss of a batch: a weighted sum of parts, each per label."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from model.network import Network
from training.alignment import ctc_positions
from training.augment import augment_mels, mask_frames
from training.batches import Batch
from training.recipe import Precision, Recipe


def objective(network: Network, batch: Batch, recipe: Recipe, step: int) -> tuple[Tensor, dict[str, float]]:
    """The loss to descend and its parts by name. The batch is on the CPU, and goes to the network's device once augmented."""
    consistent = bool(recipe.loss.consistency) and network.training
    with torch.no_grad():
        reduction = network.config.encoder.reduction
        if consistent:
            batch = batch.twice()
        batch = augment_mels(batch, recipe.augmentation, step, reduction).to(network.ctc.weight.device)
        frames, _, _ = network.features.normalized(batch.mels, network.features.initial_state(len(batch.mels)))
        frames = mask_frames(frames, batch.frames, recipe.augmentation, step)
    with in_precision(training_precision(recipe, network), network):
        memory, _ = network.encoder(frames, network.encoder.initial_state(len(frames)))
    memory = memory.float()  # (B, T, D)
    lengths = batch.frames // reduction
    parts: dict[str, Tensor] = {}
    scores = network.ctc(memory).log_softmax(-1)  # (B, T, symbols)
    if recipe.loss.ctc:
        parts["ctc"] = ctc_loss(scores, lengths, batch, network.symbols.blank)
    if consistent:
        parts["consistency"] = disagreement(scores, lengths) / batch.label_lengths.sum()
    if recipe.loss.attention:
        positions = heard = None
        if recipe.loss.alignment or recipe.attention.mode == "forced" or recipe.attention.heard:
            positions = ctc_positions(scores.detach(), lengths, batch.labels, batch.label_lengths, network.symbols.blank)
            if recipe.attention.heard and network.training:
                heard = as_heard(batch.labels, scores.detach(), positions, network.symbols.blank, recipe.attention.heard)
        parts |= attention_losses(network, memory, lengths, batch, positions, recipe, heard)
    loss = torch.stack([getattr(recipe.loss, name) * part for name, part in parts.items()]).sum()
    return loss, {name: float(part.detach()) for name, part in parts.items()}


def training_precision(recipe: Recipe, network: Network) -> Precision:
    """The recipe's, while the network trains."""
    return recipe.precision if network.training else "float32"


def in_precision(precision: Precision, network: Network) -> torch.autocast:
    """Within it, matrix products have that precision."""
    return torch.autocast(network.ctc.weight.device.type, torch.bfloat16, enabled=precision == "bfloat16")


def ctc_loss(scores: Tensor, lengths: Tensor, batch: Batch, blank: int) -> Tensor:
    total = functional.ctc_loss(
        scores.transpose(0, 1), batch.labels, lengths, batch.label_lengths, blank=blank, reduction="sum", zero_infinity=True
    )
    return total / batch.label_lengths.sum()


def disagreement(scores: Tensor, lengths: Tensor) -> Tensor:
    """Summed over entries, how far what is heard of either view is from what is heard of the other: CR-CTC (Yao et al., 2024).

    scores (2B, T, symbols) are log probabilities of B utterances and then of the same again, of lengths (2B,). Each view learns
    from the other as it is, by Kullback and Leibler's divergence.
    """
    exists = torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]  # (2B, T)
    others = scores.detach().roll(len(scores) // 2, dims=0)
    return (functional.kl_div(scores, others, reduction="none", log_target=True).sum(-1) * exists).sum()


def attention_losses(
    network: Network,
    memory: Tensor,
    lengths: Tensor,
    batch: Batch,
    positions: Tensor | None,
    recipe: Recipe,
    heard: Tensor | None = None,
) -> dict[str, Tensor]:
    """Cross-entropy of the labels and the end symbol, and what keeps the attention in step with them.

    The decoder is told the labels as they were before, or as they were `heard` (B, U).
    """
    inputs, targets, exists = teacher_forcing(batch.labels, batch.label_lengths, network.symbols.start, network.symbols.end)
    if heard is not None:
        inputs = functional.pad(heard, (1, 0), value=network.symbols.start)
    count = exists.sum()
    noise = network.config.attention.noise if network.training else 0.0
    parts = {}
    if positions is not None:  # the end symbol is said at the last entry
        positions = functional.pad(positions, (0, 1))
        positions.scatter_(1, batch.label_lengths[:, None], lengths[:, None] - 1)
    if recipe.attention.mode == "forced":
        assert positions is not None
        with in_precision(training_precision(recipe, network), network):
            logits, before = network.decoder.forced(memory, inputs, positions)
        logits, before = logits.float(), before.float()
        parts["alignment"] = waiting_loss(network, memory, before, positions, exists, noise) / count
    else:
        mask = torch.arange(memory.shape[1], device=memory.device) < lengths[:, None]  # (B, T)
        taught = network.decoder.attend(memory, mask, inputs, recipe.attention.mode, noise)
        logits = taught.logits
        if recipe.loss.quantity:
            attended = (taught.alpha.sum(2) * exists).sum(1)  # (B,)
            parts["quantity"] = (attended - exists.sum(1)).abs().sum() / count
        if recipe.loss.alignment:
            assert positions is not None
            expected = taught.alpha @ torch.arange(memory.shape[1], dtype=memory.dtype, device=memory.device)  # (B, U)
            parts["alignment"] = ((expected - positions).abs() * exists).sum() / count
    parts["attention"] = smoothed_cross_entropy(logits, targets, exists, recipe.loss.label_smoothing) / count
    return parts


def teacher_forcing(labels: Tensor, label_lengths: Tensor, start: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs and targets of the decoder (B, U + 1), and which of them there are: start a b c -> a b c end."""
    inputs = functional.pad(labels, (1, 0), value=start)
    targets = functional.pad(labels, (0, 1)).scatter(1, label_lengths[:, None], end)
    exists = torch.arange(inputs.shape[1], device=labels.device) <= label_lengths[:, None]
    return inputs, targets, exists


def as_heard(labels: Tensor, scores: Tensor, positions: Tensor, blank: int, share: float) -> Tensor:
    """Labels (B, U) of which a share is drawn from what the CTC head hears at their positions (B, U), blanks left out.

    A decoder that has only ever been told the truth takes its own mistakes for it.
    """
    there = scores.gather(1, positions[..., None].expand(-1, -1, scores.shape[2]))  # (B, U, symbols)
    there[..., blank] = -torch.inf
    drawn = (there - torch.empty_like(there).exponential_().log()).argmax(-1)  # Gumbel's way to draw from a softmax
    return torch.where(torch.rand(labels.shape, device=labels.device) < share, drawn, labels)


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, exists: Tensor, smoothing: Sequence[float]) -> Tensor:
    """Summed cross-entropy against each target mixed with its neighbours in time.

    logits (B, U, symbols), targets and exists (B, U). The middle weight is the target's own; at the ends of the sequence the
    weights of the neighbours that there are not go to the others in proportion.
    """
    scores = logits.log_softmax(-1)
    reach = len(smoothing) // 2
    padded, there = functional.pad(targets, (reach, reach)), functional.pad(exists, (reach, reach))
    total, mass = torch.zeros_like(scores[..., 0]), torch.zeros_like(scores[..., 0])
    for offset, weight in enumerate(smoothing):
        present = there[:, offset : offset + targets.shape[1]] * weight
        total = total + present * scores.gather(2, padded[:, offset : offset + targets.shape[1], None])[..., 0]
        mass = mass + present
    return -(total / mass.clamp(min=1e-9))[exists].sum()


def waiting_loss(network: Network, memory: Tensor, before: Tensor, positions: Tensor, exists: Tensor, noise: float) -> Tensor:
    """Summed cross-entropy of the hard process's own decisions, wait or stop, along the given positions (B, U).

    Only the T + U decisions that the process meets are evaluated: from the previous position to this one.
    """
    entries = torch.arange(memory.shape[1], device=memory.device)
    after = int(network.config.attention.strict)  # where the scan goes on
    previous = functional.pad(positions[:, :-1] + after, (1, 0))
    met = (entries >= previous[..., None]) & (entries <= positions[..., None]) & exists[..., None]  # (B, U, T)
    row, step, entry = met.nonzero(as_tuple=True)
    energy = network.decoder.energy
    energies = energy(energy.query(before)[row, step], energy.keys(memory)[row, entry])
    energies = energies + noise * torch.randn_like(energies)
    return functional.binary_cross_entropy_with_logits(energies, (entry == positions[row, step]).float(), reduction="sum")
