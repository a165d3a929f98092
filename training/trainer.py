"""One replica of a training run: its batches, its steps, its checkpoints."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from model.encoder import LSTMLayer
from model.features import FRAMES_PER_SECOND
from model.files import load_model, write_whole
from model.network import Network
from training.batches import Batch, collate, plan_epoch
from training.cache import FeatureCache
from training.grow import grown
from training.muon import Muon, hidden_matrices
from training.objective import objective
from training.optimize import (
    add_l2,
    clip,
    drop_outputs,
    flat_gradient,
    is_of,
    keep_still,
    noisy_weights_of,
    update_average,
    weight_noise,
)
from training.recipe import Recipe, value_at
from training.recurrence import quicken
from training.statistics import feature_statistics
from training.text import SPELLINGS

CHECKPOINT = "checkpoint.pt"
KEYS = {"step", "skipped", "network", "average", "optimizers"}  # of a checkpoint
EXPLODED = 1e4  # a gradient norm beyond this is skipped, like one that is no number


class Trainer:
    """Everything random depends on (seed, step, replica), so that a resumed run goes on exactly."""

    def __init__(
        self,
        recipe: Recipe,
        cache: FeatureCache,
        out: Path,
        *,
        start: Path | None = None,
        rank: int = 0,
        replicas: int = 1,
        device: str = "cpu",
    ) -> None:
        if cache.bins != recipe.model.features.bins:
            raise ValueError(f"data: features of {cache.bins} bins; expected {recipe.model.features.bins}, as the recipe says")
        self.recipe, self.cache, self.out, self.rank, self.replicas = recipe, cache, out, rank, replicas
        self.spelling = SPELLINGS[recipe.symbols]()
        torch.manual_seed(recipe.seed)
        self.device = torch.device(device)
        self.network = Network(recipe.model, self.spelling.table).to(self.device)
        self.still = keep_still(self.network, recipe.learns)
        drop_outputs((layer for layer in self.network.encoder.modules() if isinstance(layer, LSTMLayer)), recipe.dropout)
        if recipe.precision == "bfloat16" and self.device.type == "cpu":
            parts = [self.network.encoder, *([self.network.decoder] if decodes_in_kernel(self.network, recipe) else [])]
            for reason in quicken(*parts):
                print(f"training in bfloat16 goes on without its kernel, and slower: {reason}", file=sys.stderr)
        self.labels = [self.spelling.encode(utterance.text) for utterance in cache.utterances]
        self.step, self.skipped = 0, 0
        self.epoch, self.epoch_start = 0, 0  # the epoch under way and its first step
        self.parameters = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.noisy = [weight for weight in noisy_weights_of(self.network) if weight.requires_grad]
        self.gradient = flat_gradient(self.parameters)
        self.optimizers = self._optimizers()
        self._begin(start)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam for everything, or for what Muon leaves to it."""
        options = self.recipe.optimizer
        matrices = [pair for pair in hidden_matrices(self.network) if pair[0].requires_grad] if options.matrices == "muon" else []
        taken = {id(parameter) for parameter, _ in matrices}
        rest = [parameter for parameter in self.parameters if id(parameter) not in taken]
        first, second = options.betas
        optimizers: list[torch.optim.Optimizer] = []
        if rest:
            optimizers.append(torch.optim.Adam(rest, lr=0.0, betas=(first, second), eps=options.epsilon, fused=True))
        if matrices:
            optimizers.append(Muon(matrices, self.rank, self.replicas, getattr(torch, self.recipe.precision)))
        return optimizers

    def _begin(self, start: Path | None) -> None:
        """From the run's own checkpoint, from other weights, or from nothing."""
        if (self.out / CHECKPOINT).exists():
            self.resume(self.out / CHECKPOINT)
            return
        if self.recipe.learns and start is None:
            raise ValueError(f"learns={list(self.recipe.learns)}: all else stays as it is; expected weights to begin with (--from)")
        mean, deviation = feature_statistics(self.network.features, self.cache)
        self.network.features.prior_mean.copy_(mean)
        self.network.features.prior_deviation.copy_(deviation)
        if start is not None:
            self.warm_start(read_weights(start))
        self.average = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}

    def batches(self) -> Iterator[Batch]:
        """The batches of this replica from the current step on, for ever."""
        position, epoch = self.epoch_start, self.epoch
        while True:
            usable = self.usable(position)
            plan = plan_epoch(
                [self.cache.utterances[index] for index in usable],
                seed=self.recipe.seed,
                epoch=epoch,
                seconds=self.recipe.data.batch_seconds,
                count=self.recipe.data.batch_utterances,
                replicas=self.replicas,
                speaker_cap=self.recipe.data.speaker_cap,
            )
            if position + len(plan) > self.step:
                self.epoch, self.epoch_start = epoch, position
            for step in plan:
                if position >= self.step:
                    yield self.batch([usable[index] for index in step[self.rank]])
                position += 1
            epoch += 1

    def usable(self, step: int) -> list[int]:
        """The utterances that an epoch from `step` on may draw from."""
        longest = value_at(self.recipe.data.max_seconds, step) * FRAMES_PER_SECOND
        usable = [index for index, entry in enumerate(self.cache.utterances) if entry.frames <= longest and self.fits(index)]
        if not usable:
            most = longest / FRAMES_PER_SECOND
            raise ValueError(
                f"data: none of {len(self.labels)} utterances has a text of {self.recipe.symbols} and at most {most} s"
            )
        return usable

    def fits(self, index: int) -> bool:
        """Whether the labels can be told apart in the encoder's states at all (CTC needs a state per label)."""
        states = self.cache.utterances[index].frames // self.recipe.model.encoder.reduction
        return 0 < len(self.labels[index]) < states

    def batch(self, chosen: list[int]) -> Batch:
        utterances, labels = [self.cache.utterances[index] for index in chosen], [self.labels[index] for index in chosen]
        return collate(self.cache, utterances, labels, self.recipe.model.encoder.reduction)

    def train_step(self, batch: Batch) -> dict[str, float]:
        """One step; returns the parts of this replica's loss, the norm of the common gradient and the learning rate."""
        torch.manual_seed(hash((self.recipe.seed, self.step, self.rank)))
        options = self.recipe.optimizer
        rate = value_at(options.learning_rate, self.step, options.interpolation)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        self.network.train()
        for module in self.still:
            module.eval()
        self.gradient.zero_()
        before = [buffer.clone() for buffer in self.network.buffers()]
        noise = self.recipe.weight_noise
        with weight_noise(self.noisy, noise.deviation if self.step >= noise.from_step else 0.0):
            loss, parts = objective(self.network, batch, self.recipe, self.step)
            if not loss.requires_grad:
                raise ValueError(f"learns={list(self.recipe.learns)}: no part of the loss depends on it; expected one that does")
            loss.backward()
        if self.replicas > 1:
            dist.all_reduce(self.gradient)
            self.gradient /= self.replicas
        add_l2(self.parameters, options.l2)
        norm = clip(self.gradient, options.gradient_norm)
        if math.isfinite(norm) and norm < EXPLODED:
            for optimizer in self.optimizers:
                optimizer.step()
            update_average(self.average, self.network.state_dict(), options.average, self.step)
        else:  # nor does batch normalisation remember anything of it
            self.skipped += 1
            for buffer, value in zip(self.network.buffers(), before, strict=True):
                buffer.copy_(value)
        self.step += 1
        return dict(parts, gradient_norm=norm, learning_rate=rate)

    def averaged(self) -> Network:
        """A copy of the network with the averaged weights."""
        network = Network(self.recipe.model, self.spelling.table)
        network.load_state_dict(self.average)
        return network.eval().requires_grad_(False)

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
                epoch=(self.epoch, self.epoch_start),
                learns=list(self.recipe.learns),
                network=self.network.state_dict(),
                average=self.average,
                optimizers=[optimizer.state_dict() for optimizer in self.optimizers],
            )
            write_atomically(state, self.out / CHECKPOINT)

    def resume(self, path: Path) -> None:
        """Goes on from a checkpoint of this recipe's model and `learns`; other numbers of the recipe may have changed."""
        state = read_checkpoint(path, self.device)
        try:
            self.load(state)
        except (KeyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"{path}: another model's or optimiser's; expected the recipe's, or another out: {reason}") from error

    def load(self, state: dict[str, Any]) -> None:
        learnt = state.get("learns", [])
        if learnt != list(self.recipe.learns):  # moments of other weights
            raise ValueError(f"learns={list(self.recipe.learns)}: expected {learnt}, as in the checkpoint")
        self.step, self.skipped = state["step"], state["skipped"]
        self.epoch, self.epoch_start = state.get("epoch", (0, 0))
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.average = state["average"]

    def warm_start(self, weights: dict[str, Tensor]) -> None:
        """Takes over whatever weights fit from another run, a smaller network's too; the rest stays as initialised.

        What does not learn must be there, and the heads of a teacher know another memory than a live model's.
        """
        own = self.network.state_dict().keys()
        if any(is_of(name, "encoder.both_ways") and name not in own for name in weights):
            raise ValueError("from: a teacher's weights (encoder.both_ways); expected a live model's")
        for name, parameter in self.network.named_parameters():
            if not parameter.requires_grad and (name not in weights or weights[name].shape != parameter.shape):
                asked = f"{name} of {list(parameter.shape)}"
                raise ValueError(f"from: no {asked}, which is not among what learns; expected weights that have it")
        self.network.load_state_dict(grown(self.network.state_dict(), weights))


