from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from model import ModelFileError, Recognizer
from model.files import CARD_FILE, WEIGHTS_FILE, ModelCard, load_model, save_model
from model.network import Network
from tests.conftest import SMALL, babble, random_network

WIDE = replace(SMALL, encoder=replace(SMALL.encoder, lstm_units=(64, 64, 64)))
MATRIX = "encoder.lstms.1.lstm.weight_hh_l0"  # of such a model


@pytest.fixture
def folder(network: Network, tmp_path: Path) -> Path:
    save_model(tmp_path, network, ModelCard("small", 0.2, {"hours": 32}), torch.float32)
    return tmp_path


def test_a_saved_model_says_the_same(folder: Path, recognizer: Recognizer) -> None:
    loaded = Recognizer.load(folder)
    assert loaded.card == ModelCard("small", 0.2, {"hours": 32})
    emitted = [type(event) for event in loaded.stream().accept(babble(3.0))]
    assert emitted == [type(event) for event in recognizer.stream().accept(babble(3.0))]
    assert loaded.transcribe(babble(3.0)).text == recognizer.transcribe(babble(3.0)).text


def test_half_precision_halves_the_file(network: Network, folder: Path, tmp_path: Path) -> None:
    full = (folder / WEIGHTS_FILE).stat().st_size
    save_model(tmp_path / "half", network, ModelCard())
    assert (tmp_path / "half" / WEIGHTS_FILE).stat().st_size < 0.7 * full
    half, _ = load_model(tmp_path / "half")
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(half.state_dict()[name], tensor, rtol=1e-3, atol=1e-3)


def test_what_half_precision_cannot_hold_is_saved_as_it_is(network: Network, tmp_path: Path) -> None:
    wide = copy.deepcopy(network)
    wide.ctc.bias[0] = 1e6
    save_model(tmp_path, wide, ModelCard())
    assert load_model(tmp_path)[0].ctc.bias[0] == 1e6


def test_eight_bits_are_nearly_the_same(tmp_path: Path) -> None:
    network = random_network(WIDE)
    save_model(tmp_path / "half", network, ModelCard())
    save_model(tmp_path / "eight", network, ModelCard(), torch.int8)
    assert (tmp_path / "eight" / WEIGHTS_FILE).stat().st_size < 0.75 * (tmp_path / "half" / WEIGHTS_FILE).stat().st_size
    eight = load_model(tmp_path / "eight")[0].state_dict()
    for name, tensor in network.state_dict().items():
        step = tensor.abs().amax(dim=-1, keepdim=True) / 127 if tensor.dim() == 2 else 1e-3
        assert bool(((eight[name] - tensor).abs() <= 0.51 * step + 1e-6).all())


def test_a_row_of_zeros_has_eight_bits_too(tmp_path: Path) -> None:
    network = random_network(WIDE)
    network.state_dict()[MATRIX][3] = 0
    save_model(tmp_path, network, ModelCard(), torch.int8)
    assert not load_model(tmp_path)[0].state_dict()[MATRIX][3].any()


@pytest.mark.parametrize(
    "scale",
    [
        torch.ones(1, 1),
        torch.ones(256),
        torch.ones(256, 64),
        torch.ones(256, 1, dtype=torch.int32),
        torch.full((256, 1), torch.inf),
    ],
)
def test_eight_bits_without_the_scale_of_each_row_are_refused(tmp_path: Path, scale: torch.Tensor) -> None:
    save_model(tmp_path, random_network(WIDE), ModelCard(), torch.int8)
    edit_weights(tmp_path, **{f"{MATRIX}.scale": scale})
    with pytest.raises(ModelFileError, match=r"encoder\.lstms\.1\.lstm\.weight_hh_l0 (is torch\.int8 .* expected|has values that)"):
        load_model(tmp_path)


@pytest.mark.parametrize("shape", [(), (256,), (256, 64, 2), (256, 1, 64)], ids=str)
def test_eight_bits_of_no_matrix_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """By the file alone: what a scale would make of 300 kB that are no matrix may be as large as memory."""
    save_model(tmp_path, random_network(WIDE), ModelCard(), torch.int8)
    edit_weights(tmp_path, **{MATRIX: torch.zeros(shape, dtype=torch.int8)})
    with pytest.raises(ModelFileError, match=r"expected torch\.int8 of \(rows, columns\) with a scale of \(rows, 1\)"):
        load_model(tmp_path)


