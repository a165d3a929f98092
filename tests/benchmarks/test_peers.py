"""What counts as taken back, as settled and as late: on screens that hypothesis makes up, and on some that can be read."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers import Shown, delays, settled, taken_back

WORDS = st.lists(st.sampled_from(["a", "an", "and", "b", "be"]), max_size=6)


def screens(*texts: str) -> Shown:
    """One every 100 ms."""
    return [(0.1 * (number + 1), text.split()) for number, text in enumerate(texts)]


@given(st.lists(st.text("ab ", max_size=3), max_size=10))
def test_text_that_only_grows_takes_nothing_back(pieces: list[str]) -> None:
    assert taken_back(screens(*accumulate(pieces))) == 0


@given(st.lists(WORDS, min_size=1, max_size=8))
def test_a_word_stands_from_its_time_on_and_not_before(texts: list[list[str]]) -> None:
    shown = screens(*(" ".join(words) for words in texts))
    final = shown[-1][1]
    assert [word for word, _ in settled(shown)] == final
    for place, (_, since) in enumerate(settled(shown), start=1):
        standing = [words[:place] == final[:place] for when, words in shown if when >= since]
        assert all(standing)
        earlier = [words[:place] == final[:place] for when, words in shown if when < since]
        assert not earlier or not earlier[-1]


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (("the", "the cat", "the cat sat"), 0),
        (("the c", "the cat"), 0),  # it grew
        (("the cap", "the cat"), 1),
        (("the cap sat", "the cat"), 2),
        (("a b c", ""), 3),
        (("an old", "and old"), 2),  # all that comes after a word that changed was moved, too
    ],
)
def test_words_taken_back(texts: tuple[str, ...], count: int) -> None:
    assert taken_back(screens(*texts)) == count


def test_delays_of_the_words_that_both_said() -> None:
    said = settled(screens("the", "the old", "the old mat", "the old cat"))
    assert delays(said, [("the", 0.05), ("cold", 0.1), ("cat", 0.25)]) == pytest.approx([0.05, 0.15])
