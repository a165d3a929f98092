"""The training loop: batches in, checkpoints out, the same whether it ran through or was cut off and resumed."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from model.files import ModelCard, save_model
from training.cache import CachedUtterance, FeatureCache
from training.evaluate import error_rates, mean_losses, transcribe
from training.recipe import Recipe
from training.reporting import Reporter, silent
from training.trainer import Trainer

MODEL_FOLDER = "model"
RECIPE = "recipe.json"
LOCK = "lock"
SETTLE = 0.5  # seconds
LONGEST_WAIT = timedelta(hours=1)  # of a replica for the others, which may be evaluating
EVALUATED = 200  # dev utterances, always the same, drawn evenly from the sets
GO_ON, SAVE, STOP = 0, 1, 2


@dataclass(frozen=True)
class Pace:
    """How often things happen besides steps."""

    report_steps: int = 100
    evaluate_steps: int = 1000
    decide_steps: int = 10  # how often the replicas agree on whether to save or to stop
    checkpoint_minutes: float = 3.0
    limit_hours: float = 0.0  # of this call; 0: none


def train(
    recipe: Recipe,
    data: Path | Sequence[Path],
    dev: Path | Sequence[Path] | None,
    out: Path,
    *,
    start: Path | None = None,
    pace: Pace | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Trains on feature caches until the recipe's last step; started again, goes on from the last checkpoint.

    Under torchrun every process is a replica. The first one evaluates on the caches `dev`, reports, and writes the model.
    """
    pace = pace or Pace()
    rank, replicas = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")  # it would keep code for the shapes of a thousand batches
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # threads wait for each other; replicas use more cores, and use them better
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")  # matrix products in TF32; sums, logarithms and alpha stay in fp32
    if replicas > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl", timeout=LONGEST_WAIT)
    try:
        with alone_in(out) if rank == 0 else nullcontext():
            trainer = Trainer(recipe, open_caches(data), out, start=start, rank=rank, replicas=replicas, device=device)
            dev_cache = open_dev(dev, trainer) if dev and rank == 0 else None
            if rank == 0:
                tell_unused(trainer)
                (out / RECIPE).write_text(json.dumps(asdict(recipe), indent=1) + "\n")
            with Reporter(out, recipe.steps, trainer.step) if rank == 0 else silent() as reporter, asked_to_stop() as asked:
                _loop(trainer, dev_cache, reporter, pace, clock, asked)
    finally:
        if replicas > 1:
            leave_group()


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Two runs in one folder would write over each other's checkpoints; the lock goes with the process, however that ends."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"out={str(out)!r}: another run is writing there; expected a folder of its own") from error
        except OSError:
            pass  # a file system without locks
        yield


@contextmanager
def asked_to_stop() -> Iterator[Event]:
    """Within it, the first Ctrl-C or SIGTERM only sets the event, so that nothing is lost; the second one ends the process."""
    asked = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_group() -> None:
    """The end of a replica's part in the group.

    A thread of gloo's lets go of the last tensors in its own time and needs Python's lock for that. Should Python be ending then,
    the process aborts after all was done well. Asleep, this thread leaves the lock to it.
    """
    dist.destroy_process_group()
    time.sleep(SETTLE)


def open_caches(folders: Path | Sequence[Path]) -> FeatureCache:
    return FeatureCache(folders) if isinstance(folders, Path) else FeatureCache(*folders)


def tell_unused(trainer: Trainer) -> None:
    unused = len(trainer.labels) - len(trainer.usable(trainer.recipe.steps))
    if unused:
        why = f"no text of {trainer.recipe.symbols}, more text than sound, or too long for data.max_seconds"
        print(f"{unused} of {len(trainer.labels)} recordings are not learnt from: {why}", file=sys.stderr)


