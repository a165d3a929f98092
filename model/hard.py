"""The hard monotonic attention process: what a live stream is decoded with.

Each stream scans the memory from left to right from where it stopped. An entry whose energy clears the threshold is the context
of the next symbol; the scan then goes on from that same entry. Nothing before it is looked at again, and nothing is taken back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from model.decoder import Decoder, DecoderState
from model.state import State
from model.symbols import SymbolTable


class Said(NamedTuple):
    """A symbol that stream `row` said at entry `entry` of the chunk of memory."""

    row: int
    entry: int
    symbol: int
    probability: float
    late: int = 0  # entries since it was heard: a search with several hypotheses is certain of it only then


@dataclass(frozen=True)
class WindowState(State):
    recent: Tensor  # (B, chunk - 1, D) the last entries
    exists: Tensor  # (B, chunk - 1) which of those there are

    def extended(self, memory: Tensor) -> WindowState:
        """With the new entries (B, T, D) behind the last ones."""
        return WindowState(
            torch.cat([self.recent, memory], dim=1),
            torch.cat([self.exists, torch.ones(memory.shape[:2], dtype=torch.bool)], dim=1),
        )

    def last(self, entries: int) -> WindowState:
        return WindowState(self.recent[:, -entries:], self.exists[:, -entries:])


@dataclass(frozen=True)
class HardState(State):
    decoder: DecoderState
    symbol: Tensor  # (B,) the last symbol said
    query: Tensor  # (B, hidden) of the energy: changes only when a symbol is said
    window: tuple[WindowState, ...]  # one where the context covers several entries, none otherwise


class HardDecoder:
    """Greedy: each time the most probable symbol. Deterministic and append-only."""

    def __init__(self, decoder: Decoder, symbols: SymbolTable) -> None:
        self.decoder = decoder
        self.symbols = symbols
        self.memory_size = decoder.lstm.input_size - decoder.config.embedding
        self.width = decoder.attention.chunk
        self.least_energy = math.log(decoder.attention.threshold / (1 - decoder.attention.threshold))
        self.energies_evaluated = 0

    def initial_state(self, streams: int) -> HardState:
        state = self.decoder.initial_state(streams)
        recent = state.hidden.new_zeros(streams, self.width - 1, self.memory_size)
        exists = torch.zeros(streams, self.width - 1, dtype=torch.bool)
        return HardState(
            decoder=state,
            symbol=torch.full((streams,), self.symbols.start),
            query=self.decoder.energy.query(state.hidden),
            window=(WindowState(recent, exists),) if self.width > 1 else (),
        )

    def __call__(self, memory: Tensor, allowed: Tensor, state: HardState) -> tuple[list[Said], HardState]:
        """Scans the new entries (B, T, D); a stream may say something only where `allowed` (B, T).

        A stream that has said the end symbol says nothing more: a new sequence begins with a new state.
        """
        state = state.copy()
        keys = self.decoder.energy.keys(memory)  # (B, T, hidden)
        windows = [window.extended(memory) for window in state.window]
        said: list[Said] = []
        for entry in range(memory.shape[1]):
            rows = (allowed[:, entry] & (state.symbol != self.symbols.end)).nonzero()[:, 0]
            for _ in range(self.decoder.symbols_per_entry):
                if len(rows) == 0:
                    break
                energies = self.decoder.energy(state.query[rows], keys[rows, entry])
                self.energies_evaluated += len(rows)
                rows = rows[energies > self.least_energy]
                if len(rows) == 0:
                    break
                part = state.rows(rows)
                context = memory[rows, entry]
                for window in windows:
                    span = slice(entry, entry + self.width)
                    context = self.decoder.chunk_context(part.decoder.hidden, window.recent[rows, span], window.exists[rows, span])
                part, probability = self.say(part, context)
                said += map(Said, rows.tolist(), [entry] * len(rows), part.symbol.tolist(), probability.tolist())
                state.put(rows, part)
                rows = rows[part.symbol != self.symbols.end]
        return said, replace(state, window=tuple(window.last(self.width - 1) for window in windows))

    def say(self, state: HardState, context: Tensor) -> tuple[HardState, Tensor]:
        """The state after the most probable symbol for `context` (B, D), and that symbol's probability (B,)."""
        logits, decoder = self.decoder.step(state.symbol, context, state.decoder)
        probability, symbol = logits.softmax(-1).max(-1)
        return HardState(decoder, symbol, self.decoder.energy.query(decoder.hidden), state.window), probability
