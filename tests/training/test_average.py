from __future__ import annotations

from pathlib import Path

import pytest
import torch

import monoscribe
from model.files import WEIGHTS_FILE, ModelCard, load_model, save_model
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


def test_one_alone_is_stored_in_fewer_bits(models: list[Path], tmp_path: Path) -> None:
    assert monoscribe.main(["average", str(models[1]), "--bits", "8", "--out", str(tmp_path / "eight")]) == 0
    assert load_model(tmp_path / "eight")[1] == ModelCard("second", 0.1, dict(steps=1))
    assert (tmp_path / "eight" / WEIGHTS_FILE).stat().st_size < 0.6 * (models[1] / WEIGHTS_FILE).stat().st_size


@pytest.mark.parametrize("shares", [["0.5"], ["0.5", "0.6"], ["0.2", "0.3", "0.5"], ["1", "0.001"]])
def test_shares_that_do_not_add_up_are_refused(
    models: list[Path], tmp_path: Path, shares: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert monoscribe.main(["average", *map(str, models), "--shares", *shares, "--out", str(tmp_path / "both")]) == 2
    assert f"shares={' '.join(shares)}: expected 2, one for each model" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_models_of_other_symbols_are_refused(models: list[Path], tmp_path: Path) -> None:
    symbols = SymbolTable((*SymbolTable().symbols[:-1], "ä"))
    save_model(tmp_path / "third", random_network(SMALL, symbols=symbols), ModelCard())
    with pytest.raises(ValueError, match=r"third: other sizes or symbols than in .*first; expected the same"):
        average([*models, tmp_path / "third"], tmp_path / "all")
