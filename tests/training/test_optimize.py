"""Schedule, clipping, L2, weight noise and averaging against numbers computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.conftest import random_network
from tests.training.conftest import RECIPE
from training.optimize import add_l2, clip, drop_outputs, flat_gradient, noisy_weights_of, update_average, weight_noise
from training.recipe import value_at

PAPER = ((0, 2e-4), (700_000, 2e-5), (1_000_000, 2e-6), (1_300_000, 2e-7))


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 2e-4), (699_999, 2e-4), (700_000, 2e-5), (999_999, 2e-5), (1_000_000, 2e-6), (1_300_000, 2e-7), (9_999_999, 2e-7)],
)
def test_the_papers_schedule(step: int, rate: float) -> None:
    assert value_at(PAPER, step) == rate


@pytest.mark.parametrize(("step", "rate"), [(0, 0.0), (50, 0.5), (100, 1.0), (150, 0.75), (200, 0.5), (300, 0.5)])
def test_a_linear_schedule(step: int, rate: float) -> None:
    assert value_at(((0, 0.0), (100, 1.0), (200, 0.5)), step, "linear") == rate


def test_clipping_keeps_the_direction() -> None:
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1, 1))]
    gradient = flat_gradient(weights)
    (weights[0] @ torch.tensor([3.0, 0.0]) + 4.0 * weights[1].sum()).backward()
    assert clip(gradient, 1.0) == 5.0
    assert weights[0].grad is not None
    assert weights[1].grad is not None
    torch.testing.assert_close(weights[0].grad, torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(weights[1].grad, torch.tensor([[0.8]]))
    assert clip(gradient, 1.5) == pytest.approx(1.0)
    torch.testing.assert_close(gradient, torch.tensor([0.6, 0.0, 0.8]))


def test_l2_is_a_part_of_the_loss_of_matrices_alone() -> None:
    matrix, bias = nn.Parameter(torch.tensor([[2.0, -4.0]])), nn.Parameter(torch.tensor([8.0]))
    gradient = flat_gradient([matrix, bias])
    gradient.fill_(1.0)
    add_l2([matrix, bias], 0.5)
    assert gradient.tolist() == [1 + 0.5 * 2, 1 - 0.5 * 4, 1]
    add_l2([matrix, bias], 0.0)
    assert gradient.tolist() == [2, -1, 1]


def test_noise_is_on_lstm_and_embedding_weights_alone() -> None:
    network = random_network(RECIPE.model)
    noisy = {id(weight) for weight in noisy_weights_of(network)}
    names = {name for name, parameter in network.named_parameters() if id(parameter) in noisy}
    assert names == {name for name, parameter in network.named_parameters() if parameter.dim() > 1 and is_noisy(name)}
    assert "decoder.embedding.weight" in names
    assert any("conv_lstm" in name for name in names)
    assert not any("projection" in name or "output" in name or "convs" in name or "bias" in name for name in names)


def is_noisy(name: str) -> bool:
    return ".lstm." in name or "conv_lstm" in name or "embedding" in name


def test_noise_has_its_deviation_and_leaves_no_trace() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(100, 100))
    before = weight.detach().clone()
    with weight_noise([weight], 0.075):
        noise = weight.detach() - before
        assert float(noise.std()) == pytest.approx(0.075, rel=0.05)
        assert float(noise.mean()) == pytest.approx(0.0, abs=0.005)
        weight.square().sum().backward()
        torch.testing.assert_close(weight.grad, 2 * (before + noise))  # the gradient is that of the noisy weights
    assert torch.equal(weight, before)
    with pytest.raises(RuntimeError), weight_noise([weight], 1.0):
        raise RuntimeError
    assert torch.equal(weight, before)


def test_no_noise_draws_no_numbers() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    with weight_noise([nn.Parameter(torch.ones(2, 2))], 0.0):
        assert torch.equal(torch.rand(1), expected)


def test_average_follows_the_weights() -> None:
    average = {"weight": torch.tensor([1.0]), "count": torch.tensor(3)}
    update_average(average, {"weight": torch.tensor([2.0]), "count": torch.tensor(4)}, decay=0.9, step=1_000)
    assert average["weight"].item() == pytest.approx(0.9 * 1 + 0.1 * 2)
    update_average(average, {"weight": torch.tensor([2.1]), "count": torch.tensor(4)}, decay=0.9, step=0)  # 1 / 10 in the beginning
    assert average["weight"].item() == pytest.approx(0.1 * 1.1 + 0.9 * 2.1)


class Layer(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return x, "state"


def test_dropout_silences_units_for_a_whole_utterance_and_only_in_training() -> None:
    layer = Layer()
    drop_outputs([layer], 0.25)
    x = torch.ones(50, 7, 40)
    y, state = layer(x)
    assert state == "state"
    assert torch.equal(y, y[:, :1].expand_as(y))
    silent = (y[:, 0] == 0).float()
    assert 0.2 < float(silent.mean()) < 0.3
    assert not torch.equal(silent[0], silent[1])  # each utterance has its own
    assert torch.allclose(y[y > 0], torch.tensor(4 / 3))  # what is left is louder, so that the sum stays
    assert torch.equal(layer.eval()(x)[0], x)


def test_no_dropout_leaves_the_layers_alone() -> None:
    layer = Layer()
    drop_outputs([layer], 0.0)
    assert not layer._forward_hooks
