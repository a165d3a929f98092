"""Forced alignment by CTC: at which entry of the memory each label of a known text is said (Viterbi)."""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1e30


@torch.no_grad()
def ctc_positions(scores: Tensor, lengths: Tensor, labels: Tensor, label_lengths: Tensor, blank: int) -> Tensor:
    """The first entry (B, U) of each label on the best CTC path; 0 beyond an utterance's labels.

    scores (B, T, symbols) log probabilities, lengths (B,) in entries, labels (B, U), label_lengths (B,).
    """
    home = scores.device  # many small steps: faster on the CPU than anywhere else
    scores, lengths, labels, label_lengths = scores.cpu(), lengths.cpu(), labels.cpu(), label_lengths.cpu()
    streams, entries, _ = scores.shape
    width = 2 * labels.shape[1] + 1  # blank, label, blank, label, ... blank
    path_symbols = torch.full((streams, width), blank)
    path_symbols[:, 1::2] = labels
    local = scores.gather(2, path_symbols[:, None].expand(-1, entries, -1))  # (B, T, width)
    may_skip = torch.zeros(streams, width, dtype=torch.bool)  # the blank between two different labels
    may_skip[:, 3::2] = labels[:, 1:] != labels[:, :-1]

    best = torch.full((streams, width), NEVER)
    best[:, :2] = local[:, 0, :2]
    came = torch.zeros(entries, streams, width, dtype=torch.long)  # how many states back
    never = torch.full((streams, 2), NEVER)
    for t in range(1, entries):
        padded = torch.cat([never, best], dim=1)
        options = torch.stack([best, padded[:, 1:-1], torch.where(may_skip, padded[:, :-2], NEVER)])
        best, came[t] = options.max(dim=0)
        best = best + local[:, t]
        ended = (t >= lengths)[:, None]  # keeps its scores
        best = torch.where(ended, options[0], best)
        came[t].masked_fill_(ended, 0)

    last = 2 * label_lengths  # the final blank, or the last label
    rows = torch.arange(streams)
    state = torch.where(best[rows, last] >= best[rows, (last - 1).clamp(min=0)], last, (last - 1).clamp(min=0))
    positions = torch.zeros_like(labels)
    for t in range(entries - 1, -1, -1):
        label = (state - 1) // 2
        spoken = (state % 2 == 1) & (t < lengths)
        positions[rows[spoken], label[spoken]] = t
        state = state - came[t, rows, state]
    return positions.to(home)
