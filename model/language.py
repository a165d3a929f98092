"""A language model of words that scores characters, for the beam search.

Words are known by trigrams, bigrams and unigrams, each level interpolated with the next. Characters come from that by looking
ahead: the probability of a character after the beginning of a word is that of all the words that go on so, among those that began
so. Words are sorted, so that those with one beginning are neighbours, and sums over neighbours are differences of running sums.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from model.symbols import SPACE

LANGUAGE_FILE = "language.safetensors"
BOUNDARY = ""  # the word before the first and after the last one of a sentence
SURPRISE = 0.02  # the share of characters that no known word has here
ALPHABET = 28  # characters that a surprise is spread over
REMEMBERED = 50_000
LAST = "\U0010ffff"  # sorts after every character

Array = np.ndarray[Any, Any]


class Reading(NamedTuple):
    """Where a text has got to: its last two words, and the words that go on as the one under way begins."""

    before: int
    last: int
    first: int  # of the sorted words
    end: int
    length: int  # characters of the word so far


@dataclass(frozen=True)
class Level:
    """What is known to follow each context, sorted by context and word: probabilities less their discount, and what that leaves."""

    starts: Array  # (contexts + 1,) of the runs in `words`
    words: Array
    sums: Array  # (words + 1,) running sums of probabilities
    rest: Array  # (contexts,) the weight of the next lower level

    def mass(self, context: int, first: int, end: int) -> float:
        """Of the words from `first` to before `end`."""
        low, high = self.starts[context], self.starts[context + 1]
        run = self.words[low:high]
        return float(self.sums[low + run.searchsorted(end)] - self.sums[low + run.searchsorted(first)])

    def find(self, context: int, word: int) -> int:
        """The position of a word after a context, or -1."""
        low, high = int(self.starts[context]), int(self.starts[context + 1])
        position = low + int(self.words[low:high].searchsorted(word))
        return position if position < high and self.words[position] == word else -1


class Language:
    def __init__(self, words: list[str], unigrams: Array, bigrams: Level, trigrams: Level) -> None:
        """`words` are sorted; the first one is the boundary. Trigrams have the positions of bigrams for contexts."""
        self.words = words
        self._sums = np.concatenate([[0.0], np.cumsum(unigrams)])
        self._bigrams, self._trigrams = bigrams, trigrams
        self.read = lru_cache(REMEMBERED)(self._read)  # hypotheses of one text ask the same again and again

    def __deepcopy__(self, _: object) -> Language:
        """Nothing in it changes, and it is large: copies of a network share it."""
        return self

    def start(self) -> Reading:
        return Reading(-1, 0, 1, len(self.words), 0)

    def _read(self, reading: Reading, character: str) -> tuple[float, Reading]:
        """The log probability of the next character, and where the text has got to with it."""
        began = self._mass(reading, reading.first, reading.end)
        if character == SPACE:
            whole = reading.first < reading.end and len(self.words[reading.first]) == reading.length > 0
            mass = self._mass(reading, reading.first, reading.first + 1) if whole else 0.0
            after = Reading(reading.last if whole else -1, reading.first if whole else -1, 1, len(self.words), 0)
        else:
            beginning = self.words[reading.first][: reading.length] + character if reading.first < reading.end else LAST
            first = bisect_left(self.words, beginning, reading.first, reading.end)
            end = bisect_left(self.words, beginning + LAST, first, reading.end)
            mass = self._mass(reading, first, end)
            after = reading._replace(first=first, end=end, length=reading.length + 1)
        known = mass / began if began > 0 else 0.0
        return math.log((1 - SURPRISE) * known + SURPRISE / ALPHABET), after

    def _mass(self, reading: Reading, first: int, end: int) -> float:
        """The probability that the next word is one from `first` to before `end`."""
        if first >= end:
            return 0.0
        mass = float(self._sums[end] - self._sums[first])
        if reading.last >= 0:
            bigrams = self._bigrams
            mass = bigrams.mass(reading.last, first, end) + float(bigrams.rest[reading.last]) * mass
            pair = bigrams.find(reading.before, reading.last) if reading.before >= 0 else -1
            if pair >= 0:
                mass = self._trigrams.mass(pair, first, end) + float(self._trigrams.rest[pair]) * mass
        return mass


def load_language(path: Path) -> Language:
    try:
        arrays = safetensors.numpy.load(path.read_bytes())
        words = bytes(arrays["words"]).decode().split("\n")
        bigrams = _level(arrays, "bigrams", len(words), len(words))
        trigrams = _level(arrays, "trigrams", len(bigrams.words), len(words))
        unigrams = _probabilities(arrays, "unigrams")
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: not a language model: {error}") from error
    if words != sorted(set(words)) or words[0] != BOUNDARY or unigrams.shape != (len(words),):
        raise ValueError(f"{path}: expected sorted words, the boundary first, and one probability for each")
    return Language(words, unigrams, bigrams, trigrams)


def _level(arrays: dict[str, Array], name: str, contexts: int, vocabulary: int) -> Level:
    """Each context has the number of its words and the logarithm of its rest, each word its index and logarithm."""
    counts, words = arrays[f"{name}.counts"], arrays[f"{name}.words"]
    chances, rest = _probabilities(arrays, f"{name}.logs"), _probabilities(arrays, f"{name}.rest")
    if counts.shape != (contexts,) or rest.shape != (contexts,) or words.shape != chances.shape or int(counts.sum()) != len(words):
        raise ValueError(f"{name} do not fit together")
    if len(words) and not 0 <= int(words.min()) <= int(words.max()) < vocabulary:
        raise ValueError(f"{name}: words {words.min()}..{words.max()}: expected 0..{vocabulary - 1}")
    if not (np.diff(np.repeat(np.arange(contexts), counts) * vocabulary + words) > 0).all():
        raise ValueError(f"{name}: expected the words of each context sorted, each once")
    return Level(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), words, np.concatenate([[0.0], np.cumsum(chances)]), rest)


def _probabilities(arrays: dict[str, Array], name: str) -> Array:
    logs = arrays[name].astype(np.float64)
    if not (logs <= 0).all() or not np.isfinite(logs).all():
        raise ValueError(f"{name}: expected logarithms of probabilities")
    return np.exp(logs)