def test_a_scale_of_a_scale_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path, random_network(WIDE), ModelCard(), torch.int8)
    twice = {f"{MATRIX}.scale": torch.ones(256, 1, dtype=torch.int8), f"{MATRIX}.scale.scale": torch.ones(256, 1)}
    edit_weights(tmp_path, **twice)
    with pytest.raises(ModelFileError, match=r"with torch\.int8 of \(256, 1\): expected"):
        load_model(tmp_path)


def edit_card(folder: Path, **changes: Any) -> None:
    card = json.loads((folder / CARD_FILE).read_text())
    (folder / CARD_FILE).write_text(json.dumps(card | changes))


def edit_weights(folder: Path, **changes: torch.Tensor) -> None:
    weights = safetensors.torch.load_file(folder / WEIGHTS_FILE)
    safetensors.torch.save_file(weights | changes, folder / WEIGHTS_FILE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(format="other"), "format='other': expected 'monoscribe-model-1'"),
        (dict(config=dict(encoder=dict(lstm_unit=[1]))), r"config\.encoder\.lstm_unit: unknown"),
        (dict(config=dict(encoder=dict(lstm_units="many"))), r"config\.encoder\.lstm_units='many': expected a list"),
        (dict(config=dict(attention=dict(hidden="x"))), r"config\.attention\.hidden='x': expected int"),
        (dict(config=dict(attention=dict(energy="x"))), r"config\.attention\.energy='x': expected one of"),
        (dict(config=[]), "expected a table"),
        (dict(symbols=None), "symbols=None: expected a list"),
        (dict(symbols=["a"]), "symbols: expected <s> and </s> first"),
        (dict(symbols=["<s>", "</s>", "a", "a"]), "symbols: expected each symbol once"),
        (dict(symbols=["<s>", "</s>", "a"]), "expected"),
        (dict(symbols=["<s>", "</s>", 1]), "symbols: expected only strings"),
        (dict(symbols=["<s>", "</s>", ""]), "symbols: expected only strings, none of them empty"),
        (dict(normaliser=None), "normaliser=None: expected a table"),
        (dict(normaliser={}), r"model\.json: no tensor prior_mean"),
        (dict(normaliser=dict(prior_mean="loud")), r"normaliser\.prior_mean: expected rows of numbers"),
        (dict(normaliser=dict(prior_mean=[[1.0], [1.0, 2.0]])), r"normaliser\.prior_mean: expected rows of numbers"),
        (dict(normaliser=dict(prior_mean=[10**400] * 20)), r"normaliser\.prior_mean: expected rows of numbers"),
        (dict(normaliser=dict(prior_mean=[1.0])), r"prior_mean is \(1,\): expected \(20,\)"),
        (dict(normaliser=dict(prior_mean=[1e39] * 20)), "prior_mean has values that are no finite numbers"),
        (dict(normaliser=dict(prior_mean=[0] * 20, prior_deviation=[[0.0] * 3] * 20)), "prior_deviation has values below 1e-06"),
        (dict(normaliser=dict(prior_mean=[0] * 20, prior_deviation=[[1] * 3] * 20, third=[1])), "third is none of this model's"),
        (dict(surprise=1), r"card\.surprise: unknown"),
        (dict(delay=float("nan")), r"card\.delay=nan: expected a finite number"),
        (dict(delay=-1.0), r"delay=-1\.0: expected 0\.\.10"),
        (dict(facts=[]), r"card\.facts=\[\]: expected a table"),
        (dict(config=dict(attention=dict(initial_bias=10**400))), "expected a finite number"),
        (dict(config=dict(attention=dict(threshold=1.0))), r"threshold=1\.0: expected 0\.01\.\.0\.99"),
        (dict(config=dict(attention=dict(hidden=0))), r"hidden=0: expected 1\.\."),
        (dict(config=dict(attention=dict(chunk=0))), r"chunk=0: expected 1\.\.100"),
        (dict(config=dict(decoder=dict(max_symbols_per_entry=10**9))), r"max_symbols_per_entry=1000000000: expected 1\.\.100"),
        (dict(config=dict(features=dict(mel_bins=10**6))), r"mel_bins=1000000: expected 1\.\.256"),
        (dict(config=dict(encoder=dict(init_scale=0.0))), r"init_scale=0\.0: expected"),
        (dict(config=dict(encoder=dict(lstm_units=[], lstm_skips=[], projection=0))), "expected at least one layer"),
        (dict(config=dict(encoder=dict(lstm_units=[-1] * 3))), "lstm_units=-1: expected 1"),
        (dict(config=dict(encoder=dict(lstm_skips=[10**6, 1, 1]))), "lstm_skips=1000000: expected 1"),
        (dict(config=dict(encoder=dict(lstm_skips=[8, 8, 8]))), "2048 frames per entry: expected a multiple of 4, at most 64"),
        (dict(config=dict(encoder=dict(conv_filters=[4]))), "2 frames per entry: expected a multiple of 4"),
        (dict(config=dict(encoder=dict(conv_filters=[4] * 99))), "conv_filters: 99 layers: expected at most 32"),
        (dict(config=dict(encoder=dict(lstm_units=[16_000] * 3))), r"model\.safetensors: \d+ numbers: expected \d{10}"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    edit_card(folder, **changes)
    with pytest.raises(ModelFileError, match=message):
        load_model(folder)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"expected a model folder with model\.json and model\.safetensors"):
        load_model(tmp_path)


