from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model import EndpointConfig, Engine, Event, Recognizer, Segment, StreamOptions
from model.engine import LONGEST_ADVANCE
from model.features import PRIOR_FRAMES
from tests.conftest import SMALL, babble, random_network
from tests.model.test_recognizer import run, same


def drain(engine: Engine) -> dict[int, list[Event]]:
    events: dict[int, list[Event]] = defaultdict(list)
    while any(engine.is_ready(stream) for stream in engine):
        for stream, said in engine.step().items():
            events[stream] += said
    return events


@given(
    plans=st.lists(
        st.tuples(
            st.integers(0, 5),  # when it joins
            st.integers(200, 9000),  # samples per step
            st.integers(0, 2),  # which sound
            st.sampled_from([dict(), dict(), dict(beam=2), dict(sample_rate=11_025)]),
            st.sampled_from(["stay", "flush", "close"]),  # half way
        ),
        min_size=2,
        max_size=6,
    ),
    ends=st.booleans(),
)
def test_a_stream_in_a_batch_is_a_stream_alone(
    recognizer: Recognizer, ending: Recognizer, plans: list[tuple[int, int, int, dict[str, int], str]], ends: bool
) -> None:
    if ends:
        recognizer = ending
    engine = recognizer.batch()
    events: dict[int, list[Event]] = defaultdict(list)
    streams: dict[int, int] = {}
    sent = [0] * len(plans)
    left: set[int] = set()
    flushed: dict[int, int] = {}  # after so many samples
    for step in range(400):
        for plan, (join, chunk, seed, options, half_way) in enumerate(plans):
            samples = babble(1.5, seed)
            if step == join:
                streams[plan] = engine.open(StreamOptions(**options))  # type: ignore[arg-type]
            if plan not in streams or plan in left or (plan in flushed and engine.is_ready(streams[plan])):
                continue
            if sent[plan] >= len(samples):
                engine.finish(streams[plan])
                left.add(plan)
            elif half_way == "close" and sent[plan] >= len(samples) // 2:
                engine.close(streams[plan])
                left.add(plan)
            elif half_way == "flush" and sent[plan] >= len(samples) // 2 and plan not in flushed:
                engine.flush(streams[plan])
                flushed[plan] = sent[plan]
            else:
                engine.accept(streams[plan], samples[sent[plan] : sent[plan] + chunk])
                sent[plan] += chunk
        for stream, said in engine.step().items():
            events[stream] += said
        if len(left) == len(plans):
            break
    for stream, said in drain(engine).items():
        events[stream] += said
    assert len(engine) == 0
    for plan, (_, _, seed, options, half_way) in enumerate(plans):
        alone, expected = recognizer.stream(StreamOptions(**options)), []  # type: ignore[arg-type]
        for part in np.split(babble(1.5, seed), [flushed[plan]] if plan in flushed else []):
            expected += alone.accept(part) + alone.flush()
        said = events[streams[plan]]
        assert same(said, expected[: len(said)] if half_way == "close" else expected)


def test_a_step_is_bounded(recognizer: Recognizer) -> None:
    engine = recognizer.batch()
    stream = engine.open()
    engine.accept(stream, babble(30.0))
    engine.step()
    assert engine.pending(stream) >= 30.0 - LONGEST_ADVANCE * 0.04 - 1e-6
    assert engine.received(stream) == 30.0


def test_names_that_are_not_open_are_refused(recognizer: Recognizer) -> None:
    engine = recognizer.batch()
    stream = engine.open()
    engine.accept(stream, babble(0.1))
    engine.finish(stream)
    with pytest.raises(ValueError, match="its end is under way"):
        engine.accept(stream, np.zeros(1, np.float32))
    drain(engine)
    uses: list[Callable[[int], object]] = [engine.flush, engine.finish, engine.close, engine.pending, engine.received]
    uses += [engine.is_ready, lambda name: engine.accept(name, np.zeros(1, np.float32)), lambda name: engine.step([name])]
    for use in uses:
        with pytest.raises(ValueError, match=f"stream={stream}: not open"):
            use(stream)
    assert stream not in engine


def test_a_name_is_closed_once(recognizer: Recognizer) -> None:
    engine = recognizer.batch()
    stream = engine.open()
    engine.close(stream)
    with pytest.raises(ValueError, match="not open"):
        engine.close(stream)


