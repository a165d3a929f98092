"""TIMIT (LDC93S1): TRAIN and TEST, dialect regions DR1 to DR8, speakers, and per utterance .WAV (SPHERE) and .PHN.

The two sentences that all speakers read (SA) are left out, as is usual. `test` is the core test set of the corpus's own
documentation (24 speakers, 192 utterances), `dev` the 50 other test speakers that the literature validates on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training.corpora.utterance import Corpus, Utterance, expected, read_text

_CORE = """mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0
    mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0"""
_DEV = """faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0 mgjf0
    mglb0 mrtk0 mtaa0 mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0 fmah0 fdrw0
    mrcs0 mrjm4 fcal1 mmwh0 fjsj0 majc0 mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0 fmml0 mrws1"""
CORE_TEST_SPEAKERS = frozenset(_CORE.split())
DEV_SPEAKERS = frozenset(_DEV.split())
PARTS = ("train", "dev", "test")


def inner(folder: Path, name: str) -> Path | None:
    """The folder `name` in `folder`, however it is capitalised: copies of the disc differ."""
    if not folder.is_dir():
        return None
    return next((path for path in sorted(folder.iterdir()) if path.name.lower() == name and path.is_dir()), None)


def root(folder: Path) -> Path | None:
    """The folder with TRAIN and TEST: this one, TIMIT in it, or timit/TIMIT in it."""
    for candidate in (folder, inner(folder, "timit"), inner(inner(folder, "timit") or folder, "timit")):
        if candidate is not None and inner(candidate, "train") and inner(candidate, "test"):
            return candidate
    return None


def recognizes(folder: Path) -> bool:
    top = root(folder)
    train = inner(top, "train") if top else None
    return train is not None and inner(train, "dr1") is not None


def read(folder: Path, part: str) -> Iterator[Utterance]:
    top = root(folder)
    if top is None:
        raise ValueError(f"data={str(folder)!r}: no folders TRAIN and TEST of TIMIT")
    if part not in PARTS:
        raise expected(part, list(PARTS), "TIMIT")
    side = inner(top, "train" if part == "train" else "test")
    assert side is not None
    for path in sorted(side.glob("*/*/*")):
        speaker = path.parent.name.lower()
        if path.suffix.lower() != ".phn" or path.name.lower().startswith("sa"):
            continue
        if part == "train" or speaker in (DEV_SPEAKERS if part == "dev" else CORE_TEST_SPEAKERS):
            yield Utterance(recording(path), phones(path), speaker, f"timit-{part}")


def recording(transcript: Path) -> Path:
    """The .WAV or .wav beside it; its suffix may be in other letters than the transcript's."""
    upper, lower = transcript.with_suffix(".WAV"), transcript.with_suffix(".wav")
    return upper if upper.is_file() else lower


def phones(transcript: Path) -> str:
    """`0 3050 h#` and so on: the phones alone."""
    lines = [line.split() for line in read_text(transcript).splitlines() if line.strip()]
    for number, line in enumerate(lines, start=1):
        if len(line) != 3:
            raise ValueError(f"{transcript}, line {number}: {' '.join(line)!r}: expected begin, end and phone")
    return " ".join(phone.lower() for _, _, phone in lines)


CORPUS = Corpus(
    name="TIMIT",
    layout="TRAIN and TEST, with DR1 to DR8",
    roles={"train": "train", "dev": "dev", "test": "test"},
    recognizes=recognizes,
    read=read,
)
