"""The kernel computes what torch does, but for rounding; where it cannot be had, training goes on without."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Literal
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from model.conv_lstm import ConvLSTM
from tests.training.conftest import RECIPE
from training import recurrence
from training.cache import FeatureCache
from training.recurrence import missing, quicken
from training.trainer import Trainer

ROUNDING = 0.03  # of products in bfloat16, as a share of what float32 gives

needs_kernel = pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")


def layer_and_input(
    kind: str, units: int, streams: int, steps: int, width: int, scale: float
) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    layer = nn.LSTM(24, units, batch_first=True) if kind == "lstm" else ConvLSTM(8, units)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, scale)
    if kind == "lstm":
        return layer, (torch.randn(streams, steps, 24), torch.zeros(1, streams, units))
    return layer, (torch.randn(streams, steps, width, 8), torch.zeros(streams, width, units))


def outputs_and_gradients(layer: nn.Module, x: Tensor, nothing: Tensor, half: bool) -> list[Tensor]:
    layer.zero_grad()
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        y = layer(x, (nothing, nothing))[0] if isinstance(layer, nn.LSTM) else layer(x, nothing, nothing)[0]
    weights = torch.linspace(-1, 1, y.numel()).view_as(y)  # every output counts, each differently
    (y.float() * weights).sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    return [y.detach().float(), *(gradient for gradient in gradients if gradient is not None)]


@needs_kernel
@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["lstm", "conv_lstm"]),
    st.sampled_from([32, 64, 96]),
    st.integers(1, 14),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_it_says_what_torch_says_forwards_and_backwards(
    kind: str, units: int, streams: int, steps: int, width: int, seed: int
) -> None:
    torch.manual_seed(seed)
    layer, inputs = layer_and_input(kind, units, streams, steps, width, 0.15)
    exact = outputs_and_gradients(layer, *inputs, half=False)
    quick = deepcopy(layer)
    assert quicken(quick) == []
    with mock.patch.object(recurrence._Recurrence, "apply", wraps=recurrence._Recurrence.apply) as ran:
        rounded = outputs_and_gradients(quick, *inputs, half=True)
    assert ran.called
    assert len(rounded) == len(exact)
    for found, expected in zip(rounded, exact, strict=True):
        assert found.shape == expected.shape
        assert (found - expected).norm() <= ROUNDING * expected.norm() + 1e-6


@needs_kernel
@pytest.mark.parametrize("kind", ["lstm", "conv_lstm"])
def test_gates_that_are_wide_open_or_shut_stay_numbers(kind: str) -> None:
    layer, inputs = layer_and_input(kind, 32, 3, 5, 2, 100.0)
    quicken(layer)
    assert all(tensor.isfinite().all() for tensor in outputs_and_gradients(layer, *inputs, half=True))


@needs_kernel
@pytest.mark.parametrize("kind", ["lstm", "conv_lstm"])
def test_where_products_are_not_rounded_it_has_no_say(kind: str) -> None:
    layer, inputs = layer_and_input(kind, 32, 3, 5, 2, 0.15)
    before = outputs_and_gradients(layer, *inputs, half=False)
    quicken(layer)
    assert all(map(torch.equal, before, outputs_and_gradients(layer, *inputs, half=False)))


@needs_kernel
def test_loading_it_changes_no_arithmetic_elsewhere() -> None:
    recurrence.kernel()
    assert torch.tensor(1e-40) * 0.5 > 0


@needs_kernel
def test_a_layer_that_it_cannot_run_is_told() -> None:
    assert quicken(nn.LSTM(4, 40)) == ["a layer's units are no multiple of 32"]


@needs_kernel
@pytest.mark.parametrize(
    ("mode", "energy", "runs"), [("forced", "additive", True), ("forced", "bilinear", False), ("soft", "additive", False)]
)
def test_it_runs_a_decoder_that_says_whole_sequences_from_nothing(
    cache: FeatureCache, tmp_path: Path, mode: Literal["forced", "soft"], energy: Literal["additive", "bilinear"], runs: bool
) -> None:
    """With bilinear energies the first state is learnt, and the kernel has no gradient for that."""
    model = replace(
        RECIPE.model,
        decoder=replace(RECIPE.model.decoder, lstm_units=32),
        attention=replace(RECIPE.model.attention, energy=energy),
    )
    recipe = replace(RECIPE, model=model, precision="bfloat16", loss=replace(RECIPE.loss, quantity=0.0))
    trainer = Trainer(replace(recipe, attention=replace(recipe.attention, mode=mode)), cache, tmp_path)
    with mock.patch.object(recurrence._Recurrence, "apply", wraps=recurrence._Recurrence.apply) as ran:
        trainer.train_step(next(trainer.batches()))
    assert ran.called == runs  # the encoder's layers are too small for it
    first = trainer.network.decoder.first_hidden
    assert first is None or (first.grad is not None and first.grad.any())


def test_without_a_compiler_training_goes_on_and_says_why_it_is_slower(
    cache: FeatureCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recurrence.kernel.cache_clear()
    monkeypatch.setattr(recurrence, "COMPILER", "no-such-compiler")
    trainer = Trainer(replace(RECIPE, precision="bfloat16"), cache, tmp_path)
    assert "without its kernel" in capsys.readouterr().err
    assert torch.isfinite(torch.tensor(trainer.train_step(next(trainer.batches()))["ctc"]))
