"""Error rates of a network on a set of utterances."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jiwer
import torch

from model.network import Network
from training.batches import collate
from training.cache import CachedUtterance, FeatureCache
from training.text import normalize

BATCH = 16


@torch.inference_mode()
def ctc_texts(network: Network, cache: FeatureCache, utterances: Sequence[CachedUtterance]) -> list[str]:
    """Greedy CTC: the best symbol of each state, repetitions and blanks left out."""
    texts: dict[int, str] = {}
    order = sorted(range(len(utterances)), key=lambda index: utterances[index].frames)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        batch = collate(cache, [utterances[i] for i in chosen], [[0]] * len(chosen), network.config.encoder.reduction)
        frames, _, _ = network.features.normalized(batch.mels, network.features.initial_state(len(chosen)))
        memory, _ = network.encoder(frames, network.encoder.initial_state(len(chosen)))
        best = network.ctc(memory).argmax(-1)  # (B, T)
        for row, index in enumerate(chosen):
            symbols = best[row, : int(batch.frames[row]) // network.config.encoder.reduction].unique_consecutive().tolist()
            texts[index] = network.symbols.decode([symbol for symbol in symbols if symbol != network.symbols.blank])
    return [" ".join(texts[index].split()) for index in range(len(utterances))]


def error_rates(
    transcribe: Callable[[Sequence[CachedUtterance]], list[str]], utterances: Sequence[CachedUtterance]
) -> dict[str, dict[str, float]]:
    """WER and CER per part of the set."""
    texts = transcribe(utterances)
    rates = {}
    for part in sorted({utterance.part for utterance in utterances}):
        pairs = [(normalize(u.text), text) for u, text in zip(utterances, texts, strict=True) if u.part == part]
        references, hypotheses = map(list, zip(*pairs, strict=True))
        rates[part] = dict(wer=float(jiwer.wer(references, hypotheses)), cer=float(jiwer.cer(references, hypotheses)))
    return rates
