"""Measures a model on recordings: whole, by any decoder, or as live streams."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from model.beam import BeamConfig
from model.engine import StreamOptions
from model.events import Emission, Segment
from model.features import FRAMES_PER_SECOND, HOP, SAMPLE_RATE
from model.files import ModelCard
from model.hard import HardDecoder
from model.network import Network
from model.offline import existing
from model.recognizer import Recognizer
from training.alignment import ctc_positions
from training.audio import AudioError, Samples, read_audio
from training.cache import CachedUtterance, FeatureCache
from training.corpora import Utterance, read_corpus
from training.evaluate import memories, transcribe
from training.prepare import is_cache, tell_left_out
from training.scores import Result, Scored, score, summarize
from training.text import spelling_of

CHUNK = SAMPLE_RATE // 10  # of a live stream: 100 ms
LOUD = 0.05  # of the loudest 10 ms, in amplitude: speech, not the pause after it
LAG = "median time from CTC's own alignment of the same text to the attention's emission"
TAIL = "median time from the last loud 10 ms of a recording to the last character (never more audio than there is)"
SLOW_TAIL = "the same, 90th percentile"

Drawn = TypeVar("Drawn")


def measure(network: Network, card: ModelCard, folders: Sequence[Path], decoders: Sequence[str], limit: int = 0) -> list[Result]:
    """Every decoder on every set of the feature caches."""
    cache, spelling = FeatureCache(*folders), spelling_of(network.symbols)
    labelled = [utterance for utterance in cache.utterances if spelling.reference(utterance.text)]
    utterances = drawn(labelled, limit)
    texts = transcribe(network, cache, utterances, decoders, beam_of(card))
    lags = attention_lags(network, cache, utterances) if "hard" in decoders else []
    results = []
    for decoder in decoders:
        scored = [
            score(utterance.name, utterance.speaker, utterance.part, spelling.reference(utterance.text), text)
            for utterance, text in zip(utterances, texts[decoder], strict=True)
        ]
        delays = [{LAG: each} for each in lags] if decoder == "hard" else [{}] * len(scored)
        results += by_part(decoder, spelling.unit, scored, delays)
    return results


def beam_of(card: ModelCard) -> BeamConfig:
    """The beam search that the model's recipe names; that of live streams for a model that names none."""
    decoding, default = card.facts.get("decoding", {}), BeamConfig()
    return replace(
        default,
        width=int(decoding.get("beam", default.width)),
        threshold=float(decoding.get("threshold", default.threshold)),
        patience=float(decoding.get("patience", default.patience)),
    )


def drawn(utterances: Sequence[Drawn], limit: int) -> list[Drawn]:
    """All of them, or `limit`, always the same."""
    if not utterances:
        raise ValueError("data: no recordings with a text to compare with")
    return random.Random(0).sample(list(utterances), limit) if 0 < limit < len(utterances) else list(utterances)


def by_part(decoder: str, unit: str, scored: Sequence[Scored], delays: Sequence[dict[str, float]]) -> list[Result]:
    """Results per set; a delay is the median of its utterances' (the 90th percentile for SLOW_TAIL)."""
    parts: dict[str, list[int]] = defaultdict(list)
    for index, each in enumerate(scored):
        parts[each.part].append(index)
    results = []
    for _, chosen in sorted(parts.items()):
        result = summarize(decoder, unit, [scored[index] for index in chosen])
        for name in (LAG, TAIL, SLOW_TAIL):
            values = [delays[index][name] for index in chosen if name in delays[index] and not np.isnan(delays[index][name])]
            if values:
                result.delay[name] = round(float(np.percentile(values, 90 if name == SLOW_TAIL else 50)), 3)
        results.append(result)
    return results


