from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch

from model.config import TIMIT, WSJ, ModelConfig
from model.hard import HardDecoder
from model.network import Network
from model.symbols import SymbolTable
from tests.conftest import SMALL, random_network


def test_sizes_are_the_papers() -> None:
    decoder = Network(WSJ, SymbolTable()).decoder
    assert sum(parameter.numel() for parameter in decoder.parameters()) == pytest.approx(0.7e6, rel=0.03)
    assert decoder.energy.bias.item() == -4.0
    assert decoder.embedding.weight.abs().max() <= 1.0
    assert max(weight.abs().max() for weight in decoder.lstm.parameters()) <= 0.1


def test_timits_output_layer_sees_the_lstm_alone() -> None:
    """The paper: "a single unidirectional LSTM layer with 256 units, fed directly into the output softmax layer"."""
    assert Network(TIMIT, SymbolTable()).decoder.output.in_features == 256
    assert Network(WSJ, SymbolTable()).decoder.output.in_features == 256 + 256


BILINEAR = replace(SMALL, attention=replace(SMALL.attention, energy="bilinear", initial_bias=-2.0))
BARE = replace(SMALL, decoder=replace(SMALL.decoder, output_context=False))


def test_the_bilinear_energy_learns_where_to_start() -> None:
    """The paper's r is -2 there. With a first state of zero no energy would ever rise above it."""
    network = random_network(BILINEAR)
    memory = torch.randn(1, 9, SMALL.encoder.output_size, generator=torch.Generator().manual_seed(0))
    first, wanted = network.decoder.first_hidden, torch.arange(9) == 4
    assert first is not None
    first.requires_grad_()
    optimizer = torch.optim.SGD([first], lr=0.1)
    for _ in range(50):
        state = network.decoder.initial_state(1)
        energies = network.decoder.energy(network.decoder.energy.query(state.hidden)[:, None], network.decoder.energy.keys(memory))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(energies[0], wanted.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    decoder = HardDecoder(network.decoder, network.symbols)
    with torch.no_grad():
        said, _ = decoder(memory, torch.ones(1, 9, dtype=torch.bool), decoder.initial_state(1))
    assert said[0].entry == 4


@pytest.mark.parametrize("config", [SMALL, BILINEAR, BARE], ids=["additive", "bilinear", "output without context"])
def test_forced_is_step_by_step(config: ModelConfig) -> None:
    decoder, memory = random_network(config).decoder, torch.randn(2, 9, SMALL.encoder.output_size)
    labels, positions = torch.randint(1, 49, (2, 4)), torch.tensor([[0, 2, 2, 8], [1, 3, 4, 5]])
    logits, before = decoder.forced(memory, labels, positions)
    state = decoder.initial_state(2)
    for step in range(4):
        torch.testing.assert_close(before[:, step], state.hidden)
        context = memory[torch.arange(2), positions[:, step]]
        expected, state = decoder.step(labels[:, step], context, state)
        torch.testing.assert_close(logits[:, step], expected)


def test_soft_attention_is_forced_where_it_is_certain() -> None:
    """An energy that is sure of one entry after the other gives the same logits as attending to those entries."""
    network, generator = random_network(), torch.Generator().manual_seed(0)
    memory = torch.randn(20, 6, SMALL.encoder.output_size, generator=generator) * 3
    labels = torch.randint(1, 49, (20, 3), generator=generator)
    with torch.no_grad():
        network.decoder.energy.scale.fill_(1e6)
    taught = network.decoder.attend(memory, torch.ones(20, 6, dtype=torch.bool), labels, "soft")
    logits, _ = network.decoder.forced(memory, labels, taught.alpha.argmax(2))
    certain = (taught.alpha.amax(2) > 0.999).all(1)  # the others went past the last entry
    assert certain.sum() > 3
    torch.testing.assert_close(taught.logits[certain], logits[certain], atol=1e-3, rtol=0)


@pytest.mark.parametrize("chunk", [1, 3])
def test_attention_ignores_padding(chunk: int) -> None:
    network = random_network(replace(SMALL, attention=replace(SMALL.attention, chunk=chunk)))
    memory, labels = torch.randn(1, 9, SMALL.encoder.output_size), torch.randint(1, 49, (1, 5))
    mask = torch.arange(9)[None] < 6
    modes: tuple[Literal["soft", "softmax"], ...] = ("soft", "softmax")
    for mode in modes:
        padded = network.decoder.attend(memory, mask, labels, mode)
        exact = network.decoder.attend(memory[:, :6], mask[:, :6], labels, mode)
        torch.testing.assert_close(padded.logits, exact.logits)


def test_forced_attention_is_for_width_one() -> None:
    network = random_network(replace(SMALL, attention=replace(SMALL.attention, chunk=2)))
    with pytest.raises(ValueError, match=r"attention\.chunk=2"):
        network.decoder.forced(torch.zeros(1, 2, 16), torch.zeros(1, 1).long(), torch.zeros(1, 1).long())
