"""What a run tells while it goes on: a progress bar, a log of JSON lines, TensorBoard, pictures of curves and alignments."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from model.network import Network
from training.cache import CachedUtterance, FeatureCache
from training.plots import SoftMode, alignment_figure, curves_figure, save_figure

LOG = "log.jsonl"
CURVES = "curves.png"
ALIGNMENTS = "alignments"
TENSORBOARD = "tensorboard"
ALIGNED = 3  # dev utterances whose alignment is drawn
SHORTEST_ALIGNED, LONGEST_ALIGNED = 150, 450  # frames: a picture shows no more


class Reporter:
    """Sums what steps tell until the next report."""

    def __init__(self, out: Path, steps: int, first_step: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.out = out
        self.entries = list(read_log(out / LOG, first_step))
        (out / LOG).write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))
        self._bar = tqdm(total=steps, initial=first_step, unit="step", disable=None, dynamic_ncols=True)
        self._board = SummaryWriter(out / TENSORBOARD, purge_step=first_step)
        self._dev: dict[str, Any] = {}
        self._dev_losses: dict[str, float] = {}
        self._restart()

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.close()
        self._board.close()

    def _restart(self) -> None:
        self._sums: dict[str, float] = {}
        self._steps, self._seconds, self._since = 0, 0.0, time.perf_counter()

    def step(self, values: Mapping[str, float], seconds: float) -> None:
        """Takes the values of one step and the seconds of audio that all replicas learnt from in it."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._steps += 1
        self._seconds += seconds
        self._bar.update()
        if self._bar.n % 10 == 0:
            self._bar.set_postfix_str(self._summary(), refresh=False)

    def _summary(self) -> str:
        means = {name: value / self._steps for name, value in self._sums.items()}
        parts = [f"{name.replace('gradient_norm', '|g|')} {value:.3g}" for name, value in means.items() if name != "learning_rate"]
        return ", ".join([*parts, f"{self._speed():.0f}x real time"])

    def _speed(self) -> float:
        return self._seconds / max(time.perf_counter() - self._since, 1e-9)

    def dev(self, rates: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        """Takes error rates by decoder and set, and losses, for the next report."""
        self._dev, self._dev_losses = dict(rates), dict(losses)

    def report(self, step: int, skipped: int) -> None:
        """Writes the means since the last report, if anything happened since."""
        if not self._steps and not self._dev:
            return
        means = {name: round(value / self._steps, 5) for name, value in self._sums.items()} if self._steps else {}
        entry: dict[str, Any] = dict(step=step, **means, skipped=skipped, realtime=round(self._speed(), 1))
        for name, value in entry.items():
            self._board.add_scalar(f"train/{name}", value, step)
        if self._dev:
            entry |= dict(dev=self._dev, dev_loss=self._dev_losses)
        for name, value in self._dev_losses.items():
            self._board.add_scalar(f"dev/loss/{name}", value, step)
        for decoder, parts in self._dev.items():
            for part, rates in parts.items():
                for name, rate in rates.items():
                    self._board.add_scalar(f"dev/{decoder}/{part or 'all'}/{name}", rate, step)
        self.entries.append(entry)
        with (self.out / LOG).open("a") as log:
            log.write(json.dumps(entry) + "\n")
        if self._dev:
            save_figure(curves_figure(self.entries), self.out / CURVES)
        if self._bar.disable:
            print(json.dumps(entry), flush=True)
        elif self._dev:
            self._bar.write(f"step {step}: " + summary_of(self._dev), file=sys.stderr)
        self._dev, self._dev_losses = {}, {}
        self._restart()

    def alignments(
        self, step: int, network: Network, cache: FeatureCache, sample: Sequence[CachedUtterance], mode: SoftMode
    ) -> None:
        """Draws how the network attends to the first few utterances of `sample` that fit a picture."""
        fitting = [utterance for utterance in sample if SHORTEST_ALIGNED <= utterance.frames <= LONGEST_ALIGNED]
        chosen = (fitting or list(sample))[:ALIGNED]
        if chosen:
            (self.out / ALIGNMENTS).mkdir(exist_ok=True)
            pixels = save_figure(alignment_figure(network, cache, chosen, mode), self.out / ALIGNMENTS / f"{step:08}.png")
            self._board.add_image("alignments", pixels, step, dataformats="HWC")


class _Silent:
    """The reporter of the replicas that report nothing."""

    def step(self, values: Mapping[str, float], seconds: float) -> None:
        pass

    def report(self, step: int, skipped: int) -> None:
        pass


@contextmanager
def silent() -> Iterator[Reporter]:
    yield cast(Reporter, _Silent())


def summary_of(dev: Mapping[str, Any]) -> str:
    """hard: librispeech 31.0 % WER, ..."""
    decoders = []
    for decoder, parts in dev.items():
        rates = [
            f"{part or 'all'} {100 * next(iter(rates.values())):.1f} % {next(iter(rates)).upper()}" for part, rates in parts.items()
        ]
        decoders.append(f"{decoder}: {', '.join(rates)}")
    return "; ".join(decoders)


def read_log(path: Path, last_step: int) -> Iterator[dict[str, Any]]:
    """The entries of a log up to `last_step`: what a killed run reported after its last checkpoint will be reported again."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:  # the run was killed while it wrote this line
            continue
        if entry["step"] <= last_step:
            yield entry
