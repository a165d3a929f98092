"""How many live streams a server sustains over real sockets, and how long a speaker waits for a character.

Clients in a process of their own send speech in real time, more and more of them, until the 99th percentile of emission lag (from
the sending of the audio that decided a character to its arrival) passes the limit. Server and clients each have a core where there
are two. The same driver speaks vosk-server's protocol, so that both are measured in one run.

    python -m benchmarks.load                                     # starts `monoscribe serve` itself
    python -m benchmarks.load --url ws://127.0.0.1:2700 --protocol vosk --pid PID
    python -m benchmarks.load --soak 30 --streams 80              # flat memory and flat step time?
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks import DEMO, ROOT
from benchmarks.load_clients import SAMPLE_RATE, Load, Outcome, run_clients

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
GROWTH = 1.25  # of the crowd, from one step to the next
SERVER_CORE, CLIENT_CORE = 0, 1
WARM_UP = 3.0
SOAK_ROUND = 60.0  # seconds between two looks at memory and step time


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


@dataclass(frozen=True)
class Target:
    url: str
    pid: int | None


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    audio = read_audio(options.audio)
    with started_server(options) as target, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as clients:
        describe(options, target)
        report = soak(options, target, clients, audio) if options.soak else climb(options, target, clients, audio)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a server that runs already; otherwise one is started")
    parser.add_argument("--pid", type=int, help="of that server, for its processor time and memory")
    parser.add_argument("--protocol", choices=("native", "vosk"), default="native")
    parser.add_argument("--model", default="", help="folder of the model for the server that is started")
    parser.add_argument("--audio", type=Path, nargs="+", default=[DEMO], help="recordings of speech")
    parser.add_argument("--streams", type=int, default=10, help="to begin with, or of a soak")
    parser.add_argument("--most", type=int, default=2000, help="streams to try")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each step")
    parser.add_argument("--chunk", type=float, default=0.1, help="seconds of audio per message")
    parser.add_argument("--limit", type=float, default=300.0, help="of the 99th percentile, in milliseconds")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="hold the streams for so long instead of adding more")
    parser.add_argument("--flags", default="", help="further flags for the server that is started")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    return parser.parse_args(arguments)


def read_audio(paths: list[Path]) -> bytes:
    from server.containers import decode_file

    samples = []
    for path in paths:
        with path.open("rb") as file:
            samples += list(decode_file(file, "auto"))
    return bytes(np.round(np.clip(np.concatenate(samples), -1, 1) * 32767).astype("<i2").tobytes())


@contextmanager
def started_server(options: argparse.Namespace) -> Iterator[Target]:
    if options.url:
        yield Target(options.url.rstrip("/") + ("/v1/stream" if options.protocol == "native" else ""), options.pid)
        return
    command = [sys.executable, "monoscribe.py", "serve", "--port", "0", "--max-sessions", str(2 * options.most)]
    command += ["--log-level", "warning", "--model", options.model, *options.flags.split()]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pin(process.pid, SERVER_CORE)
    try:
        assert process.stdout is not None
        found = re.search(r"http://([\d.]+:\d+)/", process.stdout.readline())
        if not found:
            raise SystemExit("the server did not start")
        wait_until_ready(f"http://{found[1]}")
        yield Target(f"ws://{found[1]}/v1/stream", process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def wait_until_ready(url: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(url + "/readyz") as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server is never ready")


def climb(options: argparse.Namespace, target: Target, clients: ProcessPoolExecutor, audio: bytes) -> dict[str, object]:
    """More and more streams, until they wait too long."""
    levels: list[Level] = []
    idle_memory = memory(target.pid)
    streams = options.streams
    print(f"{'streams':>8} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8} {'cores':>6} {'MiB':>7} {'failed':>7}")
    while streams <= options.most:
        level = measure(options, target, clients, audio, streams)
        levels.append(level)
        print(
            f"{level.streams:8d} {level.p50:8.0f} {level.p95:8.0f} {level.p99:8.0f} {level.cores:6.2f} {level.memory:7.0f} "
            f"{level.failures:7d}"
            + (f"  (the clients themselves were up to {level.clients_late:.0f} ms late)" * (level.clients_late > 100)),
            flush=True,
        )
        if not level.p99 <= options.limit or level.failures:
            break
        streams = max(streams + 1, round(streams * GROWTH))
    good = [level for level in levels if level.p99 <= options.limit and not level.failures]
    report: dict[str, object] = {
        "protocol": options.protocol,
        "limit": options.limit,
        "levels": [asdict(level) for level in levels],
    }
    if not good:
        print(f"not even {options.streams} streams stay below {options.limit:.0f} ms")
        return report
    best = good[-1]
    cores = max(1.0, best.cores) if target.pid else float("nan")
    per_stream = (best.memory - idle_memory) / best.streams
    print(f"{best.streams / cores:.0f} streams per core with p99 at {best.p99:.0f} ms; {per_stream:.2f} MiB per stream")
    return report | {"streams_per_core": best.streams / cores, "memory_per_stream": per_stream}


def measure(options: argparse.Namespace, target: Target, clients: ProcessPoolExecutor, audio: bytes, streams: int) -> Level:
    load = Load(target.url, options.protocol, streams, options.seconds, options.chunk, WARM_UP, audio)
    began, busy = time.monotonic(), processor_time(target.pid)
    core = CLIENT_CORE if (os.cpu_count() or 1) > 1 else None
    peak = Peak(target.pid)
    with peak:
        outcome: Outcome = clients.submit(run_clients, load, core).result()
    cores = (processor_time(target.pid) - busy) / (time.monotonic() - began)
    lags = np.array(outcome.lags or [float("nan")]) * 1000
    p50, p95, p99 = (float(value) for value in np.percentile(lags, (50, 95, 99)))
    for failure in sorted(set(outcome.failures))[:3]:
        print(f"  {failure}", file=sys.stderr)
    return Level(streams, p50, p95, p99, cores, peak.memory, outcome.characters, len(outcome.failures), outcome.late * 1000)


def soak(options: argparse.Namespace, target: Target, clients: ProcessPoolExecutor, audio: bytes) -> dict[str, object]:
    """The same crowd for a long time: memory and step time must not grow."""
    base = target.url.replace("ws:", "http:").removesuffix("/v1/stream")
    load = Load(target.url, options.protocol, options.streams, options.soak * 60, options.chunk, WARM_UP, audio)
    crowd = clients.submit(run_clients, load, CLIENT_CORE if (os.cpu_count() or 1) > 1 else None)
    rounds: list[tuple[float, float]] = []
    print(f"{'minute':>8} {'MiB':>8} {'step ms':>8}")
    before = steps(base)
    while not crowd.done():
        time.sleep(min(SOAK_ROUND, options.soak * 60 / 6))
        after = steps(base)
        step = 1000 * (after[0] - before[0]) / max(1.0, after[1] - before[1])
        before = after
        if crowd.done():
            break
        rounds.append((memory(target.pid), step))
        print(f"{len(rounds) * min(SOAK_ROUND, options.soak * 60 / 6) / 60:8.1f} {rounds[-1][0]:8.0f} {step:8.2f}", flush=True)
    outcome = crowd.result()
    third = max(1, len(rounds) // 3)
    first, last = np.mean(rounds[1 : 1 + third] or rounds, axis=0), np.mean(rounds[-third:], axis=0)
    p99 = float(np.percentile(np.array(outcome.lags or [float("nan")]) * 1000, 99))
    print(
        f"memory {first[0]:.0f} -> {last[0]:.0f} MiB, step {first[1]:.2f} -> {last[1]:.2f} ms (first and last third); "
        f"p99 {p99:.0f} ms; {len(outcome.failures)} failures"
    )
    return {"rounds": rounds, "p99": p99, "failures": outcome.failures}


def steps(base: str) -> tuple[float, float]:
    """Seconds in steps so far, and their number."""
    with urllib.request.urlopen(base + "/metrics") as answer:
        page = answer.read().decode()
    found = [re.search(rf"^monoscribe_step_seconds_{name} (\S+)$", page, re.MULTILINE) for name in ("sum", "count")]
    seconds, number = (float(match[1]) if match else 0.0 for match in found)
    return seconds, number


class Peak:
    """The most memory that a process had while this lasted."""

    def __init__(self, pid: int | None) -> None:
        self.memory = memory(pid)
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.memory = max(self.memory, memory(self._pid))


def family(pid: int | None) -> list[int]:
    """A process and its children."""
    if pid is None:
        return []
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(descendant for child in children for descendant in family(int(child)))]


def processor_time(pid: int | None) -> float:
    fields = [Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split() for member in family(pid)]
    return sum(int(entry[11]) + int(entry[12]) for entry in fields) / CLOCK_TICKS


def memory(pid: int | None) -> float:
    pages = [int(Path(f"/proc/{member}/statm").read_text().split()[1]) for member in family(pid)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def pin(pid: int, core: int) -> None:
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(pid, {core})


def describe(options: argparse.Namespace, target: Target) -> None:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    print(f"{model[1] if model else 'unknown processor'}; {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} before the start")
    print(f"{options.protocol} at {target.url}; {options.chunk * 1000:.0f} ms per message, 16-bit samples at {SAMPLE_RATE} Hz")


if __name__ == "__main__":
    sys.exit(main())
