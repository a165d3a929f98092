"""Recordings that nobody made, to learn from beside real ones: sentences by a synthesiser in many voices, sounds without speech.

The synthesiser is hibari (`pip install hibari-tts`), a small one with one good voice. What it computes is a pitch and spectra, so
that the pitch can be another one; played slower or faster, its vocal tract is another one, too; and it reads phonemes, so that it
can have an accent.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as remembered
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from model.features import SAMPLE_RATE
from model.symbols import NOISE
from training.cache import worker_pool
from training.corpora.manifest import write_manifest
from training.corpora.utterance import read_text
from training.sounds import sound
from training.text import normalize

Samples = npt.NDArray[np.float32]
SHORTEST = 0.3  # seconds of speech: less is a sentence that could not be read
LONGEST = 400  # characters: more is no sentence, and takes gigabytes
WRITTEN = re.compile(r"[A-Za-zÀ-ÖØ-öø-ÿ\s.,;:!?'\"‘’“”()…–—-]+")
SPEECH, SOUND = 0, 1  # so that the same seed draws other numbers for each
UNVOICED_BELOW, LOWEST_PITCH = 40.0, 55.0  # Hz
PACES = (0.6, 1.9)  # that the synthesiser can keep
TILT_FROM = 1000.0  # Hz: what lies above is made louder or softer, octave by octave
CHUNK = 32
VOWELS = "əɪiæɛʌIAuɔɑOʊɜɐWYᵻᵊ"
# What people who learnt another English, or another language first, may say for what the lexicon has: a pattern, and their ways.
HABITS = (
    ("θ", ("s", "t", "f")),
    ("ð", ("d", "z")),
    ("v", ("w", "b")),
    ("w", ("v",)),
    ("z", ("s",)),
    ("ʒ", ("ʃ", "z")),
    ("ʤ", ("ʒ", "ʧ")),
    ("ʧ", ("ʃ",)),
    ("ŋ", ("n",)),
    ("T", ("t",)),
    ("h", ("",)),
    ("ɹ", ("l",)),
    (f"ɹ(?![ˈˌ]?[{VOWELS}])", ("",)),
    ("(?<=[nslkpf])[td](?= |$)", ("",)),  # the end of "hand" and "kept"
    ("ɪ", ("i",)),
    ("i", ("ɪ",)),
    ("ʊ", ("u",)),
    ("æ", ("ɛ", "ɑ")),
    ("ʌ", ("ɑ",)),
    ("[əᵻ]", ("ɑ", "ɛ")),
    ("ɔ", ("ɑ", "O")),
    ("O", ("ɔ",)),
    ("A", ("ɛ",)),
    ("[ˈˌ]", ("",)),  # no stress
)
ACCENTED, HABIT = 0.6, 0.15  # how many speakers have habits, and how likely each then is


@dataclass(frozen=True)
class Voice:
    size: float = 1.0  # 0.8: formants and pitch a fifth lower, as of a larger head
    pitch: float = 1.0
    melody: float = 1.0  # 0: monotonous
    pace: float = 1.0
    tilt: float = 0.0  # dB per octave
    accent: tuple[tuple[str, str], ...] = ()  # phonemes, and what is said instead

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Voice:
        return cls(
            size=rng.uniform(0.8, 1.1),
            pitch=float(np.exp(rng.uniform(np.log(0.62), np.log(1.12)))),
            melody=rng.uniform(0.6, 1.3),
            pace=rng.uniform(0.8, 1.3),
            tilt=rng.uniform(-4, 3),
            accent=drawn_accent(rng) if rng.random() < ACCENTED else (),
        )


def drawn_accent(rng: np.random.Generator) -> tuple[tuple[str, str], ...]:
    return tuple((pattern, str(rng.choice(ways))) for pattern, ways in HABITS if rng.random() < HABIT)


def accented(phonemes: str, accent: Sequence[tuple[str, str]]) -> str:
    for pattern, said in accent:
        phonemes = re.sub(pattern, said, phonemes)
    return phonemes


class Synthesizer:
    def __init__(self) -> None:
        from hibari import Hibari, dsp

        self._hibari: Any = Hibari()
        self._dsp: Any = dsp

    def say(self, text: str, voice: Voice, rng: np.random.Generator) -> Samples:
        """(samples,) of the sentence; none where there is nothing to read."""
        pace = np.clip(voice.pace / voice.size, *PACES)  # playing it slower for a larger head takes time, too
        parts = [np.zeros(0, np.float32)]
        for phonemes in self._hibari.phonemize(text):
            ids = self._hibari.ids(accented(phonemes, voice.accent))
            inputs = dict(ids=np.array([ids]), speed=np.array([pace], np.float32))
            *spectra, pitch = (output[0] for output in self._hibari.sess.run(None, inputs))
            parts.append(self._dsp.synth(*spectra, sung(pitch, voice), rng))
        spoken = soxr.resample(np.concatenate(parts), self._hibari.sample_rate * voice.size, SAMPLE_RATE)
        return tilted(spoken, voice.tilt)


def sung(pitch: Samples, voice: Voice) -> Samples:
    """The pitch (T,) in Hz as that of `voice`; what has none keeps none."""
    voiced = pitch > UNVOICED_BELOW
    if not voiced.any():
        return pitch
    middle = np.median(pitch[voiced])
    moved = voice.pitch * middle * (np.maximum(pitch, 1.0) / middle) ** voice.melody
    return np.where(voiced, np.maximum(moved, LOWEST_PITCH), pitch).astype(np.float32)


def tilted(samples: Samples, tilt: float) -> Samples:
    size = fast_length(len(samples))
    spectrum = np.fft.rfft(samples, size)
    hertz = np.linspace(0, SAMPLE_RATE / 2, len(spectrum))
    octaves = np.log2(np.maximum(hertz, TILT_FROM / 4) / TILT_FROM)
    return np.fft.irfft(spectrum * 10 ** (tilt * octaves / 20), size)[: len(samples)].astype(np.float32)


def fast_length(count: int) -> int:
    """Of a Fourier transform of at least `count` samples: a power of two, or three quarters of one."""
    whole = 1 << max(2, (count - 1).bit_length())
    return whole * 3 // 4 if whole * 3 // 4 >= count else whole


def recorded(samples: Samples, rng: np.random.Generator) -> Samples:
    """As a microphone would have it: silence before and after, half of the time a room, some level, some hiss."""
    before, after = (int(SAMPLE_RATE * rng.uniform(0.05, 0.6)) for _ in range(2))
    samples = np.pad(samples, (before, after))
    if rng.random() < 0.5:
        samples = in_a_room(samples, rng)
    samples = samples * 10 ** (rng.uniform(-26, -3) / 20) / max(1e-6, np.abs(samples).max())
    hiss = rng.standard_normal(len(samples)) * 10 ** (rng.uniform(-80, -50) / 20)
    return (samples + hiss).clip(-1, 1).astype(np.float32)


def in_a_room(samples: Samples, rng: np.random.Generator) -> Samples:
    """With an echo of noise that dies away within 0.08 to 0.5 s."""
    count = int(SAMPLE_RATE * rng.uniform(0.08, 0.5))
    echo = rng.standard_normal(count) * np.exp(-6.9 * np.arange(count) / count)  # by 60 dB
    echo *= rng.uniform(0.05, 0.5) / np.linalg.norm(echo)
    echo[0] = 1
    size = fast_length(len(samples) + count)
    return np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(echo, size), size)[: len(samples)].astype(np.float32)


def synthesize(sentences: Path, out: Path, *, hours: float = 0.0, sounds: int = 0, jobs: int = 1, seed: int = 0) -> None:
    """Writes a manifest of recordings, in a new folder of its name, of one sentence per line and of sounds without speech.

    Lines that are read in another way than they are written are left out. With `hours` it stops after so many.
    """
    import_module("hibari")  # if it is missing, that is known before any sentence is read
    folder = out.with_suffix("")
    if out.suffix != ".tsv" or out.is_dir() or folder.name.split() != folder.name.split(" "):
        raise ValueError(f"out={str(out)!r}: expected a .tsv file, with no white space but single spaces in its name")
    lines = [line.strip() for line in read_text(sentences).splitlines() if line.strip()]
    texts = [line for line in lines if read_as_written(line)]
    if not texts:
        raise ValueError(
            f"sentences={str(sentences)!r}: none of {len(lines)} lines is read as it is written; expected a sentence each"
        )
    folder.mkdir(parents=True)  # a new one: features of recordings that were there would be taken for those of the new ones
    made = (sound(np.random.default_rng([seed, SOUND, number])) for number in range(sounds))
    rows = [dict(path=_write(samples, folder, f"sound-{number}"), text=NOISE) for number, samples in enumerate(made)]
    heard, unread = 0.0, len(lines) - len(texts)
    starts = range(0, len(texts), CHUNK)
    chunks = [texts[start : start + CHUNK] for start in starts]
    with worker_pool(jobs) as pool:
        for results in pool.map(_speak, chunks, starts, [folder] * len(starts), [seed] * len(starts)):
            rows += [row for row, _ in results if row["path"]]
            heard += sum(seconds for _, seconds in results)
            unread += sum(not row["path"] for row, _ in results)
            if hours and heard >= hours * 3600:
                pool.shutdown(cancel_futures=True)
                break
    for path in {path.name for path in folder.iterdir()} - {Path(row["path"]).name for row in rows}:
        (folder / path).unlink()  # what was spoken meanwhile
    write_manifest(out, [dict(row, set="synthetic") for row in rows])
    print(f"{out}: {len(rows)} recordings, {heard / 3600:.2f} hours of speech; {unread} lines left out", file=sys.stderr)


def read_as_written(text: str) -> bool:
    """Whether it is a sentence of words: digits, abbreviations, signs, markup and foreign letters are read as other words."""
    from hibari.g2p.normalize import normalize as as_read

    words = normalize(text)
    return len(text) <= LONGEST and WRITTEN.fullmatch(text) is not None and bool(words) and normalize(as_read(text)) == words


@remembered
def _synthesizer() -> Synthesizer:
    return Synthesizer()


def _speak(texts: Sequence[str], first: int, folder: Path, seed: int) -> list[tuple[dict[str, str], float]]:
    """Rows of the manifest, without a path where nothing could be read, and the seconds of each."""
    rows = []
    for number, text in enumerate(texts, start=first):
        rng = np.random.default_rng([seed, SPEECH, number])
        samples = _synthesizer().say(text, Voice.drawn(rng), rng)
        enough = len(samples) >= SHORTEST * SAMPLE_RATE
        path = _write(recorded(samples, rng), folder, f"speech-{number}") if enough else ""
        rows.append((dict(path=path, text=text), len(samples) / SAMPLE_RATE if enough else 0.0))
    return rows


def _write(samples: Samples, folder: Path, name: str) -> str:
    """Its path as a manifest beside the folder has it."""
    content = io.BytesIO()
    soundfile.write(content, samples, SAMPLE_RATE, format="FLAC")  # not into the file: of a disk that is full, it gives no reason
    (folder / f"{name}.flac").write_bytes(content.getvalue())
    return f"{folder.name}/{name}.flac"
