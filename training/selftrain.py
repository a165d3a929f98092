"""Self-training: recordings without text get the text that a model is sure of, to train on.

The filter is that of Kahn, Lee and Hannun, "Self-training for end-to-end speech recognition" (2020, arXiv:1909.09116): texts with
a loop of words go, then those of low confidence, which is the likelihood per symbol. Ours besides: attention and CTC must agree
(two heads seldom make the same mistake), and the rate of characters must be that of speech. With a language model of words
(training/words.py) a text is what CTC most likely heard of those words, and its likelihood is that of both models.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache as remembered
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import jiwer
import torch
from torch import Tensor
from tqdm import tqdm

from model.features import FRAMES_PER_SECOND
from model.files import load_model
from model.hard import HardDecoder
from model.network import Network
from model.offline import existing, until_end
from model.symbols import SymbolTable
from training.cache import FEATURES_FILE, CachedUtterance, FeatureCache, worker_pool, write_index
from training.corpora.manifest import write_manifest
from training.evaluate import memories
from training.prepare import is_cache, prepare
from training.recipe import Precision
from training.recurrence import missing, quicken
from training.text import spelling_of
from training.words import WordSearch

CHUNK_OF_CLIPS = 256


@dataclass(frozen=True)
class Filter:
    confidence: float = 0.9  # geometric mean of the symbols' probabilities
    agreement: float = 0.9  # 1 - CER of attention against CTC
    loop_words: int = 4  # a text that says so many words in a row
    loop_times: int = 2  # more often than this has a loop
    slowest: float = 3.0  # characters per second
    fastest: float = 25.0
    share: float = 1.0  # of all that was heard, the surest

    def __post_init__(self) -> None:
        for name in ("confidence", "agreement", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected 0..1")

    def kept(self, heard: Sequence[tuple[CachedUtterance, Heard]]) -> list[tuple[CachedUtterance, Heard]]:
        """Those to learn from, in their order."""
        kept = [(utterance, said) for utterance, said in heard if self.keeps(said, utterance.frames / FRAMES_PER_SECOND)]
        surest = sorted(range(len(kept)), key=lambda index: -kept[index][1].confidence)
        return [kept[index] for index in sorted(surest[: round(self.share * len(heard))])]

    def keeps(self, heard: Heard, seconds: float) -> bool:
        rate = len(heard.text) / max(seconds, 1e-9)
        sure = heard.confidence >= self.confidence and heard.agreement >= self.agreement
        return bool(heard.text) and sure and self.slowest <= rate <= self.fastest and not self.loops(heard.text)

    def loops(self, text: str) -> bool:
        words = text.split()
        runs = Counter(tuple(words[start : start + self.loop_words]) for start in range(len(words) - self.loop_words + 1))
        return max(runs.values(), default=0) > self.loop_times


@dataclass(frozen=True)
class Heard:
    text: str
    confidence: float
    agreement: float


def pseudo_label(
    model: Path,
    data: Sequence[str],
    out: Path,
    *,
    decoder: str = "hard",
    words: Path | None = None,
    filters: Filter | None = None,
    precision: Precision = "float32",
    jobs: int = 1,
    cache: Path | None = None,
) -> tuple[int, int]:
    """Writes what is kept, and returns how many recordings were kept of how many heard.

    From corpora and manifests comes a manifest; from a feature cache, another cache that shares its features.
    `words` is the language model of the decoder "words", an ARPA file.
    """
    if (decoder == "words") != (words is not None):
        raise ValueError(
            f"decoder={decoder!r}, words={words and str(words)!r}: expected a language model for 'words', and only then"
        )
    filters = filters or Filter()
    share = len(data) == 1 and is_cache(data[0]) and not out.suffix
    if not share and out.suffix != ".tsv":
        raise ValueError(f"out={str(out)!r}: expected a .tsv file, or a folder where the data is one feature cache")
    features = out / FEATURES_FILE
    if out.resolve() in (Path(where).resolve() for where in data) or (share and features.exists() and not features.is_symlink()):
        raise ValueError(f"out={str(out)!r}: holds data that would be lost; expected another name")
    out.parent.mkdir(parents=True, exist_ok=True)  # not after hours of listening
    network = load_model(model)[0]
    if words:
        word_search(words, network.symbols.symbols)  # a wrong file is told now
    if precision == "bfloat16" and (reason := missing()):  # most often that of a processor to which bfloat16 is a burden
        print(f"labelling goes on in float32: {reason}", file=sys.stderr)
        precision = "float32"
    with TemporaryDirectory() as nowhere:
        folders = prepare(data, "train", cache or Path(nowhere), network.config.features)
        work = partial(_hear_chunk, model, decoder, words, precision, filters.agreement > 0)
        heard = [(utterance, said) for folder in folders for utterance, said in transcribed(folder, work, jobs)]
    kept = filters.kept(heard)
    if share:
        _share_cache(folders[0], out, kept)
    else:
        _list_recordings(out, kept)
    return len(kept), len(heard)


def _list_recordings(out: Path, kept: Sequence[tuple[CachedUtterance, Heard]]) -> None:
    rows = []
    for utterance, said in kept:
        if not utterance.path:
            raise ValueError(f"data: the feature cache does not say where {utterance.name} is; expected a folder as out, not {out}")
        path = os.path.relpath(utterance.path, out.resolve().parent)
        confidence = f"{said.confidence:.4f}"
        rows.append(dict(path=path, text=said.text, speaker=utterance.speaker, set=utterance.part, confidence=confidence))
    write_manifest(out, rows)


def _share_cache(folder: Path, out: Path, kept: Sequence[tuple[CachedUtterance, Heard]]) -> None:
    """A cache with the features of `folder` and the new texts."""
    entries = [replace(utterance, text=said.text) for utterance, said in kept]
    out.mkdir(parents=True, exist_ok=True)
    link = out / FEATURES_FILE
    link.unlink(missing_ok=True)
    link.symlink_to((folder / FEATURES_FILE).resolve())
    write_index(out, FeatureCache(folder).bins, [without_file(entry) for entry in entries])


def without_file(utterance: CachedUtterance) -> dict[str, object]:
    return {name: value for name, value in asdict(utterance).items() if name != "file"}


def transcribed(
    folder: Path, hear_chunk: Callable[[Path, list[int]], list[Heard]], jobs: int
) -> list[tuple[CachedUtterance, Heard]]:
    """What is heard in each utterance of a cache, in the cache's order."""
    utterances = FeatureCache(folder).utterances
    order = sorted(range(len(utterances)), key=lambda index: utterances[index].frames)
    chunks = [order[start : start + CHUNK_OF_CLIPS] for start in range(0, len(order), CHUNK_OF_CLIPS)]
    heard: dict[int, Heard] = {}
    work = partial(hear_chunk, folder)
    with worker_pool(jobs) as pool:
        done = pool.map(work, chunks) if jobs > 1 else map(work, chunks)
        for chunk, texts in zip(chunks, tqdm(done, total=len(chunks), unit=f"{CHUNK_OF_CLIPS} clips", disable=None), strict=True):
            heard |= dict(zip(chunk, texts, strict=True))
    return [(utterance, heard[index]) for index, utterance in enumerate(utterances)]


