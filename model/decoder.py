"""Decoder: an LSTM that reads the last symbol and the attended context, and says the next symbol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from model.attention import chunkwise_attention, first_alpha, make_energy, monotonic_attention, next_start
from model.config import AttentionConfig, DecoderConfig
from model.encoder import initialize
from model.state import State


@dataclass(frozen=True)
class DecoderState(State):
    hidden: Tensor  # (B, units)
    cell: Tensor  # (B, units)


@dataclass(frozen=True)
class Taught:
    """What the decoder made of given labels."""

    logits: Tensor  # (B, U, symbols)
    alpha: Tensor  # (B, U, T) the attention's distribution over entries


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig, attention: AttentionConfig, memory_size: int, symbols: int) -> None:
        super().__init__()
        self.config = config
        self.attention = attention
        self.embedding = nn.Embedding(symbols, config.embedding)
        self.lstm = nn.LSTM(config.embedding + memory_size, config.lstm_units, batch_first=True)
        self.output = nn.Linear(config.lstm_units + (memory_size if config.output_context else 0), symbols)
        self.energy = make_energy(attention, config.lstm_units, memory_size, attention.initial_bias)
        self.chunk_energy = make_energy(attention, config.lstm_units, memory_size, 0.0) if attention.chunk > 1 else None
        for part in (self.lstm, self.output, *self.energy.children(), *(self.chunk_energy.children() if self.chunk_energy else ())):
            initialize(part, "uniform", config.init_scale)
        nn.init.uniform_(self.embedding.weight, -config.embedding_scale, config.embedding_scale)
        # A first state of zero has the same bilinear energy with every entry, r: if that is negative, nothing is ever said.
        self.first_hidden = None
        if attention.energy == "bilinear":
            self.first_hidden = nn.Parameter(torch.empty(config.lstm_units).uniform_(-config.init_scale, config.init_scale))

    @property
    def symbols_per_entry(self) -> int:
        """How many symbols the hard process may say at one entry."""
        return 1 if self.attention.strict else self.config.max_symbols_per_entry

    def initial_state(self, streams: int) -> DecoderState:
        zeros = self.embedding.weight.new_zeros(streams, self.config.lstm_units)
        return DecoderState(zeros.clone() if self.first_hidden is None else zeros + self.first_hidden, zeros)

    def step(self, symbols: Tensor, context: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Last symbols (B,) and context (B, D) -> logits (B, symbols) of the next ones."""
        x = torch.cat([self.embedding(symbols), context], dim=1)
        hidden, cell = torch.lstm_cell(x, (state.hidden, state.cell), *self.lstm.all_weights[0])
        return self._logits(context, hidden), DecoderState(hidden, cell)

    def _logits(self, context: Tensor, hidden: Tensor) -> Tensor:
        """Contexts (..., D) and the LSTM's outputs (..., units) -> (..., symbols)."""
        logits: Tensor = self.output(torch.cat([context, hidden], dim=-1) if self.config.output_context else hidden)
        return logits

    def chunk_context(self, hidden: Tensor, entries: Tensor, valid: Tensor) -> Tensor:
        """Context (B, D) of hard chunkwise attention over the last entries (B, width, D), of which `valid` (B, width) exist."""
        assert self.chunk_energy is not None
        energies: Tensor = self.chunk_energy(self.chunk_energy.query(hidden)[:, None], self.chunk_energy.keys(entries))
        weights = energies.masked_fill(~valid, -torch.inf).softmax(-1)
        return (weights[:, None] @ entries)[:, 0]

    def attend(self, memory: Tensor, mask: Tensor, labels: Tensor, mode: Literal["soft", "softmax"], noise: float = 0.0) -> Taught:
        """Says given labels, one after the other, with soft attention over the whole memory.

        memory (B, T, D), mask (B, T) of the entries that exist, labels (B, U) that begin with the start symbol.
        """
        keys = self.energy.keys(memory)
        chunk_keys = self.chunk_energy.keys(memory) if self.chunk_energy is not None else None
        state, alpha = self.initial_state(len(memory)), first_alpha(memory)
        logits, alphas = [], []
        for step, symbols in enumerate(labels.unbind(1)):
            alpha = self.next_alpha(state.hidden, keys, mask, alpha, "parallel" if mode == "soft" else mode, noise, first=step == 0)
            weights = alpha
            if self.chunk_energy is not None and chunk_keys is not None and mode == "soft":
                chunk_energies = self.chunk_energy(self.chunk_energy.query(state.hidden)[:, None], chunk_keys)
                weights = chunkwise_attention(alpha, chunk_energies, self.attention.chunk)
            context = (weights[:, None] @ memory)[:, 0]
            step_logits, state = self.step(symbols, context, state)
            logits.append(step_logits)
            alphas.append(alpha)
        return Taught(torch.stack(logits, dim=1), torch.stack(alphas, dim=1))

    def next_alpha(
        self,
        hidden: Tensor,
        keys: Tensor,
        mask: Tensor,
        alpha: Tensor,
        mode: Literal["recursive", "parallel", "softmax"],
        noise: float = 0.0,
        *,
        first: bool,
    ) -> Tensor:
        """The attention (B, T) of the step after `alpha`, for the decoder's hidden state (B, units)."""
        energies: Tensor = self.energy(self.energy.query(hidden)[:, None], keys)  # (B, T)
        if mode == "softmax":
            return energies.masked_fill(~mask, -torch.inf).softmax(-1)
        if noise:
            energies = energies + noise * torch.randn_like(energies)
        start = next_start(alpha) if self.attention.strict and not first else alpha
        return monotonic_attention(energies.sigmoid() * mask, start, mode)

    def forced(self, memory: Tensor, labels: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Says given labels with hard attention to given entries: the whole sequence in one call of the LSTM.

        memory (B, T, D), labels (B, U) that begin with the start symbol, positions (B, U) of the entries to attend to.
        Returns logits (B, U, symbols) and the hidden states (B, U, units) *before* each step, which the energies depend on.
        With chunkwise attention the context still depends on the state, so this is for width 1.
        """
        if self.attention.chunk > 1:
            raise ValueError(f"attention.chunk={self.attention.chunk}: forced attention expects 1")
        context = memory.gather(1, positions[..., None].expand(-1, -1, memory.shape[2]))
        first = self.initial_state(len(memory))
        hidden, _ = self.lstm(torch.cat([self.embedding(labels), context], dim=2), (first.hidden[None], first.cell[None]))
        return self._logits(context, hidden), torch.cat([first.hidden[:, None], hidden[:, :-1]], dim=1)
