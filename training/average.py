"""One model from the weights of several: between two good ones of one origin there is often a better one.

After Wortsman et al., "Model soups", 2022, arXiv:2203.05482.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from model.config import config_to_dict
from model.files import ModelCard, load_model, save_model, write_whole
from model.language import LANGUAGE_FILE
from model.network import Network

STORED = {16: torch.float16, 8: torch.int8}  # by bits


def average(folders: Sequence[Path], out: Path, shares: Sequence[float] = (), bits: int = 16) -> None:
    """Writes the model folder `out`: so much of each model, the same where nothing is said. One model alone is stored anew.

    Name, delay, facts and language model are those of the first.
    """
    shares = shares or [1 / len(folders)] * len(folders)
    if len(shares) != len(folders) or not all(share > 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        told = " ".join(f"{share:g}" for share in shares)
        raise ValueError(f"shares={told}: expected {len(folders)}, one for each model, above 0 and 1 in all")
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={str(out)!r}: a file; expected a folder, or a name that is free")
    models = [load_model(folder) for folder in folders]
    network, card = models[0]
    for folder, (other, _) in zip(folders, models, strict=True):
        expect_alike(folder, other, network)
    language = folders[0] / LANGUAGE_FILE
    words = language.read_bytes() if language.exists() else None
    _blend(network, [other for other, _ in models], shares)
    parts = [dict(name=other.name, share=share) for (_, other), share in zip(models, shares, strict=True)]
    facts = card.facts | (dict(averaged=parts) if len(models) > 1 else {})
    save_model(out, network, ModelCard(card.name, card.delay, facts), STORED[bits])
    if words is not None:
        write_whole(out / LANGUAGE_FILE, words)
    else:
        (out / LANGUAGE_FILE).unlink(missing_ok=True)  # of a model that was there before


def expect_alike(folder: Path, network: Network, first: Network) -> None:
    """An error that names the first thing in which a model is another than the first."""
    found, expected = config_to_dict(network.config), config_to_dict(first.config)
    for part, values in expected.items():
        for name, value in values.items():
            if found[part][name] != value:
                raise ValueError(f"{folder}: {part}.{name}={found[part][name]!r}: expected {value!r}, as in the first model")
    if network.symbols.symbols != first.symbols.symbols:
        raise ValueError(f"{folder}: other symbols; expected those of the first model")


def _blend(into: Network, networks: Sequence[Network], shares: Sequence[float]) -> None:
    """Statistics of batch normalisation and of the front end are weights like others here."""
    states = [network.state_dict() for network in networks]
    blended = {
        name: torch.stack([share * state[name] for share, state in zip(shares, states, strict=True)]).sum(0)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in states[0].items()
    }
    into.load_state_dict(blended)
