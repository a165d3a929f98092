"""Text as it is written to text as the model writes it, and to symbols and back."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Literal

from model.symbols import END, MARKERS, NOISE, START, SymbolTable

_QUOTES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'"})
_APART = re.compile(r"[^a-z0-9' ]+")  # whatever else is written separates words
_LOOSE_APOSTROPHE = re.compile(r"(?<![a-z0-9])'+|'+(?![a-z0-9])")  # a quotation mark, not a letter of a word
_SPACES = re.compile(r" +")


def normalize(text: str) -> str:
    """The text that is learnt and scored: lower-case words, apostrophes and single spaces.

    Letters lose their accents; punctuation other than the apostrophe and marks of noise are left out.
    """
    text = unicodedata.normalize("NFKD", text.replace(NOISE, " ").translate(_QUOTES)).lower()
    text = "".join(character for character in text if not unicodedata.combining(character))
    text = _APART.sub(" ", text)
    text = _LOOSE_APOSTROPHE.sub(" ", text)
    return _SPACES.sub(" ", text).strip()


@dataclass(frozen=True)
class Characters:
    """Words, character by character; a noise that the corpus marks is a symbol of its own."""

    table: SymbolTable = field(default_factory=SymbolTable)
    unit: str = "word"

    def encode(self, text: str) -> list[int]:
        """`the <noise> end` -> t h e, space, noise, space, e n d."""
        parts = [self.table.encode(normalize(part)) for part in text.split(NOISE)]
        space, noise = self.table.encode(" "), [self.table.symbols.index(NOISE)]
        labels = parts[0]
        for part in parts[1:]:
            labels = labels + (space if labels else []) + noise + (space if part else []) + part
        return labels

    def decode(self, symbols: list[int]) -> str:
        return " ".join(self.table.decode(symbols).split())

    def reference(self, text: str) -> str:
        return normalize(text)


# The 39 classes of Lee and Hon (1989) by what falls into each; whatever is not named is a class of its own.
FOLDING = {
    phone: folded
    for folded, phones in {
        "aa": "ao",
        "ah": "ax ax-h",
        "er": "axr",
        "hh": "hv",
        "ih": "ix",
        "l": "el",
        "m": "em",
        "n": "en nx",
        "ng": "eng",
        "sh": "zh",
        "uw": "ux",
        "sil": "bcl dcl gcl pcl tcl kcl h# pau epi",
    }.items()
    for phone in phones.split()
}
# TIMIT writes 61 phones. The glottal stop q is left out: the standard scoring ignores it, and the paper counts 60.
_PHONES = (
    "aa ae ah ao aw ax ax-h axr ay b bcl ch d dcl dh dx eh el em en eng epi er ey f g gcl h# hh hv "
    "ih ix iy jh k kcl l m n ng nx ow oy p pau pcl r s sh t tcl th uh uw ux v w y z zh"
)
PHONES = tuple(_PHONES.split())
IGNORED_PHONE = "q"


@dataclass(frozen=True)
class Phones:
    """TIMIT's phones, separated by spaces. They are scored after folding, so that a word of the scored text is a phone."""

    table: SymbolTable = field(default_factory=lambda: SymbolTable((START, END, *PHONES)))
    unit: str = "phone"

    def encode(self, text: str) -> list[int]:
        phones = [phone for phone in text.split() if phone != IGNORED_PHONE]
        unknown = [phone for phone in phones if phone not in PHONES]
        if unknown:
            raise ValueError(f"phone={unknown[0]!r}: expected one of {' '.join(PHONES)}")
        return self.table.encode(" ".join(phones))

    def decode(self, symbols: list[int]) -> str:
        return self.reference(self.table.decode(symbols))

    def reference(self, text: str) -> str:
        return " ".join(FOLDING.get(phone, phone) for phone in text.split() if phone not in (IGNORED_PHONE, *MARKERS))


Spelling = Characters | Phones
"""How a corpus's text becomes symbols (encode), what symbols (decode) and texts (reference) are scored as, unit by unit."""

SPELLINGS: dict[Literal["characters", "phones"], type[Spelling]] = {"characters": Characters, "phones": Phones}


def spelling_of(table: SymbolTable) -> Spelling:
    """The spelling of a model, which its symbols tell."""
    return Phones(table) if PHONES[0] in table.symbols else Characters(table)