def test_a_card_that_is_no_json_is_refused(folder: Path) -> None:
    (folder / CARD_FILE).write_bytes(b"\x80\x04pickle")
    with pytest.raises(ModelFileError, match="not JSON"):
        load_model(folder)


def test_a_card_that_is_nested_too_deeply_is_refused(folder: Path) -> None:
    (folder / CARD_FILE).write_text("[" * 200_000)
    with pytest.raises(ModelFileError, match="not JSON"):
        load_model(folder)


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_truncated_weights_are_refused(folder: Path, size: int) -> None:
    content = (folder / WEIGHTS_FILE).read_bytes()
    (folder / WEIGHTS_FILE).write_bytes(content[:size])
    with pytest.raises(ModelFileError, match="not a whole safetensors file"):
        load_model(folder)


def test_missing_weights_are_refused(folder: Path) -> None:
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(ModelFileError, match=r"model\.safetensors: No such file"):
        load_model(folder)


def test_pickled_weights_run_no_code(folder: Path) -> None:
    torch.save({"a": torch.zeros(1)}, folder / WEIGHTS_FILE)
    with pytest.raises(ModelFileError, match="not a whole safetensors file"):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("ctc.bias", torch.zeros(3), r"ctc\.bias is \(3,\): expected \(49,\)"),
        ("ctc.bias", torch.full((49,), torch.nan), "no finite numbers"),
        ("ctc.bias", torch.zeros(49, dtype=torch.int64), r"ctc\.bias is torch\.int64: expected floats"),
        (
            "ctc.bias",
            torch.zeros(49, dtype=torch.int8),
            r"ctc\.bias is torch\.int8: expected floats, or torch\.int8 with ctc\.bias\.scale",
        ),
        ("stranger", torch.zeros(3), "stranger is none of this model's"),
        ("decoder.energy.direction", torch.zeros(16), r"decoder\.energy\.direction is nothing but zeros"),
        ("encoder.convs.0.norm.running_var", torch.full((4,), -1.0), r"running_var has values below 0\.0"),
    ],
)
def test_weights_that_do_not_fit_are_refused(folder: Path, name: str, tensor: torch.Tensor, message: str) -> None:
    edit_weights(folder, **{name: tensor})
    with pytest.raises(ModelFileError, match=message):
        load_model(folder)


def test_types_that_torch_does_not_have_are_refused(folder: Path) -> None:
    header = json.dumps({"ctc.bias": dict(dtype="F8_E8M0", shape=[4], data_offsets=[0, 4])}).encode()
    (folder / WEIGHTS_FILE).write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ModelFileError, match="F8_E8M0"):
        load_model(folder)


def test_a_tensor_too_few_is_refused(folder: Path) -> None:
    weights = safetensors.torch.load_file(folder / WEIGHTS_FILE)
    del weights["ctc.bias"]
    safetensors.torch.save_file(weights, folder / WEIGHTS_FILE)
    with pytest.raises(ModelFileError, match=r"no tensor ctc\.bias"):
        load_model(folder)


def test_saving_replaces_whole_files(folder: Path, network: Network) -> None:
    save_model(folder, network, ModelCard("again"))
    assert sorted(path.name for path in folder.iterdir()) == [CARD_FILE, WEIGHTS_FILE]
    assert np.isfinite(load_model(folder)[1].delay)
