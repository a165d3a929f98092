"""Error rates of a network on a set of utterances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import jiwer
import torch
from torch import Tensor

from model.beam import BeamConfig, beam_decode
from model.network import Network
from model.offline import DECODERS
from training.batches import collate
from training.cache import CachedUtterance, FeatureCache
from training.objective import in_precision, objective
from training.recipe import Augmentation, Precision, Recipe
from training.text import Spelling, spelling_of

BATCH = 16


def memories(
    network: Network, cache: FeatureCache, utterances: Sequence[CachedUtterance], precision: Precision = "float32"
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Batches of like length: which utterances, their memory (B, T, D), and its lengths (B,).

    In bfloat16 the encoder is as in training, where its kernel is (`training/recurrence.py`).
    """
    if cache.bins != network.config.features.bins:
        raise ValueError(f"data: features of {cache.bins} bins; expected {network.config.features.bins}, as the model says")
    reduction = network.config.encoder.reduction
    order = sorted(range(len(utterances)), key=lambda index: utterances[index].frames)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        batch = collate(cache, [utterances[index] for index in chosen], [[]] * len(chosen), reduction)
        frames, _, _ = network.features.normalized(batch.mels, network.features.initial_state(len(chosen)))
        with in_precision(precision, network), torch.set_grad_enabled(precision == "bfloat16"):  # as in training: for its kernel
            memory, _ = network.encoder(frames, network.encoder.initial_state(len(chosen)))
        yield chosen, memory.float(), batch.frames // reduction


@torch.inference_mode()
def transcribe(
    network: Network,
    cache: FeatureCache,
    utterances: Sequence[CachedUtterance],
    decoders: Sequence[str],
    beam: BeamConfig | None = None,
) -> dict[str, list[str]]:
    """What each decoder makes of the utterances; each memory is computed once."""
    spelling = spelling_of(network.symbols)
    texts: dict[str, list[str]] = {name: [""] * len(utterances) for name in decoders}
    for chosen, memory, lengths in memories(network, cache, utterances):
        for name in decoders:
            if name == "beam":
                searched = zip(memory, lengths.tolist(), strict=True)
                decoded = [beam_decode(network, row[:length], beam or BeamConfig()) for row, length in searched]
            else:
                decoded = DECODERS[name](network, memory, lengths)
            for index, symbols in zip(chosen, decoded, strict=True):
                texts[name][index] = spelling.decode(symbols)
    return texts


@torch.no_grad()
def mean_losses(network: Network, cache: FeatureCache, utterances: Sequence[CachedUtterance], recipe: Recipe) -> dict[str, float]:
    """Parts of the loss per label, as in training but without augmentation and noise."""
    recipe = replace(recipe, augmentation=Augmentation())
    reduction, spelling = network.config.encoder.reduction, spelling_of(network.symbols)
    labelled = [(utterance, spelling.encode(utterance.text)) for utterance in utterances]
    fitting = sorted((pair for pair in labelled if 0 < len(pair[1]) < pair[0].frames // reduction), key=lambda pair: pair[0].frames)
    sums: dict[str, float] = {}
    total = sum(len(labels) for _, labels in fitting)
    for start in range(0, len(fitting), BATCH):
        chosen, labels = zip(*fitting[start : start + BATCH], strict=True)
        batch = collate(cache, chosen, labels, reduction)
        for name, value in objective(network, batch, recipe, 0)[1].items():
            sums[name] = sums.get(name, 0.0) + value * int(batch.label_lengths.sum())
    return {name: round(value / total, 5) for name, value in sums.items()}


def error_rates(utterances: Sequence[CachedUtterance], texts: Sequence[str], spelling: Spelling) -> dict[str, dict[str, float]]:
    """Error rates per part of the set: WER and CER, or PER of phones."""
    rates = {}
    for part in sorted({utterance.part for utterance in utterances}):
        pairs = [(spelling.reference(u.text), text) for u, text in zip(utterances, texts, strict=True) if u.part == part]
        references, hypotheses = map(list, zip(*pairs, strict=True))
        words = round(float(jiwer.wer(references, hypotheses)), 4)
        if spelling.unit == "phone":
            rates[part] = dict(per=words)
        else:
            rates[part] = dict(wer=words, cer=round(float(jiwer.cer(references, hypotheses)), 4))
    return rates
