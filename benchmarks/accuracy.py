"""Word and character error rates of our model and of its peers, on the same recordings with the same normalisation.

Every recogniser hears each recording as a live stream of 100 ms chunks. Robustness: the same recordings quieter, louder and through
a telephone, long ones put together from short ones, and sounds that are no speech at all. Run, for example:
python -m benchmarks.accuracy ../shared/speech/dev.tsv --pocketsphinx --vosk FOLDER --beam --robustness
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import jiwer
import numpy as np
import soxr

from benchmarks import peers
from model import Recognizer
from model.engine import Samples
from training.audio import read_audio
from training.corpora.manifest import read_manifest
from training.corpora.utterance import Utterance
from training.text import normalize

RATE = Recognizer.sample_rate
NOISE_SECONDS = 10
LONG_SECONDS = 30 * 60
PAUSE_SECONDS = 0.5

Heard = tuple[str, str, Samples]  # set, reference, samples


def telephone(samples: Samples) -> Samples:
    return np.asarray(soxr.resample(soxr.resample(samples, RATE, 8000), 8000, RATE), dtype=np.float32)


CONDITIONS: dict[str, Callable[[Samples], Samples]] = {
    "20 dB quieter": lambda samples: samples * np.float32(0.1),
    "20 dB louder, clipped": lambda samples: np.clip(samples * np.float32(10), -1, 1),
    "8 kHz telephone": telephone,
}


def listen(utterances: Iterable[Utterance]) -> list[Heard]:
    heard = [(utterance.part, normalize(utterance.text), read_audio(utterance.path)) for utterance in utterances]
    return [(part, reference, samples) for part, reference, samples in heard if reference]


def rates(transcribe: peers.Transcribe, recordings: list[Heard]) -> dict[str, dict[str, float]]:
    """WER, CER and seconds of processor time per second of audio, per set."""
    pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    spent: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    for part, reference, samples in recordings:
        start = time.process_time()
        pairs[part].append((reference, normalize(transcribe(samples))))
        spent[part] += time.process_time() - start
        seconds[part] += len(samples) / RATE
    result = {}
    for part, both in pairs.items():
        references, texts = map(list, zip(*both, strict=True))
        result[part] = dict(
            wer=float(jiwer.wer(references, texts)), cer=float(jiwer.cer(references, texts)), processor=spent[part] / seconds[part]
        )
    return result


def concatenated(recordings: list[Heard]) -> list[Heard]:
    """One long recording of at most half an hour, with short pauses."""
    chosen, total = [], 0.0
    for heard in random.Random(0).sample(recordings, len(recordings)):
        total += len(heard[2]) / RATE + PAUSE_SECONDS
        if total > LONG_SECONDS:
            break
        chosen.append(heard)
    pause = np.zeros(int(PAUSE_SECONDS * RATE), np.float32)
    samples = np.concatenate([part for _, _, clip in chosen for part in (clip, pause)])
    return [("30 minutes", " ".join(reference for _, reference, _ in chosen), samples)]


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


def show(name: str, result: dict[str, dict[str, float]]) -> None:
    for part, row in result.items():
        print(
            f"{name:<34}{part:<14}WER {row['wer']:>6.1%}   CER {row['cer']:>6.1%}   {row['processor']:.3f} s of processor per s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("manifest", type=Path, help="TSV with path, text, set")
    parser.add_argument("--model", help="a model folder; the embedded model otherwise")
    parser.add_argument("--limit", type=int, default=0, help="only so many recordings of each set")
    parser.add_argument("--beam", action="store_true", help="our beam search, too")
    parser.add_argument("--pocketsphinx", action="store_true")
    parser.add_argument("--vosk", type=Path, metavar="FOLDER", help="vosk with the model in this folder")
    parser.add_argument("--robustness", action="store_true")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    utterances: dict[str, list[Utterance]] = defaultdict(list)
    for utterance in random.Random(0).sample(everything := list(read_manifest(options.manifest)), len(everything)):
        if not options.limit or len(utterances[utterance.part]) < options.limit:
            utterances[utterance.part].append(utterance)
    recordings = listen(utterance for part in sorted(utterances) for utterance in utterances[part])

    ours = peers.monoscribe(options.model)
    recognisers = {"monoscribe, greedy": ours}
    if options.beam:
        recognisers["monoscribe, beam 8"] = peers.monoscribe(options.model, beam=8)
    if options.pocketsphinx:
        recognisers["pocketsphinx"] = peers.pocketsphinx()
    if options.vosk:
        recognisers["vosk"] = peers.vosk(options.vosk)
    results = {}
    for name, transcribe in recognisers.items():
        results[name] = rates(transcribe, recordings)
        show(name, results[name])
    if options.robustness:
        for name, change in CONDITIONS.items():
            results[name] = rates(ours, [(part, reference, change(samples)) for part, reference, samples in recordings])
            show(name, results[name])
        results["concatenated"] = rates(ours, concatenated(recordings))
        show("concatenated", results["concatenated"])
        for name, samples in no_speech().items():
            print(f"{name + ', 10 s':<34}{len(ours(samples))} characters")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
