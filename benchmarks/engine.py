"""How many live streams one core sustains: streams get 100 ms of speech per step and advance together in one forward pass.

Prints, for each number of streams, how many a core could serve in real time at that batch size, and what share that is of the
machine's own limit: the multiply-adds of the model at the speed of a large matrix product in the same run. One thread; processor
time, not wall-clock time, so that other work on the machine disturbs little. Run: python -m benchmarks.engine
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import DEMO
from model import Emission, Engine, Recognizer
from model.engine import Samples

STREAMS = (1, 16, 64, 128, 256)
STEP_SECONDS = 0.1


def matrix_product_speed() -> float:
    """Floating-point operations per second of a large matrix product: 2 per multiply-add."""
    left, right = torch.randn(2048, 1024), torch.randn(1024, 1024)
    left @ right
    start, products = time.process_time(), 0
    while time.process_time() - start < 1.0:
        left @ right
        products += 1
    return 2 * left.shape[0] * right.numel() * products / (time.process_time() - start)


def operations_per_second_of_audio(recognizer: Recognizer, speech: Samples) -> float:
    """Floating-point operations in matrix products and convolutions that one second of speech takes."""
    stream = recognizer.stream()
    with FlopCounterMode(display=False) as counter:
        stream.accept(speech)
    return float(counter.get_total_flops()) / (len(speech) / recognizer.sample_rate)


def advance(engine: Engine, streams: list[int], speech: Samples, step: int) -> int:
    """Gives each stream its next 100 ms (each begins at its own place in the recording), and returns how much was said."""
    length = int(STEP_SECONDS * Recognizer.sample_rate)
    for number, stream in enumerate(streams):
        start = (number * 7919 + step * length) % (len(speech) - length)
        engine.accept(stream, speech[start : start + length])
    return sum(isinstance(event, Emission) for events in engine.step().values() for event in events)


def measure(recognizer: Recognizer, speech: Samples, count: int, audio_seconds: float) -> tuple[float, float]:
    """Seconds per step with `count` streams, and characters per second and stream."""
    engine = recognizer.batch()
    streams = [engine.open() for _ in range(count)]
    steps = round(audio_seconds / STEP_SECONDS)
    for step in range(10):
        advance(engine, streams, speech, step)
    start, said = time.process_time(), 0
    for step in range(10, 10 + steps):
        said += advance(engine, streams, speech, step)
    return (time.process_time() - start) / steps, said / steps / STEP_SECONDS / count


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a model folder; the embedded model otherwise")
    parser.add_argument("--audio", type=Path, default=DEMO, help="a recording of speech at 16 kHz")
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS, help="in the batch")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each stream's audio to measure")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    recognizer = Recognizer.load(options.model)
    speech = np.asarray(soundfile.read(options.audio, dtype="float32")[0], dtype=np.float32)

    speed, operations = matrix_product_speed(), operations_per_second_of_audio(recognizer, speech)
    limit = speed / operations
    print(f"matrix products: {speed / 1e9:.0f} GFLOP/s; model: {operations / 1e6:.0f} MFLOP per second of audio")
    print(f"limit of this core, if there were nothing but matrix products: {limit:.0f} streams\n")
    print("streams   ms per step   streams per core   share of limit   core per stream   characters per second")
    rows = []
    for count in options.streams:
        seconds, characters = measure(recognizer, speech, count, options.seconds)
        sustained = count * STEP_SECONDS / seconds
        rows.append(dict(streams=count, step_seconds=seconds, sustained=sustained, share=sustained / limit, characters=characters))
        print(
            f"{count:>7}{seconds * 1e3:>14.1f}{sustained:>19.0f}{sustained / limit:>17.0%}{1 / sustained:>18.2%}{characters:>24.1f}"
        )
    if options.json:
        options.json.write_text(json.dumps(dict(gflops=speed / 1e9, limit=limit, rows=rows), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
