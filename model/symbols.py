"""The 49 output symbols of the Wall Street Journal model, in one place.

Index 0, the start of sequence, is never an output of the decoder, so the CTC head uses the same index for its blank.
"""

from __future__ import annotations

import string

START = "<s>"
END = "</s>"
UNKNOWN = "<unk>"
NOISE = "<noise>"
SPACE = " "  # the word delimiter

PUNCTUATION = "'.,-?!\"&"
SYMBOLS: tuple[str, ...] = (START, END, UNKNOWN, NOISE, SPACE, *string.ascii_lowercase, *string.digits, *PUNCTUATION)
MARKERS = frozenset({START, END, UNKNOWN, NOISE})  # symbols that stand for no written character

assert len(SYMBOLS) == 49


class SymbolTable:
    """Turns text into symbol indices and back."""

    def __init__(self, symbols: tuple[str, ...] = SYMBOLS) -> None:
        if not all(isinstance(symbol, str) and symbol for symbol in symbols):
            raise ValueError("symbols: expected only strings, none of them empty")
        if len(set(symbols)) != len(symbols):
            raise ValueError("symbols: expected each symbol once")
        if symbols[:2] != (START, END):
            raise ValueError(f"symbols: expected {START} and {END} first, found {symbols[:2]}")
        self.symbols = symbols
        self.start = 0
        self.end = 1
        self.blank = self.start  # of the CTC head
        self._index = {symbol: index for index, symbol in enumerate(symbols)}
        self._written = tuple("" if symbol in MARKERS else symbol for symbol in symbols)
        phones = SPACE not in symbols and any(len(text) > 1 for text in self._written)
        self.joint = SPACE if phones else ""  # what stands between two written symbols

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Indices of the characters of `text`, or of its words if each is a symbol; what is no symbol becomes `<unk>`."""
        unknown = self._index.get(UNKNOWN)
        indices = [self._index.get(piece, unknown) for piece in (text.split() if self.joint else text)]
        if None in indices:
            raise ValueError(f"text={text!r}: expected only {self.joint.join(filter(None, self._written))!r}")
        return [index for index in indices if index is not None]

    def decode(self, indices: list[int]) -> str:
        """The written text of `indices`; markers are left out."""
        return self.joint.join(filter(None, (self._written[index] for index in indices)))

    def written(self, index: int) -> str:
        """What symbol `index` adds to the text: a character or a phone, or nothing for a marker."""
        return self._written[index]

    def is_text(self, index: int) -> bool:
        """Whether symbol `index` writes more than a space."""
        return bool(self._written[index].strip())
