"""What every corpus gives: recordings with their texts. And what every corpus is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["train", "dev", "test"]


@dataclass(frozen=True)
class Utterance:
    """One recording of a corpus. `text` is as written; `part` names the set that it is reported under."""

    path: Path
    text: str
    speaker: str = ""
    part: str = ""


@dataclass(frozen=True)
class Corpus:
    name: str
    layout: str  # what its folder holds, for who gives another one
    roles: Mapping[Role, str]  # the official part for each purpose
    recognizes: Callable[[Path], bool]
    read: Callable[[Path, str], Iterator[Utterance]]  # of a folder and a part of it


def expected(part: str, known: list[str], corpus: str) -> ValueError:
    return ValueError(f"part={part!r}: expected one of {', '.join(known)} of {corpus}")
