"""Streaming beam search over the hard process.

Hypotheses walk over the memory together, entry by entry. Where a hypothesis stops, it branches into its best symbols and each
branch looks at the same entry again; where it does not, it waits for the next. Characters on which all hypotheses agree are final.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.hard import HardDecoder, Said, WindowState
from model.network import Network


@dataclass(frozen=True)
class BeamConfig:
    """The paper's: rank pruning at 8 hypotheses, and a threshold of 3 below the best one's log probability."""

    width: int = 8
    threshold: float = 3.0

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or not 1 <= self.width <= 32:
            raise ValueError(f"beam={self.width}: expected 1..32")


Symbol = tuple[int, float]  # a symbol and its probability


@dataclass(frozen=True)
class Hypothesis:
    score: float  # log probability
    said: tuple[Symbol, ...]  # beyond what is certain
    ended: bool = False

    @property
    def symbols(self) -> tuple[int, ...]:
        return tuple(symbol for symbol, _ in self.said)


class BeamDecoder:
    """Beam search for one stream: the state is the hypotheses, and one row of tensors for each."""

    def __init__(self, network: Network, config: BeamConfig) -> None:
        self._hard = HardDecoder(network.decoder, network.symbols)
        self._config = config
        self._end = network.symbols.end
        self.reset()

    def reset(self) -> None:
        self._hypotheses = [Hypothesis(0.0, ())]
        self._state = self._hard.initial_state(1)

    def __call__(self, memory: Tensor, allowed: Tensor) -> list[Said]:
        """Scans new entries (T, D), of which a symbol may be said only at `allowed` (T,); returns what is now certain.

        A hypothesis that has ended keeps its score while those of the others only sink: if it is the best one, it stays so. The
        search then says the end symbol, and nothing more until it starts anew.
        """
        keys = self._hard.decoder.energy.keys(memory)
        windows = [window.rows(torch.tensor([0])).extended(memory[None]) for window in self._state.window]  # all share the entries
        final: list[Said] = []
        for entry in range(len(memory)):
            if allowed[entry] and not self._best().ended:
                span = slice(entry, entry + self._hard.width)
                self._scan(memory[entry], keys[entry], [WindowState(w.recent[:, span], w.exists[:, span]) for w in windows])
                best = self._best()
                final += [Said(0, entry, *symbol) for symbol in self._commit(len(best.said) if best.ended else self._common())]
        same = torch.zeros(len(self._hypotheses), dtype=torch.long)
        last = tuple(window.last(self._hard.width - 1).rows(same) for window in windows)
        self._state = replace(self._state, window=last)
        return final

    def go_beyond(self, most: int) -> None:
        """Past the last entry: goes on with an empty context until the best hypothesis has ended, or holds `most` symbols."""
        empty = self._state.decoder.hidden.new_zeros(self._hard.memory_size)
        while not self._best().ended and len(self._best().said) < most:
            going_on = [row for row, hypothesis in enumerate(self._hypotheses) if not hypothesis.ended]
            self._branch(torch.tensor(going_on), empty, [])

    def finish(self) -> list[Symbol]:
        """What the best hypothesis says beyond what was certain. The search then starts anew."""
        rest = self._commit(len(self._best().said))
        self.reset()
        return rest

    def _best(self) -> Hypothesis:
        return max(self._hypotheses, key=lambda hypothesis: hypothesis.score)

    def _scan(self, entry: Tensor, key: Tensor, windows: list[WindowState]) -> None:
        """Lets every hypothesis look at one entry, until none of them stops at it any more."""
        decoder = self._hard.decoder
        looking = torch.arange(len(self._hypotheses))
        for _ in range(decoder.symbols_per_entry):
            looking = looking[[not self._hypotheses[row].ended for row in looking.tolist()]]
            if len(looking) == 0:
                return
            energies = decoder.energy(self._state.query[looking], key)
            stopping = looking[energies > self._hard.least_energy]
            if len(stopping) == 0:
                return
            looking = self._branch(stopping, entry, windows)

    def _branch(self, stopping: Tensor, entry: Tensor, windows: list[WindowState]) -> Tensor:
        """Replaces the hypotheses `stopping` by their branches, prunes, and returns the rows of the branches."""
        decoder = self._hard.decoder
        part = self._state.rows(stopping)
        context = entry.expand(len(stopping), -1)
        for window in windows:
            context = decoder.chunk_context(part.decoder.hidden, window.recent, window.exists)
        logits, after = decoder.step(part.symbol, context, part.decoder)
        scores, symbols = logits.log_softmax(-1).topk(min(self._config.width, logits.shape[1]), dim=-1)

        stopped = set(stopping.tolist())
        candidates: dict[tuple[int, ...], tuple[Hypothesis, int, int]] = {}  # hypothesis, its row, its symbol or -1 for none
        for row, hypothesis in enumerate(self._hypotheses):
            if row not in stopped:
                _keep_better(candidates, hypothesis, row, -1)
        for index, row in enumerate(stopping.tolist()):
            parent = self._hypotheses[row]
            for score, symbol in zip(scores[index].tolist(), symbols[index].tolist(), strict=True):
                said = (*parent.said, (symbol, math.exp(score)))
                _keep_better(candidates, Hypothesis(parent.score + score, said, symbol == self._end), index, symbol)

        ranked = sorted(candidates.values(), key=lambda candidate: -candidate[0].score)[: self._config.width]
        kept = [candidate for candidate in ranked if candidate[0].score >= ranked[0][0].score - self._config.threshold]
        waiting = [candidate for candidate in kept if candidate[2] < 0]
        branches = [candidate for candidate in kept if candidate[2] >= 0]
        self._hypotheses = [hypothesis for hypothesis, _, _ in waiting + branches]
        state = self._state.rows(torch.tensor([row for _, row, _ in waiting], dtype=torch.long))
        if branches:
            chosen = torch.tensor([row for _, row, _ in branches])
            said_symbols = torch.tensor([symbol for _, _, symbol in branches])
            query = decoder.energy.query(after.hidden[chosen])
            branched = replace(part.rows(chosen), decoder=after.rows(chosen), symbol=said_symbols, query=query)
            state = state.join(branched)
        self._state = state
        return torch.arange(len(waiting), len(kept))

    def _common(self) -> int:
        """How many symbols all hypotheses agree on."""
        columns = zip(*(hypothesis.symbols for hypothesis in self._hypotheses), strict=False)
        agreed = 0
        for column in columns:
            if len(set(column)) > 1:
                break
            agreed += 1
        return agreed

    def _commit(self, count: int) -> list[Symbol]:
        """Makes the first `count` symbols of the best hypothesis final."""
        final = list(self._best().said[:count])
        self._hypotheses = [Hypothesis(h.score, h.said[count:], h.ended) for h in self._hypotheses]
        return final


def _keep_better(
    candidates: dict[tuple[int, ...], tuple[Hypothesis, int, int]], hypothesis: Hypothesis, row: int, symbol: int
) -> None:
    """Of two hypotheses that say the same, the more probable one stays."""
    known = candidates.get(hypothesis.symbols)
    if known is None or known[0].score < hypothesis.score:
        candidates[hypothesis.symbols] = (hypothesis, row, symbol)


def beam_decode(network: Network, memory: Tensor, config: BeamConfig) -> list[int]:
    """The symbols of one whole memory (T, D), the end symbol left out."""
    decoder = BeamDecoder(network, config)
    symbols = [each.symbol for each in decoder(memory, torch.ones(len(memory), dtype=torch.bool))]
    if network.config.attention.beyond:
        decoder.go_beyond(len(memory) - len(symbols))
    symbols += [symbol for symbol, _ in decoder.finish()]
    return symbols[: symbols.index(network.symbols.end)] if network.symbols.end in symbols else symbols
