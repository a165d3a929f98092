"""Counts, rates and intervals against numbers computed by hand."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from training.scores import Errors, error_rate, interval, score, summarize
from training.table import show


def test_errors_are_counted() -> None:
    scored = score("a", "s", "p", "the cat sat on the mat", "the cat sit on mat mat mat")
    assert scored.words.length == 6
    assert scored.words.count == 3
    assert score("a", "s", "p", "a b c", "a b c").words == Errors(3, 0, 0, 0)
    assert score("a", "s", "p", "a b c", "").words == Errors(3, 0, 3, 0)
    assert score("a", "s", "p", "", "two words").words == Errors(0, 0, 0, 2)
    assert score("a", "s", "p", "abc", "abd").characters == Errors(3, 1, 0, 0)


def test_a_rate_is_of_all_words_not_of_all_utterances() -> None:
    assert error_rate([Errors(9, 0, 0, 0), Errors(1, 1, 0, 0)]) == 0.1


def test_an_interval_holds_the_rate() -> None:
    groups = [[Errors(10, n % 3, 0, 0)] for n in range(60)]
    rate = interval(groups)
    assert rate.value == pytest.approx(0.1)
    # The deviation of the mean of 60 draws from 0, 0.1, 0.2 is 0.0816 / sqrt(60) = 0.0105.
    assert rate.low == pytest.approx(0.1 - 1.96 * 0.0105, abs=0.004)
    assert rate.high == pytest.approx(0.1 + 1.96 * 0.0105, abs=0.004)
    assert interval([[Errors(10, 1, 0, 0)]] * 5) == interval([[Errors(10, 1, 0, 0)]] * 7)


def test_sets_of_many_speakers_are_drawn_by_speaker() -> None:
    many = [score(str(n), f"s{n % 12}", "set", "a b", "a b" if n % 2 else "a c") for n in range(48)]
    few = [score(str(n), f"s{n % 2}", "set", "a b", "a b" if n % 2 else "a c") for n in range(48)]
    by_speaker, by_utterance = summarize("hard", "word", many), summarize("hard", "word", few)
    assert (by_speaker.drawn, by_utterance.drawn) == ("speakers", "utterances")
    assert by_speaker.rate.value == by_utterance.rate.value == 0.25
    assert by_speaker.rate.high - by_speaker.rate.low > by_utterance.rate.high - by_utterance.rate.low
    assert by_utterance.speakers == {"s0": 0.5, "s1": 0.0}
    assert (by_utterance.substitutions, by_utterance.length) == (24, 96)


def test_the_table_and_the_json_tell_everything() -> None:
    scored = [score("good.wav", "anna", "set", "a b", "a b"), score("bad.wav", "bert", "set", "a b", "x y z")]
    result = summarize("hard", "word", scored)
    result.delay["median delay"] = 0.123
    console = Console(file=io.StringIO(), width=120)
    show([result], worst=5, speakers=True, console=console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for expected in ("75.0 [", "WER %", "CER %", "bert", "150.0", "bad.wav", "x y z", "median delay: 0.12 s", "utterances"):
        assert expected in shown
    assert "good.wav" not in shown  # nothing is wrong with it
    values = json.loads(json.dumps(result.to_dict()))
    assert values["rate"]["value"] == 0.75
    assert [each["said"] for each in values["scored"]] == ["a b", "x y z"]


def test_phones_have_one_rate() -> None:
    result = summarize("hard", "phone", [score("a", "s", "", "sil sh", "sil s")])
    assert result.character_rate is None
    console = Console(file=io.StringIO(), width=120)
    show([result], worst=0, speakers=False, console=console)
    assert isinstance(console.file, io.StringIO)
    assert "PER %" in console.file.getvalue()
    assert "CER" not in console.file.getvalue()
