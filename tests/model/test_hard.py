from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import logsigmoid

from model import Emission, Recognizer, StreamOptions
from model.attention import AdditiveEnergy
from model.beam import BeamConfig, BeamDecoder, Candidate, Hypothesis, Symbol, _add, beam_decode
from model.config import AttentionConfig
from model.endpoint import to_entries
from model.hard import HardDecoder
from model.network import Network
from model.offline import DECODERS, hard, soft, until_end
from tests.conftest import SMALL, babble, random_network
from tests.model.chunks import chunk_sizes, split

ENTRIES = 24


def memory(rows: int = 3, entries: int = ENTRIES, seed: int = 0) -> Tensor:
    return torch.randn(rows, entries, SMALL.encoder.output_size, generator=torch.Generator().manual_seed(seed)) * 2


def everywhere(rows: int = 3, entries: int = ENTRIES) -> Tensor:
    return torch.ones(rows, entries, dtype=torch.bool)


@pytest.fixture(scope="module", params=[1, 3], ids=["width 1", "width 3"])
def any_network(request: pytest.FixtureRequest) -> Network:
    return random_network(replace(SMALL, attention=replace(SMALL.attention, chunk=request.param)))


@given(sizes=chunk_sizes(ENTRIES), seed=st.integers(0, 5))
def test_chunked_equals_whole(any_network: Network, sizes: list[int], seed: int) -> None:
    decoder = HardDecoder(any_network.decoder, any_network.symbols)
    whole, _ = decoder(memory(seed=seed), everywhere(), decoder.initial_state(3))
    state, parts, first = decoder.initial_state(3), [], 0
    for chunk in split(memory(seed=seed), sizes, dim=1):
        said, state = decoder(chunk, everywhere(entries=chunk.shape[1]), state)
        parts += [each._replace(entry=each.entry + first) for each in said]
        first += chunk.shape[1]
    assert len(whole) > 3
    assert [each[:3] for each in parts] == [each[:3] for each in whole]


def test_rows_do_not_touch(any_network: Network) -> None:
    decoder = HardDecoder(any_network.decoder, any_network.symbols)
    together, _ = decoder(memory(), everywhere(), decoder.initial_state(3))
    for row in range(3):
        alone, _ = decoder(memory()[row : row + 1], everywhere(1), decoder.initial_state(1))
        assert [each[1:3] for each in alone] == [each[1:3] for each in together if each.row == row]


def test_at_most_one_energy_per_entry_and_symbol(network: Network) -> None:
    decoder = HardDecoder(network.decoder, network.symbols)
    said, _ = decoder(memory(), everywhere(), decoder.initial_state(3))
    assert decoder.energies_evaluated <= 3 * ENTRIES + len(said)


def test_entries_only_rise_and_are_bounded(any_network: Network) -> None:
    eager = random_network(replace(SMALL, attention=replace(SMALL.attention, initial_bias=100.0)))
    eager.decoder.output.bias[eager.symbols.end] = -50.0
    most = eager.config.decoder.max_symbols_per_entry
    for network in (any_network, eager):
        decoder = HardDecoder(network.decoder, network.symbols)
        said, _ = decoder(memory(), everywhere(), decoder.initial_state(3))
        for row in range(3):
            entries = [each.entry for each in said if each.row == row]
            assert entries == sorted(entries)
            assert max(map(entries.count, entries)) <= most
    assert len(said) == 3 * ENTRIES * most


