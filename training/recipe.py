"""A recipe: everything that a training run depends on but the data, in one short TOML file.

A recipe may start from another one (`base = "wsj"`) and name only what differs. Unknown keys are errors.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from model.config import LARGEST_NUMBER, ModelConfig, config_from_dict, expect

RECIPES = Path(__file__).parent / "recipes"
MOST = 2**31
Points = tuple[tuple[float, ...], ...]
Precision = Literal["float32", "bfloat16"]


def expect_from(least: float, where: str, options: object, *names: str, highest: float = LARGEST_NUMBER) -> None:
    """An error that names the field, unless each of `options` is in range."""
    for name in names:
        expect(f"{where}.{name}", getattr(options, name), least, highest)


def expect_points(name: str, points: Points) -> None:
    """(step, value) points: from step 0 on, in order."""
    if not all(len(point) == 2 for point in points) or [point[0] for point in points[:1]] != [0.0]:
        raise ValueError(f"{name}={list(map(list, points))}: expected [[0, value], [step, value], ...]")
    for (left, _), (right, _) in pairwise(points):
        if not left < right:
            raise ValueError(f"{name}: step {right:g} after step {left:g}: expected steps in order")
    for _, value in points:
        expect(name, value, 0, LARGEST_NUMBER)


@dataclass(frozen=True)
class Data:
    batch_seconds: float = 30.0  # of audio per replica and step, padding included; 0: count utterances instead
    batch_utterances: int = 0  # per replica and step, where batch_seconds is 0
    max_seconds: Points = ((0, 20.0),)  # (from step, longest utterance): a length curriculum
    speaker_cap: int = 0  # utterances of one speaker per epoch; 0: all

    def __post_init__(self) -> None:
        if self.batch_seconds <= 0 and self.batch_utterances <= 0:
            raise ValueError(
                f"data.batch_seconds={self.batch_seconds}, data.batch_utterances={self.batch_utterances}: expected one above 0"
            )
        expect_from(0, "data", self, "batch_seconds", "batch_utterances", "speaker_cap")
        expect_points("data.max_seconds", self.max_seconds)


@dataclass(frozen=True)
class Optimizer:
    learning_rate: Points = ((0, 2e-4),)  # (step, rate) points
    interpolation: Literal["constant", "linear"] = "constant"  # between those points
    matrices: Literal["adam", "muon"] = "adam"  # who steps the matrices of hidden layers; Adam does all the rest
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-6
    l2: float = 0.0  # l2 / 2 times the squared norm of all matrices and filters, as a part of the loss
    gradient_norm: float = 1.0
    average: float = 0.0  # decay of the moving average of the weights that is evaluated and shipped; 0: none

    def __post_init__(self) -> None:
        expect_points("optimizer.learning_rate", self.learning_rate)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optimizer.betas={list(self.betas)}: expected two numbers from 0 to below 1")
        expect_from(0, "optimizer", self, "epsilon", "l2")
        expect_from(1e-9, "optimizer", self, "gradient_norm")
        expect_from(0, "optimizer", self, "average", highest=1)


@dataclass(frozen=True)
class Loss:
    """Weights of the parts of the loss."""

    attention: float = 1.0
    ctc: float = 0.0
    quantity: float = 0.0  # expected number of attended frames = number of labels
    alignment: float = 0.0  # energies follow the CTC head's own forced alignment
    consistency: float = 0.0  # two views of each utterance, masked apart, are heard alike; a batch is then twice as long
    label_smoothing: tuple[float, ...] = (1.0,)  # weights of the labels around the target, normalised to sum 1

    def __post_init__(self) -> None:
        expect_from(0, "loss", self, "attention", "ctc", "quantity", "alignment", "consistency")
        if not self.attention and not self.ctc:
            raise ValueError("loss.attention=0.0, loss.ctc=0.0: expected one above 0")
        if self.consistency and not self.ctc:
            raise ValueError(
                f"loss.consistency={self.consistency}, loss.ctc=0.0: expected both above 0; it is of what the CTC head hears"
            )
        if len(self.label_smoothing) % 2 == 0 or min(self.label_smoothing) < 0 or not max(self.label_smoothing):
            raise ValueError(f"loss.label_smoothing={list(self.label_smoothing)}: expected an odd number of weights, none below 0")


@dataclass(frozen=True)
class Attention:
    """How the context is computed in training."""

    mode: Literal["soft", "softmax", "forced"] = "soft"  # forced: the entries that the CTC alignment names
    heard: float = 0.0  # share of the decoder's inputs as the CTC head hears them, not as they are (after Bengio et al., 2015)

    def __post_init__(self) -> None:
        expect_from(0, "attention", self, "heard", highest=1)


@dataclass(frozen=True)
class Augmentation:
    from_step: int = 0
    gain: float = 0.0  # nats of power, up or down, per utterance
    noise: float = 0.0  # share of utterances with coloured noise mixed in
    telephone: float = 0.0  # share of utterances that lose what is above 3.4 to 4 kHz; with mel bins alone
    tempo: float = 0.0  # 0.1: each batch is spoken up to 10 % faster or slower (Ko et al., 2015, on features)
    warp: float = 0.0  # 0.1: each utterance's spectrum is stretched by up to 10 % (vocal tract length, Jaitly and Hinton, 2013)
    time_masks: int = 0
    time_mask_frames: int = 0
    frequency_masks: int = 0
    frequency_mask_bins: int = 0

    def __post_init__(self) -> None:
        masks = ("time_masks", "time_mask_frames", "frequency_masks", "frequency_mask_bins")
        expect_from(0, "augmentation", self, "from_step", "gain", *masks)
        expect_from(0, "augmentation", self, "noise", "telephone", highest=1)
        expect_from(0, "augmentation", self, "tempo", "warp", highest=0.9)


@dataclass(frozen=True)
class WeightNoise:
    deviation: float = 0.0  # Gaussian, on LSTM and embedding weights
    from_step: int = 0

    def __post_init__(self) -> None:
        expect_from(0, "weight_noise", self, "deviation", "from_step")


@dataclass(frozen=True)
class Decoding:
    """The beam search that the model is measured with; it goes into the model's card."""

    beam: int = 8
    threshold: float = 4.0
    patience: float = 0.4  # seconds until the best hypothesis is taken at its word; 0: not until all agree, as in the paper

    def __post_init__(self) -> None:
        expect_from(1, "decoding", self, "beam", highest=1000)
        expect_from(0, "decoding", self, "threshold")
        expect_from(0, "decoding", self, "patience", highest=60)


