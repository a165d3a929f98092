"""An hour of audio takes a stream no more memory than a minute, and its last minute no more work than an early one."""

from __future__ import annotations

import gc
import sys
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from model import EndpointConfig, Engine, Recognizer, StreamOptions
from model.config import AttentionConfig, DecoderConfig, EncoderConfig, FeatureConfig, ModelConfig
from model.engine import LONGEST_ADVANCE, Samples
from model.features import HOP, SAMPLE_RATE
from tests.conftest import babble, random_network

TINY = ModelConfig(  # with the longest entries there are, 0.64 s, so that an hour takes seconds
    features=FeatureConfig(mel_bins=2),
    encoder=EncoderConfig((2,) * 6, conv_lstm_filters=0, lstm_units=(8,), lstm_skips=(1,), projection=0, init_scale=0.3),
    attention=AttentionConfig(hidden=8, initial_bias=0.0),
    decoder=DecoderConfig(embedding=4, lstm_units=8, init_scale=0.6, max_symbols_per_entry=1),
)
ENTRY = TINY.encoder.reduction * HOP  # samples
SEGMENT = 6 * LONGEST_ADVANCE  # entries: the longest segment, so that everything repeats itself exactly with every period
PERIOD = 2 * SEGMENT * ENTRY  # samples: 77 s
PERIODS = 3600 * SAMPLE_RATE // PERIOD + 1
SETTLED = 5  # periods, after which the normaliser knows the sound


def with_pauses() -> Samples:
    """Four seconds of sound, two and a half of silence, over and over."""
    sound = babble(6 * ENTRY / SAMPLE_RATE, seed=1)
    return np.tile(np.concatenate([sound, np.zeros(4 * ENTRY, np.float32)]), PERIOD // (10 * ENTRY))


def uninterrupted() -> Samples:
    return np.random.default_rng(0).standard_normal(PERIOD).astype(np.float32) * np.float32(0.1)


def bytes_of(*roots: object) -> int:
    """All that can be reached from `roots`, with the whole storage behind each view; parameters and code left out."""
    seen: set[int] = set()
    waiting, total = list(roots), 0
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType | nn.Module):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, Tensor):
            total += thing.untyped_storage().nbytes()
        elif isinstance(thing, np.ndarray):
            waiting.append(thing.base)
        else:
            waiting += gc.get_referents(thing)
    return total


class Work(TorchDispatchMode):
    """Counts the numbers that torch's operators are given."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.numbers += sum(value.numel() for value in args if isinstance(value, Tensor))
        return function(*args, **(kwargs or {}))


def listen(engine: Engine, streams: list[int], period: Samples) -> int:
    """Gives every stream a period, step by step, and returns how many events that brought."""
    events = 0
    for chunk in np.split(period, PERIOD // (LONGEST_ADVANCE * ENTRY)):
        for stream in streams:
            engine.accept(stream, chunk)
        while any(engine.is_ready(stream) for stream in streams):
            events += sum(map(len, engine.step().values()))
    return events


@pytest.mark.parametrize(
    ("period", "bias"),
    [(with_pauses(), 0.0), (uninterrupted(), 100.0), (uninterrupted(), -100.0)],
    ids=["speech and pauses", "every entry is chosen", "no entry is ever chosen"],
)
def test_the_last_minute_of_an_hour_is_as_cheap_as_an_early_one(
    period: Samples, bias: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.features.BLOCK", TINY.encoder.reduction)  # frames that are normalised together: the slowest loop
    network = random_network(TINY)
    network.decoder.energy.bias.add_(bias)
    engine = Recognizer(network).batch()
    endpoint = EndpointConfig(silence=2.0, longest=SEGMENT * ENTRY / SAMPLE_RATE)
    streams = [engine.open(StreamOptions(endpoint=endpoint, beam=beam)) for beam in (1, 3)]
    sizes, work, said = [], [], []
    for number in range(PERIODS):
        if number in (SETTLED, PERIODS - 1):
            with Work() as counted:  # type: ignore[no-untyped-call]
                said.append(listen(engine, streams, period))
            work.append(counted.numbers)
        else:
            said.append(listen(engine, streams, period))
        sizes.append(bytes_of(engine._state, engine._undelivered, *engine._streams.values()))
    assert said[-1] > 10 if bias >= 0 else not any(said)
    assert work[1] <= work[0]
    assert max(sizes[SETTLED:]) <= max(sizes[:SETTLED]) + 100  # counters get longer by some bytes
    assert max(sizes) < 64 * 1024
