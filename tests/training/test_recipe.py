"""Recipes: the paper's numbers, overrides, and errors that name what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model.config import TIMIT, WSJ
from training.recipe import RECIPES, Attention, Data, Recipe, load_recipe
from training.text import SPELLINGS


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_loads(path: Path) -> None:
    recipe = load_recipe(path.stem)
    assert recipe == load_recipe(str(path))
    assert recipe.steps > 0


def test_wsj_is_the_papers() -> None:
    recipe = load_recipe("wsj")
    assert recipe.model == WSJ
    assert len(SPELLINGS[recipe.symbols]().table) == 49
    assert (recipe.data.batch_seconds, recipe.data.batch_utterances) == (0, 8)
    options = recipe.optimizer
    assert options.learning_rate == ((0, 2e-4), (700_000, 2e-5), (1_000_000, 2e-6), (1_300_000, 2e-7))
    assert (options.betas, options.epsilon, options.gradient_norm, options.l2) == ((0.9, 0.999), 1e-6, 1.0, 1e-6)
    assert recipe.loss.label_smoothing == (0.015, 0.035, 1.0, 0.035, 0.015)
    assert sum(recipe.loss.label_smoothing) == pytest.approx(1.1)
    assert (recipe.weight_noise.deviation, recipe.weight_noise.from_step) == (0.075, 20_000)
    assert (recipe.decoding.beam, recipe.decoding.threshold) == (8, 3.0)
    assert recipe.attention.mode == "soft"


def test_timit_is_the_papers() -> None:
    recipe = load_recipe("timit")
    assert recipe.model == TIMIT
    assert len(SPELLINGS[recipe.symbols]().table) == 62
    assert (recipe.data.batch_seconds, recipe.data.batch_utterances) == (0, 4)
    assert recipe.optimizer.learning_rate == ((0, 1e-4), (40_000, 5e-5))
    assert (recipe.optimizer.gradient_norm, recipe.optimizer.l2, recipe.decoding.beam) == (2.0, 1e-6, 10)
    assert (recipe.weight_noise.deviation, recipe.weight_noise.from_step) == (0.5, 2_000)


def test_baselines_differ_in_one_thing() -> None:
    wsj = load_recipe("wsj")
    assert load_recipe("wsj-softmax") == replace(wsj, attention=Attention("softmax"))
    assert load_recipe("wsj-ctc") == replace(wsj, loss=replace(wsj.loss, attention=0.0, ctc=1.0))
    for name in ("wsj-softmax", "wsj-ctc"):
        lines = [line for line in (RECIPES / f"{name}.toml").read_text().splitlines() if not line.startswith("#")]
        assert len(lines) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepz = 1", "recipe.stepz: unknown; expected one of .*steps"),
        ("[optimizer]\nrate = 1", "recipe.optimizer.rate: unknown; expected one of average"),
        ("[model.encoder]\nlayers = 3", "recipe.model.encoder.layers: unknown"),
        ('steps = "many"', "recipe.steps='many': expected int"),
        ('attention.mode = "sharp"', "recipe.attention.mode='sharp': expected one of 'soft', 'softmax', 'forced'"),
        ("data.batch_seconds = 0", "data.batch_seconds=0.0, data.batch_utterances=0: expected one above 0"),
        ("steps = ", "recipe.toml: not TOML: Invalid value"),
        ("# caf\xe9", "recipe.toml: not TOML: .*utf-8"),
        ('base = "nothing"', "recipe='nothing': expected a TOML file or one of .*wsj"),
        ('base = "recipe.toml"', "base='recipe.toml' starts from itself"),
        ("base = 3", "base=3: expected the name of a recipe or a TOML file"),
        ('base = "wsj"\nsteps.x = 1', r"recipe.steps=\{'x': 1\}: expected int"),
        ('base = "wsj"\noptimizer = 1', "recipe.optimizer=1: expected a table"),
        ("steps = -1", "recipe.steps=-1: expected 1"),
        ("seed = -1", "recipe.seed=-1: expected 0"),
        ("seed = 99999999999999999999", "recipe.seed=99999999999999999999: expected 0"),
        ("optimizer.learning_rate = []", r"learning_rate=\[\]: expected \[\[0, value\]"),
        ("optimizer.learning_rate = [[0]]", r"learning_rate=\[\[0.0\]\]: expected \[\[0, value\]"),
        ("optimizer.learning_rate = [[5, 1e-3]]", r"expected \[\[0, value\]"),
        ("optimizer.learning_rate = [[0, 1], [9, 1], [9, 0]]", "step 9 after step 9: expected steps in order"),
        ("optimizer.learning_rate = [[0, -1]]", "optimizer.learning_rate=-1.0: expected 0"),
        ("optimizer.learning_rate = 1e-3", "learning_rate=0.001: expected a list"),
        ("optimizer.betas = [0.9]", r"optimizer.betas=\[0.9\]: expected two numbers"),
        ("optimizer.betas = [0.9, 1]", "expected two numbers from 0 to below 1"),
        ("optimizer.gradient_norm = -1", "optimizer.gradient_norm=-1.0: expected 1e-09"),
        ("optimizer.average = 2", "optimizer.average=2.0: expected 0..1"),
        ("loss.attention = 0", "loss.attention=0.0, loss.ctc=0.0: expected one above 0"),
        ("loss.ctc = -0.5", "loss.ctc=-0.5: expected 0"),
        ("loss.consistency = 0.2", "loss.consistency=0.2, loss.ctc=0.0: expected both above 0"),
        ("loss.label_smoothing = []", r"loss.label_smoothing=\[\]: expected an odd number of weights"),
        ("loss.label_smoothing = [0.5, 1]", "expected an odd number of weights"),
        ("data.speaker_cap = -1", "data.speaker_cap=-1: expected 0"),
        ("data.max_seconds = [20]", "data.max_seconds=20: expected a list"),
        ("attention.heard = 1.5", "attention.heard=1.5: expected 0..1"),
        ("augmentation.tempo = 1", "augmentation.tempo=1.0: expected 0..0.9"),
        ("augmentation.time_masks = -1", "augmentation.time_masks=-1: expected 0"),
        ("dropout = 1.0", "recipe.dropout=1.0: expected 0..0.9"),
        ("weight_noise.deviation = -1", "weight_noise.deviation=-1.0: expected 0"),
        ("decoding.beam = 0", "decoding.beam=0: expected 1..1000"),
    ],
)
def test_errors_name_the_key(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        load_recipe(str(path))


def test_a_recipe_may_start_from_another(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('base = "wsj"\n[data]\nbatch_utterances = 3\n')
    assert load_recipe(str(path)).data == replace(load_recipe("wsj").data, batch_utterances=3)
    assert load_recipe(str(path)).optimizer == load_recipe("wsj").optimizer


def test_a_base_lies_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text('base = "second.toml"\nseed = 7\n')
    (tmp_path / "second.toml").write_text('base = "wsj"\nsteps = 5\n')
    assert load_recipe(str(tmp_path / "first.toml")) == replace(load_recipe("wsj"), seed=7, steps=5)
    (tmp_path / "second.toml").write_text('base = "first.toml"\n')
    with pytest.raises(ValueError, match=r"second.toml: base='first.toml' starts from itself"):
        load_recipe(str(tmp_path / "first.toml"))


def test_defaults_are_a_recipe() -> None:
    assert Recipe().data == Data()
