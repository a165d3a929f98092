"""What every corpus gives: recordings with their texts. And what every corpus is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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


def read_text(path: Path) -> str:
    """The text of a file, without the mark that some editors begin it with."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error.reason} at byte {error.start}: expected UTF-8") from error
    if "\0" in text:
        raise ValueError(f"{path}: a zero at character {text.index(chr(0))}: expected UTF-8")
    return text


def read_table(path: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """Lines of a TSV file, of which the first names the columns and all have the first of `columns`.

    What a short line leaves out is empty. Quotation marks mean themselves.
    """
    first, *lines = read_text(path).split("\n")
    names = [name.strip() for name in first.split("\t")]
    if columns[0] not in names:
        raise ValueError(f"{path}, line 1: no {columns[0]}; expected the columns {', '.join(columns)}")
    for number, line in enumerate(lines, start=2):
        if line.strip():
            row = dict.fromkeys(columns, "") | dict(zip(names, line.split("\t"), strict=False))
            if not row[columns[0]].strip():
                raise ValueError(f"{path}, line {number}: no {columns[0]}; expected the columns {', '.join(columns)}")
            yield row


def expected(part: str, known: list[str], corpus: str) -> ValueError:
    return ValueError(f"part={part!r}: expected one of {', '.join(known)} of {corpus}")
