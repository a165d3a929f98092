"""Convolutional LSTM with 1x3 filters: it convolves over frequency within a time step and recurs over time.

A 1x3 convolution is written as a matrix product over three concatenated neighbours, and the backward pass by hand: inside a time
loop that is several times as fast as `nn.Conv1d` with recorded operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class ConvLSTM(nn.Module):
    """(B, T, F, channels) -> (B, T, F, filters), and the last hidden and cell (B, F, filters)."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(4 * filters, 3 * channels))
        self.hidden_weight = nn.Parameter(torch.empty(4 * filters, 3 * filters))
        self.bias = nn.Parameter(torch.empty(4 * filters))

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates = functional.linear(neighbours(x.transpose(0, 1)), self.input_weight, self.bias)  # (T, B, F, 4H)
        if torch.is_grad_enabled():  # in float32, even where other products are in bfloat16
            y, cell = _Recurrence.apply(gates.float(), self.hidden_weight.t(), hidden, cell)  # type: ignore[no-untyped-call]
            hidden = y[-1]
        else:
            outputs, cells, _ = _scan(gates, self.hidden_weight.t(), hidden, cell)
            y, hidden, cell = outputs[1:, :, 1:-1], outputs[-1, :, 1:-1].clone(), cells[-1].clone()
        return y.transpose(0, 1), hidden, cell


def neighbours(x: Tensor) -> Tensor:
    """(..., F, C) -> (..., F, 3C): each frequency beside the one below and the one above; zero beyond the edges."""
    padded = functional.pad(x, (0, 0, 1, 1))
    return torch.cat([padded[..., :-2, :], x, padded[..., 2:, :]], dim=-1)


def _scan(gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Runs the recurrence. Gates (T, B, F, 4H) come in as the input's share, in the order input, forget, output, candidate.

    Returns the outputs (T + 1, B, F + 2, H) with the first state in front and a zero margin in frequency, the cells
    (T + 1, B, F, H) likewise, and the activated gates (T, B, F, 4H).
    """
    steps, streams, width, size = gates.shape
    units = size // 4
    outputs = gates.new_zeros(steps + 1, streams, width + 2, units)
    cells = gates.new_empty(steps + 1, streams, width, units)
    activated = torch.empty_like(gates)
    outputs[0, :, 1:-1] = hidden
    cells[0] = cell
    for t in range(steps):
        padded = outputs[t]
        beside = torch.cat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], dim=-1)  # (B, F, 3H)
        gate = activated[t]
        torch.addmm(gates[t].view(-1, size), beside.view(-1, 3 * units), weight, out=gate.view(-1, size))
        gate[..., : 3 * units].sigmoid_()
        gate[..., 3 * units :].tanh_()
        i, f, o, candidate = gate.split(units, dim=-1)
        torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, candidate)
        torch.mul(o, cells[t + 1].tanh(), out=outputs[t + 1, :, 1:-1])
    return outputs, cells, activated


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        outputs, cells, activated = _scan(gates.contiguous(), weight.contiguous(), hidden, cell)
        ctx.save_for_backward(outputs, cells, activated, weight)
        return outputs[1:, :, 1:-1].clone(), cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor, d_cell: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        outputs, cells, activated, weight = ctx.saved_tensors
        steps, streams, width, size = activated.shape
        units = size // 4
        i, f, o, candidate = activated.split(units, dim=-1)
        squashed = cells[1:].tanh()
        # What a gate's input gets of the cell's gradient (input, forget, candidate) or of the output's (output).
        to_input = candidate * i * (1 - i)
        to_forget = cells[:-1] * f * (1 - f)
        to_candidate = i * (1 - candidate.square())
        to_output = squashed * o * (1 - o)
        to_cell = o * (1 - squashed.square())
        back = weight.t().contiguous()  # (4H, 3H)

        d_gates = torch.empty_like(activated)
        d_hidden = torch.zeros_like(cells[0])
        d_cell = d_cell.clone()
        for t in reversed(range(steps)):
            d_hidden += d_outputs[t]
            d_cell.addcmul_(d_hidden, to_cell[t])
            d_gate = d_gates[t]
            torch.mul(d_cell, to_input[t], out=d_gate[..., :units])
            torch.mul(d_cell, to_forget[t], out=d_gate[..., units : 2 * units])
            torch.mul(d_hidden, to_output[t], out=d_gate[..., 2 * units : 3 * units])
            torch.mul(d_cell, to_candidate[t], out=d_gate[..., 3 * units :])
            d_cell *= f[t]
            d_beside = (d_gate.view(-1, size) @ back).view(streams, width, 3, units)
            d_hidden = d_beside[:, :, 1].clone()
            d_hidden[:, :-1] += d_beside[:, 1:, 0]
            d_hidden[:, 1:] += d_beside[:, :-1, 2]
        padded = outputs[:-1]
        beside = torch.cat([padded[:, :, :-2], padded[:, :, 1:-1], padded[:, :, 2:]], dim=-1)
        d_weight = beside.view(-1, 3 * units).t() @ d_gates.view(-1, size)
        return d_gates, d_weight, d_hidden, d_cell
