"""Decoding of whole memories, for measuring: hard and soft monotonic attention, softmax attention, CTC.

Each function takes a network, a memory (B, T, D) and lengths (B,) in entries, and returns the symbols of each utterance.

In the paper an output step that finds no entry gets an empty context, and steps go on until the end symbol. A model trained in
expectation knows such steps, and `attention.beyond` says so; here they are bounded to one symbol per entry in all. A live stream
does without: what comes with an empty context has no sound behind it and no time, an endpoint is not the end of the audio, and
the silence that ends every stream (`FLUSH_FRAMES`) gives the last symbols entries to be said at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from model.attention import chunkwise_attention, first_alpha
from model.beam import BeamConfig, beam_decode
from model.hard import HardDecoder
from model.network import Network

Decode = Callable[[Network, Tensor, Tensor], list[list[int]]]


def existing(memory: Tensor, lengths: Tensor) -> Tensor:
    """Which entries (B, T) belong to an utterance."""
    return torch.arange(memory.shape[1]) < lengths[:, None]


def ctc(network: Network, memory: Tensor, lengths: Tensor) -> list[list[int]]:
    """The best symbol of each entry, repetitions and blanks left out."""
    best = network.ctc(memory).argmax(-1)  # (B, T)
    decoded = []
    for row, length in zip(best, lengths.tolist(), strict=True):
        symbols = row[:length].unique_consecutive().tolist()
        decoded.append([symbol for symbol in symbols if symbol != network.symbols.blank])
    return decoded


def hard(network: Network, memory: Tensor, lengths: Tensor) -> list[list[int]]:
    """The hard process, greedy: what a live stream says, and beyond the last entry if the model's config says so."""
    decoder, end = HardDecoder(network.decoder, network.symbols), network.symbols.end
    said, state = decoder(memory, existing(memory, lengths), decoder.initial_state(len(memory)))
    decoded: list[list[int]] = [[] for _ in memory]
    for each in said:
        decoded[each.row].append(each.symbol)
    unfinished = list(range(len(memory))) if network.config.attention.beyond else []
    while unfinished := [row for row in unfinished if decoded[row][-1:] != [end] and len(decoded[row]) < lengths[row]]:
        rows = torch.tensor(unfinished)
        part, _ = decoder.say(state.rows(rows), memory.new_zeros(len(rows), memory.shape[2]))
        state = state.with_rows(rows, part)
        for row, symbol in zip(unfinished, part.symbol.tolist(), strict=True):
            decoded[row].append(symbol)
    return [until_end(symbols, end) for symbols in decoded]


def beam(network: Network, memory: Tensor, lengths: Tensor) -> list[list[int]]:
    """The hard process with beam search."""
    return [beam_decode(network, row[:length], BeamConfig()) for row, length in zip(memory, lengths.tolist(), strict=True)]


def soft(network: Network, memory: Tensor, lengths: Tensor, mode: Literal["recursive", "softmax"] = "recursive") -> list[list[int]]:
    """Greedy with the attention in expectation: needs the whole memory, so it is no online method.

    By recurrence, which is exact: the parallel form of training may lose so much weight that a text breaks off half way.
    """
    if memory.shape[1] == 0:
        return [[] for _ in memory]
    decoder, mask = network.decoder, existing(memory, lengths)
    keys = decoder.energy.keys(memory)
    state, alpha = decoder.initial_state(len(memory)), first_alpha(memory)
    symbols = torch.full((len(memory),), network.symbols.start)
    ended = torch.zeros(len(memory), dtype=torch.bool)
    steps = []
    for step in range(memory.shape[1] * decoder.symbols_per_entry):
        alpha = decoder.next_alpha(state.hidden, keys, mask, alpha, mode, first=step == 0)  # (B, T)
        weights = alpha
        if decoder.chunk_energy is not None and mode == "recursive":
            chunk_energies = decoder.chunk_energy(
                decoder.chunk_energy.query(state.hidden)[:, None], decoder.chunk_energy.keys(memory)
            )
            weights = chunkwise_attention(alpha, chunk_energies, decoder.attention.chunk)
        logits, state = decoder.step(symbols, (weights[:, None] @ memory)[:, 0], state)
        symbols = logits.argmax(-1)
        if mode == "recursive" and not decoder.attention.beyond:
            symbols = symbols.where(alpha.sum(1) >= 0.5, network.symbols.end)  # rather than not, the scan went past the last entry
        steps.append(symbols)
        ended |= symbols == network.symbols.end
        if ended.all():
            break
    said = zip(torch.stack(steps, dim=1).tolist(), lengths.tolist(), strict=True)
    return [until_end(row[: length * decoder.symbols_per_entry], network.symbols.end) for row, length in said]


def softmax(network: Network, memory: Tensor, lengths: Tensor) -> list[list[int]]:
    """Greedy with softmax attention, for models that were trained with it."""
    return soft(network, memory, lengths, "softmax")


def until_end(symbols: list[int], end: int) -> list[int]:
    return symbols[: symbols.index(end)] if end in symbols else symbols


DECODERS: dict[str, Decode] = {"hard": hard, "beam": beam, "soft": soft, "softmax": softmax, "ctc": ctc}
