"""Streaming beam search over the hard process.

Hypotheses walk over the memory together, entry by entry. At each entry a hypothesis waits for the next one, with probability
1 - p, or stops, with probability p, and branches into its best symbols; unless the process is strict, each branch looks at the
same entry again. So a hypothesis's score is the probability of all its decisions, those to wait included, and ways to say the same
symbols add up. Where p is 0 or 1 that is the paper's search. A language model, where there is one, has its say on every character
(shallow fusion). Characters are final once all hypotheses agree on them, and soon in any case: then whoever contradicts the best
hypothesis is dropped, which hardly costs accuracy (docs/experiments.md) and makes room for hypotheses about what is being said now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from model.config import expect
from model.decoder import DecoderState
from model.endpoint import to_entries
from model.hard import HardDecoder, HardState, Said, WindowState
from model.language import Reading
from model.network import Network


@dataclass(frozen=True)
class BeamConfig:
    """Rank pruning at 8 hypotheses as in the paper, and a threshold of 4 below the best one's log probability instead of its 3.

    That and the weights of the language model are a compromise of accuracy and work on the embedded model: docs/experiments.md.
    """

    width: int = 8
    threshold: float = 4.0
    language: float = 0.4  # weight of the language model's log probability
    length: float = 0.4  # added for every character that it has its say on, or it would rather have fewer of them
    patience: float = 0.4  # seconds after which the best hypothesis is taken at its word; 0: once all agree, as in the paper

    def __post_init__(self) -> None:
        expect("patience", self.patience, 0, 60)
        if not isinstance(self.width, int) or not 1 <= self.width <= 32:
            raise ValueError(f"beam={self.width}: expected 1..32")


class Symbol(NamedTuple):
    symbol: int
    probability: float
    entry: int  # at which it was said, counted from the search's beginning


@dataclass(frozen=True)
class Hypothesis:
    score: float  # log probability
    said: tuple[Symbol, ...]  # beyond what is certain
    ended: bool = False
    reading: Reading | None = None  # where the language model has got to

    @property
    def symbols(self) -> tuple[int, ...]:
        return tuple(each.symbol for each in self.said)


WAITING = -1  # no symbol


class Candidate(NamedTuple):
    """What a hypothesis may become."""

    hypothesis: Hypothesis
    row: int  # of the state that it goes on from
    symbol: int  # that it says, or WAITING


class BeamDecoder:
    """Beam search for one stream: the state is the hypotheses, and one row of tensors for each."""

    def __init__(self, network: Network, config: BeamConfig) -> None:
        self._language = network.language if config.language else None
        self._hard = HardDecoder(network.decoder, network.symbols)
        self._config = config
        self._patience = to_entries(config.patience, network.config.encoder.reduction) if config.patience else 0  # entries
        self._symbols = network.symbols
        self.spoken: set[int] = set()  # entries of the last chunk at which the best hypothesis said some text, certain or not
        self.reset()

    def reset(self) -> None:
        self._hypotheses = [Hypothesis(0.0, (), reading=self._language.start() if self._language else None)]
        self._state = self._hard.initial_state(1)
        self._entry = -1  # that was scanned last

    def __call__(self, memory: Tensor, allowed: Tensor) -> list[Said]:
        """Scans new entries (T, D), of which a symbol may be said only at `allowed` (T,); returns what is now certain.

        Once the best hypothesis has ended, the search says the end symbol, and nothing more until it starts anew.
        """
        keys = self._hard.decoder.energy.keys(memory)
        windows = [window.rows(torch.tensor([0])).extended(memory[None]) for window in self._state.window]  # all share the entries
        final: list[Said] = []
        self.spoken = set()
        for entry in range(len(memory)):
            self._entry += 1
            if self._best().ended:
                continue
            if allowed[entry]:
                before = len(self._best().said)
                span = slice(entry, entry + self._hard.width)
                self._scan(memory[entry], keys[entry], [WindowState(w.recent[:, span], w.exists[:, span]) for w in windows])
                if any(self._symbols.is_text(symbol) for symbol in self._best().symbols[before:]):
                    self.spoken.add(entry)
            final += self._commit(self._settle(), entry)
        same = torch.zeros(len(self._hypotheses), dtype=torch.long)
        last = tuple(window.last(self._hard.width - 1).rows(same) for window in windows)
        self._state = replace(self._state, window=last)
        return final

    def go_beyond(self, most: int) -> None:
        """Past the last entry: goes on with an empty context until the best hypothesis has ended, or holds `most` symbols."""
        empty = self._state.decoder.hidden.new_zeros(self._hard.memory_size)
        while not self._best().ended and len(self._best().said) < most:
            self._decide(dict.fromkeys(range(len(self._hypotheses)), (0.0, -math.inf)), empty, [])

    def finish(self) -> list[Said]:
        """What the best hypothesis says beyond what was certain, with the last entry as -1. The search then starts anew."""
        rest = self._commit(len(self._best().said), -1)
        self.reset()
        return rest

    def _best(self) -> Hypothesis:
        return max(self._hypotheses, key=lambda hypothesis: hypothesis.score)

    def _scan(self, entry: Tensor, key: Tensor, windows: list[WindowState]) -> None:
        """Lets every hypothesis decide at one entry, and those that stopped at it again, where they may."""
        decoder = self._hard.decoder
        looking = range(len(self._hypotheses))
        for _ in range(decoder.symbols_per_entry):
            if not looking or self._best().ended:
                return
            odds = decoder.energy(self._state.query[looking], key) - self._hard.least_energy
            stop, wait = functional.logsigmoid(odds).tolist(), functional.logsigmoid(-odds).tolist()
            looking = self._decide(dict(zip(looking, zip(stop, wait, strict=True), strict=True)), entry, windows)

    def _decide(self, looking: dict[int, tuple[float, float]], entry: Tensor, windows: list[WindowState]) -> range:
        """Replaces the hypotheses `looking` (their log probabilities to stop and to wait) by what may become of them, and prunes.

        Returns the rows of those that stopped.
        """
        candidates: dict[tuple[int, ...], Candidate] = {}
        for row, hypothesis in enumerate(self._hypotheses):
            wait = looking[row][1] if row in looking else 0.0
            _add(candidates, Candidate(replace(hypothesis, score=hypothesis.score + wait), row, WAITING))
        least = max(candidate.hypothesis.score for candidate in candidates.values()) - self._config.threshold
        stopping = [row for row, (stop, _) in looking.items() if self._hypotheses[row].score + stop > least]
        part = self._state.rows(torch.tensor(stopping, dtype=torch.long))
        after = part.decoder
        if stopping:
            after = self._branch(candidates, {row: looking[row][0] for row in stopping}, part, entry, windows)

        kept = self._kept(candidates.values())
        waiting = [candidate for candidate in kept if candidate.symbol == WAITING]
        branches = [candidate for candidate in kept if candidate.symbol != WAITING]
        self._hypotheses = [candidate.hypothesis for candidate in waiting + branches]
        self._state = self._state.rows(torch.tensor([candidate.row for candidate in waiting], dtype=torch.long))
        if branches:
            chosen = torch.tensor([candidate.row for candidate in branches])
            said = torch.tensor([candidate.symbol for candidate in branches])
            query = self._hard.decoder.energy.query(after.hidden[chosen])
            self._state = self._state.join(replace(part.rows(chosen), decoder=after.rows(chosen), symbol=said, query=query))
        return range(len(waiting), len(kept))

    def _kept(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The best ones. The end is reached with the best of all or not at all: whoever has ended pays for no further decision."""
        ranked = sorted(candidates, key=lambda candidate: -candidate.hypothesis.score)
        if ranked[0].hypothesis.ended:
            return ranked[:1]
        least = ranked[0].hypothesis.score - self._config.threshold
        going_on = (candidate for candidate in ranked if not candidate.hypothesis.ended and candidate.hypothesis.score >= least)
        return list(islice(going_on, self._config.width))

    def _branch(
        self,
        candidates: dict[tuple[int, ...], Candidate],
        stopping: dict[int, float],
        part: HardState,
        entry: Tensor,
        windows: list[WindowState],
    ) -> DecoderState:
        """Adds the branches of the hypotheses `stopping` (their log probabilities to do so), whose rows are `part`.

        A branch names the row in `part` that it comes from. Returns the decoder's states of those rows after the entry.
        """
        decoder = self._hard.decoder
        context = entry.expand(len(stopping), -1)
        for window in windows:
            context = decoder.chunk_context(part.decoder.hidden, window.recent, window.exists)
        logits, after = decoder.step(part.symbol, context, part.decoder)
        scores, symbols = logits.log_softmax(-1).topk(min(self._config.width, logits.shape[1]), dim=-1)
        for index, (row, stop) in enumerate(stopping.items()):
            parent = self._hypotheses[row]
            for score, symbol in zip(scores[index].tolist(), symbols[index].tolist(), strict=True):
                likely, reading = self._read(parent.reading, symbol)
                said = (*parent.said, Symbol(symbol, math.exp(score), self._entry))
                hypothesis = Hypothesis(parent.score + stop + score + likely, said, symbol == self._symbols.end, reading)
                _add(candidates, Candidate(hypothesis, index, symbol))
        return after

    def _read(self, reading: Reading | None, symbol: int) -> tuple[float, Reading | None]:
        """What the language model adds to the score of a symbol, and where it has got to then."""
        written = self._symbols.written(symbol)
        if self._language is None or reading is None or not written:
            return 0.0, reading
        likely, reading = self._language.read(reading, written)
        return self._config.language * likely + self._config.length, reading

    def _settle(self) -> int:
        """How many symbols are final: the best hypothesis's of long ago, and all on which those that do not contradict it agree."""
        best = self._best()
        if best.ended:
            return len(best.said)
        if self._patience and len(agreeing := self._agreeing(best)) < len(self._hypotheses):
            self._hypotheses = [self._hypotheses[row] for row in agreeing]
            self._state = self._state.rows(torch.tensor(agreeing))
        columns = zip(*(hypothesis.symbols for hypothesis in self._hypotheses), strict=False)
        return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))

    def _agreeing(self, best: Hypothesis) -> list[int]:
        """The rows of those that say the same as the best one, as far as any of them is overdue."""
        said = [hypothesis.symbols for hypothesis in self._hypotheses]
        old = [sum(each.entry <= self._entry - self._patience for each in hypothesis.said) for hypothesis in self._hypotheses]
        overdue = max(count for count, symbols in zip(old, said, strict=True) if symbols[:count] == best.symbols[:count])
        reach = [max(overdue, count) for count in old]
        return [row for row, count in enumerate(reach) if said[row][:count] == best.symbols[:count]]

    def _commit(self, count: int, entry: int) -> list[Said]:
        """Makes the first `count` symbols of the best hypothesis final, at entry `entry` of the chunk."""
        final = [Said(0, entry, each.symbol, each.probability, self._entry - each.entry) for each in self._best().said[:count]]
        self._hypotheses = [replace(hypothesis, said=hypothesis.said[count:]) for hypothesis in self._hypotheses]
        return final


def _add(candidates: dict[tuple[int, ...], Candidate], new: Candidate) -> None:
    """Ways to say the same symbols add up, and go on as the more probable one of them."""
    symbols = new.hypothesis.symbols
    known = candidates.get(symbols)
    if known is not None:
        both = max(known, new, key=lambda candidate: candidate.hypothesis.score)
        total = math.log(
            math.exp(known.hypothesis.score - both.hypothesis.score) + math.exp(new.hypothesis.score - both.hypothesis.score)
        )
        new = both._replace(hypothesis=replace(both.hypothesis, score=both.hypothesis.score + total))
    candidates[symbols] = new


def beam_decode(network: Network, memory: Tensor, config: BeamConfig) -> list[int]:
    """The symbols of one whole memory (T, D), the end symbol left out."""
    decoder = BeamDecoder(network, config)
    symbols = [each.symbol for each in decoder(memory, torch.ones(len(memory), dtype=torch.bool))]
    if network.config.attention.beyond:
        decoder.go_beyond(len(memory) - len(symbols))
    symbols += [each.symbol for each in decoder.finish()]
    return symbols[: symbols.index(network.symbols.end)] if network.symbols.end in symbols else symbols
