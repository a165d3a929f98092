"""The training loop: batches in, checkpoints out, the same whether it ran through or was cut off and resumed."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from model.features import FRAMES_PER_SECOND
from model.network import Network
from model.symbols import SymbolTable
from training.batches import Batch, collate, plan_epoch
from training.cache import FeatureCache
from training.evaluate import error_rates, transcribe
from training.objective import objective
from training.recipe import Recipe, value_at
from training.statistics import feature_statistics
from training.text import normalize

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
EXPLODED = 1e4  # a gradient norm beyond this is skipped, like one that is no number


class Trainer:
    """One replica of a run. Everything random depends on (seed, step, replica), so that a resumed run goes on exactly."""

    def __init__(
        self, recipe: Recipe, cache: FeatureCache, out: Path, *, start: Path | None = None, rank: int = 0, replicas: int = 1
    ) -> None:
        self.recipe, self.cache, self.out, self.rank, self.replicas = recipe, cache, out, rank, replicas
        self.symbols = SymbolTable()
        torch.manual_seed(recipe.seed)
        self.network = Network(recipe.model, self.symbols)
        self.labels = [self.symbols.encode(normalize(utterance.text)) for utterance in cache.utterances]
        self.step, self.skipped = 0, 0
        self.parameters = list(self.network.parameters())
        self.gradient = flat_gradient(self.parameters)
        options = recipe.optimizer
        self.optimizer = torch.optim.Adam(
            self.parameters,
            lr=0.0,
            betas=(options.betas[0], options.betas[1]),
            eps=options.epsilon,
            weight_decay=options.l2,
            fused=True,
        )
        self.average = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        if (out / CHECKPOINT).exists():
            self.load(torch.load(out / CHECKPOINT, weights_only=True))
        elif start is not None:
            self.warm_start(torch.load(start, weights_only=True)["average"])
        else:
            mean, deviation = feature_statistics(self.network.features, cache)
            self.network.features.prior_mean.copy_(mean)
            self.network.features.prior_deviation.copy_(deviation)

    def batches(self) -> Iterator[Batch]:
        """The batches of this replica from the current step on, for ever."""
        position, epoch = 0, 0
        while True:
            longest = value_at(self.recipe.data.max_seconds, position) * FRAMES_PER_SECOND
            usable = [index for index, entry in enumerate(self.cache.utterances) if entry.frames <= longest and self.fits(index)]
            utterances = [self.cache.utterances[index] for index in usable]
            plan = plan_epoch(
                utterances,
                seed=self.recipe.seed,
                epoch=epoch,
                seconds=self.recipe.data.batch_seconds,
                replicas=self.replicas,
                speaker_cap=self.recipe.data.speaker_cap,
            )
            for step in plan:
                if position >= self.step:
                    chosen = [usable[index] for index in step[self.rank]]
                    yield collate(
                        self.cache,
                        [self.cache.utterances[index] for index in chosen],
                        [self.labels[index] for index in chosen],
                        self.recipe.model.encoder.reduction,
                    )
                position += 1
            epoch += 1

    def fits(self, index: int) -> bool:
        """Whether the labels can be told apart in the encoder's states at all (CTC needs a state per label)."""
        states = self.cache.utterances[index].frames // self.recipe.model.encoder.reduction
        return 0 < len(self.labels[index]) < states

    def train_step(self, batch: Batch) -> dict[str, float]:
        torch.manual_seed(hash((self.recipe.seed, self.step, self.rank)))
        rate = value_at(self.recipe.optimizer.learning_rate, self.step, self.recipe.optimizer.interpolation)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.network.train()
        self.gradient.zero_()
        loss, parts = objective(self.network, batch, self.recipe, self.step)
        loss.backward()
        if self.replicas > 1:
            dist.all_reduce(self.gradient)
            self.gradient /= self.replicas
        norm = float(self.gradient.norm())
        if math.isfinite(norm) and norm < EXPLODED:
            if norm > self.recipe.optimizer.gradient_norm:
                self.gradient *= self.recipe.optimizer.gradient_norm / norm
            self.optimizer.step()
            self.update_average()
        else:
            self.skipped += 1
        self.step += 1
        return dict(parts, gradient_norm=norm, learning_rate=rate)

    def update_average(self) -> None:
        decay = min(self.recipe.optimizer.average, (1 + self.step) / (10 + self.step))
        names, tensors = zip(*self.network.state_dict().items(), strict=True)
        floating = [index for index, tensor in enumerate(tensors) if tensor.is_floating_point()]
        torch._foreach_lerp_([self.average[names[i]] for i in floating], [tensors[i] for i in floating], 1 - decay)

    def averaged(self) -> Network:
        """A copy of the network with the averaged weights."""
        network = Network(self.recipe.model, self.symbols)
        network.load_state_dict(self.average)
        return network.eval()

    def synchronize_buffers(self) -> None:
        """Batch normalisation keeps its own statistics in each replica; a checkpoint holds their mean."""
        if self.replicas > 1:
            for tensors in (dict(self.network.named_buffers()), self.average):
                for name, tensor in tensors.items():
                    if "running_" in name:
                        dist.all_reduce(tensor)
                        tensor /= self.replicas

    def save(self) -> None:
        self.synchronize_buffers()
        if self.rank == 0:
            self.out.mkdir(parents=True, exist_ok=True)
            state = dict(
                step=self.step,
                skipped=self.skipped,
                network=self.network.state_dict(),
                average=self.average,
                optimizer=self.optimizer.state_dict(),
            )
            write_atomically(state, self.out / CHECKPOINT)

    def warm_start(self, weights: dict[str, Tensor]) -> None:
        """Takes over whatever weights fit from another run; the rest stays as initialised."""
        own = self.network.state_dict()
        fitting = {name: tensor for name, tensor in weights.items() if name in own and own[name].shape == tensor.shape}
        self.network.load_state_dict(own | fitting)
        self.average = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}

    def load(self, state: dict[str, Any]) -> None:
        self.step, self.skipped = state["step"], state["skipped"]
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = state["average"]


