"""Model files: a folder with weights as safetensors, one JSON, and perhaps a language model. Loading runs no code from them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from model.config import ModelConfig, config_from_dict, config_to_dict, expect
from model.decoder import Decoder
from model.encoder import Encoder
from model.language import LANGUAGE_FILE, Language, load_language
from model.network import Network
from model.symbols import SPACE, SymbolTable

WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "model.json"
FORMAT = "monoscribe-model-1"
NORMALISER = ("prior_mean", "prior_deviation")  # of the front end: numbers to read, so they stand in the JSON
SCALE = ".scale"  # of what is stored in eight bits: a number for each row
FEWEST = 2**14  # numbers of a matrix that is worth eight bits
LEAST = dict(prior_deviation=1e-6, running_var=0.0)  # what is below cannot be divided by, or has no root
PRETRAINED = Path(__file__).parent / "pretrained"


class ModelFileError(ValueError):
    """A model folder that cannot be loaded; the message says what is wrong with it."""


@dataclass(frozen=True)
class ModelCard:
    """What the JSON holds besides config, symbols and normaliser: facts about the training."""

    name: str = "untrained"
    delay: float = 0.0  # seconds from a sound to the emission that stands for it, in the median
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        expect("delay", self.delay, 0, 10)


def save_model(folder: Path, network: Network, card: ModelCard, dtype: torch.dtype = torch.float16) -> None:
    """Writes both files, each as a whole or not at all.

    With torch.int8 large matrices have eight bits and a scale for each row, and all else is in half precision.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {}
    for name, tensor in _weights(network).items():
        if dtype == torch.int8 and tensor.dim() == 2 and tensor.numel() >= FEWEST:
            weights[name], weights[name + SCALE] = _in_eight_bits(tensor)
        else:
            weights[name] = _stored(tensor, torch.float16 if dtype == torch.int8 else dtype)
    described = dict(
        format=FORMAT,
        **config_to_dict(card),
        config=config_to_dict(network.config),
        symbols=list(network.symbols.symbols),
        normaliser={name: getattr(network.features, name).tolist() for name in NORMALISER},
    )
    write_whole(folder / WEIGHTS_FILE, safetensors.torch.save(weights))
    write_whole(folder / CARD_FILE, (json.dumps(described, indent=1) + "\n").encode())


def _weights(network: Network) -> dict[str, Tensor]:
    """All tensors but those of the normaliser, and counters that nothing reads."""
    apart = ("num_batches_tracked", *NORMALISER)
    return {name: tensor for name, tensor in network.state_dict().items() if not name.endswith(apart)}


