from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.config import TIMIT, WSJ, EncoderConfig, ModelConfig
from model.conv_lstm import ConvLSTM, _Recurrence, neighbours
from model.encoder import Encoder, RecurrentState, fold_batch_norm, lstm_scan
from tests.conftest import SMALL
from tests.model.chunks import chunk_sizes, split

FRAMES = 48
SMALL_TIMIT = EncoderConfig(
    conv_filters=(), conv_lstm_filters=0, lstm_units=(8, 8, 8), lstm_skips=(2, 2, 1), projection=0, init="uniform", init_scale=0.3
)


def encoder(config: EncoderConfig = SMALL.encoder, bins: int = 20) -> Encoder:
    torch.manual_seed(0)
    module = Encoder(config, bins).eval()
    for layer in module.modules():  # statistics as a trained model has them
        if isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            torch.nn.init.normal_(layer.running_mean, std=0.1)  # type: ignore[arg-type]
            torch.nn.init.uniform_(layer.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    return module.requires_grad_(False)


def test_sizes_are_the_papers() -> None:
    wsj = Encoder(WSJ.encoder, WSJ.features.bins)
    assert sum(parameter.numel() for parameter in wsj.parameters()) == pytest.approx(2.2e6, rel=0.01)
    assert WSJ.encoder.reduction == 4
    timit = Encoder(TIMIT.encoder, TIMIT.features.bins)
    memory, _ = timit(torch.randn(1, 16, 41, 3), timit.initial_state(1))
    assert memory.shape == (1, 4, 512)


def test_initialisation_is_the_papers() -> None:
    weights = torch.cat([p.flatten() for name, p in Encoder(WSJ.encoder, 80).named_parameters() if p.dim() > 1])
    assert weights.abs().max() <= 0.2
    assert weights.std().item() == pytest.approx(0.088, abs=0.002)  # of a Gaussian of deviation 0.1, cut at two deviations
    timit = torch.cat([p.flatten() for p in Encoder(TIMIT.encoder, 41).parameters() if p.dim() > 1])
    assert timit.abs().max() <= 0.075
    assert timit.std().item() == pytest.approx(0.075 / 3**0.5, rel=0.01)


@pytest.mark.parametrize("config", [SMALL.encoder, SMALL_TIMIT], ids=["wsj", "timit"])
@given(sizes=chunk_sizes(FRAMES, multiple=4))
def test_chunked_equals_whole(config: EncoderConfig, sizes: list[int]) -> None:
    module, frames = encoder(config), torch.randn(2, FRAMES, 20, 3, generator=torch.Generator().manual_seed(1))
    whole, last = module(frames, module.initial_state(2))
    state, parts = module.initial_state(2), []
    for chunk in split(frames, sizes, dim=1):
        memory, state = module(chunk, state)
        parts.append(memory)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-5)
    torch.testing.assert_close(state.lstms[-1].hidden, last.lstms[-1].hidden, rtol=0, atol=1e-5)


@given(cut=st.integers(1, FRAMES // 4 - 1))
def test_later_frames_change_nothing_earlier(cut: int) -> None:
    module, frames = encoder(), torch.randn(1, FRAMES, 20, 3)
    other = frames.clone()
    other[:, 4 * cut :] = torch.randn_like(other[:, 4 * cut :])
    first, _ = module(frames, module.initial_state(1))
    second, _ = module(other, module.initial_state(1))
    torch.testing.assert_close(first[:, :cut], second[:, :cut], rtol=0, atol=1e-6)
    assert not torch.allclose(first[:, cut:], second[:, cut:])


def test_streams_of_a_batch_do_not_touch() -> None:
    module, frames = encoder(), torch.randn(3, FRAMES, 20, 3)
    together, _ = module(frames, module.initial_state(3))
    for row in range(3):
        alone, _ = module(frames[row : row + 1], module.initial_state(1))
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-5)


def test_frames_that_are_no_whole_block_are_refused() -> None:
    module = encoder()
    with pytest.raises(ValueError, match="6 frames: expected a multiple of 4"):
        module(torch.zeros(1, 6, 20, 3), module.initial_state(1))


def test_skips_must_match_the_layers() -> None:
    with pytest.raises(ValueError, match="lstm_skips"):
        ModelConfig(encoder=EncoderConfig(lstm_units=(8, 8), lstm_skips=(1,)))


def test_conv_lstm_is_a_convolution() -> None:
    torch.manual_seed(0)
    module = ConvLSTM(3, 2)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x, hidden, cell = torch.randn(1, 1, 5, 3), torch.randn(1, 5, 2), torch.randn(1, 5, 2)
    weight_x = module.input_weight.view(8, 3, 3).transpose(1, 2)  # (out, in, position)
    weight_h = module.hidden_weight.view(8, 3, 2).transpose(1, 2)
    gates = torch.conv1d(x[:, 0].transpose(1, 2), weight_x, module.bias, padding=1)
    gates = gates + torch.conv1d(hidden.transpose(1, 2), weight_h, padding=1)
    i, f, o, candidate = gates.transpose(1, 2).split(2, dim=-1)
    new_cell = f.sigmoid() * cell + i.sigmoid() * candidate.tanh()
    expected = o.sigmoid() * new_cell.tanh()
    y, last, last_cell = module(x, hidden, cell)
    torch.testing.assert_close(y[:, 0], expected)
    torch.testing.assert_close(last, expected)
    torch.testing.assert_close(last_cell, new_cell)


def test_conv_lstm_gradients() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(*size, dtype=torch.double, requires_grad=True) for size in ((5, 2, 4, 12), (9, 12), (2, 4, 3), (2, 4, 3))]
    assert torch.autograd.gradcheck(_Recurrence.apply, inputs)


def test_neighbours_are_zero_beyond_the_edges() -> None:
    assert neighbours(torch.tensor([[1.0], [2.0], [3.0]])).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 0]]


def test_folding_batch_normalisation_changes_nothing() -> None:
    module, frames = encoder(), torch.randn(2, FRAMES, 20, 3)
    expected, _ = module(frames, module.initial_state(2))
    fold_batch_norm(module)
    assert not any(isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d) for layer in module.modules())
    found, _ = module(frames, module.initial_state(2))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_the_scan_is_the_lstm() -> None:
    lstm, x = torch.nn.LSTM(5, 4, batch_first=True), torch.randn(3, 7, 5)
    hidden, cell = torch.randn(3, 4), torch.randn(3, 4)
    expected, (last_hidden, last_cell) = lstm(x, (hidden[None], cell[None]))
    with torch.no_grad():
        found, last = lstm_scan(lstm, x, RecurrentState(hidden, cell))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(last.hidden, last_hidden[0])
    torch.testing.assert_close(last.cell, last_cell[0])


def test_a_teacher_hears_what_comes_later() -> None:
    teacher = encoder(replace(SMALL.encoder, both_ways=8))
    frames = torch.randn(1, FRAMES, 20, 3, generator=torch.Generator().manual_seed(1))
    changed = frames.clone()
    changed[:, -4:] += 3.0
    before, after = (teacher(x, teacher.initial_state(1))[0] for x in (frames, changed))
    assert before.shape == (1, FRAMES // 4, SMALL.encoder.output_size)
    assert not torch.allclose(before[:, 0], after[:, 0])
    teacher.both_ways = None  # what is below it hears nothing of it before it comes
    before, after = (teacher(x, teacher.initial_state(1))[0] for x in (frames, changed))
    assert torch.equal(before[:, :-1], after[:, :-1])
    with pytest.raises(ValueError, match="both_ways=8: expected a projection and no skips"):
        replace(SMALL_TIMIT, both_ways=8)