def decodes_in_kernel(network: Network, recipe: Recipe) -> bool:
    """Whether the kernel can run the decoder's LSTM: whole sequences, and it has no gradient for a first state that is learnt."""
    return bool(recipe.loss.attention) and recipe.attention.mode == "forced" and network.decoder.first_hidden is None


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a model folder, of a run's folder or of a checkpoint: averaged ones where there are any."""
    if path.is_dir() and not (path / CHECKPOINT).exists():
        return load_model(path)[0].state_dict()
    file = path / CHECKPOINT if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"from={str(path)!r}: expected a model folder, a run's folder or a checkpoint")
    weights: dict[str, Tensor] = read_checkpoint(file)["average"]
    return weights


def read_checkpoint(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # what is no checkpoint fails in any way
        raise ValueError(f"{path}: not a whole checkpoint") from error
    missing = sorted(KEYS - state.keys()) if isinstance(state, dict) else sorted(KEYS)
    if missing:
        raise ValueError(f"{path}: no {missing[0]}; expected a checkpoint with {', '.join(sorted(KEYS))}")
    for name in ("network", "average"):
        if not isinstance(state[name], dict) or not all(isinstance(tensor, Tensor) for tensor in state[name].values()):
            raise ValueError(f"{path}: {name} is no table of tensors; expected a checkpoint of ours")
    return dict(state)


def write_atomically(state: dict[str, Any], path: Path) -> None:
    """A reader, or a run that was killed in between, sees the old file or the new one, never a part."""
    content = io.BytesIO()
    torch.save(state, content)  # not into the file: of a disk that is full, torch says something about positions
    write_whole(path, content.getvalue())
