"""The server under load: started and ended, and looked at from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ROOT

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
SERVER_CORE = 0
LONGEST_START = 60  # seconds


@dataclass(frozen=True)
class Target:
    """Where a server listens, what it speaks, and which process it is, if that is known."""

    url: str
    protocol: str
    pid: int | None

    @property
    def base(self) -> str:
        """For its HTTP."""
        return self.url.replace("ws:", "http:").removesuffix("/v1/stream")


@contextmanager
def monoscribe_server(flags: Sequence[str]) -> Iterator[Target]:
    command = [sys.executable, "monoscribe.py", "serve", "--port", "0", "--log-level", "warning", *flags]
    with _started(command, r"http://([\d.]+:\d+)/") as (address, pid):
        _wait_until_ready(f"http://{address}/readyz")
        yield Target(f"ws://{address}/v1/stream", "native", pid)


@contextmanager
def vosk_server(model: Path) -> Iterator[Target]:
    command = [sys.executable, "-m", "benchmarks.vosk_server", "--model", str(model)]
    with _started(command, r"ws://([\d.]+:\d+)") as (address, pid):
        yield Target(f"ws://{address}", "vosk", pid)


@contextmanager
def _started(command: Sequence[str], greeting: str) -> Iterator[tuple[str, int]]:
    """On a core of its own, where there are two; until its first line says where it listens."""
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(process.pid, {SERVER_CORE})
    try:
        assert process.stdout is not None
        found = re.search(greeting, process.stdout.readline())
        if not found:
            raise SystemExit("the server did not start")
        yield found[1], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONGEST_START)


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + LONGEST_START
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server is never ready")


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
    """Seconds."""
    fields = [Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split() for member in family(pid)]
    return sum(int(entry[11]) + int(entry[12]) for entry in fields) / CLOCK_TICKS


def memory(pid: int | None) -> float:
    """Resident, in MiB."""
    pages = [int(Path(f"/proc/{member}/statm").read_text().split()[1]) for member in family(pid)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def metric(base: str, *names: str) -> list[float]:
    """What a Monoscribe server says of itself."""
    with urllib.request.urlopen(base + "/metrics") as answer:
        page = answer.read().decode()
    found = [re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE) for name in names]
    return [float(match[1]) if match else 0.0 for match in found]
