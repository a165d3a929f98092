"""From symbols to text: emissions that append, words with times, segments."""

from __future__ import annotations

import math
from dataclasses import replace

from model.events import Emission, Segment, Word
from model.symbols import SPACE, SymbolTable

CHARACTER_SECONDS = 0.1  # a character is said when it has been spoken: a word begins about this much before its first one's time


class Writer:
    """Writes the text of one stream. A space is held back until the next character comes: no text begins or ends with one."""

    def __init__(self, symbols: SymbolTable, delay: float) -> None:
        self._symbols = symbols
        self._delay = delay  # of an emission after the end of the sound it stands for, in seconds
        self._words: list[list[Emission]] = []
        self._space = False
        self._end = 0.0  # of the last word: the next one, of this segment or another, begins no earlier

    def say(self, symbol: int, time: float, probability: float, heard: float | None = None) -> Emission | None:
        """Takes the next symbol, decided at `time` and heard then or before; returns what it appends to the text, if anything."""
        text = self._symbols.written(symbol)
        if text == SPACE:
            self._space = bool(self._words)
            return None
        if not text:
            return None
        apart = bool(self._words) and (self._space or bool(self._symbols.joint))
        if apart or not self._words:
            self._words.append([])
        emission = Emission(text, time, probability, time if heard is None else heard)
        self._words[-1].append(emission)
        self._space = False
        return replace(emission, text=SPACE + text) if apart else emission

    def close(self) -> Segment | None:
        """Ends the segment; None if nothing was said."""
        words: list[Word] = []
        for characters in self._words:
            start = max(self._end, characters[0].heard - self._delay - CHARACTER_SECONDS)
            end = max(start, characters[-1].heard - self._delay)
            confidence = math.exp(sum(math.log(max(c.confidence, 1e-9)) for c in characters) / len(characters))
            words.append(Word("".join(c.text for c in characters), round(start, 3), round(end, 3), round(confidence, 4)))
            self._end = words[-1].end
        self._words, self._space = [], False
        if not words:
            return None
        return Segment(SPACE.join(word.text for word in words), words[0].start, words[-1].end, tuple(words))
