"""Losses and error rates on a dev set."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.conftest import random_network
from tests.training.conftest import RECIPE, TINY
from training.batches import collate
from training.cache import FeatureCache
from training.evaluate import error_rates, mean_losses, memories, transcribe
from training.objective import objective
from training.recipe import Augmentation, Recipe
from training.recurrence import quicken
from training.text import Characters, Phones

QUIET: Recipe = replace(RECIPE, augmentation=Augmentation())


def test_dev_losses_are_those_of_training_without_noise(cache: FeatureCache) -> None:
    network = random_network(TINY)
    losses = mean_losses(network, cache, cache.utterances, RECIPE)
    assert losses == mean_losses(network, cache, cache.utterances[::-1], RECIPE)  # nothing random in it
    labels = [Characters().encode(utterance.text) for utterance in cache.utterances]
    _, together = objective(network, collate(cache, cache.utterances, labels, 4), QUIET, 0)
    assert losses["ctc"] == pytest.approx(together["ctc"], rel=1e-3)
    assert losses.keys() == together.keys()


def test_error_rates_per_set(cache: FeatureCache) -> None:
    utterances = [replace(utterance, part="xy"[index % 2]) for index, utterance in enumerate(cache.utterances)]
    said = [utterance.text if utterance.part == "x" else "" for utterance in utterances]
    assert error_rates(utterances, said, Characters()) == {"x": dict(wer=0, cer=0), "y": dict(wer=1, cer=1)}
    phones = [replace(utterance, text="h# sh", part="") for utterance in utterances]
    assert error_rates(phones, ["sil s"] * len(phones), Phones()) == {"": dict(per=0.5)}


def test_what_is_said_does_not_depend_on_the_batch(cache: FeatureCache) -> None:
    network = random_network(TINY)
    decoders = ["hard", "ctc", "soft"]
    together = transcribe(network, cache, cache.utterances, decoders)
    for index, utterance in enumerate(cache.utterances):
        alone = transcribe(network, cache, [utterance], decoders)
        assert {name: texts[index] for name, texts in together.items()} == {name: texts[0] for name, texts in alone.items()}


@torch.no_grad()
@pytest.mark.parametrize("units", [6, 32])
def test_a_memory_in_bfloat16_is_nearly_the_same(cache: FeatureCache, units: int) -> None:
    """Of 32 units, by the kernel where there is one."""
    encoder = replace(TINY.encoder, conv_lstm_filters=units, lstm_units=(units,))
    network = random_network(replace(TINY, encoder=encoder)).requires_grad_(False)
    exact = list(memories(network, cache, cache.utterances))
    quicken(network.encoder)
    rounded = list(memories(network, cache, cache.utterances, "bfloat16"))
    for (chosen, memory, lengths), (same, near, as_long) in zip(exact, rounded, strict=True):
        assert chosen == same
        assert lengths.tolist() == as_long.tolist()
        assert 0 < (near - memory).abs().max() < 0.05 * memory.abs().max()