def test_nothing_is_said_where_it_is_not_allowed(network: Network) -> None:
    decoder = HardDecoder(network.decoder, network.symbols)
    allowed = everywhere()
    allowed[1] = False
    allowed[2, : ENTRIES // 2] = False
    said, _ = decoder(memory(), allowed, decoder.initial_state(3))
    assert {each.row for each in said} == {0, 2}
    assert min(each.entry for each in said if each.row == 2) >= ENTRIES // 2


def certain_network(attention: AttentionConfig) -> Network:
    """Its energies are far from zero."""
    network = random_network(replace(SMALL, attention=attention, decoder=replace(SMALL.decoder, max_symbols_per_entry=100)))
    network.decoder.energy.scale.fill_(1e6)
    return network


@pytest.mark.parametrize("strict", [False, True])
def test_hard_is_soft_where_every_decision_is_certain(strict: bool) -> None:
    network = certain_network(replace(SMALL.attention, strict=strict))
    lengths = torch.full((3,), ENTRIES)
    certain = hard(network, memory(), lengths)
    assert max(map(len, certain)) > 2
    for found, expected in zip(soft(network, memory(), lengths), certain, strict=True):
        assert found[:100] == expected[:100]  # so many may be said at one entry, where the soft one knows no bound


def expected_by_hand(network: Network, entries: Tensor) -> list[int]:
    """The paper's algorithm 2 for one memory (T, D), each time with the most probable symbol."""
    decoder, symbols = network.decoder, list[int]()
    state, alpha = decoder.initial_state(1), [1.0] + [0.0] * (len(entries) - 1)
    while len(symbols) < len(entries) * decoder.symbols_per_entry:
        p = decoder.energy(decoder.energy.query(state.hidden), decoder.energy.keys(entries)).sigmoid().tolist()
        q = 0.0
        for j in range(len(entries)):
            q = (1 - p[j - 1]) * q + alpha[j]
            alpha[j] = p[j] * q
        context = torch.tensor(alpha) @ entries
        last = torch.tensor([symbols[-1] if symbols else network.symbols.start])
        logits, state = decoder.step(last, context[None], state)
        symbols.append(int(logits.argmax()))
    return until_end(symbols, network.symbols.end)


@pytest.mark.parametrize("seed", range(3))
def test_soft_is_the_papers_expectation(seed: int) -> None:
    """Of decisions that are far from certain, too, over so many entries that the parallel form loses most of the weight."""
    attention, decoder = replace(SMALL.attention, beyond=True), replace(SMALL.decoder, max_symbols_per_entry=1)
    network, entries = random_network(replace(SMALL, attention=attention, decoder=decoder), seed), memory(1, 120, seed)
    network.decoder.energy.scale.fill_(2.0)
    network.decoder.energy.bias.fill_(-1.0)
    network.decoder.output.bias[network.symbols.end] = -50.0
    assert soft(network, entries, torch.tensor([120])) == [expected_by_hand(network, entries[0])]


def test_hard_is_soft_past_the_last_entry_too() -> None:
    attention = replace(SMALL.attention, strict=True)
    here, beyond = certain_network(attention), certain_network(replace(attention, beyond=True))
    lengths = torch.full((3,), ENTRIES)
    said = hard(beyond, memory(), lengths)
    assert all(len(more) > len(less) for more, less in zip(said, hard(here, memory(), lengths), strict=True))
    assert said == [symbols[: len(expected)] for symbols, expected in zip(soft(beyond, memory(), lengths), said, strict=True)]


def test_what_goes_beyond_the_last_entry_ends() -> None:
    """With the end symbol, or after as many symbols as there are entries. A live stream says nothing of it."""
    network = random_network(replace(SMALL, attention=replace(SMALL.attention, initial_bias=-100.0, beyond=True)))
    end, lengths = network.symbols.end, torch.tensor([ENTRIES, 7, 1])
    decoders = (hard, lambda *of: [beam_decode(network, row[:n], BeamConfig(3)) for row, n in zip(of[1], of[2], strict=True)])
    for decode in decoders:
        network.decoder.output.bias[end] = -50.0
        assert [len(symbols) for symbols in decode(network, memory(), lengths)] == lengths.tolist()
        network.decoder.output.bias[end] = 50.0
        assert decode(network, memory(), lengths) == [[], [], []]
    assert Recognizer(network).transcribe(babble(1.0)).text == ""


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_decoders_do_not_depend_on_padding(network: Network, name: str) -> None:
    lengths = torch.tensor([ENTRIES, ENTRIES // 2, 5])
    together = DECODERS[name](network, memory(), lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = DECODERS[name](network, memory()[row : row + 1, :length], torch.tensor([length]))
        most = min(len(alone[0]), len(together[row]))  # a soft decoder may go on for as long as its batch
        assert alone[0][:most] == together[row][:most]


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_decoders_say_nothing_about_an_empty_memory(network: Network, name: str) -> None:
    assert DECODERS[name](network, memory(entries=0), torch.zeros(3, dtype=torch.long)) == [[], [], []]
    assert DECODERS[name](network, memory(), torch.tensor([0, ENTRIES, 0]))[::2] == [[], []]


def test_nothing_is_said_after_the_end_symbol() -> None:
    network = random_network()
    with torch.no_grad():
        network.decoder.output.bias[network.symbols.end] = 100.0
    decoder = HardDecoder(network.decoder, network.symbols)
    said, state = decoder(memory(), everywhere(), decoder.initial_state(3))
    assert [(each.row, each.symbol) for each in sorted(said)] == [(row, network.symbols.end) for row in range(3)]
    assert decoder(memory(), everywhere(), state)[0] == []


@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("chunk", [1, 3])
def test_beam_of_one_is_greedy_where_every_decision_is_certain(chunk: int, beyond: bool) -> None:
    network = certain_network(replace(SMALL.attention, chunk=chunk, beyond=beyond, strict=beyond))
    lengths = torch.full((3,), ENTRIES)
    for row, expected in enumerate(hard(network, memory(), lengths)):
        assert beam_decode(network, memory()[row], BeamConfig(width=1)) == expected


def decided_one_by_one(network: Network, entries: Tensor) -> tuple[list[int], float]:
    """Of all that may happen at an entry (T, D), each time the most probable: the symbols, and the log probability of it all."""
    decoder = HardDecoder(network.decoder, network.symbols)
    state, symbols, total = decoder.initial_state(1), list[int](), 0.0
    for entry in entries:
        energy = network.decoder.energy(state.query, network.decoder.energy.keys(entry))
        logits, after = network.decoder.step(state.symbol, entry[None], state.decoder)
        best, symbol = logits.log_softmax(-1)[0].max(-1)
        stop, wait = float(logsigmoid(energy) + best), float(logsigmoid(-energy))
        total += max(stop, wait)
        if stop > wait:
            symbols.append(int(symbol))
            query = network.decoder.energy.query(after.hidden)
            state = replace(state, decoder=after, symbol=symbol[None], query=query)
    return symbols, total


@pytest.mark.parametrize("seed", range(4))
def test_a_score_holds_every_decision(seed: int) -> None:
    network = random_network(replace(SMALL, attention=replace(SMALL.attention, strict=True)), seed=seed)
    network.decoder.output.bias[network.symbols.end] = -50.0
    network.decoder.output.bias[7] = 4.0  # or it would always wait: no symbol is as probable as that
    search = BeamDecoder(network, BeamConfig(width=1, threshold=100.0))
    entries = memory(seed=seed)[0]
    said = [each.symbol for each in search(entries, torch.ones(ENTRIES, dtype=torch.bool))]
    symbols, total = decided_one_by_one(network, entries)
    assert 0 < len(symbols) < ENTRIES
    assert said == symbols
    assert search._best().score == pytest.approx(total, abs=1e-3)


def test_ways_to_say_the_same_add_up() -> None:
    candidates: dict[tuple[int, ...], Candidate] = {}
    for probability, row in ((0.2, 0), (0.3, 1), (0.1, 2)):
        _add(candidates, Candidate(Hypothesis(math.log(probability), (Symbol(5, 0.9, 0),)), row, 5))
    _add(candidates, Candidate(Hypothesis(math.log(0.3), (Symbol(6, 0.9, 0),)), 3, 6))
    assert math.exp(candidates[(5,)].hypothesis.score) == pytest.approx(0.6)
    assert candidates[(5,)].row == 1  # the most probable one's
    assert math.exp(candidates[(6,)].hypothesis.score) == pytest.approx(0.3)


@given(sizes=chunk_sizes(ENTRIES), seed=st.integers(0, 3))
def test_beam_chunked_equals_whole(any_network: Network, sizes: list[int], seed: int) -> None:
    def said(sizes: list[int]) -> list[int]:
        search, symbols = BeamDecoder(any_network, BeamConfig(width=3)), []
        for chunk in split(memory(seed=seed)[0], sizes, dim=0):
            symbols += [each.symbol for each in search(chunk, torch.ones(len(chunk), dtype=torch.bool))]
        return symbols + [each.symbol for each in search.finish()]

    whole = said([ENTRIES])
    assert said(sizes) == whole
    assert beam_decode(any_network, memory(seed=seed)[0], BeamConfig(width=3)) == until_end(whole, any_network.symbols.end)


def ending_network(bias: float, seed: int) -> Network:
    network = random_network(seed=seed)
    network.decoder.output.bias[network.symbols.end] = bias
    return network


@given(sizes=chunk_sizes(ENTRIES), case=st.sampled_from([(1.0, 0), (1.0, 2), (3.0, 3), (5.0, 1)]))
def test_a_search_ends_once_wherever_the_chunks_are_cut(sizes: list[int], case: tuple[float, int]) -> None:
    """Hypotheses may agree on nothing before it, and yet the end is said, and nothing after it."""
    network, seed = ending_network(*case), case[1]

    def said(sizes: list[int]) -> list[tuple[int, int]]:
        search, found, first = BeamDecoder(network, BeamConfig(width=8)), [], 0
        for chunk in split(memory(seed=seed)[0], sizes, dim=0):
            found += [(each.entry + first, each.symbol) for each in search(chunk, torch.ones(len(chunk), dtype=torch.bool))]
            first += len(chunk)
        assert search.finish() == []
        return found

    symbols = [symbol for _, symbol in said([ENTRIES])]
    assert symbols.index(network.symbols.end) == len(symbols) - 1
    assert said(sizes) == said([ENTRIES])


@given(sizes=chunk_sizes(ENTRIES))
def test_a_search_tells_where_it_speaks_before_it_is_certain(network: Network, sizes: list[int]) -> None:
    """Otherwise a pause would be found in the midst of speech that is not decided yet."""
    search, spoken, certain, first = BeamDecoder(network, BeamConfig(8)), set(), [], 0
    for chunk in split(memory(seed=2)[0], sizes, dim=0):
        certain += [each.entry + first for each in search(chunk, torch.ones(len(chunk), dtype=torch.bool))]
        spoken |= {first + entry for entry in search.spoken}
        first += len(chunk)
    whole = BeamDecoder(network, BeamConfig(8))
    whole(memory(seed=2)[0], torch.ones(ENTRIES, dtype=torch.bool))
    assert spoken == whole.spoken
    assert min(spoken) + 5 < min(certain)


def deaf_to_itself() -> Network:
    """Where it stops depends on what it hears alone, so that all hypotheses stop at the same entries, whatever they say there."""
    network = certain_network(replace(SMALL.attention, strict=True))
    assert isinstance(network.decoder.energy, AdditiveEnergy)
    network.decoder.energy.query_weight.weight.zero_()
    network.decoder.output.bias[[network.symbols.end, *network.symbols.encode(" ")]] = -50.0
    return network


@given(sizes=chunk_sizes(ENTRIES))
def test_a_search_knows_where_it_heard_what_it_is_late_to_be_certain_of(sizes: list[int]) -> None:
    network = deaf_to_itself()
    greedy = HardDecoder(network.decoder, network.symbols)
    expected, _ = greedy(memory(1), everywhere(1), greedy.initial_state(1))
    search, said, first = BeamDecoder(network, BeamConfig(8)), [], 0
    for chunk in split(memory(1)[0], sizes, dim=0):
        said += [each._replace(entry=each.entry + first) for each in search(chunk, torch.ones(len(chunk), dtype=torch.bool))]
        first += len(chunk)
    said += [each._replace(entry=each.entry + first) for each in search.finish()]
    assert max(each.late for each in said) > 3
    assert [each.entry - each.late for each in said] == [each.entry for each in expected]


@given(sizes=chunk_sizes(ENTRIES), quiet_from=st.integers(ENTRIES // 2, ENTRIES))
def test_a_search_is_never_late_without_bound(sizes: list[int], quiet_from: int) -> None:
    """In silence, too, where there is nothing more to scan."""
    network = deaf_to_itself()
    patience = to_entries(0.2, network.config.encoder.reduction)
    search, late = BeamDecoder(network, BeamConfig(8, patience=0.2)), []
    allowed = torch.arange(ENTRIES) < quiet_from
    for chunk, may in zip(split(memory(1)[0], sizes, dim=0), split(allowed, sizes, dim=0), strict=True):
        late += [each.late for each in search(chunk, may)]
    assert max(late) == patience
    if quiet_from + patience <= ENTRIES:
        assert search.finish() == []


@given(sizes=chunk_sizes(ENTRIES), seed=st.integers(0, 9))
def test_nor_is_it_where_hypotheses_stop_at_different_entries(any_network: Network, sizes: list[int], seed: int) -> None:
    """One that waits must not hold up what another said long ago, and then let it have its way."""
    search, late = BeamDecoder(any_network, BeamConfig(8, threshold=10.0, patience=0.2)), []
    for chunk in split(memory(seed=seed)[0], sizes, dim=0):
        late += [each.late for each in search(chunk, torch.ones(len(chunk), dtype=torch.bool))]
    assert max(late, default=0) <= to_entries(0.2, any_network.config.encoder.reduction)


def test_without_patience_it_waits_until_all_agree() -> None:
    search = BeamDecoder(deaf_to_itself(), BeamConfig(8, patience=0.0))
    late = [each.late for each in search(memory(1)[0], torch.ones(ENTRIES, dtype=torch.bool))]
    rest = search.finish()
    assert max(late + [each.late for each in rest]) > to_entries(0.4, SMALL.encoder.reduction)


@pytest.mark.parametrize("patience", [-1.0, math.inf, math.nan])
def test_patience_is_bounded(patience: float) -> None:
    with pytest.raises(ValueError, match=rf"patience={patience}: expected 0\.\.60"):
        BeamConfig(patience=patience)


def test_words_have_the_times_at_which_they_were_heard() -> None:
    """Not those at which a search was certain of them."""
    recognizer, samples = Recognizer(deaf_to_itself()), babble(4.0, 1)
    segments = [recognizer.transcribe(samples, StreamOptions(beam=beam)).segments for beam in (1, 8)]
    assert len(segments[0]) > 0
    greedy, searched = (
        [event for event in stream.accept(samples) + stream.finish() if isinstance(event, Emission)]
        for stream in (recognizer.stream(StreamOptions(beam=beam)) for beam in (1, 8))
    )
    assert all(event.heard == event.time for event in greedy)
    assert [event.heard for event in searched] == [event.heard for event in greedy]
    assert max(event.time - event.heard for event in searched) > 0.1
    assert [(each.start, each.end) for each in segments[1]] == [(each.start, each.end) for each in segments[0]]


@pytest.mark.parametrize("width", [0, 99, 2.5])
def test_beam_width_is_bounded(width: int) -> None:
    with pytest.raises(ValueError, match=rf"beam={width}: expected 1\.\.32"):
        BeamConfig(width=width)