def _hear_chunk(
    model: Path, decoder: str, words: Path | None, precision: Precision, compare: bool, folder: Path, chunk: list[int]
) -> list[Heard]:
    cache, network = FeatureCache(folder), load_model(model)[0]
    if precision == "bfloat16":
        quicken(network.encoder)
    search = word_search(words, network.symbols.symbols) if words else None
    return hear(network, cache, [cache.utterances[index] for index in chunk], decoder, search, precision, compare)


@remembered
def word_search(words: Path, symbols: tuple[str, ...]) -> WordSearch:
    return WordSearch(words, SymbolTable(symbols))


@torch.no_grad()
def hear(
    network: Network,
    cache: FeatureCache,
    utterances: Sequence[CachedUtterance],
    decoder: str,
    search: WordSearch | None = None,
    precision: Precision = "float32",
    compare: bool = True,
) -> list[Heard]:
    """The text of each utterance by `decoder`, how probable it is, and how far the other head agrees: wholly, without `compare`."""
    spelling = spelling_of(network.symbols)
    heard = [Heard("", 0.0, 0.0)] * len(utterances)
    for chosen, memory, lengths in memories(network, cache, utterances, precision):
        by_head = {head: HEADS[head](network, memory, lengths) for head in HEADS if compare or head == decoder}
        for row, index in enumerate(chosen):
            texts = {head: spelling.decode([symbol for symbol, _ in said[row]]) for head, said in by_head.items()}
            if search:
                text, score = search(network.ctc(memory[row, : lengths[row]]).log_softmax(-1))
                confidence = min(1.0, math.exp(score / max(1, len(text))))
            else:
                text, confidence = texts[decoder], geometric_mean([p for _, p in by_head[decoder][row]])
            if text:
                other = texts["ctc" if decoder == "hard" else "hard"] if compare else None
                agreement = 1.0 if other is None else max(0.0, 1 - float(jiwer.cer(text, other)))
                heard[index] = Heard(text, confidence, agreement)
    return heard


Symbols = list[tuple[int, float]]  # with their probabilities


def hard_symbols(network: Network, memory: Tensor, lengths: Tensor) -> list[Symbols]:
    decoder = HardDecoder(network.decoder, network.symbols)
    said, _ = decoder(memory, existing(memory, lengths), decoder.initial_state(len(memory)))
    rows: list[Symbols] = [[] for _ in memory]
    for each in said:
        rows[each.row].append((each.symbol, each.probability))
    return [row[: len(until_end([symbol for symbol, _ in row], network.symbols.end))] for row in rows]


def ctc_symbols(network: Network, memory: Tensor, lengths: Tensor) -> list[Symbols]:
    """Greedy; a symbol's probability is the largest of the entries that say it."""
    probabilities, symbols = network.ctc(memory).softmax(-1).max(-1)
    rows: list[Symbols] = []
    for row, length in enumerate(lengths.tolist()):
        said: Symbols = []
        previous = network.symbols.blank
        for symbol, probability in zip(symbols[row, :length].tolist(), probabilities[row, :length].tolist(), strict=True):
            if symbol == previous and symbol != network.symbols.blank:
                said[-1] = (symbol, max(said[-1][1], probability))
            elif symbol != network.symbols.blank:
                said.append((symbol, probability))
            previous = symbol
        rows.append(said)
    return rows


HEADS = dict(hard=hard_symbols, ctc=ctc_symbols)


def geometric_mean(probabilities: Sequence[float]) -> float:
    return math.exp(sum(math.log(max(p, 1e-9)) for p in probabilities) / len(probabilities)) if probabilities else 0.0
