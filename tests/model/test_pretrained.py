"""The embedded model: it is there, it is small, and it understands a voice that it has never heard."""

from __future__ import annotations

from pathlib import Path

import jiwer
import numpy as np
import pytest
import soundfile

from model import Recognizer
from model.files import PRETRAINED
from training.text import normalize

DATA = Path(__file__).parents[1] / "data"
TEXT = (DATA / "README.md").read_text().partition("> ")[2].replace("> ", "")


@pytest.fixture(scope="module")
def embedded() -> Recognizer:
    return Recognizer.load()


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in PRETRAINED.iterdir()) <= 15e6


def test_it_has_a_language(embedded: Recognizer) -> None:
    assert embedded.network.language is not None
    assert {"the", "people", "it's"} <= set(embedded.network.language.words)


def test_it_understands_the_demo(embedded: Recognizer) -> None:
    samples = np.asarray(soundfile.read(DATA / "demo.flac", dtype="float32")[0], dtype=np.float32)
    transcript = embedded.transcribe(samples)
    assert jiwer.cer(normalize(TEXT), transcript.text) < 0.35
    assert all(0 <= word.start <= word.end <= len(samples) / 16_000 for word in transcript.words)


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.05])
def test_it_says_nothing_to_noise(embedded: Recognizer, level: float) -> None:
    noise = level * np.random.default_rng(0).standard_normal(10 * 16_000)
    assert embedded.transcribe(noise.astype(np.float32)).text == ""
