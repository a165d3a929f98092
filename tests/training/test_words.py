"""Words that CTC most likely heard, by a language model of words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.symbols import SymbolTable
from training.words import WordSearch, vocabulary

SYMBOLS = SymbolTable()


def emissions(*choices: dict[str, float]) -> Tensor:
    """CTC's log probabilities: of each entry some characters, a dot for the blank; all else shares a thousandth."""
    probabilities = torch.full((len(choices), len(SYMBOLS)), 0.001 / len(SYMBOLS))
    for entry, choice in zip(probabilities, choices, strict=True):
        for character, probability in choice.items():
            entry[SYMBOLS.blank if character == "." else SYMBOLS.encode(character)[0]] = probability
    return probabilities.log()


def said(text: str) -> list[dict[str, float]]:
    return [{character: 0.99} for letter in text for character in (letter, ".")]


def test_words_that_go_together_beat_those_that_sound_a_little_better(arpa: Path) -> None:
    search = WordSearch(arpa, SYMBOLS)
    doubtful = [{"i": 0.4, "e": 0.6}, {"c": 0.4, "y": 0.6}, {".": 0.4, "e": 0.6}, {"e": 0.4, "s": 0.6}]
    together, score = search(emissions(*doubtful, *said(" cream")))
    assert together == "ice cream"
    assert search(emissions(*doubtful))[0] == "eyes"  # with nothing after them
    certain = [{"e": 1.0}, {"y": 1.0}, {"e": 1.0}, {"s": 1.0}]
    assert search(emissions(*certain, *said(" cream")))[0] == "eyes cream"  # what was clearly said is not argued away
    assert score < search(emissions(*said("ice cream")))[1]


def test_only_words_of_the_lexicon_are_heard(arpa: Path) -> None:
    heard, _ = WordSearch(arpa, SYMBOLS)(emissions(*said("ice creem")))
    assert set(heard.split()) <= {"ice", "eyes", "cream"}


def test_nothing_said_is_no_text(arpa: Path) -> None:
    assert WordSearch(arpa, SYMBOLS)(emissions(*[{".": 1.0}] * 9))[0] == ""
    assert WordSearch(arpa, SYMBOLS)(emissions())[0] == ""


def test_the_lexicon_has_no_markers(arpa: Path) -> None:
    assert vocabulary(arpa) == ["ice", "eyes", "cream", "naïve"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"good morning\n", "expected an ARPA file"),
        (b"\\1-grams:\n-1\t\xff\n", "not UTF-8"),
        ("\\1-grams:\n-1\tété\n\\2-grams:\n".encode(), "no word in it can be written"),
        (b"\\data\\\nngram 1=9\n\n\\1-grams:\n-1\tice\n\n\\2-grams:\n", "not a language model"),
        (None, "No such file"),
    ],
)
def test_a_wrong_file_is_told(content: bytes | None, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.arpa"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        WordSearch(path, SYMBOLS)


def test_without_the_search_it_says_what_to_install(arpa: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashlight.lib.text", None)
    with pytest.raises(ValueError, match=r'pip install "monoscribe\[words\]"'):
        WordSearch(arpa, SYMBOLS)


def test_a_model_of_phones_has_no_words(arpa: Path) -> None:
    with pytest.raises(ValueError, match="writes no spaces"):
        WordSearch(arpa, SymbolTable(("<s>", "</s>", "aa", "sh")))
