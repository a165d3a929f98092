from __future__ import annotations

import math
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.endpoint import EndpointConfig, Endpointer

seconds = st.sampled_from([0.0, 0.04, 0.1, 0.3, 1.0, 7.0, 50.0])
configs = st.builds(
    lambda silence, impatience, more, short_silence, quiet, wordless: EndpointConfig(
        silence, impatience, short_silence, quiet, wordless, impatience + more
    ),
    st.floats(0.1, 10.0),
    st.floats(0.0, 5.0),
    st.floats(0.001, 5.0),
    *[seconds] * 3,
)
stretches = st.lists(
    st.tuples(st.integers(1, 60), st.booleans(), st.sampled_from([0, 1, 7])),  # length, loud, one symbol every so many entries
    min_size=5,
    max_size=15,
)


def endpoints(config: EndpointConfig, loud: list[bool], said: list[bool], sizes: list[int]) -> list[int]:
    """Where the endpoints fall if the entries come in chunks of these sizes, over and over."""
    endpointer, found, position, turns = Endpointer(config, 4), [], 0, cycle(sizes)
    while position < len(loud):
        count = min(next(turns), len(loud) - position)
        chunk = range(position, position + count)
        taken = endpointer.advance([loud[entry] for entry in chunk], {entry - position for entry in chunk if said[entry]})
        position += taken or count
        if taken:
            found.append(position)
            endpointer.reset()
    return found


@given(config=configs, heard=stretches, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_endpoints_do_not_depend_on_chunks(config: EndpointConfig, heard: list[tuple[int, bool, int]], sizes: list[int]) -> None:
    loud = [is_loud for length, is_loud, _ in heard for _ in range(length)]
    said = [every > 0 and entry % every == 0 for length, _, every in heard for entry in range(length)]
    assert endpoints(config, loud, said, sizes) == endpoints(config, loud, said, [len(loud)])


def test_a_pause_ends_a_segment() -> None:
    loud = [True] * 50 + [False] * 50
    assert endpoints(EndpointConfig(silence=0.8), loud, loud, [1])[0] == 50 + 20


def test_a_segment_is_cut_at_the_longest() -> None:
    config = EndpointConfig(impatience=1.0, longest=2.0)
    assert endpoints(config, [True] * 160, [True] * 160, [7]) == [50, 100, 150]


@pytest.mark.parametrize("name", ["silence", "impatience", "short_silence", "quiet", "wordless", "longest"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_odd_times_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}={value}"):
        EndpointConfig(**{name: value})
