"""Any list of recordings: a TSV file, or a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from training.corpora.utterance import Utterance, read_table, read_text

COLUMNS = ("path", "text", "speaker", "set")


def read_manifest(path: Path) -> Iterator[Utterance]:
    """Utterances of a list with the columns (or keys) path, text and, where there are any, speaker and set.

    Paths are relative to the list. Other columns are ignored.
    """
    if path.suffix not in (".tsv", ".jsonl"):
        raise ValueError(f"data={str(path)!r}: expected a .tsv or .jsonl file")
    for row in read_table(path, COLUMNS) if path.suffix == ".tsv" else _json_rows(path):
        yield Utterance(path.parent / row["path"], row["text"], row["speaker"], row["set"])


def write_manifest(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Writes a TSV list, as a whole or not at all. Tabs and line breaks in a value become spaces."""
    rows = list(rows)
    columns = list(rows[0]) if rows else list(COLUMNS)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\t".join(columns) + "\n")
        for row in rows:
            file.write("\t".join(" ".join(row[column].split()) for column in columns) + "\n")
    partial.replace(path)


def _json_rows(path: Path) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: {row!r}: expected an object")
        found = {name: "" if row.get(name) is None else row[name] for name in COLUMNS}
        for name, value in found.items():
            if not isinstance(value, str | int):  # speakers are numbers in many lists
                raise ValueError(f"{path}, line {number}: {name}={value!r}: expected a string")
        if not found["path"]:
            raise ValueError(f"{path}, line {number}: no path; expected the columns {', '.join(COLUMNS)}")
        yield {name: str(value) for name, value in found.items()}
