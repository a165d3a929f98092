"""Small corpora that tests train on."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

from model.config import AttentionConfig, DecoderConfig, EncoderConfig, FeatureConfig, ModelConfig
from tests.conftest import babble
from training.cache import FeatureCache, build
from training.corpora import Utterance
from training.recipe import Augmentation, Data, Loss, Optimizer, Recipe

TINY = ModelConfig(
    features=FeatureConfig(mel_bins=8),
    encoder=EncoderConfig(conv_filters=(2, 2), conv_lstm_filters=2, lstm_units=(6,), lstm_skips=(1,), projection=6),
    attention=AttentionConfig(hidden=6, initial_bias=-1.0),
    decoder=DecoderConfig(embedding=4, lstm_units=6),
)
RECIPE = Recipe(
    steps=8,
    model=TINY,
    data=Data(batch_seconds=5.0),
    optimizer=Optimizer(learning_rate=((0, 1e-3),), average=0.9, l2=1e-6),
    loss=Loss(ctc=0.5, quantity=0.05),
    augmentation=Augmentation(gain=1.0, noise=0.5, time_masks=1, time_mask_frames=5, frequency_masks=1, frequency_mask_bins=2),
)
TEXTS = ("ab", "a cab", "bad", "dad", "a bed", "cede", "fade", "bee", "cafe", "add")


def write_clips(folder: Path, texts: tuple[str, ...] = TEXTS) -> list[Utterance]:
    """A clip of babble for each text."""
    utterances = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.wav"
        soundfile.write(path, babble(0.8 + 0.05 * number, seed=number), 16_000)
        utterances.append(Utterance(path, text, speaker=f"speaker{number % 3}", part="babble"))
    return utterances


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of ten clips for networks like TINY."""
    folder = tmp_path_factory.mktemp("cache")
    assert build(write_clips(folder), folder, TINY.features, workers=1) == []
    return folder


@pytest.fixture(scope="session")
def cache(cache_folder: Path) -> FeatureCache:
    return FeatureCache(cache_folder)


ARPA = """\\data\\
ngram 1=7
ngram 2=4

\\1-grams:
-3\t<unk>
-9\t<s>\t-0.3
-1\t</s>
-1\tice\t-0.3
-1\teyes\t-0.3
-1\tcream\t-0.3
-1\tnaïve\t-0.3

\\2-grams:
-0.1\tice cream
-2\teyes cream
-0.1\tcream </s>
-0.3\t<s> eyes

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    """A small language model of words."""
    path = tmp_path / "words.arpa"
    path.write_text(ARPA, encoding="utf-8")
    return path
