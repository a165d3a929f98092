"""Any list of recordings: a TSV file, or a file of JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from training.corpora.utterance import Utterance

COLUMNS = ("path", "text", "speaker", "set")


def read_manifest(path: Path) -> Iterator[Utterance]:
    """Utterances of a list with the columns (or keys) path, text and, where there are any, speaker and set.

    Paths are relative to the list. Other columns are ignored.
    """
    if path.suffix not in (".tsv", ".jsonl"):
        raise ValueError(f"data={str(path)!r}: expected a .tsv or .jsonl file")
    rows = _tsv_rows(path) if path.suffix == ".tsv" else _json_rows(path)
    for number, row in rows:
        if not isinstance(row.get("path"), str) or not row["path"]:
            raise ValueError(f"{path}, line {number}: no path; expected the columns {', '.join(COLUMNS)}")
        text, speaker, part = (str(row.get(name) or "") for name in COLUMNS[1:])
        yield Utterance(path.parent / row["path"], text, speaker, part)


def write_manifest(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Writes a TSV list, as a whole or not at all. Tabs and line breaks in a value become spaces."""
    rows = list(rows)
    columns = list(rows[0]) if rows else list(COLUMNS)
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write("\t".join(columns) + "\n")
        for row in rows:
            file.write("\t".join(" ".join(row[column].split()) for column in columns) + "\n")
    partial.replace(path)


def _tsv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(newline="") as file:
        yield from enumerate(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE), start=2)


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open() as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: {row!r}: expected an object")
            yield number, row
