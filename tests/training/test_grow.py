"""A larger network that says what the smaller one said."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch

from model.config import DecoderConfig, EncoderConfig, FeatureConfig, ModelConfig
from model.network import Network
from tests.training.conftest import TINY
from training.grow import grown
from training.text import Characters, Phones

TABLE = Characters().table


def randomized(config: ModelConfig) -> Network:
    network = Network(config, TABLE).eval()
    with torch.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.1, 0.9)
    return network


def said(network: Network, frames: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    """Scores of both heads, and the energies of attention."""
    memory, _ = network.encoder(frames, network.encoder.initial_state(len(frames)))
    positions = torch.arange(labels.shape[1]).expand_as(labels)
    logits, before = network.decoder.forced(memory, labels, positions)
    energy = network.decoder.energy
    return [network.ctc(memory), logits, energy(energy.query(before), energy.keys(memory[:, : labels.shape[1]]))]


@pytest.mark.parametrize("energy", ["additive", "bilinear"])
@pytest.mark.parametrize("units", [6, 9])  # of the decoder: as many as the memory has, and more
@pytest.mark.parametrize("output_context", [True, False])
def test_it_begins_as_the_smaller_one(output_context: bool, units: int, energy: Literal["additive", "bilinear"]) -> None:
    torch.manual_seed(0)
    decoder = replace(TINY.decoder, output_context=output_context, lstm_units=units)
    small_config = replace(TINY, decoder=decoder, attention=replace(TINY.attention, energy=energy))
    encoder = small_config.encoder
    large_config = replace(
        small_config,
        encoder=replace(encoder, lstm_units=tuple(units + 3 for units in encoder.lstm_units), projection=encoder.projection + 5),
        decoder=replace(decoder, lstm_units=decoder.lstm_units + 2, embedding=decoder.embedding + 1),
        attention=replace(small_config.attention, hidden=TINY.attention.hidden + 4),
    )
    small, large = randomized(small_config), randomized(large_config)
    large.load_state_dict(grown(large.state_dict(), small.state_dict()))
    frames, labels = torch.randn(2, 8 * encoder.reduction, TINY.features.bins, 3), torch.randint(0, 30, (2, 4))
    for more, less in zip(said(large, frames, labels), said(small, frames, labels), strict=True):
        torch.testing.assert_close(more, less)


def test_new_units_get_a_gradient() -> None:
    torch.manual_seed(0)
    small = randomized(TINY)
    large = randomized(replace(TINY, encoder=replace(TINY.encoder, projection=TINY.encoder.projection + 5)))
    large.load_state_dict(grown(large.state_dict(), small.state_dict()))
    frames = torch.randn(2, 8 * TINY.encoder.reduction, TINY.features.bins, 3)
    memory, _ = large.encoder(frames, large.encoder.initial_state(2))
    large.ctc(memory).square().sum().backward()
    assert large.ctc.weight.grad is not None
    assert (large.ctc.weight.grad[:, TINY.encoder.projection :] != 0).any()


def test_what_does_not_fit_stays_as_initialized() -> None:
    torch.manual_seed(0)
    small = randomized(TINY)
    other = Network(
        ModelConfig(
            features=TINY.features,
            encoder=EncoderConfig((3, 3), 3, lstm_units=(2,), lstm_skips=(1,), projection=2),
            decoder=DecoderConfig(embedding=2, lstm_units=2),
        ),
        TABLE,
    )
    own = other.state_dict()
    taken = grown(own, small.state_dict())
    assert all(taken[name].shape == tensor.shape for name, tensor in own.items())
    for name in ("encoder.convs.0.conv.weight", "encoder.lstms.0.lstm.weight_ih_l0"):
        assert torch.equal(taken[name], own[name])


def test_phones_do_not_begin_as_characters() -> None:
    torch.manual_seed(0)
    characters, phones = randomized(TINY), Network(TINY, Phones().table)
    own = {name: tensor.clone() for name, tensor in phones.state_dict().items()}
    taken = grown(own, characters.state_dict())
    for name, tensor in own.items():
        by_symbol = name.startswith(("ctc.", "decoder.embedding.", "decoder.output."))
        assert torch.equal(taken[name], tensor if by_symbol else characters.state_dict()[name]), name


def test_features_of_other_bins_keep_their_statistics() -> None:
    finer = Network(replace(TINY, features=FeatureConfig(mel_bins=16)), TABLE)
    taken = grown(finer.state_dict(), randomized(TINY).state_dict())
    assert torch.equal(taken["features.prior_mean"], finer.features.prior_mean)


def test_an_output_layer_that_sees_the_context_begins_afresh() -> None:
    blind = randomized(replace(TINY, decoder=replace(TINY.decoder, output_context=False)))
    seeing = Network(TINY, TABLE)
    taken = grown(seeing.state_dict(), blind.state_dict())
    assert torch.equal(taken["decoder.output.weight"], seeing.decoder.output.weight)
    assert torch.equal(taken["decoder.output.bias"], blind.decoder.output.bias)


def test_weights_of_something_else() -> None:
    with pytest.raises(ValueError, match="expected the weights of a model of ours"):
        grown(Network(TINY, TABLE).state_dict(), {"weight": torch.zeros(2)})
