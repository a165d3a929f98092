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
    came, best = _forward(scores, lengths, labels, blank)
    last = 2 * label_lengths  # the final blank, or the last label
    rows = torch.arange(len(labels))
    before = (last - 1).clamp(min=0)
    state = torch.where(best[rows, last] >= best[rows, before], last, before)
    states = torch.empty(came.shape[:2], dtype=torch.long)  # (T, B)
    for t in range(len(came) - 1, -1, -1):
        states[t] = state
        state = state - came[t].gather(1, state[:, None])[:, 0]

    times = torch.arange(len(came))[:, None]  # (T, 1)
    spoken = (states % 2 == 1) & (times < lengths)  # odd states are labels
    column = torch.where(spoken, (states - 1) // 2, labels.shape[1])  # the others go into a column that is left out
    positions = torch.full((len(labels), labels.shape[1] + 1), len(came))
    positions.scatter_reduce_(1, column.T, times.T.expand(len(labels), -1), "amin")
    existing = torch.arange(labels.shape[1]) < label_lengths[:, None]
    return torch.where(existing & (positions[:, :-1] < len(came)), positions[:, :-1], 0).to(home)


def _forward(scores: Tensor, lengths: Tensor, labels: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """How many states back (T, B, W) the best way into each state came from, and the scores (B, W) of the last states."""
    streams, entries, _ = scores.shape
    width = 2 * labels.shape[1] + 1  # blank, label, blank, label, ... blank
    path_symbols = torch.full((streams, width), blank)
    path_symbols[:, 1::2] = labels
    within = (torch.arange(entries) < lengths[:, None])[..., None]  # (B, T, 1)
    local = (scores.gather(2, path_symbols[:, None].expand(-1, entries, -1)) * within).transpose(0, 1)  # (T, B, W)
    after_end = torch.where(within, 0.0, NEVER).transpose(0, 1)  # (T, B, 1): there is no moving on any more
    may_skip = torch.full((streams, width), NEVER)  # the blank between two different labels
    may_skip[:, 3::2] = torch.where(labels[:, 1:] != labels[:, :-1], 0.0, NEVER)

    padded = torch.full((streams, width + 2), NEVER)  # two states that nobody was in, and the states
    best = padded[:, 2:]
    best[:, :2] = local[0, :, :2]
    came = torch.zeros(entries, streams, width, dtype=torch.long)
    options = torch.empty(3, streams, width)
    for t in range(1, entries):
        options[0] = best
        torch.add(padded[:, 1:-1], after_end[t], out=options[1])
        torch.add(padded[:, :-2], may_skip, out=options[2]).add_(after_end[t])
        reached, came[t] = options.max(dim=0)
        torch.add(reached, local[t], out=best)
    return came, best
