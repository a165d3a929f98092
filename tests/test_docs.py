"""Every command and snippet of the documents is run, from top to bottom, as a reader would; what nobody can run fails.

Training happens in small: by the recipes that are named, with small networks and two steps. What needs hardware, an engine for
containers or several machines is read by the real parser instead.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import lzma
import re
import shutil
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
import soundfile
import torch

import monoscribe
from client import Event
from client.flags import EXIT_CODES
from model import Recognizer
from model.files import ModelCard, save_model
from tests.client.conftest import server
from tests.conftest import random_network
from tests.documents import DOCUMENTS, ROOT, blocks, spans
from tests.reader import Reader, check_extra, check_make
from tests.server.conftest import RunningServer, noise, pcm, recognizer
from tests.server.encode import encode
from tests.training.conftest import ARPA, write_clips
from tests.training.discs import write_timit, write_wsj
from training import commands
from training.corpora.manifest import read_manifest, write_manifest
from training.prepare import prepare
from training.recipe import RECIPES, Recipe, load_recipe
from training.text import Characters

__all__ = ["recognizer", "server"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the documents take for granted."""
    folder = tmp_path_factory.mktemp("stage")
    speech, more = noise(2, seed=40), noise(2, seed=41)
    (folder / "speech.raw").write_bytes(pcm(speech))
    for name, samples in (("speech.wav", speech), ("more.wav", more)):
        soundfile.write(folder / name, samples, 16_000, subtype="PCM_16")
    for container in ("flac", "mp3", "webm"):
        (folder / f"talk.{container}").write_bytes(encode(speech, container))
    (folder / "talk.raw").write_bytes(pcm(speech[::2]))
    for name in ("recordings/anna/001.wav", "recordings/anna/002.flac", "recordings/ben/001.mp3", "held-out/cleo/001.wav"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(more, path.suffix[1:]))
        path.with_suffix(".txt").write_text("a cab")
    clips = [dict(path=clip.path.name, text=clip.text, speaker=clip.speaker, set=clip.part) for clip in write_clips(folder)]
    for name in ("train", "dev", "unlabelled"):
        write_manifest(folder / f"{name}.tsv", clips)
    for name in ("books", "sentences"):
        (folder / f"{name}.txt").write_text("A cab, a bad cab. A cab!\n\nDad had a cab.\n")
    (folder / "words.arpa").write_text(ARPA, encoding="utf-8")
    write_wsj(folder / "corpora" / "wsj")
    write_timit(folder / "corpora" / "timit")
    save_model(folder / "talkative", random_network(), ModelCard("talkative"), torch.float32)
    (folder / "tests").symlink_to(ROOT / "tests")
    return folder


def in_small(recipe: Recipe) -> Recipe:
    model = recipe.model
    encoder = replace(
        model.encoder,
        conv_filters=tuple(2 for _ in model.encoder.conv_filters),
        conv_lstm_filters=min(2, model.encoder.conv_lstm_filters),
        lstm_units=tuple(6 for _ in model.encoder.lstm_units),
        projection=min(6, model.encoder.projection),
    )
    small = replace(
        model,
        features=replace(model.features, mel_bins=8),
        encoder=encoder,
        attention=replace(model.attention, hidden=6),
        decoder=replace(model.decoder, embedding=4, lstm_units=6),
    )
    return replace(recipe, steps=2, model=small)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own
@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_blocks(
    document: Path, stage: Path, server: RunningServer, recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(stage, tmp_path / "stage", symlinks=True))
    monkeypatch.setenv("KEY", "secret")
    monkeypatch.setattr(commands, "load_recipe", lambda name: in_small(load_recipe(name)))
    monkeypatch.setattr(commands, "prepare", partial(prepare, workers=1))
    reader = Reader(server, recognizer)
    for block in blocks(document):
        reader.read(block)
    if reader.lacking:
        pytest.skip(f"all but what needs {', '.join(reader.lacking)}")


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_in_the_prose(document: Path) -> None:
    """They name subcommands, flags, targets and extras that exist."""
    for span in spans(document):
        program, *words = span.split()
        if program == "make" and words:
            check_make(words[:1])
        elif program == "pip" and words:
            check_extra(words[-1])
        elif program == "monoscribe" and words:
            flags = {word for word in words if word.startswith("--")}
            assert flags <= known_flags(words), f"{document}: {span}"


def known_flags(words: list[str]) -> set[str]:
    (subcommands,) = (action for action in monoscribe.build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert words[0] in subcommands.choices, words
    if words[0] != "benchmark":
        return set(subcommands.choices[words[0]]._option_string_actions)
    name = (words[1:] or ["report"])[0]
    assert name in monoscribe.BENCHMARKS, words
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        import_module(f"benchmarks.{name}").main(["--help"])
    return set(re.findall(r"--[a-z-]+", told.getvalue()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / document).read_text()):
        assert (ROOT / document).parent.joinpath(link).exists(), link


def test_every_event_of_the_client_is_explained() -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    for kind in get_args(Event):
        assert f"`{kind.__name__}({', '.join(kind.__dataclass_fields__)})`" in page


def test_every_exit_code_of_the_client_is_explained() -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    assert re.findall(r"^  (\d+)", EXIT_CODES, re.MULTILINE) == re.findall(r"^\| (\d+) \|", page, re.MULTILINE)


def test_every_recipe_is_explained() -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    table = page[page.index("| recipe |") :].split("\n\n")[0]
    assert set(re.findall(r"`([a-z][\w-]*)`", table)) == {path.stem for path in RECIPES.glob("*.toml")}


def test_the_labels_are_a_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "labels.tsv"
    manifest.write_bytes(lzma.decompress((ROOT / "docs" / "labels.tsv.xz").read_bytes()))
    spelling, labels = Characters(), list(read_manifest(manifest))
    assert f"{len(labels):,} clips" in (ROOT / "docs" / "training.md").read_text()
    assert len({label.path for label in labels}) == len(labels)
    assert all(label.text and spelling.reference(label.text) == label.text for label in labels)
