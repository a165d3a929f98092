"""Corpora: from a folder, or a list of recordings, to utterances."""

from __future__ import annotations

from pathlib import Path

from training.corpora import commonvoice, librispeech, manifest, recordings, timit, wsj
from training.corpora.utterance import Corpus, Role, Utterance

CORPORA: tuple[Corpus, ...] = (wsj.CORPUS, timit.CORPUS, librispeech.CORPUS, commonvoice.CORPUS, recordings.CORPUS)

__all__ = ["CORPORA", "Corpus", "Role", "Utterance", "read_corpus", "split_part"]


def split_part(where: str) -> tuple[Path, str]:
    """`folder:part` -> folder and part; without a part, or where the whole is a path that exists, the part is empty."""
    path, colon, part = where.rpartition(":")
    if not colon or Path(where).exists() or not Path(path).exists():
        return Path(where), ""
    return Path(path), part


def read_corpus(where: str, role: Role) -> list[Utterance]:
    """The utterances of a TSV or JSONL manifest or of a corpus's folder; `:part` behind it names another part than usual."""
    path, part = split_part(where)
    if path.is_file():
        utterances = [utterance for utterance in manifest.read_manifest(path) if not part or utterance.part == part]
    elif path.is_dir():
        corpus = corpus_of(path)
        utterances = list(corpus.read(path, part or corpus.roles[role]))
    else:
        raise ValueError(f"data={where!r}: no such file or folder")
    if not utterances:
        raise ValueError(f"data={where!r}: no utterances")
    return utterances


def corpus_of(folder: Path) -> Corpus:
    for corpus in CORPORA:
        if corpus.recognizes(folder):
            return corpus
    layouts = "; ".join(f"{corpus.name} ({corpus.layout})" for corpus in CORPORA)
    raise ValueError(f"data={str(folder)!r}: not a corpus; expected one of: {layouts}; or a .tsv or .jsonl manifest")
