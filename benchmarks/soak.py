"""The same crowd for a long time: memory and step time must not grow. Part of benchmarks/load.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.load_clients import Load, Outcome
from benchmarks.load_target import Target, memory, metric

TENTHS = 10
LOOKS = 12  # per tenth
SHORTEST_LOOK = 0.2  # seconds
CERTAIN = 3.5  # standard errors: about one in a hundred, for a line through nine means
MATERIAL = 0.01  # share of the level: what a run may grow by without anyone minding

Numbers = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Tenth:
    """Of the run; memory in MiB, times in milliseconds."""

    memory: float
    step: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Trend:
    """By how much something grew over the run, by the line through its tenths, and how far off that may be."""

    level: float
    growth: float
    error: float  # one standard error

    @property
    def is_flat(self) -> bool:
        """Within its own noise, or too small to matter."""
        return self.growth <= CERTAIN * self.error or self.growth <= MATERIAL * self.level

    def __str__(self) -> str:
        word = "flat" if self.is_flat else "GROWS"
        return f"{word}: {self.growth:+.2f} ± {self.error:.2f} over the run, at {self.level:.2f}"


class Watch:
    """Looks at a server now and then, from a thread of its own."""

    def __init__(self, target: Target, interval: float) -> None:
        self.looks: list[tuple[float, float, float]] = []  # seconds since the first step, MiB, milliseconds per step
        self._target = target
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        began, before = None, self._steps()
        while not self._over.wait(self._interval):
            after = self._steps()
            seconds, number = after[0] - before[0], after[1] - before[1]
            before = after
            if number:
                began = began or time.monotonic()
                self.looks.append((time.monotonic() - began, memory(self._target.pid), 1000 * seconds / number))

    def _steps(self) -> list[float]:
        return metric(self._target.base, "monoscribe_step_seconds_sum", "monoscribe_step_seconds_count")


def soak(load: Load, target: Target, run: Callable[[Load], Outcome], plot_path: Path | None) -> dict[str, Any]:
    print(f"{load.streams} streams for {load.seconds / 60:g} minutes at {target.url}", flush=True)
    with Watch(target, max(SHORTEST_LOOK, load.seconds / TENTHS / LOOKS)) as watch:
        outcome = run(load)
    tenths = by_tenths(load.seconds, watch.looks, outcome)
    print(f"{'minute':>8} {'MiB':>8} {'step ms':>8} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}")
    for number, tenth in enumerate(tenths, 1):
        figures = (number * load.seconds / 60 / TENTHS, tenth.memory, tenth.step, tenth.p50, tenth.p95, tenth.p99)
        print("".join(f" {figure:8.1f}" for figure in figures))
    trends = {name: trend(np.array([getattr(tenth, name) for tenth in tenths])) for name in ("memory", "step")}
    for name, unit in (("memory", "MiB"), ("step", "ms")):
        print(f"{name} ({unit}): {trends[name]}")
    for failure in sorted(set(outcome.failures))[:3]:
        print(f"  {failure}")
    print(f"{len(outcome.failures)} of {load.streams} streams failed; {outcome.characters} characters")
    if plot_path:
        plot(load, tenths, plot_path)
    return {
        "streams": load.streams,
        "minutes": load.seconds / 60,
        "tenths": [asdict(tenth) for tenth in tenths],
        "trends": {name: asdict(found) | {"is_flat": found.is_flat} for name, found in trends.items()},
        "failures": len(outcome.failures),
        "characters": outcome.characters,
    }


def by_tenths(seconds: float, looks: list[tuple[float, float, float]], outcome: Outcome) -> list[Tenth]:
    times, lags = np.array(outcome.times), 1000 * np.array(outcome.lags)
    at, levels = np.array([look[0] for look in looks]), np.array([look[1:] for look in looks]).reshape(-1, 2)
    tenths = []
    for number in range(TENTHS):
        begin, end = number * seconds / TENTHS, (number + 1) * seconds / TENTHS
        seen, heard = levels[(begin <= at) & (at < end)], lags[(begin <= times) & (times < end)]
        resident, step = seen.mean(axis=0) if len(seen) else (np.nan, np.nan)
        p50, p95, p99 = np.percentile(heard, (50, 95, 99)) if len(heard) else (np.nan,) * 3
        tenths.append(Tenth(*(float(figure) for figure in (resident, step, p50, p95, p99))))
    return tenths


def trend(values: Numbers) -> Trend:
    """Without the first tenth, in which all come at once. Tenths, since single looks depend on those just before."""
    values = values[1:][np.isfinite(values[1:])]
    if len(values) < 3:
        return Trend(float(values.mean()) if len(values) else np.nan, 0.0, np.inf)
    places = np.arange(len(values), dtype=np.float64)
    places -= places.mean()
    slope = float(places @ values / (places @ places))
    rest = values - values.mean() - slope * places
    error = float(np.sqrt(rest @ rest / (len(values) - 2) / (places @ places)))
    length = len(values) - 1
    return Trend(float(values.mean()), slope * length, error * length)


def plot(load: Load, tenths: list[Tenth], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    minutes = (np.arange(TENTHS) + 0.5) * load.seconds / 60 / TENTHS
    figure, axes = plt.subplots(1, 3, figsize=(11, 2.8), layout="constrained")
    for axis, title, names in zip(
        axes, ("memory, MiB", "time of a step, ms", "lag, ms"), (["memory"], ["step"], ["p50", "p95", "p99"]), strict=True
    ):
        for name in names:
            axis.plot(minutes, [getattr(tenth, name) for tenth in tenths], marker="o", markersize=3, label=name)
        axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("minutes")
        axis.grid(alpha=0.3)
    axes[2].legend(fontsize=8)
    figure.suptitle(f"{load.streams} live streams on one core", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)
