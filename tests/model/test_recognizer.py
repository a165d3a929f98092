from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import Emission, EndpointConfig, Event, Recognizer, Segment, StreamOptions, Transcript
from model.engine import Samples
from tests.conftest import SMALL, babble, random_network

SECONDS = 4.0


def run(recognizer: Recognizer, samples: Samples, cuts: list[int], options: StreamOptions | None = None) -> list[Event]:
    stream, events = recognizer.stream(options), []
    for chunk in np.split(samples, sorted(cuts)):
        events += stream.accept(chunk)
    return events + stream.finish()


def cut_points(seconds: float = SECONDS, rate: int = 16_000) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, int(seconds * rate)), max_size=12)


def same(found: list[Event], expected: list[Event]) -> bool:
    """Equal but for the last digits of confidences."""

    def rounded(events: list[Event]) -> list[tuple[object, ...]]:
        return [
            ("emission", event.text, event.time)
            if isinstance(event, Emission)
            else ("segment", event.text, event.start, event.end, [(word.text, word.start, word.end) for word in event.words])
            for event in events
        ]

    return rounded(found) == rounded(expected)


@given(cuts=cut_points(), seed=st.integers(0, 3))
def test_chunking_changes_nothing(recognizer: Recognizer, cuts: list[int], seed: int) -> None:
    samples = babble(SECONDS, seed)
    whole = run(recognizer, samples, [])
    assert sum(isinstance(event, Emission) for event in whole) > 10
    assert same(run(recognizer, samples, cuts), whole)


def test_one_sample_at_a_time(recognizer: Recognizer) -> None:
    samples = babble(0.3)
    assert same(run(recognizer, samples, list(range(len(samples)))), run(recognizer, samples, []))


@given(cuts=cut_points(2.0, 8000), rate=st.sampled_from([8000, 11025, 24_000, 44_100, 48_000]))
def test_chunking_changes_nothing_at_other_rates(recognizer: Recognizer, cuts: list[int], rate: int) -> None:
    samples = babble(2.0)
    options = StreamOptions(sample_rate=rate)
    assert same(run(recognizer, samples, cuts, options), run(recognizer, samples, [], options))


@given(cuts=cut_points(2.0))
def test_chunking_changes_nothing_with_a_beam(recognizer: Recognizer, cuts: list[int]) -> None:
    options = StreamOptions(beam=3)
    samples = babble(2.0)
    whole = run(recognizer, samples, [], options)
    assert any(isinstance(event, Segment) for event in whole)
    assert same(run(recognizer, samples, cuts, options), whole)


@given(cuts=cut_points(), seed=st.integers(0, 3), beam=st.sampled_from([1, 3]))
def test_chunking_changes_nothing_where_the_end_symbol_is_said(ending: Recognizer, cuts: list[int], seed: int, beam: int) -> None:
    options, samples = StreamOptions(beam=beam), babble(SECONDS, seed)
    whole = run(ending, samples, [], options)
    assert sum(isinstance(event, Segment) for event in whole) > 1  # the end symbol began another one
    assert same(run(ending, samples, cuts, options), whole)
    assert same(run(ending, samples, list(range(0, len(samples), 640)), options), whole)  # each entry alone


def test_emissions_make_up_the_segments(recognizer: Recognizer, ending: Recognizer) -> None:
    for speaker, beam in product((recognizer, ending), (1, 3)):
        events = run(speaker, babble(10.0, 1), [], StreamOptions(beam=beam))
        written, last = "", 0.0
        for event in events:
            if isinstance(event, Emission):
                written += event.text
                assert event.time >= last
                last = event.time
                assert 0 < event.confidence <= 1
            else:
                assert event.text == written
                assert event.text == " ".join(word.text for word in event.words)
                assert event.start <= event.end <= last
                written = ""
        assert written == ""
        assert last <= 10.0


def test_transcribe_is_the_same_path(recognizer: Recognizer) -> None:
    samples = babble(SECONDS)
    transcript = recognizer.transcribe(samples)
    segments = tuple(event for event in run(recognizer, samples, [100, 5000]) if isinstance(event, Segment))
    assert transcript.text == Transcript(segments).text
    assert " ".join(word.text for word in transcript.words) == transcript.text


@pytest.mark.parametrize("rate", [8000, 16_000])
def test_any_array_of_floating_point_numbers_will_do(recognizer: Recognizer, rate: int) -> None:
    samples, options = babble(1.0), StreamOptions(sample_rate=rate)
    expected = recognizer.transcribe(samples, options)
    assert expected.text
    frozen = samples.copy()
    frozen.setflags(write=False)
    backwards, spaced = samples[::-1].copy()[::-1], np.repeat(samples, 2)[::2]
    variants: list[Any] = [samples.astype(np.float64), backwards, spaced, frozen, samples.tolist()]
    for same_samples in variants:
        assert recognizer.transcribe(same_samples, options) == expected
    loud = np.full(rate, 1e300)
    assert recognizer.transcribe(loud, options) == recognizer.transcribe(np.ones(rate, np.float32), options)


