"""Recordings with their texts, to measure recognisers on."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from benchmarks import DEMO
from model.engine import Samples
from model.features import SAMPLE_RATE
from training.audio import read_audio
from training.corpora.manifest import read_manifest
from training.corpora.utterance import Utterance
from training.text import normalize


class Recording(NamedTuple):
    part: str  # the set that it is reported under
    text: str  # normalised
    samples: Samples


def draw(manifest: Path | None, limit: int, seconds: float | None = None) -> list[Recording]:
    """At most `limit` of each set, always the same ones; 0: all. Without a manifest, the demo. `seconds` cuts each short."""
    end = round(seconds * SAMPLE_RATE) if seconds else None
    if manifest is None:
        return [Recording("demo", demo_text(), read_audio(DEMO)[:end])]
    everything = list(read_manifest(manifest))
    chosen: dict[str, list[Utterance]] = defaultdict(list)
    for utterance in random.Random(0).sample(everything, len(everything)):
        if normalize(utterance.text) and (not limit or len(chosen[utterance.part]) < limit):
            chosen[utterance.part].append(utterance)
    return [
        Recording(part, normalize(utterance.text), read_audio(utterance.path)[:end])
        for part in sorted(chosen)
        for utterance in chosen[part]
    ]


def demo_text() -> str:
    page = DEMO.with_name("README.md").read_text()
    return normalize(" ".join(line[2:] for line in page.splitlines() if line.startswith("> ")))
