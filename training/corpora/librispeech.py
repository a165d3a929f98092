"""LibriSpeech (openslr.org/12): PART/SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt and .flac files beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training.corpora.utterance import Corpus, Utterance, expected, read_text

PARTS = (
    "train-clean-100",
    "train-clean-360",
    "train-other-500",
    "dev-clean",
    "dev-other",
    "test-clean",
    "test-other",
)
GROUPS = {group: [part for part in PARTS if part.startswith(group)] for group in ("train", "dev", "test")}


def root(folder: Path) -> Path:
    return folder / "LibriSpeech" if (folder / "LibriSpeech").is_dir() else folder


def recognizes(folder: Path) -> bool:
    return any((root(folder) / part).is_dir() for part in PARTS)


def read(folder: Path, part: str) -> Iterator[Utterance]:
    """`train`, `dev` and `test` stand for all such parts that were unpacked."""
    if part not in (*PARTS, *GROUPS):
        raise expected(part, [*PARTS, *GROUPS], "LibriSpeech")
    for name in GROUPS.get(part, [part]):
        for transcript in sorted((root(folder) / name).glob("*/*/*.trans.txt")):
            for line in read_text(transcript).splitlines():
                identifier, _, text = line.partition(" ")
                speaker = identifier.partition("-")[0]
                yield Utterance(transcript.with_name(f"{identifier}.flac"), text.lower(), speaker, name)


CORPUS = Corpus(
    name="LibriSpeech",
    layout=f"folders {', '.join(PARTS[:2])}, …, of chapters with .trans.txt and .flac files",
    roles={"train": "train", "dev": "dev", "test": "test"},
    recognizes=recognizes,
    read=read,
)