@pytest.mark.parametrize("skips", [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 2, 2)])
def test_a_flush_leaves_nothing_behind(skips: tuple[int, ...]) -> None:
    """Whatever the frames per entry, what follows a flush begins where the audio before it ended."""
    engine = Recognizer(random_network(replace(SMALL, encoder=replace(SMALL.encoder, lstm_skips=skips)))).batch()
    stream = engine.open()
    for length in (5000, 1):
        engine.accept(stream, babble(1.0)[:length])
        engine.flush(stream)
        drain(engine)
        assert engine.pending(stream) == 0


def is_fresh(engine: Engine, stream: int) -> bool:
    """Whether encoder and decoder of a stream are as they begin."""
    row, recognizer = engine._streams[stream].row, engine._state
    found = (recognizer.encoder.lstms[0].hidden, recognizer.encoder.convs[0].last, recognizer.hard.decoder.hidden)
    return not any(tensor[row].any() for tensor in found) and int(recognizer.hard.symbol[row]) == 0


def test_an_endpoint_starts_encoder_and_decoder_anew(recognizer: Recognizer) -> None:
    engine = recognizer.batch()
    cut, going_on = [engine.open(StreamOptions(endpoint=EndpointConfig(impatience=0.5, longest=longest))) for longest in (1.0, 2.0)]
    for stream in (cut, going_on):
        engine.accept(stream, babble(1.0))
    assert drain(engine)[cut]
    assert is_fresh(engine, cut)
    assert not is_fresh(engine, going_on)


def test_the_end_symbol_closes_the_segment_and_starts_anew(ending: Recognizer) -> None:
    """With the very next entry, however many came at once, see above. What the normaliser has learnt stays."""
    engine = ending.batch()
    stream = engine.open()
    closed = 0
    for entry in np.split(babble(4.0, 3), 100):
        engine.accept(stream, entry)
        events = engine.step().get(stream, [])
        if any(isinstance(event, Segment) for event in events):
            closed += 1
            assert is_fresh(engine, stream)
            assert engine._state.features.count[engine._streams[stream].row] > PRIOR_FRAMES
        elif events:
            assert not is_fresh(engine, stream)
    assert closed > 3


def test_memory_of_a_stream_is_constant(recognizer: Recognizer) -> None:
    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    engine = recognizer.batch()
    stream = engine.open()
    sizes = []
    for _ in range(3):
        engine.accept(stream, babble(10.0))
        drain(engine)
        sizes.append((tensors(), sum(tensor.numel() for tensor in _state_tensors(engine))))
    assert sizes[1] == sizes[2]


def _state_tensors(engine: Engine) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    engine._state.map(lambda tensor: tensors.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return tensors


def test_rows_are_used_again(recognizer: Recognizer) -> None:
    engine = recognizer.batch()
    for _ in range(20):
        streams = [engine.open() for _ in range(3)]
        for stream in streams:
            engine.close(stream)
    assert engine._state.hard.symbol.shape[0] <= 4


def test_a_failed_step_changes_nothing(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = babble(2.0, 1)
    for beam in (1, 3):
        engine = recognizer.batch()
        stream, events = engine.open(StreamOptions(beam=beam)), []
        decode, calls = engine._decode, 0

        def failing(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls % 3 == 0:
                raise RuntimeError("out of order")
            return decode(*arguments)  # noqa: B023

        monkeypatch.setattr(engine, "_decode", failing)
        engine.accept(stream, samples)
        engine.finish(stream)
        failures = 0
        while stream in engine:
            try:
                events += engine.step().get(stream, [])
            except RuntimeError:
                failures += 1
        assert failures > 1
        assert same(events, run(recognizer, samples, [], StreamOptions(beam=beam)))


def test_a_step_of_some_streams_leaves_the_others(recognizer: Recognizer) -> None:
    engine = recognizer.batch()
    first, second = engine.open(), engine.open()
    for stream in (first, second):
        engine.accept(stream, babble(1.0))
    engine.step([second])
    assert engine.pending(first) == 1.0
    assert engine.pending(second) < 1.0


def test_an_end_without_audio_says_nothing(recognizer: Recognizer) -> None:
    stream = recognizer.stream()
    assert stream.flush() == []
    assert stream.accept(babble(1.0)) + stream.flush()
    assert stream.flush() == []
    assert stream.finish() == []


@pytest.mark.parametrize("beam", [0, -1, 33])
def test_beams_out_of_range_are_refused(beam: int) -> None:
    with pytest.raises(ValueError, match=f"beam={beam}: expected 1..32"):
        StreamOptions(beam=beam)


def test_a_teacher_is_no_live_model() -> None:
    teacher = random_network(replace(SMALL, encoder=replace(SMALL.encoder, both_ways=8)))
    with pytest.raises(ValueError, match="both_ways=8: a teacher, which hears whole recordings; expected 0 for live streams"):
        Engine(teacher)
