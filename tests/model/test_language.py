"""The language model: a distribution over characters, whatever was read before; and its say in the beam search."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from model import Recognizer
from model.beam import BeamConfig, BeamDecoder, beam_decode
from model.files import ModelCard, ModelFileError, load_model, save_model
from model.language import ALPHABET, LANGUAGE_FILE, SURPRISE, Language, Reading, load_language
from model.symbols import SymbolTable
from tests.conftest import random_network
from tests.model.test_hard import memory
from training.language import Pruning, build_language, sentences

TEXT = "the cat sat on the mat. the cat saw the dog! a dog sat on a cat? the catalogue is on the mat. don't. "
LETTERS = "abcdefghijklmnopqrstuvwxyz'"
ALL = Pruning(word=1, bigram=1, trigram=1)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Language:
    path = tmp_path_factory.mktemp("language") / LANGUAGE_FILE
    build_language(sentences(TEXT), path, ALL)
    return load_language(path)


def after(language: Language, text: str) -> Reading:
    reading = language.start()
    for character in text:
        _, reading = language.read(reading, character)
    return reading


def likely(language: Language, text: str, character: str) -> float:
    return math.exp(language.read(after(language, text), character)[0])


@given(
    text=st.text(st.sampled_from(LETTERS + " "), max_size=20) | st.sampled_from(["the c", "the cat ", "on the mat", "a dog sat"])
)
def test_known_characters_are_a_distribution(language: Language, text: str) -> None:
    reading = after(language, text)
    chances = [math.exp(language.read(reading, character)[0]) for character in LETTERS + " "]
    total = sum(chances) - len(chances) * SURPRISE / ALPHABET
    known = reading.first < reading.end
    assert total == pytest.approx(1 - SURPRISE if known else 0, abs=1e-3)


def test_words_that_followed_are_likelier(language: Language) -> None:
    assert likely(language, "the ", "c") > likely(language, "the ", "s")
    assert likely(language, "the cat", " ") > likely(language, "the cat", "a") > likely(language, "the cat", "z")
    assert likely(language, "the cat sat ", "o") > 0.7  # three words are remembered
    assert likely(language, "saw the ", "d") > likely(language, "on the ", "d")


def test_after_an_unknown_word_the_next_one_is_known(language: Language) -> None:
    assert likely(language, "zyzzy", "x") == pytest.approx(SURPRISE / ALPHABET)
    assert likely(language, "zyzzy th", "e") > 0.9


def test_sentences() -> None:
    assert sentences("It's 5 o\u2019clock; the U.S.A. is\non.  Yes\n\nno") == [
        ["it's", "o'clock"],
        ["the", "u", "s", "a"],
        ["is", "on"],
        ["yes"],
        ["no"],
    ]


def test_pruned_sequences_leave_their_weight_to_shorter_ones(tmp_path: Path) -> None:
    held = build_language(sentences(TEXT), tmp_path / LANGUAGE_FILE, Pruning(word=1, bigram=2, trigram=2))
    assert 0 < held["trigrams"] < held["bigrams"]
    pruned = load_language(tmp_path / LANGUAGE_FILE)
    for text in ("", "the ", "the cat ", "on the ", "catalogue "):
        chances = [likely(pruned, text, character) for character in LETTERS + " "]
        assert sum(chances) == pytest.approx(1, abs=0.01)


def test_too_little_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no word occurs 2 times"):
        build_language([["once"]], tmp_path / LANGUAGE_FILE)


def test_a_search_leans_towards_known_words(language: Language) -> None:
    network = random_network()
    entries = memory(seed=3)[0]
    plain = beam_decode(network, entries, BeamConfig())
    network.language = language
    strong = beam_decode(network, entries, BeamConfig(threshold=100.0, language=5.0, length=5.0))
    assert beam_decode(network, entries, BeamConfig(language=0.0)) == plain

    def score(symbols: list[int]) -> float:
        reading, total = language.start(), 0.0
        for character in network.symbols.decode(symbols):
            chance, reading = language.read(reading, character)
            total += chance
        return total / max(1, len(symbols))

    assert strong != plain
    assert score(strong) > score(plain)


@given(seed=st.integers(0, 20), cut=st.integers(0, 30))
def test_chunks_change_nothing(language: Language, seed: int, cut: int) -> None:
    network = random_network()
    network.language = language
    entries = memory(seed=seed)[0]
    search = BeamDecoder(network, BeamConfig(width=3))
    said = []
    for part in (entries[:cut], entries[cut:]):
        if len(part):
            said += [each.symbol for each in search(part, torch.ones(len(part), dtype=torch.bool))]
    said += [each.symbol for each in search.finish()]
    whole = BeamDecoder(network, BeamConfig(width=3))
    expected = [each.symbol for each in whole(entries, torch.ones(len(entries), dtype=torch.bool))]
    assert said == expected + [each.symbol for each in whole.finish()]


def test_a_model_folder_may_hold_one(tmp_path: Path) -> None:
    save_model(tmp_path, random_network(), ModelCard())
    assert load_model(tmp_path)[0].language is None
    build_language(sentences(TEXT), tmp_path / LANGUAGE_FILE, ALL)
    found = load_model(tmp_path)[0].language
    assert found is not None
    assert "catalogue" in found.words


@pytest.mark.parametrize("wrong", ["cut", "unsorted", "counts", "negative", "order", "word", "missing", "chances", "rest"])
def test_a_broken_one_is_named(tmp_path: Path, wrong: str) -> None:
    save_model(tmp_path, random_network(), ModelCard())
    path = tmp_path / LANGUAGE_FILE
    build_language(sentences(TEXT), path, ALL)
    arrays = {name: array.copy() for name, array in safetensors.numpy.load(path.read_bytes()).items()}
    if wrong == "unsorted":
        arrays["words"] = arrays["words"][::-1].copy()
    elif wrong == "counts":
        arrays["bigrams.counts"][0] += 1
    elif wrong == "negative":
        arrays["bigrams.counts"] = arrays["bigrams.counts"].astype(np.int64)
        arrays["bigrams.counts"][:2] += [100, -100]
    elif wrong == "order":
        arrays["bigrams.words"][:2] = arrays["bigrams.words"][1::-1].copy()
    elif wrong == "word":
        arrays["trigrams.words"][0] = 60_000
    elif wrong == "chances":
        arrays["bigrams.logs"][0] = 1
    elif wrong == "rest":
        arrays["trigrams.rest"][0] = math.nan
    elif wrong == "missing":
        del arrays["unigrams"]
    content = safetensors.numpy.save(arrays)
    path.write_bytes(content[:100] if wrong == "cut" else content)
    with pytest.raises(ModelFileError, match=LANGUAGE_FILE):
        load_model(tmp_path)


@pytest.mark.parametrize(("symbols", "stranger"), [((" ", *LETTERS[1:]), "a"), (tuple(LETTERS), " ")])
def test_one_for_other_symbols_is_refused(tmp_path: Path, symbols: tuple[str, ...], stranger: str) -> None:
    save_model(tmp_path, random_network(symbols=SymbolTable(("<s>", "</s>", *symbols))), ModelCard())
    build_language(sentences(TEXT), tmp_path / LANGUAGE_FILE, ALL)
    with pytest.raises(ModelFileError, match=f"{LANGUAGE_FILE}: '{stranger}', which it is written with, is none of the symbols"):
        load_model(tmp_path)


def test_copies_of_a_network_share_it(language: Language) -> None:
    network = random_network()
    network.language = language
    assert Recognizer(network).network.language is language