def open_dev(folders: Path | Sequence[Path], trainer: Trainer) -> FeatureCache:
    """The dev set, looked through now: an evaluation is no time to find out that it does not fit."""
    dev, bins = open_caches(folders), trainer.recipe.model.features.bins
    if dev.bins != bins:
        raise ValueError(f"dev: features of {dev.bins} bins; expected {bins}, as the recipe says")
    dev.utterances = [utterance for utterance in dev.utterances if trainer.spelling.encode(utterance.text)]
    if not dev.utterances:
        raise ValueError("dev: no recordings with a text to compare with")
    return dev


def _loop(
    trainer: Trainer,
    dev: FeatureCache | None,
    reporter: Reporter,
    pace: Pace,
    clock: Callable[[], float],
    asked: Event,
) -> None:
    sample = draw(dev.utterances, EVALUATED) if dev is not None else []
    began = saved = clock()
    looked = -1
    for batch in trainer.batches():
        if trainer.step >= trainer.recipe.steps:
            break
        reporter.step(trainer.train_step(batch), batch.seconds * trainer.replicas)
        if trainer.step % pace.evaluate_steps == 0:
            look(trainer, dev, sample, reporter)
            looked = trainer.step
        if trainer.step % pace.report_steps == 0:
            reporter.report(trainer.step, trainer.skipped)
        if trainer.step % pace.decide_steps == 0 or (asked.is_set() and trainer.replicas == 1):
            stop = asked.is_set() or (bool(pace.limit_hours) and clock() - began > 3600 * pace.limit_hours)
            decision = agreed(STOP if stop else SAVE if clock() - saved > 60 * pace.checkpoint_minutes else GO_ON, trainer)
            if decision == STOP:
                break
            if decision == SAVE:
                trainer.save()
                saved = clock()
    trainer.save()
    if agreed(int(asked.is_set()), trainer):  # whoever asks does not want to wait for an evaluation
        if trainer.rank == 0:
            print(f"stopped at step {trainer.step}; the same command goes on from there", file=sys.stderr)
    elif looked != trainer.step:
        look(trainer, dev, sample, reporter)
    reporter.report(trainer.step, trainer.skipped)


def look(trainer: Trainer, dev: FeatureCache | None, sample: Sequence[CachedUtterance], reporter: Reporter) -> None:
    """Evaluates the averaged weights and writes them as a model."""
    trainer.synchronize_buffers()
    if trainer.rank == 0:
        export(trainer, evaluate(trainer, dev, sample, reporter))


def agreed(decision: int, trainer: Trainer) -> int:
    """The first replica's decision: clocks differ, and all must do the same."""
    if trainer.replicas == 1:
        return decision
    shared = torch.tensor([decision], device=trainer.device)
    dist.broadcast(shared, 0)
    return int(shared)


def draw(utterances: Sequence[CachedUtterance], count: int) -> list[CachedUtterance]:
    """Always the same `count` utterances."""
    return random.Random(0).sample(list(utterances), min(count, len(utterances)))


def evaluate(trainer: Trainer, dev: FeatureCache | None, sample: Sequence[CachedUtterance], reporter: Reporter) -> dict[str, Any]:
    """Error rates of the averaged weights on `sample`, by decoder and set."""
    if dev is None:
        return {}
    network = trainer.averaged()
    decoders = ["ctc"] if trainer.recipe.loss.ctc else []
    if trainer.recipe.loss.attention:
        softmax = trainer.recipe.attention.mode == "softmax"
        decoders.append("softmax" if softmax else "hard")
        reporter.alignments(trainer.step, network, dev, sample, "softmax" if softmax else "soft")
    texts = transcribe(network, dev, sample, decoders)
    rates = {name: error_rates(sample, said, trainer.spelling) for name, said in texts.items()}
    reporter.dev(rates, mean_losses(network, dev, sample, trainer.recipe))
    return rates


def export(trainer: Trainer, rates: dict[str, Any]) -> None:
    """Writes the averaged weights as a model folder that a recogniser loads."""
    facts = dict(steps=trainer.step, decoding=asdict(trainer.recipe.decoding)) | (dict(dev=rates) if rates else {})
    save_model(trainer.out / MODEL_FOLDER, trainer.averaged(), ModelCard(name=trainer.out.resolve().name, facts=facts))
