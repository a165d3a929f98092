from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import monoscribe
from model.files import WEIGHTS_FILE, ModelCard, load_model, save_model
from model.language import LANGUAGE_FILE
from model.symbols import SymbolTable
from tests.conftest import SMALL, random_network
from training.average import average


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    folders = []
    for seed, name in enumerate(("first", "second")):
        folders.append(tmp_path / name)
        save_model(folders[-1], random_network(seed=seed), ModelCard(name, 0.1, dict(steps=seed)), torch.float32)
    return folders


def test_so_much_of_each(models: list[Path], tmp_path: Path) -> None:
    command = ["average", *map(str, models), "--shares", "0.75", "0.25", "--out", str(tmp_path / "both")]
    assert monoscribe.main(command) == 0
    blended, card = load_model(tmp_path / "both")
    first, second = (load_model(folder)[0].state_dict() for folder in models)
    for name, tensor in blended.named_parameters():
        torch.testing.assert_close(tensor, 0.75 * first[name] + 0.25 * second[name], rtol=1e-3, atol=1e-3)
    facts = dict(steps=0, averaged=[dict(name="first", share=0.75), dict(name="second", share=0.25)])
    assert card == ModelCard("first", 0.1, facts)


def test_all_the_same_where_no_share_is_named(models: list[Path], tmp_path: Path) -> None:
    average(models, tmp_path / "both")
    average(models[::-1], tmp_path / "again")
    assert (tmp_path / "both" / WEIGHTS_FILE).read_bytes() == (tmp_path / "again" / WEIGHTS_FILE).read_bytes()


def test_one_alone_is_stored_in_fewer_bits(tmp_path: Path) -> None:
    wide = replace(SMALL, encoder=replace(SMALL.encoder, lstm_units=(64, 64, 64)))
    save_model(tmp_path / "wide", random_network(wide), ModelCard("wide", 0.1, dict(steps=1)))
    assert monoscribe.main(["average", str(tmp_path / "wide"), "--bits", "8", "--out", str(tmp_path / "eight")]) == 0
    assert load_model(tmp_path / "eight")[1] == ModelCard("wide", 0.1, dict(steps=1))
    assert (tmp_path / "eight" / WEIGHTS_FILE).stat().st_size < 0.75 * (tmp_path / "wide" / WEIGHTS_FILE).stat().st_size


def test_the_first_model_s_words_come_along(models: list[Path], tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("a cab\n" * 5)
    assert monoscribe.main(["language", str(sentences), "--out", str(models[0] / LANGUAGE_FILE)]) == 0
    average(models, tmp_path / "both")
    assert (tmp_path / "both" / LANGUAGE_FILE).read_bytes() == (models[0] / LANGUAGE_FILE).read_bytes()
    average(models[::-1], tmp_path / "both")
    assert not (tmp_path / "both" / LANGUAGE_FILE).exists()


def test_a_file_is_no_place_for_a_model(models: list[Path], tmp_path: Path) -> None:
    (tmp_path / "both").write_text("precious")
    with pytest.raises(ValueError, match=r"both': a file; expected a folder"):
        average(models, tmp_path / "both")


@pytest.mark.parametrize("shares", [["0.5"], ["0.5", "0.6"], ["0.2", "0.3", "0.5"], ["1", "0.001"]])
def test_shares_that_do_not_add_up_are_refused(
    models: list[Path], tmp_path: Path, shares: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert monoscribe.main(["average", *map(str, models), "--shares", *shares, "--out", str(tmp_path / "both")]) == 2
    assert f"shares={' '.join(shares)}: expected 2, one for each model" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_models_of_other_sizes_or_symbols_are_refused(models: list[Path], tmp_path: Path) -> None:
    symbols = SymbolTable((*SymbolTable().symbols[:-1], "ä"))
    save_model(tmp_path / "foreign", random_network(symbols=symbols), ModelCard())
    with pytest.raises(ValueError, match="foreign: other symbols; expected those of the first model"):
        average([*models, tmp_path / "foreign"], tmp_path / "all")
    large = replace(SMALL, decoder=replace(SMALL.decoder, lstm_units=9))
    save_model(tmp_path / "large", random_network(large), ModelCard())
    with pytest.raises(ValueError, match=r"large: decoder\.lstm_units=9: expected \d+, as in the first model"):
        average([*models, tmp_path / "large"], tmp_path / "all")
