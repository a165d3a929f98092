"""What all tests share: one thread, and small models with random weights."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, settings

from model import Recognizer, StreamOptions
from model.beam import BeamConfig
from model.config import AttentionConfig, DecoderConfig, EncoderConfig, FeatureConfig, ModelConfig
from model.network import Network
from model.symbols import SymbolTable

settings.register_profile("default", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("default")

SHARED_SPEECH = Path(__file__).resolve().parents[2] / "shared" / "speech"

BEST = StreamOptions(beam=BeamConfig().width)  # what the page and `monoscribe mic` and `file` get of a server

SMALL = ModelConfig(
    features=FeatureConfig(mel_bins=20),
    encoder=EncoderConfig(conv_filters=(4, 4), conv_lstm_filters=4, lstm_units=(16, 16, 16), projection=16, init_scale=0.3),
    attention=AttentionConfig(hidden=16, initial_bias=0.0),
    decoder=DecoderConfig(embedding=8, lstm_units=16, init_scale=0.6),
)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are faster with one thread, and two threads of many processes get in each other's way."""
    os.environ["OMP_NUM_THREADS"] = "1"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_network(config: ModelConfig = SMALL, seed: int = 0, symbols: SymbolTable | None = None) -> Network:
    """A network that says something about most sounds, and waits at others."""
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    network = Network(config, symbols or SymbolTable())
    network.features.prior_mean.fill_(-4.0)
    network.features.prior_deviation.fill_(2.0)
    with torch.no_grad():
        for energy in (network.decoder.energy, network.decoder.chunk_energy):
            if energy is not None:
                energy.scale.fill_(8.0)
                energy.memory_weight.weight.mul_(8.0)  # what is heard matters more than what was said
        network.decoder.output.bias[0] = -50.0  # a decoder never says the start symbol,
        network.decoder.output.bias[1] = -1.0  # and seldom the end symbol
    torch.set_rng_state(generator_state)
    return network.eval().requires_grad_(False)


@pytest.fixture(scope="session")
def network() -> Network:
    return random_network()


@pytest.fixture(scope="session")
def recognizer(network: Network) -> Recognizer:
    return Recognizer(network)


@pytest.fixture(scope="session")
def ending(network: Network) -> Recognizer:
    """A recogniser that says the end symbol several times a second, depending on what it hears."""
    network = copy.deepcopy(network)
    output, end = network.decoder.output, network.symbols.end
    output.weight[:, : network.config.encoder.output_size] *= 3  # the context's
    output.weight[end] *= 3
    output.bias[end] = 0.0
    energy = network.decoder.energy
    energy.scale.mul_(5)  # it knows where to stop, so that a beam says the end as often
    energy.bias.mul_(5)
    return Recognizer(network)


def babble(seconds: float, seed: int = 0) -> npt.NDArray[np.float32]:
    """Noise with pauses whose colour and level change a few times a second: enough like speech to be said something about."""
    rng = np.random.default_rng(seed)
    samples: list[npt.NDArray[np.float64]] = []
    while sum(len(part) for part in samples) < seconds * 16_000:
        length = int(rng.integers(800, 6400))
        noise = rng.standard_normal(length)
        colour = np.convolve(noise, rng.standard_normal(8), mode="same")
        level = rng.choice([0.0, 0.003, 0.02, 0.1])
        samples.append(colour * level)
    return np.concatenate(samples)[: int(seconds * 16_000)].astype(np.float32)