def flat_gradient(parameters: list[nn.Parameter]) -> Tensor:
    """One tensor of which every parameter's gradient is a view: averaged, measured and clipped in one go."""
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    first = 0
    for parameter in parameters:
        parameter.grad = flat[first : first + parameter.numel()].view_as(parameter)
        first += parameter.numel()
    return flat


def write_atomically(state: dict[str, Any], path: Path) -> None:
    """A reader, or a run that was killed in between, sees the old file or the new one, never a part."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def train(
    recipe: Recipe,
    data: Path,
    dev: Path,
    out: Path,
    *,
    start: Path | None = None,
    checkpoint_every: int = 500,
    evaluate_every: int = 1000,
) -> None:
    """Trains until the recipe's last step; started again, goes on from the last checkpoint."""
    rank, replicas = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if replicas > 1:
        dist.init_process_group("gloo")
        torch.set_num_threads(1)
    trainer = Trainer(recipe, FeatureCache(data), out, start=start, rank=rank, replicas=replicas)
    dev_cache = FeatureCache(dev)
    sample = random.Random(0).sample(dev_cache.utterances, min(200, len(dev_cache.utterances)))
    sums: dict[str, float] = {}
    seconds, since = 0.0, time.perf_counter()
    for batch in trainer.batches():
        if trainer.step >= recipe.steps:
            break
        values = trainer.train_step(batch)
        seconds += batch.seconds * replicas
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value
        if trainer.step % 100 == 0:
            now = time.perf_counter()
            report: dict[str, Any] = {name: round(value / 100, 5) for name, value in sums.items()}
            report = dict(step=trainer.step, **report, skipped=trainer.skipped, realtime=round(seconds / (now - since), 1))
            sums, seconds, since = {}, 0.0, now
            if trainer.step % evaluate_every == 0:
                trainer.synchronize_buffers()
                if rank == 0:
                    decoders = ["ctc", "hard"] if recipe.loss.attention else ["ctc"]
                    texts = transcribe(trainer.averaged(), dev_cache, sample, decoders)
                    report["dev"] = {name: error_rates(sample, said) for name, said in texts.items()}
            if rank == 0:
                out.mkdir(parents=True, exist_ok=True)
                with (out / LOG).open("a") as log:
                    log.write(json.dumps(report) + "\n")
                print(json.dumps(report), flush=True)
            if trainer.step % checkpoint_every == 0:
                trainer.save()
    trainer.save()
