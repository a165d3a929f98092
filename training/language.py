"""Builds the language model of the beam search from text: interpolated Kneser-Ney, rare sequences pruned."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy

from model.files import write_whole
from model.language import BOUNDARY, Array

DISCOUNT = 0.75
LEAST = 1e-9  # of a probability that is written down
WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")


@dataclass(frozen=True)
class Pruning:
    vocabulary: int = 60_000  # most words
    word: int = 2  # how often a word must have been seen
    bigram: int = 2
    trigram: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.vocabulary < 2**16 - 1:
            raise ValueError(f"vocabulary={self.vocabulary}: expected 1..{2**16 - 2}")
        for name in ("word", "bigram", "trigram"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}s={getattr(self, name)}: expected at least 1")


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence, as the model writes them. A line's end ends none: books have lines of any length."""
    text = text.lower().replace("\u2019", "'")
    return [words for part in re.split(r"[.!?;:]\s|\n\s*\n", text) if (words := WORD.findall(part))]


def read_sentences(path: Path) -> list[list[str]]:
    try:
        return sentences(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"text={str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"text={str(path)!r}: not UTF-8 at byte {error.start}") from error


def build_language(texts: Iterable[list[str]], out: Path, pruning: Pruning | None = None) -> dict[str, int]:
    """Writes the model of these sentences; returns how many words, bigrams and trigrams it holds."""
    pruning = pruning or Pruning()
    texts = list(texts)
    seen = Counter(word for words in texts for word in words)
    common = [word for word, count in seen.most_common(pruning.vocabulary) if count >= pruning.word]
    if not common:
        raise ValueError(f"text: no word occurs {pruning.word} times; expected more text")
    words = [BOUNDARY, *sorted(common)]
    index = {word: number for number, word in enumerate(words)}
    unknown, size = len(words), len(words) + 1  # what is in no vocabulary breaks a sequence
    stream = np.fromiter((index.get(word, unknown) for text in texts for word in (BOUNDARY, *text, BOUNDARY)), dtype=np.int64)

    triples = stream[:-2] * size * size + stream[1:-1] * size + stream[2:]
    inside = (stream[:-2] != unknown) & (stream[1:-1] != unknown) & (stream[2:] != unknown) & (stream[1:-1] != 0)
    triple, triple_count = np.unique(triples[inside], return_counts=True)
    pairs = stream[:-1] * size + stream[1:]
    inside = (stream[:-1] != unknown) & (stream[1:] != unknown) & ((stream[:-1] != 0) | (stream[1:] != 0))
    pair, pair_count = np.unique(pairs[inside], return_counts=True)
    preceded = occurrences(triple % (size * size), pair)  # by how many different words a pair is
    pair_weight = np.where(pair // size == 0, pair_count, np.maximum(preceded, 1))  # a sentence's start is preceded by nothing
    kept = pair_count >= pruning.bigram

    endings = np.bincount(pair % size, minlength=size)[: len(words)]  # after how many different words each one comes
    unigrams = (endings + 1) / (endings + 1).sum()
    arrays = dict(words=np.frombuffer("\n".join(words).encode(), dtype=np.uint8), unigrams=np.log(unigrams).astype(np.float16))
    arrays |= level("bigrams", pair // size, pair % size, pair_weight, kept, len(words))
    context = np.searchsorted(pair[kept], triple // size)  # of each triple: a kept pair's position
    fits = (context < kept.sum()) & (pair[kept][np.minimum(context, kept.sum() - 1)] == triple // size)
    arrays |= level(
        "trigrams", context[fits], triple[fits] % size, triple_count[fits], triple_count[fits] >= pruning.trigram, int(kept.sum())
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, safetensors.numpy.save(arrays))
    return dict(words=len(words) - 1, bigrams=len(arrays["bigrams.words"]), trigrams=len(arrays["trigrams.words"]))


def occurrences(keys: Array, wanted: Array) -> Array:
    """How often each of the sorted keys `wanted` is among `keys`."""
    found, counts = np.unique(keys, return_counts=True)
    position = np.minimum(np.searchsorted(found, wanted), len(found) - 1)
    return np.where(found[position] == wanted, counts[position], 0) if len(found) else np.zeros(len(wanted), dtype=np.int64)


def level(name: str, contexts: Array, words: Array, weights: Array, kept: Array, size: int) -> dict[str, Array]:
    """Discounted probabilities of those kept; all else, what was pruned too, goes to the next lower level."""
    totals = np.bincount(contexts, weights, minlength=size)
    probabilities = (weights[kept] - DISCOUNT) / totals[contexts[kept]]
    rest = 1 - np.bincount(contexts[kept], probabilities, minlength=size)
    return {
        f"{name}.counts": np.bincount(contexts[kept], minlength=size).astype(np.uint16),  # fewer than there are words
        f"{name}.words": words[kept].astype(np.uint16),
        f"{name}.logs": np.log(np.maximum(probabilities, LEAST)).astype(np.float16),
        f"{name}.rest": np.log(np.clip(rest, LEAST, 1)).astype(np.float16),
    }
