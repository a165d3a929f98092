"""The whole recogniser can learn: overfitted on a few synthesised sentences, it says them exactly, as a live stream."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch

from model import EndpointConfig, Recognizer, Segment, StreamOptions
from model.config import AttentionConfig, DecoderConfig, EncoderConfig, FeatureConfig, ModelConfig
from model.features import LOG_FLOOR
from model.network import Network
from model.symbols import SymbolTable
from training.batches import Batch, collate
from training.cache import FeatureCache, Utterance, build
from training.objective import objective
from training.recipe import Attention, Loss, Recipe
from training.statistics import feature_statistics

STEPS = 300
SENTENCES = ("good morning", "open the door", "how are you", "seven stars")
CONFIG = ModelConfig(
    features=FeatureConfig(mel_bins=40),
    encoder=EncoderConfig(conv_filters=(8, 8), conv_lstm_filters=8, lstm_units=(64, 64), lstm_skips=(1, 1), projection=64),
    attention=AttentionConfig(hidden=64, initial_scale=1.0, initial_bias=-1.0, strict=True),
    decoder=DecoderConfig(embedding=16, lstm_units=64),
)
HEAR = Recipe(model=CONFIG, loss=Loss(attention=0.0, ctc=1.0))
SPEAK = replace(HEAR, loss=Loss(attention=1.0, ctc=1.0, alignment=1.0), attention=Attention(mode="forced"))


def synthesise(folder: Path) -> list[Utterance]:
    utterances = []
    for number, sentence in enumerate(SENTENCES):
        path = folder / f"{number}.wav"
        subprocess.run(["espeak-ng", "-v", "en", "-w", str(path), sentence], check=True)
        utterances.append(Utterance(path, sentence))
    return utterances


def later(batch: Batch, entries: int) -> Batch:
    """The batch after a silence of a few entries: without that, a clock would do to tell what is said when."""
    frames = entries * CONFIG.encoder.reduction
    silence = torch.full((len(batch.mels), frames, CONFIG.features.bins), LOG_FLOOR)
    return replace(batch, mels=torch.cat([silence, batch.mels], dim=1), frames=batch.frames + frames)


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs the speech synthesiser espeak-ng")
def test_overfitted_sentences_are_said_exactly(tmp_path: Path) -> None:
    utterances = synthesise(tmp_path)
    assert build(utterances, tmp_path, CONFIG.features, workers=1) == []
    cache, symbols = FeatureCache(tmp_path), SymbolTable()
    torch.manual_seed(0)
    network = Network(CONFIG, symbols)
    mean, deviation = feature_statistics(network.features, cache)
    network.features.prior_mean.copy_(mean)
    network.features.prior_deviation.copy_(deviation)
    batch = collate(cache, cache.utterances, [symbols.encode(sentence) for sentence in SENTENCES], CONFIG.encoder.reduction)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    slower = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, 2 * (1 - step / STEPS)))
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, _ = objective(network, later(batch, step % 7), HEAR if step < STEPS // 2 else SPEAK, step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        slower.step()

    recognizer = Recognizer(network)
    for utterance in utterances:
        samples, rate = soundfile.read(utterance.path, dtype="float32")
        stream = recognizer.stream(StreamOptions(endpoint=EndpointConfig(silence=3.0)))
        events = []
        for chunk in np.array_split(soxr.resample(samples, rate, recognizer.sample_rate), 20):
            events += stream.accept(chunk)
        events += stream.finish()
        assert [event.text for event in events if isinstance(event, Segment)] == [utterance.text]
