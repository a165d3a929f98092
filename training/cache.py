"""Log-mel features of a corpus, computed once: one half-precision file that is mapped into memory, and one table.

Audio is what costs time to decode; deltas, normalisation and augmentation are cheap and happen when a batch is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from model.config import FeatureConfig
from model.features import HOP, OVERLAP, Features, clean
from training.audio import AudioError, read_audio
from training.corpora.utterance import Utterance as Utterance

FEATURES_FILE = "mels.f16"
INDEX_FILE = "index.json"
CHUNK_OF_CLIPS = 64


@dataclass(frozen=True)
class CachedUtterance:
    name: str
    text: str
    speaker: str
    part: str
    first: int
    frames: int


class FeatureCache:
    """The features of a folder written by `build`, by utterance."""

    def __init__(self, folder: Path) -> None:
        index = json.loads((folder / INDEX_FILE).read_text())
        self.bins: int = index["bins"]
        self.utterances = [CachedUtterance(**entry) for entry in index["utterances"]]
        self._mels = np.memmap(folder / FEATURES_FILE, dtype=np.float16, mode="r").reshape(-1, self.bins)

    def mels(self, utterance: CachedUtterance) -> npt.NDArray[np.float16]:
        """(frames, bins) of log-mel features."""
        return self._mels[utterance.first : utterance.first + utterance.frames]


def build(utterances: Iterable[Utterance], folder: Path, config: FeatureConfig, workers: int = os.cpu_count() or 1) -> int:
    """Writes the cache of `utterances` into `folder`, and returns how many could not be read (they are left out)."""
    folder.mkdir(parents=True, exist_ok=True)
    entries, first, unread = [], 0, 0
    partial = folder / (FEATURES_FILE + ".partial")
    with partial.open("wb") as file, ProcessPoolExecutor(workers) as pool:
        chunks = list(_chunks(list(utterances)))
        for chunk, results in zip(chunks, pool.map(_extract, chunks, [config] * len(chunks)), strict=True):
            for utterance, mels in zip(chunk, results, strict=True):
                if mels is None:
                    unread += 1
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
                    )
                )
                first += len(mels)
    partial.replace(folder / FEATURES_FILE)
    index = folder / (INDEX_FILE + ".partial")
    index.write_text(json.dumps(dict(bins=config.bins, utterances=entries)))
    index.replace(folder / INDEX_FILE)
    return unread


def _chunks(utterances: list[Utterance]) -> Iterator[list[Utterance]]:
    for start in range(0, len(utterances), CHUNK_OF_CLIPS):
        yield utterances[start : start + CHUNK_OF_CLIPS]


def _extract(utterances: list[Utterance], config: FeatureConfig) -> list[npt.NDArray[np.float16] | None]:
    torch.set_num_threads(1)
    features = Features(config)
    return [_log_mel(features, utterance.path) for utterance in utterances]


def _log_mel(features: Features, path: Path) -> npt.NDArray[np.float16] | None:
    try:
        samples = clean(torch.from_numpy(read_audio(path)))
    except AudioError:
        return None
    whole = len(samples) // HOP * HOP
    if whole == 0:
        return None
    padded = torch.nn.functional.pad(samples[:whole], (OVERLAP, 0))
    return features.log_mel(padded[None])[0].half().numpy()
