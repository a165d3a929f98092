from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.symbols import SYMBOLS, SymbolTable


def test_there_are_49() -> None:
    assert len(SymbolTable()) == 49


@given(text=st.text(alphabet=[symbol for symbol in SYMBOLS if len(symbol) == 1]))
def test_text_comes_back(text: str) -> None:
    table = SymbolTable()
    assert table.decode(table.encode(text)) == text


def test_markers_are_not_written() -> None:
    table = SymbolTable()
    assert table.decode([table.start, *table.encode("hi"), table.end]) == "hi"


def test_what_is_no_symbol_is_unknown() -> None:
    table = SymbolTable()
    assert table.symbols[table.encode("ß")[0]] == "<unk>"
    with pytest.raises(ValueError, match="text='ß'"):
        SymbolTable(("<s>", "</s>", "a")).encode("ß")


def test_phones_stand_apart() -> None:
    phones = SymbolTable(("<s>", "</s>", "sh", "iy", "h#"))
    assert phones.encode("h# sh iy") == [4, 2, 3]
    assert phones.decode([0, 4, 2, 3, 1]) == "h# sh iy"
    with pytest.raises(ValueError, match=r"text='sh s': expected only 'sh iy h#'"):
        phones.encode("sh s")
    assert SymbolTable(("<s>", "</s>", "你", "好")).decode([2, 3]) == "你好"  # one character each needs no space
