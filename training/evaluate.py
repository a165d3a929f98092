"""Error rates of a network on a set of utterances."""

from __future__ import annotations

from collections.abc import Sequence

import jiwer
import torch

from model.network import Network
from model.offline import DECODERS
from training.batches import collate
from training.cache import CachedUtterance, FeatureCache
from training.text import normalize

BATCH = 16


@torch.inference_mode()
def transcribe(
    network: Network, cache: FeatureCache, utterances: Sequence[CachedUtterance], decoders: Sequence[str]
) -> dict[str, list[str]]:
    """What each decoder makes of the utterances; each memory is computed once."""
    reduction = network.config.encoder.reduction
    texts: dict[str, list[str]] = {name: [""] * len(utterances) for name in decoders}
    order = sorted(range(len(utterances)), key=lambda index: utterances[index].frames)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        batch = collate(cache, [utterances[index] for index in chosen], [[]] * len(chosen), reduction)
        frames, _, _ = network.features.normalized(batch.mels, network.features.initial_state(len(chosen)))
        memory, _ = network.encoder(frames, network.encoder.initial_state(len(chosen)))
        for name in decoders:
            for index, symbols in zip(chosen, DECODERS[name](network, memory, batch.frames // reduction), strict=True):
                texts[name][index] = " ".join(network.symbols.decode(symbols).split())
    return texts


def error_rates(utterances: Sequence[CachedUtterance], texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """WER and CER per part of the set."""
    rates = {}
    for part in sorted({utterance.part for utterance in utterances}):
        pairs = [(normalize(u.text), text) for u, text in zip(utterances, texts, strict=True) if u.part == part]
        references, hypotheses = map(list, zip(*pairs, strict=True))
        rates[part] = dict(
            wer=round(float(jiwer.wer(references, hypotheses)), 4), cer=round(float(jiwer.cer(references, hypotheses)), 4)
        )
    return rates
