"""Mozilla Common Voice: the folder of one language, with clips/ and a TSV file per part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training.corpora.utterance import Corpus, Utterance, expected, read_table

PARTS = ("train", "dev", "test", "validated", "other", "invalidated")
CLIPS = "clips"
COLUMNS = ("path", "sentence", "client_id")


def recognizes(folder: Path) -> bool:
    return (folder / CLIPS).is_dir() and any((folder / f"{part}.tsv").is_file() for part in PARTS)


def read(folder: Path, part: str) -> Iterator[Utterance]:
    path = folder / f"{part}.tsv"
    if part not in PARTS or not path.is_file():
        raise expected(part, [part for part in PARTS if (folder / f"{part}.tsv").is_file()], f"Common Voice in {folder}")
    for row in read_table(path, COLUMNS):
        yield Utterance(folder / CLIPS / row["path"], row["sentence"], row["client_id"], "commonvoice")


CORPUS = Corpus(
    name="Common Voice",
    layout="clips/, train.tsv, dev.tsv, test.tsv",
    roles={"train": "train", "dev": "dev", "test": "test"},
    recognizes=recognizes,
    read=read,
)
