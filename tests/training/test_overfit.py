"""The proof that all parts learn together: ten utterances, learnt by heart, decoded the way a live stream is."""

from __future__ import annotations

import csv
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import jiwer
import numpy as np
import pytest
import soundfile

from model.config import AttentionConfig, DecoderConfig, EncoderConfig, FeatureConfig, ModelConfig
from model.features import SAMPLE_RATE
from model.network import Network
from tests.conftest import SHARED_SPEECH
from training.audio import read_audio
from training.cache import FeatureCache, build
from training.corpora import Utterance
from training.evaluate import transcribe
from training.recipe import Attention, Augmentation, Data, Loss, Optimizer, Recipe
from training.text import Characters
from training.trainer import Trainer

UTTERANCES = 10
LONGEST = 2.7  # seconds
MARGIN = SAMPLE_RATE // 20
STEPS_BETWEEN_LOOKS = 10
SENTENCES = (
    "good morning",
    "how are you",
    "see you later",
    "the door is open",
    "what a nice day",
    "come and sit down",
    "she likes green tea",
    "we have no time",
    "my name is anna",
    "turn left here",
)
MODEL = ModelConfig(
    features=FeatureConfig(mel_bins=40),
    encoder=EncoderConfig(conv_filters=(8, 8), conv_lstm_filters=0, lstm_units=(96,), lstm_skips=(1,), projection=96),
    attention=AttentionConfig(hidden=64, initial_bias=-1.0, noise=0.3),
    decoder=DecoderConfig(embedding=16, lstm_units=96),
)
RECIPE = Recipe(
    steps=800,
    model=MODEL,
    data=Data(batch_seconds=0, batch_utterances=5),
    optimizer=Optimizer(learning_rate=((0, 5e-3), (200, 2e-3)), epsilon=1e-8, gradient_norm=5.0, average=0.9),
    loss=Loss(ctc=1.0, alignment=2.0),
    attention=Attention("forced"),  # the CTC head shows the decoder where to look: several times as fast as soft attention
    augmentation=Augmentation(gain=1.0, time_masks=2, time_mask_frames=10),
)


def fluent_real() -> list[Utterance]:
    """Of the short real recordings, those with the least silence for their text."""
    with (SHARED_SPEECH / "dev.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    short = [row for row in rows if float(row["seconds"]) < LONGEST]
    short.sort(key=lambda row: float(row["seconds"]) / len(row["text"]))
    return [Utterance(SHARED_SPEECH / row["path"], row["text"]) for row in short[:UTTERANCES]]


def synthesised(folder: Path) -> list[Utterance]:
    utterances = []
    for number, text in enumerate(SENTENCES):
        path = folder / f"{number}.wav"
        command: list[str | Path] = (
            ["espeak-ng", "-w", path, text] if shutil.which("espeak-ng") else ["flite", "-t", text, "-o", path]
        )
        subprocess.run(command, check=True, timeout=60)
        utterances.append(Utterance(path, text))
    return utterances


def trimmed(utterance: Utterance, path: Path) -> Utterance:
    """Without the silence around the speech, in which CTC could hide labels that no ear could find there."""
    samples = read_audio(utterance.path)
    loud = np.flatnonzero(np.abs(samples) > 0.1 * np.abs(samples).max())
    soundfile.write(path, samples[max(0, loud[0] - MARGIN) : loud[-1] + MARGIN], SAMPLE_RATE)
    return replace(utterance, path=path)


def ten_utterances(folder: Path) -> list[Utterance]:
    if (SHARED_SPEECH / "dev.tsv").exists():
        return fluent_real()
    if not (shutil.which("espeak-ng") or shutil.which("flite")):
        pytest.skip("no recordings, and no speech synthesiser")
    return synthesised(folder)


def errors(network: Network, cache: FeatureCache) -> float:
    """CER of hard decoding."""
    said = transcribe(network, cache, cache.utterances, ["hard"])["hard"]
    return float(jiwer.cer([Characters().reference(utterance.text) for utterance in cache.utterances], said))


def test_ten_utterances_are_learnt_by_heart(tmp_path: Path) -> None:
    utterances = [trimmed(utterance, tmp_path / f"trimmed{n}.wav") for n, utterance in enumerate(ten_utterances(tmp_path))]
    assert build(utterances, tmp_path, MODEL.features, workers=1) == []
    cache = FeatureCache(tmp_path)
    trainer = Trainer(RECIPE, cache, tmp_path / "out")
    for batch in trainer.batches():
        values = trainer.train_step(batch)
        if values["attention"] < 0.1 and trainer.step % STEPS_BETWEEN_LOOKS == 0 and errors(trainer.averaged(), cache) == 0:
            return
        assert trainer.step < RECIPE.steps, f"CER {errors(trainer.averaged(), cache):.1%} after {trainer.step} steps"
