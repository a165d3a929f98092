"""Steps of a run: skipped when they explode, and the same again after any interruption."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import shutil
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import torch
import torch.distributed as dist

from model.config import FeatureConfig
from model.files import ModelCard, save_model
from model.network import Network
from tests.conftest import babble
from tests.training.conftest import RECIPE, write_clips
from training import muon
from training import trainer as trainer_module
from training.batches import Batch
from training.cache import FeatureCache, build
from training.corpora import Utterance
from training.objective import objective
from training.recipe import Attention, Augmentation, Data, Loss, Recipe, WeightNoise
from training.run import leave_group
from training.statistics import LEAST_DEVIATION
from training.text import Characters
from training.trainer import CHECKPOINT, Trainer, read_weights

NOISY = replace(RECIPE, weight_noise=WeightNoise(deviation=0.05, from_step=2))
Losses = list[dict[str, float]]


def go(trainer: Trainer, until: int, save_at: int = -1) -> Losses:
    losses: Losses = []
    for batch in trainer.batches():
        if trainer.step >= until:
            return losses
        losses.append(trainer.train_step(batch))
        if trainer.step == save_at:
            trainer.save()
    raise AssertionError("batches go on for ever")


def test_resumed_is_as_if_never_interrupted(cache: FeatureCache, tmp_path: Path) -> None:
    whole = Trainer(NOISY, cache, tmp_path / "whole")
    expected = go(whole, 8)
    assert len({losses["attention"] for losses in expected}) == 8
    for at in (1, 3, 5):
        out = tmp_path / f"cut{at}"
        first = go(Trainer(NOISY, cache, out), at + 1, save_at=at)  # one step more, lost with the kill
        resumed = Trainer(NOISY, cache, out)
        assert resumed.step == at
        assert first[:at] + go(resumed, 8) == expected
        for name, tensor in whole.average.items():
            assert torch.equal(tensor, resumed.average[name]), name


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A live model for a teacher to begin with."""
    torch.manual_seed(0)
    save_model(tmp_path / "live", Network(RECIPE.model, Characters().table), ModelCard("live"))
    return tmp_path / "live"


TEACHER = replace(
    RECIPE,
    model=replace(RECIPE.model, encoder=replace(RECIPE.model.encoder, both_ways=4)),
    loss=Loss(attention=0.0, ctc=1.0),
    optimizer=replace(RECIPE.optimizer, matrices="muon"),
    dropout=0.1,
    learns=("encoder.both_ways", "ctc"),
)


def test_only_what_is_named_learns(cache: FeatureCache, live: Path, tmp_path: Path) -> None:
    trainer = Trainer(TEACHER, cache, tmp_path / "run", start=live)
    before = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
    go(trainer, 2)
    changed = {name for name, tensor in trainer.network.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.startswith(("encoder.both_ways.", "ctc."))}
    weights = read_weights(live)
    assert all(torch.equal(before[name], weights[name]) for name in weights.keys() - changed)


@pytest.mark.parametrize("part", ["encoder.top", "", "e", "ctc."])
def test_a_part_that_there_is_not_cannot_learn(cache: FeatureCache, live: Path, tmp_path: Path, part: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"learns={part!r}: no parameter is of that part; expected, for example")):
        Trainer(replace(TEACHER, learns=("ctc", part)), cache, tmp_path / "run", start=live)


