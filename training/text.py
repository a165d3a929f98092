"""Text as it is written to text as the model writes it: lower-case words, apostrophes and single spaces."""

from __future__ import annotations

import re
import unicodedata

_QUOTES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'"})
_APART = re.compile(r"[^a-z0-9' ]+")  # whatever else is written separates words
_LOOSE_APOSTROPHE = re.compile(r"(?<![a-z0-9])'+|'+(?![a-z0-9])")  # a quotation mark, not a letter of a word
_SPACES = re.compile(r" +")


def normalize(text: str) -> str:
    """The text that is learnt and scored. Letters lose their accents; punctuation other than the apostrophe is left out."""
    text = unicodedata.normalize("NFKD", text.translate(_QUOTES)).lower()
    text = "".join(character for character in text if not unicodedata.combining(character))
    text = _APART.sub(" ", text)
    text = _LOOSE_APOSTROPHE.sub(" ", text)
    return _SPACES.sub(" ", text).strip()
