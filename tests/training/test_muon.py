"""Steps along the orthogonalised momentum: all directions alike, as large as Adam's, the same for any number of replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from model.config import WSJ
from model.network import Network
from model.symbols import SymbolTable
from tests.training.conftest import RECIPE
from tests.training.test_trainer import go
from training import muon
from training.cache import FeatureCache
from training.muon import Muon, hidden_matrices, orthogonalized, shares
from training.recipe import Attention
from training.trainer import Trainer


@pytest.mark.parametrize("shape", [(3, 64, 200), (1, 200, 64), (2, 96, 96)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 100
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    found = left.mT @ orthogonalized(matrices) @ right.mT  # diagonal where the directions are the same
    well_conditioned = values > 0.1 * values[:, :1]
    diagonal = found.diagonal(dim1=-2, dim2=-1)
    assert ((diagonal[well_conditioned] > 0.6) & (diagonal[well_conditioned] < 1.3)).all()
    assert (found - torch.diag_embed(diagonal)).abs().max() < 1e-3


def test_it_takes_the_matrices_of_hidden_layers() -> None:
    network = Network(WSJ, SymbolTable())
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    taken = {names[id(parameter)]: gates for parameter, gates in hidden_matrices(network)}
    assert taken["encoder.lstms.0.lstm.weight_ih_l0"] == 4
    assert taken["encoder.lstms.0.projection.weight"] == 1
    assert not [name for name in taken if "embedding" in name or "bias" in name or "conv1" in name or name.startswith("ctc")]
    assert sum(parameter.numel() for parameter, _ in hidden_matrices(network)) > 0.9 * sum(p.numel() for p in network.parameters())


def matrix_with_gradient(rows: int, columns: int, seed: int) -> nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    parameter = nn.Parameter(torch.randn(rows, columns, generator=generator))
    parameter.grad = torch.randn(rows, columns, generator=generator)
    return parameter


@pytest.mark.parametrize(("rows", "columns", "gates"), [(128, 96, 1), (256, 96, 4), (96, 300, 1)])
def test_a_step_has_the_size_of_adams(rows: int, columns: int, gates: int) -> None:
    parameter = matrix_with_gradient(rows, columns, 0)
    before = parameter.detach().clone()
    optimizer = Muon([(parameter, gates)])
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    size = float((parameter.detach() - before).square().mean().sqrt())
    assert 0.5 * 0.2 * 0.7 < size < 0.5 * 0.2 * 1.3


def test_a_gate_does_not_depend_on_the_others() -> None:
    whole, alone = matrix_with_gradient(256, 96, 3), matrix_with_gradient(256, 96, 3)
    assert alone.grad is not None
    alone.grad[64:] *= -7
    for parameter in (whole, alone):
        optimizer = Muon([(parameter, 4)])
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
    assert torch.equal(whole[:64], alone[:64])
    assert not torch.equal(whole[64:], alone[64:])


def test_replicas_share_the_work_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = [(matrix_with_gradient(64 * (1 + seed), 80, seed), 1) for seed in range(4)]
    updates: list[Tensor] = []
    monkeypatch.setattr(dist, "all_reduce", lambda flat: updates.append(flat.clone()))
    for rank in range(2):
        Muon(matrices, rank, replicas=2).step()  # at a rate of 0
    assert all(float(update.abs().sum()) > 0 for update in updates)
    before = torch.cat([parameter.detach().clone().flatten() for parameter, _ in matrices])
    single = Muon(matrices)
    single.param_groups[0]["lr"] = 1.0
    single.step()
    after = torch.cat([parameter.detach().flatten() for parameter, _ in matrices])
    torch.testing.assert_close(updates[0] + updates[1], before - after, atol=1e-5, rtol=1e-5)


def test_shares_are_even() -> None:
    assert sorted(shares([5, 1, 4, 2], 2)) == [0, 0, 1, 1]
    assert shares([5, 1, 4, 2], 2)[0] != shares([5, 1, 4, 2], 2)[2]
    assert shares([3, 3, 3], 1) == [0, 0, 0]


def test_a_run_resumes_exactly(cache: FeatureCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "SMALLEST", 4)  # the test's network is tiny
    recipe = replace(RECIPE, optimizer=replace(RECIPE.optimizer, matrices="muon"))
    whole = Trainer(recipe, cache, tmp_path / "whole")
    assert len(whole.optimizers) == 2
    expected = go(whole, 6)
    first = go(Trainer(recipe, cache, tmp_path / "cut"), 4, save_at=3)
    assert first[:3] + go(Trainer(recipe, cache, tmp_path / "cut"), 6) == expected
    adam = go(Trainer(RECIPE, cache, tmp_path / "adam"), 6)
    assert adam[0]["attention"] == expected[0]["attention"]
    assert adam[-1]["attention"] != expected[-1]["attention"]


def test_products_in_bfloat16_make_about_the_same_steps_of_weights_in_float32(tmp_path: Path, cache: FeatureCache) -> None:
    taken = {}
    for precision in ("float32", "bfloat16"):
        encoder = replace(RECIPE.model.encoder, lstm_units=(64,), projection=64)
        decoder = replace(RECIPE.model.decoder, lstm_units=64)
        recipe = replace(RECIPE, precision=precision, model=replace(RECIPE.model, encoder=encoder, decoder=decoder))
        recipe = replace(recipe, attention=Attention("forced"), loss=replace(recipe.loss, alignment=0.5))
        recipe = replace(recipe, optimizer=replace(recipe.optimizer, matrices="muon"))
        trainer = Trainer(recipe, cache, tmp_path / precision)
        before = torch.cat([parameter.detach().flatten() for parameter in trainer.parameters])
        parts = trainer.train_step(next(trainer.batches()))
        assert all(parameter.dtype == torch.float32 for parameter in trainer.parameters)
        taken[precision] = (
            [parts["ctc"], parts["attention"]],
            torch.cat([parameter.detach().flatten() for parameter in trainer.parameters]) - before,
        )
    (exact, whole), (rounded, near) = taken["float32"], taken["bfloat16"]
    assert rounded == pytest.approx(exact, rel=0.02)
    assert rounded != exact
    assert torch.cosine_similarity(whole, near, dim=0) > 0.9
