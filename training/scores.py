"""Errors of a set of utterances: counted by jiwer, summed per set and speaker, with confidence intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import jiwer
import numpy as np

RESAMPLES = 1000
FEWEST_SPEAKERS = 10  # with fewer, speakers are too few to draw from: utterances are drawn instead
LEVEL = 95  # per cent


@dataclass(frozen=True)
class Errors:
    """Of one utterance, in words (or phones)."""

    length: int  # of the reference
    substitutions: int
    deletions: int
    insertions: int

    @property
    def count(self) -> int:
        return self.substitutions + self.deletions + self.insertions


@dataclass(frozen=True)
class Scored:
    name: str
    speaker: str
    part: str
    reference: str
    said: str
    words: Errors
    characters: Errors


@dataclass(frozen=True)
class Rate:
    value: float
    low: float  # of the confidence interval
    high: float


@dataclass(frozen=True)
class Result:
    """What one decoder made of one set."""

    decoder: str
    part: str
    unit: str  # word or phone
    utterances: int
    rate: Rate
    character_rate: Rate | None
    substitutions: int
    deletions: int
    insertions: int
    length: int
    drawn: str  # what the confidence interval's bootstrap drew: speakers or utterances
    speakers: dict[str, float]
    scored: tuple[Scored, ...] = field(repr=False)
    delay: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def worst(self, count: int) -> list[Scored]:
        return sorted((each for each in self.scored if each.words.count), key=lambda each: -each.words.count)[:count]


def score(name: str, speaker: str, part: str, reference: str, said: str) -> Scored:
    characters = _errors(jiwer.process_characters(reference, said)) if reference else Errors(0, 0, 0, len(said))
    words = _errors(jiwer.process_words(reference, said)) if reference else Errors(0, 0, 0, len(said.split()))
    return Scored(name, speaker, part, reference, said, words, characters)


def _errors(output: jiwer.WordOutput | jiwer.CharacterOutput) -> Errors:
    length = output.hits + output.substitutions + output.deletions
    return Errors(length, output.substitutions, output.deletions, output.insertions)


def summarize(decoder: str, unit: str, scored: Sequence[Scored]) -> Result:
    """One set's scores together."""
    groups, drawn = bootstrap_groups(scored)
    speakers: dict[str, list[Scored]] = defaultdict(list)
    for each in scored:
        speakers[each.speaker].append(each)
    return Result(
        decoder=decoder,
        part=scored[0].part,
        unit=unit,
        utterances=len(scored),
        rate=interval([[each.words for each in group] for group in groups]),
        character_rate=interval([[each.characters for each in group] for group in groups]) if unit == "word" else None,
        substitutions=sum(each.words.substitutions for each in scored),
        deletions=sum(each.words.deletions for each in scored),
        insertions=sum(each.words.insertions for each in scored),
        length=sum(each.words.length for each in scored),
        drawn=drawn,
        speakers={name: error_rate([each.words for each in group]) for name, group in sorted(speakers.items())},
        scored=tuple(scored),
    )


def error_rate(errors: Sequence[Errors]) -> float:
    return sum(each.count for each in errors) / max(1, sum(each.length for each in errors))


def bootstrap_groups(scored: Sequence[Scored]) -> tuple[list[list[Scored]], str]:
    """What is drawn together: all of a speaker, since errors of one speaker go together; or each utterance by itself."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for each in scored:
        groups[each.speaker].append(each)
    if len(groups) >= FEWEST_SPEAKERS:
        return list(groups.values()), "speakers"
    return [[each] for each in scored], "utterances"


def interval(groups: Sequence[Sequence[Errors]], seed: int = 0) -> Rate:
    """The error rate, and between what it falls in 95 % of the sets drawn with replacement from `groups` (Bisani and Ney, 2004)."""
    errors = np.array([sum(each.count for each in group) for group in groups], dtype=float)
    lengths = np.array([sum(each.length for each in group) for group in groups], dtype=float)
    drawn = np.random.default_rng(seed).integers(len(groups), size=(RESAMPLES, len(groups)))
    rates = errors[drawn].sum(1) / np.maximum(1, lengths[drawn].sum(1))
    low, high = np.percentile(rates, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return Rate(float(errors.sum() / max(1, lengths.sum())), float(low), float(high))
