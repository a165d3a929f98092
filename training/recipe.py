"""A recipe: everything that a training run depends on but the data, in one short TOML file.

A recipe may start from another one (`base = "wsj"`) and name only what differs. Unknown keys are errors.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from model.config import ModelConfig, config_from_dict

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Data:
    batch_seconds: float = 30.0  # of audio per replica and step, padding included; 0: count utterances instead
    batch_utterances: int = 0  # per replica and step, where batch_seconds is 0
    max_seconds: tuple[tuple[float, ...], ...] = ((0, 20.0),)  # (from step, longest utterance): a length curriculum
    speaker_cap: int = 0  # utterances of one speaker per epoch; 0: all

    def __post_init__(self) -> None:
        if self.batch_seconds <= 0 and self.batch_utterances <= 0:
            raise ValueError(
                f"data.batch_seconds={self.batch_seconds}, data.batch_utterances={self.batch_utterances}: expected one above 0"
            )


@dataclass(frozen=True)
class Optimizer:
    learning_rate: tuple[tuple[float, ...], ...] = ((0, 2e-4),)  # (step, rate) points
    interpolation: Literal["constant", "linear"] = "constant"  # between those points
    matrices: Literal["adam", "muon"] = "adam"  # who steps the matrices of hidden layers; Adam does all the rest
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-6
    l2: float = 0.0  # l2 / 2 times the squared norm of all matrices and filters, as a part of the loss
    gradient_norm: float = 1.0
    average: float = 0.0  # decay of the moving average of the weights that is evaluated and shipped; 0: none


@dataclass(frozen=True)
class Loss:
    """Weights of the parts of the loss."""

    attention: float = 1.0
    ctc: float = 0.0
    quantity: float = 0.0  # expected number of attended frames = number of labels
    alignment: float = 0.0  # energies follow the CTC head's own forced alignment
    label_smoothing: tuple[float, ...] = (1.0,)  # weights of the labels around the target, normalised to sum 1


@dataclass(frozen=True)
class Attention:
    """How the context is computed in training."""

    mode: Literal["soft", "softmax", "forced"] = "soft"  # forced: the entries that the CTC alignment names
    heard: float = 0.0  # share of the decoder's inputs as the CTC head hears them, not as they are (after Bengio et al., 2015)


@dataclass(frozen=True)
class Augmentation:
    from_step: int = 0
    gain: float = 0.0  # nats of power, up or down, per utterance
    noise: float = 0.0  # share of utterances with coloured noise mixed in
    tempo: float = 0.0  # 0.1: each batch is spoken up to 10 % faster or slower (Ko et al., 2015, on features)
    warp: float = 0.0  # 0.1: each utterance's spectrum is stretched by up to 10 % (vocal tract length, Jaitly and Hinton, 2013)
    time_masks: int = 0
    time_mask_frames: int = 0
    frequency_masks: int = 0
    frequency_mask_bins: int = 0


@dataclass(frozen=True)
class WeightNoise:
    deviation: float = 0.0  # Gaussian, on LSTM and embedding weights
    from_step: int = 0


@dataclass(frozen=True)
class Decoding:
    """The beam search that the model is measured with; it goes into the model's card."""

    beam: int = 8
    threshold: float = 3.0


@dataclass(frozen=True)
class Recipe:
    seed: int = 1
    steps: int = 1_500_000
    symbols: Literal["characters", "phones"] = "characters"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer = field(default_factory=Optimizer)
    loss: Loss = field(default_factory=Loss)
    attention: Attention = field(default_factory=Attention)
    augmentation: Augmentation = field(default_factory=Augmentation)
    weight_noise: WeightNoise = field(default_factory=WeightNoise)
    decoding: Decoding = field(default_factory=Decoding)


def load_recipe(name_or_path: str) -> Recipe:
    """The recipe of that name among ours, or the one in that TOML file."""
    return config_from_dict(Recipe, _read(name_or_path), "recipe")


def _read(name_or_path: str) -> dict[str, Any]:
    path = Path(name_or_path) if name_or_path.endswith(".toml") else RECIPES / f"{name_or_path}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
        raise ValueError(f"recipe={name_or_path!r}: expected a TOML file or one of {known}")
    try:
        values = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from error
    base = values.pop("base", None)
    return _merged(_read(base), values) if base else values


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merged(merged.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def value_at(points: tuple[tuple[float, ...], ...], step: int, interpolation: str = "constant") -> float:
    """The value that `points` (step, value) give at `step`."""
    for (left, low), (right, high) in pairwise(points):
        if step < right:
            share = (step - left) / (right - left) if interpolation == "linear" else 0.0
            return low + share * (high - low)
    return points[-1][1]