@dataclass(frozen=True)
class Recipe:
    seed: int = 1
    steps: int = 1_500_000
    symbols: Literal["characters", "phones"] = "characters"
    precision: Precision = "float32"  # of products of matrices, in training; soft attention's apart
    dropout: float = 0.0  # share of the units of each of the encoder's LSTM layers that say nothing, utterance by utterance
    learns: tuple[str, ...] = ()  # parts of the network; the others stay as they were, without dropout and noise; (): all learn
    model: ModelConfig = field(default_factory=ModelConfig)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer = field(default_factory=Optimizer)
    loss: Loss = field(default_factory=Loss)
    attention: Attention = field(default_factory=Attention)
    augmentation: Augmentation = field(default_factory=Augmentation)
    weight_noise: WeightNoise = field(default_factory=WeightNoise)
    decoding: Decoding = field(default_factory=Decoding)

    def __post_init__(self) -> None:
        expect_from(0, "recipe", self, "seed", highest=MOST)
        expect_from(1, "recipe", self, "steps", highest=MOST)
        expect_from(0, "recipe", self, "dropout", highest=0.9)


def load_recipe(name_or_path: str) -> Recipe:
    """The recipe of that name among ours, or the one in that TOML file."""
    return config_from_dict(Recipe, _read(name_or_path), "recipe")


def _read(name_or_path: str, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a recipe and of those that it starts from; `above` are the files that led here."""
    if name_or_path.endswith(".toml"):
        path = (above[-1].parent if above else Path()) / name_or_path  # a base lies beside the recipe that names it
    else:
        path = RECIPES / f"{name_or_path}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
        raise ValueError(f"recipe={name_or_path!r}: expected a TOML file or one of {known}")
    if path in above:
        raise ValueError(f"{above[-1]}: base={name_or_path!r} starts from itself: expected another recipe")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from error
    if "base" not in values:
        return values
    base = values.pop("base")
    if not isinstance(base, str):
        raise ValueError(f"{path}: base={base!r}: expected the name of a recipe or a TOML file")
    return _merged(_read(base, (*above, path)), values)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def value_at(points: Points, step: int, interpolation: str = "constant") -> float:
    """The value that `points` (step, value) give at `step`."""
    for (left, low), (right, high) in pairwise(points):
        if step < right:
            share = (step - left) / (right - left) if interpolation == "linear" else 0.0
            return low + share * (high - low)
    return points[-1][1]