def _stored(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """As `dtype`, unless a number is too large for that."""
    stored = tensor.to(dtype) if tensor.is_floating_point() else tensor
    return (stored if stored.isfinite().all() else tensor).contiguous()


def _in_eight_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, and what one of them is worth in each row (rows, 1)."""
    matrix = matrix.float()
    scale = matrix.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 127
    return (matrix / scale).round().to(torch.int8), scale


def load_model(folder: Path) -> tuple[Network, ModelCard]:
    described = _read_card(folder / CARD_FILE)
    try:
        config = config_from_dict(ModelConfig, described.pop("config"))
        symbols = _symbols(described.pop("symbols"))
        normaliser = _normaliser(described.pop("normaliser"))
        card = config_from_dict(ModelCard, described, "card")
        asked = _count_parameters(config, symbols)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{folder / CARD_FILE}: {_reason(error)}") from error
    weights = _read_weights(folder / WEIGHTS_FILE)
    found = sum(tensor.numel() for tensor in weights.values())
    if asked > found:  # before anything is allocated, since a card may ask for any size
        raise ModelFileError(f"{folder / WEIGHTS_FILE}: {found} numbers: expected {asked}, as {CARD_FILE} says")
    network = Network(config, symbols)
    _set(network, _weights(network), weights, folder / WEIGHTS_FILE)
    _set(network.features, {name: getattr(network.features, name) for name in NORMALISER}, normaliser, folder / CARD_FILE)
    if (folder / LANGUAGE_FILE).exists():
        network.language = _read_language(folder / LANGUAGE_FILE, symbols)
    return network.eval().requires_grad_(False), card


def _read_card(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}; expected a model folder with {CARD_FILE} and {WEIGHTS_FILE}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not JSON: {error}") from error
    found = described.pop("format", None) if isinstance(described, dict) else None
    if found != FORMAT:
        raise ModelFileError(f"{path}: format={found!r}: expected {FORMAT!r}")
    return dict(described)


def _symbols(found: object) -> SymbolTable:
    if not isinstance(found, list):
        raise ValueError(f"symbols={found!r}: expected a list")
    return SymbolTable(tuple(found))


def _normaliser(found: object) -> dict[str, Tensor]:
    if not isinstance(found, dict):
        raise ValueError(f"normaliser={found!r}: expected a table")
    tensors = {}
    for name, numbers in found.items():
        try:
            tensors[name] = torch.tensor(numbers, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"normaliser.{name}: expected rows of numbers: {error}") from error
    return tensors


def _count_parameters(config: ModelConfig, symbols: SymbolTable) -> int:
    with torch.device("meta"):  # shapes without memory
        encoder = Encoder(config.encoder, config.features.bins)
        decoder = Decoder(config.decoder, config.attention, config.encoder.output_size, len(symbols))
    return sum(parameter.numel() for part in (encoder, decoder) for parameter in part.parameters())


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return _unpacked(safetensors.torch.load(path.read_bytes()), path)
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from error
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"{path}: not a whole safetensors file: {error}") from error
    except KeyError as error:
        raise ModelFileError(f"{path}: type {error} is none of torch's") from error


def _unpacked(stored: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """What was stored in eight bits, as the numbers that it stands for."""
    weights = dict(stored)
    for name, whole in stored.items():
        scale = stored.get(name + SCALE)
        if scale is None:
            continue
        if whole.dtype != torch.int8 or whole.dim() != 2 or not scale.is_floating_point() or scale.shape != (len(whole), 1):
            found = f"{whole.dtype} of {tuple(whole.shape)} with {scale.dtype} of {tuple(scale.shape)}"
            raise ModelFileError(f"{path}: {name} is {found}: expected torch.int8 of (rows, columns) with a scale of (rows, 1)")
        weights[name] = whole * weights.pop(name + SCALE).float()
    return weights


def _set(module: nn.Module, expected: dict[str, Tensor], weights: dict[str, Tensor], path: Path) -> None:
    """The tensors that are expected, if all of them were found in the file and nothing else."""
    for name, tensor in expected.items():
        if name not in weights:
            raise ModelFileError(f"{path}: no tensor {name}, which {CARD_FILE} asks for")
        if weights[name].shape != tensor.shape:
            raise ModelFileError(
                f"{path}: {name} is {tuple(weights[name].shape)}: expected {tuple(tensor.shape)}, as {CARD_FILE} says"
            )
        if not weights[name].is_floating_point():
            raise ModelFileError(f"{path}: {name} is {weights[name].dtype}: expected floats, or torch.int8 with {name}{SCALE}")
        values = weights[name].float()
        if not bool(values.isfinite().all()):
            raise ModelFileError(f"{path}: {name} has values that are no finite numbers")
        least = LEAST.get(name.rpartition(".")[2])
        if least is not None and bool((values < least).any()):
            raise ModelFileError(f"{path}: {name} has values below {least}")
        if name.endswith("energy.direction") and not bool(values.any()):  # its length is divided by
            raise ModelFileError(f"{path}: {name} is nothing but zeros")
    surplus = sorted(set(weights) - set(expected))
    if surplus:
        raise ModelFileError(f"{path}: tensor {surplus[0]} is none of this model's")
    module.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)


def _read_language(path: Path, symbols: SymbolTable) -> Language:
    try:
        language = load_language(path)
    except ValueError as error:
        raise ModelFileError(str(error)) from error
    strangers = {SPACE, *"".join(language.words)} - set(symbols.symbols)
    if strangers:
        raise ModelFileError(f"{path}: {min(strangers)!r}, which it is written with, is none of the symbols in {CARD_FILE}")
    return language


def _reason(error: Exception) -> str:
    return f"no key {error}" if isinstance(error, KeyError) else str(error)


def write_whole(path: Path, content: bytes) -> None:
    """Whatever goes wrong, `path` has its old content or the new one."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
