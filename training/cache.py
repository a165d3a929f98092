"""Log-mel features of a corpus, computed once: one half-precision file that is mapped into memory, and one table.

Audio is what costs time to decode; deltas, normalisation and augmentation are cheap and happen when a batch is made.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from model.config import FeatureConfig
from model.features import HOP, OVERLAP, SAMPLE_RATE, Features, clean
from training.audio import AudioError, read_audio
from training.corpora.utterance import Utterance as Utterance

FEATURES_FILE = "mels.f16"
INDEX_FILE = "index.json"
CHUNK_OF_CLIPS = 64
LONGEST = 3600  # seconds: what is longer takes too much memory as a whole


@dataclass(frozen=True)
class CachedUtterance:
    name: str
    text: str
    speaker: str
    part: str
    first: int
    frames: int
    path: str = ""  # of the recording
    file: int = 0  # of several caches that are used as one


class FeatureCache:
    """The features of one or more folders written by `build`, by utterance."""

    def __init__(self, *folders: Path) -> None:
        indices = [read_index(folder, file) for file, folder in enumerate(folders)]
        self.bins = indices[0][0]
        for folder, (bins, _) in zip(folders, indices, strict=True):
            if bins != self.bins:
                raise ValueError(f"{folder}: features of {bins} bins; expected {self.bins}, as in {folders[0]}")
        self.utterances = [utterance for _, utterances in indices for utterance in utterances]
        if not self.utterances:
            raise ValueError(f"data: no utterances in {', '.join(map(str, folders))}")
        self._mels = [
            np.memmap(folder / FEATURES_FILE, dtype=np.float16, mode="r").reshape(-1, self.bins)
            if utterances
            else np.zeros((0, self.bins), np.float16)
            for folder, (_, utterances) in zip(folders, indices, strict=True)
        ]

    def mels(self, utterance: CachedUtterance) -> npt.NDArray[np.float16]:
        """(frames, bins) of log-mel features."""
        return self._mels[utterance.file][utterance.first : utterance.first + utterance.frames]


def read_index(folder: Path, file: int) -> tuple[int, list[CachedUtterance]]:
    """Bins and utterances of the cache `file`, checked against its features: a copy may have been cut off."""
    try:
        index = json.loads((folder / INDEX_FILE).read_text())
        utterances = [CachedUtterance(**entry, file=file) for entry in index["utterances"]]
        needed = max((utterance.first + utterance.frames for utterance in utterances), default=0)
        bins = int(index["bins"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / INDEX_FILE}: no table of a feature cache: {error}") from error
    frames = (folder / FEATURES_FILE).stat().st_size / np.dtype(np.float16).itemsize / max(1, bins)
    if frames < needed or frames % 1:
        raise ValueError(f"{folder / FEATURES_FILE}: {frames:g} frames: expected {needed}, as {INDEX_FILE} says")
    return bins, utterances


def build(utterances: Iterable[Utterance], folder: Path, config: FeatureConfig, workers: int = os.cpu_count() or 1) -> list[str]:
    """Writes the cache of `utterances` into `folder`, and returns which could not be read, and why (they are left out)."""
    folder.mkdir(parents=True, exist_ok=True)
    entries, first, unread = [], 0, list[str]()
    partial = folder / f"{FEATURES_FILE}.{os.getpid()}.partial"
    with erased(partial), partial.open("wb") as file, worker_pool(workers) as pool:
        chunks = list(_chunks(list(utterances)))
        extracted = pool.map(_extract, chunks, [config] * len(chunks))
        bar = tqdm(extracted, total=len(chunks), desc="features", unit=f"{CHUNK_OF_CLIPS} clips", disable=None)
        for chunk, results in zip(chunks, bar, strict=True):
            for utterance, mels in zip(chunk, results, strict=True):
                if isinstance(mels, str):
                    unread.append(mels)
                    continue
                file.write(mels.tobytes())
                entries.append(
                    dict(
                        name=utterance.path.name,
                        text=utterance.text,
                        speaker=utterance.speaker,
                        part=utterance.part,
                        first=first,
                        frames=len(mels),
                        path=str(utterance.path.resolve()),
                    )
                )
                first += len(mels)
        if not entries:
            raise ValueError(f"data: none of {len(unread)} recordings could be read; the first: {unread[0]}")
        file.flush()
        partial.replace(folder / FEATURES_FILE)
        write_index(folder, config.bins, entries)
    return unread


@contextmanager
def erased(path: Path) -> Iterator[None]:
    """After it, the file is not there any more, however it ended."""
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Processes that end with the one that started them, and leave what Ctrl-C means to it."""
    return ProcessPoolExecutor(workers, initializer=_ignore_interrupts)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def write_index(folder: Path, bins: int, entries: Sequence[Mapping[str, object]]) -> None:
    """The table of a cache: written last and as a whole, so that a cache with a table is complete."""
    partial = folder / f"{INDEX_FILE}.{os.getpid()}.partial"
    partial.write_text(json.dumps(dict(bins=bins, utterances=list(entries))))
    partial.replace(folder / INDEX_FILE)


def _chunks(utterances: list[Utterance]) -> Iterator[list[Utterance]]:
    for start in range(0, len(utterances), CHUNK_OF_CLIPS):
        yield utterances[start : start + CHUNK_OF_CLIPS]


def _extract(utterances: list[Utterance], config: FeatureConfig) -> list[npt.NDArray[np.float16] | str]:
    torch.set_num_threads(1)
    features = Features(config)
    return [_log_mel(features, utterance.path) for utterance in utterances]


def _log_mel(features: Features, path: Path) -> npt.NDArray[np.float16] | str:
    """(frames, bins) of log-mel features, or why there are none."""
    try:
        samples = clean(torch.from_numpy(read_audio(path)))
    except AudioError as error:
        return str(error)
    whole = len(samples) // HOP * HOP
    if not 0 < whole <= LONGEST * SAMPLE_RATE:
        return f"{path}: {len(samples) / SAMPLE_RATE:.3f} s: expected {HOP / SAMPLE_RATE}..{LONGEST}"
    padded = torch.nn.functional.pad(samples[:whole], (OVERLAP, 0))
    return features.log_mel(padded[None])[0].half().numpy()
