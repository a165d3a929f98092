"""Text to what is learnt and scored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.symbols import NOISE, SymbolTable
from training.text import FOLDING, PHONES, Characters, Phones, normalize, spelling_of


@pytest.mark.parametrize(
    ("written", "learnt"),
    [
        ('Martin has an annual "Fall Festival".', "martin has an annual fall festival"),
        ("Don’t stop — we’re ‘here’!", "don't stop we're here"),
        ("Crème brûlée, naïve", "creme brulee naive"),
        ("the '90s and rock 'n' roll", "the 90s and rock n roll"),
        ("twenty-one; 3 o'clock", "twenty one 3 o'clock"),
        ("  \t ", ""),
        ("日本", ""),
    ],
)
def test_normalize(written: str, learnt: str) -> None:
    assert normalize(written) == learnt


@given(st.text())
def test_what_is_normal_is_within_the_symbols_and_stays(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    table = SymbolTable()
    assert table.decode(table.encode(once)) == once
    assert "  " not in once
    assert once == once.strip()


def test_a_noise_is_a_symbol_that_is_learnt_and_not_scored() -> None:
    spelling = Characters()
    noise = spelling.table.symbols.index(NOISE)
    symbols = spelling.encode(f"The {NOISE} end {NOISE}")
    assert [spelling.table.symbols[symbol] for symbol in symbols] == [*"the ", NOISE, *" end ", NOISE]
    assert spelling.encode(NOISE) == [noise]
    assert spelling.decode(symbols) == spelling.reference(f"The {NOISE} end {NOISE}") == "the end"


def test_timits_symbols_are_those_of_the_paper() -> None:
    spelling = Phones()
    assert len(PHONES) == 60
    assert len(spelling.table) == 62
    assert len({FOLDING.get(phone, phone) for phone in PHONES}) == 39


def test_phones_are_scored_after_folding() -> None:
    spelling = Phones()
    symbols = spelling.encode("h# sh ix hv q eh dcl d")
    assert [spelling.table.symbols[symbol] for symbol in symbols] == ["h#", "sh", "ix", "hv", "eh", "dcl", "d"]
    assert spelling.decode(symbols) == spelling.reference("h# sh ix hv q eh dcl d") == "sil sh ih hh eh sil d"
    with pytest.raises(ValueError, match="phone='xx': expected one of aa ae"):
        spelling.encode("h# xx")


def test_a_models_symbols_tell_its_spelling() -> None:
    assert isinstance(spelling_of(Phones().table), Phones)
    assert isinstance(spelling_of(SymbolTable()), Characters)