@torch.inference_mode()
def attention_lags(network: Network, cache: FeatureCache, utterances: Sequence[CachedUtterance]) -> list[float]:
    """Per utterance, by how many seconds the hard process is later than CTC in the median; not a number if it says nothing."""
    lags = [float("nan")] * len(utterances)
    seconds = network.config.encoder.reduction / FRAMES_PER_SECOND
    for chosen, memory, lengths in memories(network, cache, utterances):
        decoder = HardDecoder(network.decoder, network.symbols)
        said, _ = decoder(memory, existing(memory, lengths), decoder.initial_state(len(memory)))
        for row, index in enumerate(chosen):
            emitted = [(each.entry, each.symbol) for each in said if each.row == row and each.symbol != network.symbols.end]
            length = int(lengths[row])
            if emitted and 2 * len(emitted) < length:
                entries, symbols = zip(*emitted, strict=True)
                heard = ctc_alignment(network, memory[row : row + 1, :length], symbols)
                lags[index] = seconds * float((torch.tensor(entries) - heard).float().median())
    return lags


def ctc_alignment(network: Network, memory: Tensor, symbols: Sequence[int]) -> Tensor:
    """Where (U) in the memory (1, T, D) the CTC head would say `symbols`."""
    labels = pad_sequence([torch.tensor(symbols)], batch_first=True)
    scores = network.ctc(memory).log_softmax(-1)
    lengths = torch.tensor([memory.shape[1]])
    return ctc_positions(scores, lengths, labels, torch.tensor([len(symbols)]), network.symbols.blank)[0]


def measure_streaming(
    network: Network, card: ModelCard, data: Sequence[str], decoders: Sequence[str], limit: int = 0
) -> list[Result]:
    """What a live user sees: every recording in chunks of 100 ms through a stream of the recogniser."""
    recognizer, spelling = Recognizer(network, card), spelling_of(network.symbols)
    for where in data:
        if is_cache(where):
            raise ValueError(f"data={where!r}: a feature cache holds no audio; expected a corpus or a manifest with --streaming")
    listed = [utterance for where in data for utterance in read_corpus(where, "test") if spelling.reference(utterance.text)]
    utterances = readable(drawn(listed, limit))
    results = []
    for decoder in decoders:
        options = StreamOptions(beam=beam_of(card).width if decoder == "beam" else 1)
        scored, delays = [], []
        for utterance in tqdm(utterances, desc=f"streaming, {decoder}", unit="recording", disable=None):
            text, delay = live(recognizer, utterance, options)
            reference = spelling.reference(utterance.text)
            said = spelling.decode(spelling.table.encode(text))  # as other decoders' symbols are scored: phones are folded
            scored.append(score(utterance.path.name, utterance.speaker, utterance.part, reference, said))
            delays.append(delay)
        results += by_part(f"{decoder}, live", spelling.unit, scored, delays)
    return results


def readable(utterances: Sequence[Utterance]) -> list[Utterance]:
    """Those whose recording can be read; the others are named."""
    found, unread = [], []
    for utterance in utterances:
        try:
            read_audio(utterance.path)
            found.append(utterance)
        except AudioError as error:
            unread.append(str(error))
    tell_left_out(unread, f"of {len(utterances)} recordings could not be read")
    if not found:
        raise ValueError(f"data: none of {len(unread)} recordings could be read; the first: {unread[0]}")
    return found


def live(recognizer: Recognizer, utterance: Utterance, options: StreamOptions) -> tuple[str, dict[str, float]]:
    """The text of a recording, and how late its last character was."""
    samples = read_audio(utterance.path)
    stream = recognizer.stream(options)
    events = [event for start in range(0, len(samples), CHUNK) for event in stream.accept(samples[start : start + CHUNK])]
    events += stream.finish()
    text = " ".join(event.text for event in events if isinstance(event, Segment))
    times = [event.time for event in events if isinstance(event, Emission)]
    if not times:
        return text, {}
    tail = max(times) - last_sound(samples)
    return text, {TAIL: tail, SLOW_TAIL: tail}


def last_sound(samples: Samples) -> float:
    """Seconds to the end of the last 10 ms that are loud: where speech ends."""
    whole = samples[: len(samples) // HOP * HOP].reshape(-1, HOP)
    if not len(whole):
        return 0.0
    level = np.sqrt(np.square(whole).mean(axis=1))
    return float(np.flatnonzero(level >= LOUD * level.max())[-1] + 1) / FRAMES_PER_SECOND