def test_what_does_not_learn_must_have_learnt(cache: FeatureCache, live: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected weights to begin with"):
        Trainer(TEACHER, cache, tmp_path / "run")
    with pytest.raises(ValueError, match=r"from: no encoder\.both_ways\.back.*, which is not among what learns"):
        Trainer(replace(TEACHER, learns=("ctc",)), cache, tmp_path / "run", start=live)
    wider = replace(TEACHER.model, encoder=replace(TEACHER.model.encoder, conv_filters=(3, 3)))
    with pytest.raises(ValueError, match=r"from: no encoder\.convs\.0\.conv\.weight of \[3, 3, 3, 3\], which is not among"):
        Trainer(replace(TEACHER, model=wider), cache, tmp_path / "run", start=live)
    trainer = Trainer(replace(TEACHER, learns=("decoder",)), cache, tmp_path / "run", start=teacher_of(live, cache, tmp_path))
    with pytest.raises(ValueError, match="no part of the loss depends on it"):
        go(trainer, 1)


def teacher_of(live: Path, cache: FeatureCache, folder: Path) -> Path:
    go(Trainer(TEACHER, cache, folder / "teacher", start=live), 2, save_at=1)
    return folder / "teacher"


def test_what_learns_stays_the_same_when_a_run_goes_on(cache: FeatureCache, live: Path, tmp_path: Path) -> None:
    teacher = teacher_of(live, cache, tmp_path)
    assert Trainer(TEACHER, cache, teacher).step == 1
    with pytest.raises(ValueError, match=r"learns=\['ctc'\]: expected \['encoder\.both_ways', 'ctc'\], as in the checkpoint"):
        Trainer(replace(TEACHER, learns=("ctc",)), cache, teacher)


def test_matrices_alone_may_learn(cache: FeatureCache, live: Path, tmp_path: Path) -> None:
    with mock.patch.object(muon, "SMALLEST", 2):
        trainer = Trainer(
            replace(TEACHER, learns=("encoder.both_ways.back.lstm.weight_hh_l0",)),
            cache,
            tmp_path,
            start=teacher_of(live, cache, tmp_path),
        )
        assert len(trainer.optimizers) == 1
        go(trainer, 1)


def test_a_live_model_does_not_begin_as_a_teacher(cache: FeatureCache, live: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="from: a teacher's weights"):
        Trainer(RECIPE, cache, tmp_path / "run", start=teacher_of(live, cache, tmp_path))


def test_a_checkpoint_cut_off_while_it_was_written_does_no_harm(cache: FeatureCache, tmp_path: Path) -> None:
    go(Trainer(RECIPE, cache, tmp_path), 3, save_at=2)
    (tmp_path / CHECKPOINT).with_suffix(".partial").write_bytes(b"PK")
    assert Trainer(RECIPE, cache, tmp_path).step == 2


def test_a_checkpoint_of_before_epochs_were_kept_resumes(cache: FeatureCache, tmp_path: Path) -> None:
    expected = go(Trainer(RECIPE, cache, tmp_path / "whole"), 8)
    go(Trainer(RECIPE, cache, tmp_path), 6, save_at=6)
    state = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    assert state.pop("epoch")[0] > 0
    torch.save(state, tmp_path / CHECKPOINT)
    assert go(Trainer(RECIPE, cache, tmp_path), 8) == expected[6:]


def test_a_full_disk_costs_no_checkpoint(cache: FeatureCache, tmp_path: Path) -> None:
    trainer = Trainer(RECIPE, cache, tmp_path)
    go(trainer, 3, save_at=2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            trainer.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert Trainer(RECIPE, cache, tmp_path).step == 2


def damaged(content: bytes) -> dict[str, bytes]:
    return dict(cut=content[: len(content) // 2], empty=b"", other=b"RIFF....WAVEfmt ")


@pytest.mark.parametrize("kind", ["cut", "empty", "other"])
def test_a_damaged_checkpoint_is_named(kind: str, cache: FeatureCache, tmp_path: Path) -> None:
    go(Trainer(RECIPE, cache, tmp_path), 2, save_at=1)
    file = tmp_path / CHECKPOINT
    file.write_bytes(damaged(file.read_bytes())[kind])
    with pytest.raises(ValueError, match=r"checkpoint\.pt: not a whole checkpoint"):
        Trainer(RECIPE, cache, tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint\.pt: not a whole checkpoint"):
        Trainer(RECIPE, cache, tmp_path / "second", start=file)


@pytest.mark.parametrize("average", [None, [1], {"ctc.bias": 1}])
def test_a_checkpoint_without_tensors_is_named(average: object, cache: FeatureCache, tmp_path: Path) -> None:
    trainer = Trainer(RECIPE, cache, tmp_path / "run")
    trainer.save()
    path = tmp_path / "run" / "checkpoint.pt"
    torch.save(torch.load(path, weights_only=True) | {"average": average}, path)
    with pytest.raises(ValueError, match=r"checkpoint\.pt: average is no table of tensors"):
        read_weights(path)


def test_a_checkpoint_of_another_kind_is_named(cache: FeatureCache, tmp_path: Path) -> None:
    torch.save(dict(format=9, weights={}), tmp_path / "newer.pt")
    with pytest.raises(ValueError, match=r"newer\.pt: no average; expected a checkpoint with average, network"):
        Trainer(RECIPE, cache, tmp_path, start=tmp_path / "newer.pt")


def test_another_model_does_not_go_on(cache: FeatureCache, tmp_path: Path) -> None:
    go(Trainer(RECIPE, cache, tmp_path), 2, save_at=1)
    other = replace(RECIPE, model=replace(RECIPE.model, decoder=replace(RECIPE.model.decoder, lstm_units=8)))
    with pytest.raises(
        ValueError, match=r"checkpoint\.pt: another model's or optimiser's; expected the recipe's, or another out: size"
    ):
        Trainer(other, cache, tmp_path)


def test_other_features_begin_with_statistics_of_their_own(cache: FeatureCache, tmp_path: Path) -> None:
    first = Trainer(RECIPE, cache, tmp_path / "first")
    save_model(tmp_path / "model", first.averaged(), ModelCard(), torch.float32)
    finer = replace(RECIPE, model=replace(RECIPE.model, features=FeatureConfig(mel_bins=12)))
    assert build(write_clips(tmp_path), tmp_path / "finer", finer.model.features, workers=1) == []
    second = Trainer(finer, FeatureCache(tmp_path / "finer"), tmp_path / "second", start=tmp_path / "model")
    fresh = Trainer(finer, FeatureCache(tmp_path / "finer"), tmp_path / "third")
    assert torch.equal(second.network.features.prior_mean, fresh.network.features.prior_mean)
    assert bool((fresh.network.features.prior_mean != 0).all())


def cache_of(samples: npt.NDArray[np.float32], folder: Path, rate: int = 16_000) -> FeatureCache:
    soundfile.write(folder / "a.wav", samples, rate)
    assert build([Utterance(folder / "a.wav", "a")], folder / "cache", RECIPE.model.features, workers=1) == []
    return FeatureCache(folder / "cache")


@pytest.mark.parametrize("seconds", [1.0, 0.01])
def test_nothing_but_silence_is_an_error(seconds: float, tmp_path: Path) -> None:
    silence = np.zeros(int(16_000 * seconds), dtype=np.float32)
    with pytest.raises(ValueError, match="no sound in 1 recordings"):
        Trainer(RECIPE, cache_of(silence, tmp_path), tmp_path)


def test_bands_with_nothing_in_them_are_not_blown_up(tmp_path: Path) -> None:
    quiet = np.concatenate([np.zeros(16_000, dtype=np.float32), 0.01 * babble(1.0)])
    trainer = Trainer(RECIPE, cache_of(quiet, tmp_path, rate=2000), tmp_path)
    assert float(trainer.network.features.prior_deviation.min()) == pytest.approx(LEAST_DEVIATION)
    go(trainer, 2)
    assert trainer.skipped == 0


def test_a_cache_that_was_cut_off_is_named(cache_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(cache_folder, tmp_path / "copy")
    features, index = tmp_path / "copy" / "mels.f16", tmp_path / "copy" / "index.json"
    features.write_bytes(features.read_bytes()[:-16])
    with pytest.raises(ValueError, match=r"mels\.f16: \d+ frames: expected \d+, as index\.json says"):
        FeatureCache(tmp_path / "copy")
    index.write_text(index.read_text()[:100])
    with pytest.raises(ValueError, match=r"index\.json: no table of a feature cache"):
        FeatureCache(tmp_path / "copy")


def run_for_ever(folder: Path, out: Path) -> None:
    torch.set_num_threads(1)
    trainer = Trainer(RECIPE, FeatureCache(folder), out)
    for batch in trainer.batches():
        trainer.train_step(batch)
        trainer.save()


def test_killed_at_any_moment(cache_folder: Path, tmp_path: Path) -> None:
    """kill -9 while the process does nothing but steps and checkpoints: whatever is on disk continues exactly."""
    process = multiprocessing.get_context("spawn").Process(target=run_for_ever, args=(cache_folder, tmp_path))
    process.start()
    assert process.pid is not None
    deadline = time.monotonic() + 120
    while not (tmp_path / CHECKPOINT).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    cache = FeatureCache(cache_folder)
    resumed = Trainer(RECIPE, cache, tmp_path)
    until = resumed.step + 2
    expected = go(Trainer(RECIPE, cache, tmp_path / "whole"), until)
    assert go(resumed, until) == expected[-2:]


def replica(rank: int, port: int, folder: Path, out: Path) -> None:
    """One of two replicas: runs through, then again from the checkpoint in the middle; both must agree."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    cache = FeatureCache(folder)
    whole = Trainer(NOISY, cache, out, rank=rank, replicas=2)
    first = go(whole, 3)
    whole.save()
    if rank == 0:
        shutil.copytree(out, out / "cut")
    dist.barrier()
    expected = go(whole, 6)
    resumed = Trainer(NOISY, cache, out / "cut", rank=rank, replicas=2)
    assert go(resumed, 6) == expected
    weights = torch.cat([parameter.detach().flatten() for parameter in whole.parameters])
    others = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(others, weights)
    assert torch.equal(*others)  # replicas stay the same
    losses = [None, None]
    dist.all_gather_object(losses, first[0]["ctc"])
    assert losses[0] != losses[1]  # and learn from different batches
    leave_group()


def test_two_replicas_resume_exactly(cache_folder: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=replica, args=(rank, port, cache_folder, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=200)
    assert [process.exitcode for process in processes] == [0, 0]


def explode(trainer: Trainer, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next loss has the gradient `value` everywhere, and its features reach batch normalisation."""

    def exploding(*arguments: object) -> tuple[torch.Tensor, dict[str, float]]:
        objective(*arguments)  # type: ignore[arg-type]
        loss = torch.stack([parameter.sum() for parameter in trainer.parameters]).sum() * value
        return loss, {"ctc": value}

    monkeypatch.setattr(trainer_module, "objective", exploding)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])
def test_a_step_that_explodes_is_skipped(
    value: float, cache: FeatureCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(RECIPE, cache, tmp_path)
    go(trainer, 2)
    before = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
    with monkeypatch.context() as patch:
        explode(trainer, value, patch)
        go(trainer, 3)
    assert (trainer.step, trainer.skipped) == (3, 1)
    for name, tensor in trainer.network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    go(trainer, 4)
    assert trainer.skipped == 1


def test_features_that_are_no_numbers_leave_batch_normalisation_alone(cache: FeatureCache, tmp_path: Path) -> None:
    trainer = Trainer(replace(RECIPE, attention=Attention("soft")), cache, tmp_path)
    batch = next(trainer.batches())
    trainer.train_step(replace(batch, mels=batch.mels * float("nan")))
    assert trainer.skipped == 1
    assert all(bool(tensor.isfinite().all()) for tensor in trainer.network.state_dict().values())


def test_gradients_are_clipped_before_the_update(cache: FeatureCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(replace(RECIPE, optimizer=replace(RECIPE.optimizer, l2=0.0)), cache, tmp_path)
    explode(trainer, 10.0, monkeypatch)
    count = sum(parameter.numel() for parameter in trainer.parameters)
    (values,) = go(trainer, 1)
    assert values["gradient_norm"] == pytest.approx(10 * count**0.5, rel=1e-4)
    torch.testing.assert_close(trainer.gradient, torch.full((count,), count**-0.5))


def test_a_batch_of_eight_utterances(cache: FeatureCache, tmp_path: Path) -> None:
    recipe = replace(RECIPE, data=Data(batch_seconds=0.0, batch_utterances=8))
    trainer = Trainer(recipe, cache, tmp_path)
    batches = trainer.batches()
    assert sorted(len(next(batches).frames) for _ in range(2)) == [2, 8]


def test_short_utterances_come_first(cache: FeatureCache, tmp_path: Path) -> None:
    lengths = sorted(utterance.frames for utterance in cache.utterances)
    recipe = replace(RECIPE, data=Data(batch_seconds=100.0, max_seconds=((0, lengths[4] / 100), (1, 100.0))))
    trainer = Trainer(recipe, cache, tmp_path)
    batches = trainer.batches()
    assert [len(next(batches).frames) for _ in range(3)] == [5, 10, 10]


def test_nothing_to_learn_from_is_an_error(cache: FeatureCache, tmp_path: Path) -> None:
    recipe = replace(RECIPE, data=Data(max_seconds=((0, 0.1),)))
    with pytest.raises(ValueError, match=r"none of 10 utterances has a text of characters and at most 0.1 s"):
        next(Trainer(recipe, cache, tmp_path).batches())


def test_a_warm_start_takes_what_fits(cache: FeatureCache, tmp_path: Path) -> None:
    first = Trainer(RECIPE, cache, tmp_path / "first")
    go(first, 2)
    first.save()
    wider = replace(RECIPE, model=replace(RECIPE.model, decoder=replace(RECIPE.model.decoder, lstm_units=8)))
    for start in (tmp_path / "first", tmp_path / "first" / CHECKPOINT):
        second = Trainer(wider, cache, tmp_path / "second", start=start)
        assert second.step == 0
        own, other = second.network.state_dict(), first.average
        assert torch.equal(own["ctc.weight"], other["ctc.weight"])
        assert own["decoder.lstm.weight_hh_l0"].shape == (32, 8)
    with pytest.raises(ValueError, match="expected a model folder, a run's folder or a checkpoint"):
        Trainer(wider, cache, tmp_path / "second", start=tmp_path / "nothing.pt")


def test_every_mode_of_attention_trains(cache: FeatureCache, tmp_path: Path) -> None:
    recipes: list[Recipe] = [
        replace(RECIPE, attention=Attention(mode, heard), loss=replace(RECIPE.loss, alignment=0.1))
        for mode in ("soft", "softmax", "forced")
        for heard in (0.0, 0.5)
    ]
    for recipe in recipes:
        trainer = Trainer(recipe, cache, tmp_path)
        (values,) = go(trainer, 1)
        assert {"attention", "ctc", "alignment"} <= set(values)
        assert trainer.skipped == 0


def test_views_that_are_masked_apart_learn_from_each_other(cache: FeatureCache, tmp_path: Path) -> None:
    recipe = replace(RECIPE, attention=Attention("forced"), loss=Loss(ctc=1.0, alignment=0.1, consistency=0.2))
    trainer = Trainer(recipe, cache, tmp_path)
    (values,) = go(trainer, 1)
    assert values["consistency"] > 0
    (values,) = go(Trainer(replace(recipe, augmentation=Augmentation()), cache, tmp_path), 1)
    assert values["consistency"] == pytest.approx(0.0, abs=1e-5)  # the same sound twice
    network = trainer.averaged()
    assert "consistency" not in objective(network, trainer.batch([0, 1]), recipe, step=0)[1]  # a dev set is heard once


def test_batches_are_whole(cache: FeatureCache, tmp_path: Path) -> None:
    batch: Batch = next(Trainer(RECIPE, cache, tmp_path).batches())
    assert batch.mels.shape[:2] == (len(batch.frames), int(batch.frames.max()))


def test_a_warm_start_from_a_model_folder(cache: FeatureCache, tmp_path: Path) -> None:
    first = Trainer(RECIPE, cache, tmp_path / "first")
    go(first, 2)
    save_model(tmp_path / "model", first.averaged(), ModelCard(), torch.float32)
    second = Trainer(RECIPE, cache, tmp_path / "second", start=tmp_path / "model")
    for name, tensor in second.network.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, first.average[name]), name
