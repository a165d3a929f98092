"""A folder of one's own recordings, each with a text file of the same name beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training.corpora.utterance import Corpus, Utterance, expected, read_text

SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")
ALL = "all"


def transcribed(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.with_suffix(".txt").is_file():
            yield path


def read(folder: Path, part: str) -> Iterator[Utterance]:
    """A folder within the folder is a speaker; a recording that lies in none is of a speaker of its own."""
    if part != ALL:
        raise expected(part, [ALL], "a folder of recordings")
    for path in transcribed(folder):
        inner = path.parent.relative_to(folder)
        speaker = str(inner) if inner.parts else path.stem
        yield Utterance(path, read_text(path.with_suffix(".txt")).strip(), speaker, folder.name)


CORPUS = Corpus(
    name="recordings",
    layout="audio files, each with a .txt file of the same name beside it",
    roles={"train": ALL, "dev": ALL, "test": ALL},
    recognizes=lambda folder: next(transcribed(folder), None) is not None,
    read=read,
)
