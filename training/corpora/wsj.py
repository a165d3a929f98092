"""Wall Street Journal (LDC93S6B and LDC94S13B): the discs' folders as they are, all of them somewhere under one folder.

The official sets are those of the discs' own index files (.ndx). Each line of one names a recording: `11_1_1:wsj0/si_tr_s/…`.
Texts come from the detailed transcripts (.dot), or where there is none from the lexical ones (.lsn): a line per utterance, with
its name in parentheses at the end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from model.symbols import NOISE
from training.corpora.utterance import Corpus, Utterance, expected

# Index files per set. Non-verbalised punctuation and the largest vocabulary, as is usual.
INDICES = {
    "si84": ("wsj0/doc/indices/train/tr_s_wv1.ndx",),
    "si284": ("wsj0/doc/indices/train/tr_s_wv1.ndx", "wsj1/doc/indices/si_tr_s.ndx"),
    "dev93": ("wsj1/doc/indices/h1_p0.ndx",),
    "eval92": ("wsj0/doc/indices/test/nvp/si_et_20.ndx",),
}
MISSING_ON_DISC = "wsj0/si_tr_s/401/"  # the index names this speaker's recordings, disc 11-2.1 has none
AUDIO, TRANSCRIPTS, INDEX = ".wv1", (".dot", ".lsn"), ".ndx"

_LINE = re.compile(r"(.*)\(([0-9a-z]{8})\)\s*$", re.IGNORECASE)
_OVERLAPPING = re.compile(r"\[<\S+\]|\[\S+>\]|\[\S+/\]|\[/\S+\]")  # within a word, or over several: the words are there
_NOISE = re.compile(r"\[[^\]\s]+\]")
_PUNCTUATION = re.compile(r"[^\w\s\[<*~]+([A-Z]{2,}(?:-[A-Z]+)*)")  # ,COMMA  "DOUBLE-QUOTE  --DASH: said aloud
_UNSAID = re.compile(r"\([^)]*\)")  # of a word that broke off: wou(ld)-
_PROSODY = re.compile(r"[:!`*<>~]")  # lengthening, stress, misreadings, words taken back: all of them were said


def files(folder: Path) -> dict[str, Path]:
    """Everything that matters, by its lower-case path from wsj0 or wsj1 on: some copies of the discs are in capitals."""
    found = {}
    for where, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(where, name)
            if path.suffix.lower() in (AUDIO, INDEX, *TRANSCRIPTS):
                parts = [part.lower() for part in path.parts]
                first = next((index for index, part in enumerate(parts) if part in ("wsj0", "wsj1")), None)
                if first is not None:
                    found["/".join(parts[first:])] = path
    return found


def recognizes(folder: Path) -> bool:
    """Whether wsj0 or wsj1 is in it, or in a folder or two below: LDC93S6B/11-13.1/wsj0."""
    depths = ("", "*/", "*/*/")
    return any(path.name.lower() in ("wsj0", "wsj1") for depth in depths for path in folder.glob(f"{depth}*") if path.is_dir())


def read(folder: Path, part: str) -> Iterator[Utterance]:
    if part not in INDICES:
        raise expected(part, list(INDICES), "WSJ")
    found = files(folder)
    texts = transcripts(found)
    for index in INDICES[part]:
        if index not in found:
            raise ValueError(f"data={str(folder)!r}: no {index}, the index of {part}: is a disc missing?")
        for name in listed(found[index]):
            utterance = name.rpartition("/")[2].removesuffix(AUDIO)
            if name not in found:
                raise ValueError(f"data={str(folder)!r}: no {name}, which {index} names: is a disc missing?")
            if utterance not in texts:
                raise ValueError(f"data={str(folder)!r}: no transcript of {utterance}, which {index} names: is a disc missing?")
            yield Utterance(found[name], spoken(texts[utterance]), utterance[:3], part)


def listed(index: Path) -> Iterator[str]:
    """The recordings that an index file names; some of these files leave the suffix out."""
    for line in index.read_text(encoding="latin-1").splitlines():
        if line.strip() and not line.startswith(";"):
            name = line.rpartition(":")[2].strip().lower().lstrip("/")
            if not name.startswith(MISSING_ON_DISC):
                yield name if name.endswith(AUDIO) else name + AUDIO


def transcripts(found: dict[str, Path]) -> dict[str, str]:
    """Texts by the lower-case name of the utterance; a detailed transcript counts more than a lexical one."""
    texts: dict[str, str] = {}
    for suffix in TRANSCRIPTS:
        for name, path in found.items():
            if name.endswith(suffix):
                for line in path.read_text(encoding="latin-1").splitlines():
                    if match := _LINE.match(line):
                        texts.setdefault(match[2].lower(), match[1].strip())
    return texts


def spoken(text: str) -> str:
    """What was said, of a transcript's line: words, punctuation that was read aloud as words, and noises as `<noise>`."""
    words = []
    for token in _OVERLAPPING.sub(" ", text).split():
        if token in (".", "~"):  # a pause, a recording that was cut off
            continue
        if _NOISE.fullmatch(token):
            words.append(NOISE)
        elif match := _PUNCTUATION.fullmatch(token.replace("\\", "")):
            words.append(match[1].replace("-", " ").lower())
        else:
            words.append(_PROSODY.sub("", _UNSAID.sub("", token.replace("\\", ""))))
    return " ".join(word for word in words if word)


CORPUS = Corpus(
    name="WSJ",
    layout="the discs' folders, with wsj0 and wsj1 in them",
    roles={"train": "si284", "dev": "dev93", "test": "eval92"},
    recognizes=recognizes,
    read=read,
)