@pytest.mark.parametrize(
    "samples", [np.zeros(9, np.int16), np.zeros((9, 2), np.float32), np.float32(0), np.zeros(9, bool), np.zeros(9, complex), None]
)
def test_what_is_no_mono_audio_is_refused(recognizer: Recognizer, samples: Samples) -> None:
    stream = recognizer.stream()
    with pytest.raises(ValueError, match=r"expected floating-point numbers in -1\.\.1 of shape \(n,\)"):
        stream.accept(samples)
    assert stream.accept([]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_silence_says_nothing(recognizer: Recognizer, value: float) -> None:
    assert recognizer.transcribe(np.full(10 * 16_000, value, np.float32)).text == ""


def test_no_audio_at_all(recognizer: Recognizer) -> None:
    stream = recognizer.stream()
    assert stream.accept(np.zeros(0, np.float32)) == []
    assert stream.finish() == []
    with pytest.raises(ValueError, match="not open"):
        stream.accept(np.zeros(10, np.float32))


def test_what_follows_an_endpoint_is_as_fresh_as_a_beginning(recognizer: Recognizer) -> None:
    """After a pause the recogniser starts anew: the same sounds give the same text, however long the stream has been open."""
    sound, pause, period = babble(1.0, 5), np.zeros(4 * 16_000, np.float32), 5.0
    events = run(recognizer, np.concatenate([sound, pause] * 40), [])
    said = [[] for _ in range(40)]  # type: list[list[tuple[str, float]]]
    for event in events:
        if isinstance(event, Emission):
            turn = int(event.time // period)
            said[turn].append((event.text, round(event.time - turn * period, 2)))
    assert len(said[-1]) > 5
    assert said[-1] == said[-2] == said[-3]  # the normaliser has settled
    assert all(time < 1.0 + 2.0 + 0.1 for turn in said for _, time in turn)  # long silence says nothing


@pytest.mark.parametrize("skip", [1, 4])
def test_two_seconds_after_the_last_sound_nothing_is_said(skip: int) -> None:
    """Whatever the frames per entry, and even by a model that would say something at every one."""
    attention, encoder = replace(SMALL.attention, initial_bias=100.0), replace(SMALL.encoder, lstm_skips=(skip, 1, 1))
    eager = Recognizer(random_network(replace(SMALL, attention=attention, encoder=encoder)))
    options = StreamOptions(endpoint=EndpointConfig(silence=10.0, short_silence=10.0, wordless=10.0))
    samples = np.concatenate([babble(2.0), np.zeros(6 * 16_000, np.float32)])
    times = [event.time for event in run(eager, samples, [], options) if isinstance(event, Emission)]
    assert 3.5 < max(times) <= 4.0 + 0.04 * skip + 0.04  # the last entry with sound, and the windows' overlap


def test_the_longest_segment_is_cut(recognizer: Recognizer) -> None:
    options = StreamOptions(endpoint=EndpointConfig(silence=10.0, short_silence=10.0, wordless=10.0, impatience=2.0, longest=3.0))
    steady = np.random.default_rng(0).standard_normal(16_000 * 10).astype(np.float32) * 0.1
    segments = [event for event in run(recognizer, steady, [], options) if isinstance(event, Segment)]
    assert len(segments) >= 3
    assert all(segment.end - segment.start <= 3.0 for segment in segments)


@given(at=st.integers(0, 3 * 16_000))
def test_flush_says_everything_so_far(recognizer: Recognizer, at: int) -> None:
    samples = babble(3.0, 2)
    stream = recognizer.stream()
    before = stream.accept(samples[:at]) + stream.flush()
    assert same(before, run(recognizer, samples[:at], []))
    after = stream.accept(samples[at:]) + stream.finish()
    times = [event.time for event in after if isinstance(event, Emission)]
    assert all(at / 16_000 <= time <= 3.0 for time in times)
    words = Transcript(tuple(event for event in before + after if isinstance(event, Segment))).words
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times)


def test_times_after_a_flush_do_not_depend_on_chunks(recognizer: Recognizer) -> None:
    heard = []
    for size in (640, 32_000):
        stream = recognizer.stream()
        events = stream.accept(babble(0.33, 2)) + stream.flush()
        for start in range(0, 32_000, size):
            events += stream.accept(babble(2.0, 3)[start : start + size])
        heard.append(events + stream.finish())
    assert len(heard[0]) > 10
    assert same(*heard)


@pytest.mark.parametrize("rate", [0, 44, 7999, 48_001])
def test_rates_out_of_range_are_refused(rate: int) -> None:
    with pytest.raises(ValueError, match=rf"sample_rate={rate}: expected 8000\.\.48000"):
        StreamOptions(sample_rate=rate)


def test_odd_endpoints_are_refused() -> None:
    with pytest.raises(ValueError, match="silence=0"):
        EndpointConfig(silence=0)
    with pytest.raises(ValueError, match="longest=5"):
        EndpointConfig(longest=5)
