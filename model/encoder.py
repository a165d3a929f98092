"""Encoder: convolutions, a convolutional LSTM and LSTMs, all of them causal.

Time comes in blocks of `config.reduction` frames; each block gives one state of the memory and needs nothing after it. A teacher,
which writes texts for such encoders to learn from, is the exception: it hears the whole recording first (`BothWays`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import EncoderConfig
from model.conv_lstm import ConvLSTM
from model.features import DEPTH
from model.state import State


@dataclass(frozen=True)
class ConvState(State):
    last: Tensor  # (B, 1, F, C) the last input frame


@dataclass(frozen=True)
class RecurrentState(State):
    hidden: Tensor  # (B, ...)
    cell: Tensor  # (B, ...)


@dataclass(frozen=True)
class EncoderState(State):
    convs: tuple[ConvState, ...]
    conv_lstm: tuple[RecurrentState, ...]  # one, or none
    lstms: tuple[RecurrentState, ...]


class ConvLayer(nn.Module):
    """3x3 convolution with stride 2x2, batch normalisation, ReLU: (B, 2T, F, C) -> (B, T, ceil(F / 2), filters).

    An output sees its own two frames and the one before them. Channels stay last in memory, which is the faster way round: training
    a layer with 32 of them, a third of the time.
    """

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, stride=2, padding=(0, 1), bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(filters)

    def forward(self, x: Tensor, state: ConvState) -> tuple[Tensor, ConvState]:
        y = self.norm(self.conv(torch.cat([state.last, x], dim=1).permute(0, 3, 1, 2)))
        return functional.relu(y).permute(0, 2, 3, 1), ConvState(x[:, -1:])


class LSTMLayer(nn.Module):
    """LSTM, then linear projection, batch normalisation and ReLU: (B, T, D) -> (B, T / skip, projection)."""

    def __init__(self, size: int, units: int, projection: int, skip: int) -> None:
        super().__init__()
        self.skip = skip
        self.lstm = nn.LSTM(size, units, batch_first=True)
        self.projection = nn.Linear(units, projection, bias=False) if projection else None
        self.norm: nn.Module | None = nn.BatchNorm1d(projection) if projection else None

    def forward(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        if torch.is_grad_enabled():
            y, (hidden, cell) = self.lstm(x, (state.hidden[None], state.cell[None]))
            state = RecurrentState(hidden[0], cell[0])
        else:
            y, state = lstm_scan(self.lstm, x, state)
        y = y[:, self.skip - 1 :: self.skip]  # the last of each group: the only one that is known without waiting
        if self.projection is not None and self.norm is not None:
            y = self.projection(y)  # (B, T, projection)
            y = functional.relu(self.norm(y.flatten(0, 1)).view_as(y))
        return y, state


class BothWays(nn.Module):
    """Two LSTM layers, the first from the end to the beginning, over the encoder's first and last layer (B, T, size).

    Recordings of one batch should be of like length: shorter ones begin, backwards, with what they were filled up with.
    """

    def __init__(self, size: int, units: int) -> None:
        super().__init__()
        self.back = LSTMLayer(2 * size, units, size, skip=1)
        self.forth = LSTMLayer(2 * size, units, size, skip=1)
        self.units = units

    def forward(self, first: Tensor, last: Tensor) -> Tensor:
        nothing = last.new_zeros(len(last), self.units, dtype=torch.float32)
        start = RecurrentState(nothing, nothing)
        back = self.back(torch.cat([first, last], dim=2).flip(1), start)[0].flip(1)
        whole: Tensor = self.forth(torch.cat([back, last], dim=2), start)[0]
        return whole


def lstm_scan(lstm: nn.LSTM, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
    """What `lstm` does to (B, T, D), without a gradient.

    For the few steps of a live stream, oneDNN's LSTM spends most of its time rearranging weights: this takes a third of that.
    """
    input_weight, hidden_weight, input_bias, hidden_bias = lstm.all_weights[0]
    steps, units = x.shape[1], lstm.hidden_size
    gates = functional.linear(x.contiguous(), input_weight, input_bias + hidden_bias)  # (B, T, 4 * units), as one matrix product
    hidden, cell, transposed = state.hidden, state.cell, hidden_weight.t()
    outputs = []
    for t in range(steps):
        gate = torch.addmm(gates[:, t], hidden, transposed)
        input_forget, candidate = gate[:, : 2 * units].sigmoid_(), gate[:, 2 * units : 3 * units].tanh_()
        cell = torch.addcmul(input_forget[:, units:] * cell, input_forget[:, :units], candidate)
        hidden = gate[:, 3 * units :].sigmoid_() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), RecurrentState(hidden, cell)


def fold_batch_norm(encoder: Encoder) -> None:
    """Moves the batch normalisation of a trained encoder into the weights before it. The outputs stay the same."""
    with torch.no_grad():
        for layer in encoder.modules():
            if isinstance(layer, ConvLayer) and isinstance(layer.norm, nn.BatchNorm2d):
                scale, shift = _affine(layer.norm)
                layer.conv.weight.mul_(scale[:, None, None, None])
                layer.conv.bias = nn.Parameter(shift, requires_grad=False)
                layer.norm = nn.Identity()
            elif isinstance(layer, LSTMLayer) and layer.projection is not None and isinstance(layer.norm, nn.BatchNorm1d):
                scale, shift = _affine(layer.norm)
                layer.projection.weight.mul_(scale[:, None])
                layer.projection.bias = nn.Parameter(shift, requires_grad=False)
                layer.norm = nn.Identity()


def _affine(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """The scale and shift that `norm` amounts to, once trained."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return scale, norm.bias - norm.running_mean * scale


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig, bins: int) -> None:
        super().__init__()
        self.config = config
        self.bins = bins
        channels, width = DEPTH, bins
        self.convs = nn.ModuleList()
        for filters in config.conv_filters:
            self.convs.append(ConvLayer(channels, filters))
            channels, width = filters, (width + 1) // 2
        self.conv_lstm = ConvLSTM(channels, config.conv_lstm_filters) if config.conv_lstm_filters else None
        self.width = width
        size = width * (config.conv_lstm_filters or channels)
        self.lstms = nn.ModuleList()
        for units, skip in zip(config.lstm_units, config.lstm_skips, strict=True):
            self.lstms.append(LSTMLayer(size, units, config.projection, skip))
            size = config.projection or units
        initialize(self, config.init, config.init_scale)
        # Not among the paper's layers: it begins as torch has it.
        self.both_ways = BothWays(config.projection, config.both_ways) if config.both_ways else None

    def initial_state(self, streams: int) -> EncoderState:
        weight = next(self.parameters())
        convs, channels, width = [], DEPTH, self.bins
        for filters in self.config.conv_filters:
            convs.append(ConvState(weight.new_zeros(streams, 1, width, channels)))
            channels, width = filters, (width + 1) // 2

        def zeros(*size: int) -> RecurrentState:
            return RecurrentState(weight.new_zeros(streams, *size), weight.new_zeros(streams, *size))

        return EncoderState(
            convs=tuple(convs),
            conv_lstm=(zeros(width, self.config.conv_lstm_filters),) if self.conv_lstm is not None else (),
            lstms=tuple(zeros(units) for units in self.config.lstm_units),
        )

    def forward(self, frames: Tensor, state: EncoderState) -> tuple[Tensor, EncoderState]:
        """Frames (B, T * reduction, bins, DEPTH) -> memory (B, T, output_size)."""
        if frames.shape[1] % self.config.reduction:
            raise ValueError(f"{frames.shape[1]} frames: expected a multiple of {self.config.reduction}")
        x = frames
        convs, conv_lstm, lstms = [], [], []
        for conv, conv_state in zip(self.convs, state.convs, strict=True):
            x, conv_state = conv(x, conv_state)
            convs.append(conv_state)
        if self.conv_lstm is not None:
            x, hidden, cell = self.conv_lstm(x, state.conv_lstm[0].hidden, state.conv_lstm[0].cell)
            conv_lstm.append(RecurrentState(hidden, cell))
        x = x.flatten(2)
        layers = []
        for lstm, lstm_state in zip(self.lstms, state.lstms, strict=True):
            x, lstm_state = lstm(x, lstm_state)
            lstms.append(lstm_state)
            layers.append(x)
        if self.both_ways is not None:
            x = self.both_ways(layers[0], x)
        return x, EncoderState(tuple(convs), tuple(conv_lstm), tuple(lstms))


def initialize(module: nn.Module, kind: str, scale: float) -> None:
    """Weight matrices and filters as the paper has them; biases are zero."""
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            if "norm" not in name:
                nn.init.zeros_(parameter)
        elif kind == "truncated_normal":
            nn.init.trunc_normal_(parameter, std=scale, a=-2 * scale, b=2 * scale)
        else:
            nn.init.uniform_(parameter, -scale, scale)
