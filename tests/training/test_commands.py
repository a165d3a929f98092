"""The commands, from recordings to a model and its figures."""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import soundfile
import torch
from torch.distributed.run import get_args_parser

import monoscribe
from model import Recognizer
from model.files import ModelCard, ModelFileError, save_model
from model.language import load_language
from model.network import Network
from tests.conftest import SMALL, babble, random_network
from tests.training.conftest import RECIPE as TINY_RECIPE
from tests.training.conftest import TEXTS, TINY
from training import recurrence, selftrain
from training.cache import FEATURES_FILE, CachedUtterance, FeatureCache, build
from training.commands import in_one_sentence
from training.corpora import Utterance
from training.flags import add_train_flags
from training.measure import LAG, TAIL, last_sound
from training.prepare import prepare
from training.run import Pace, alone_in, train
from training.selftrain import Filter, Heard, geometric_mean
from training.text import PHONES, Characters, Phones
from training.trainer import CHECKPOINT

RECIPE = """
steps = 6
[model.features]
mel_bins = 8
[model.encoder]
conv_filters = [2, 2]
conv_lstm_filters = 2
lstm_units = [6]
lstm_skips = [1]
projection = 6
[model.attention]
hidden = 6
[model.decoder]
embedding = 4
lstm_units = 6
[data]
batch_seconds = 5.0
[optimizer]
learning_rate = [[0, 1e-3]]
average = 0.9
[loss]
ctc = 1.0
"""


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    for number, text in enumerate(TEXTS):
        speaker = folder / f"speaker{number % 3}"
        speaker.mkdir(parents=True, exist_ok=True)
        soundfile.write(speaker / f"{number}.wav", babble(1 + 0.05 * number, seed=number), 16_000)
        (speaker / f"{number}.txt").write_text(text)
    return folder


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def talkative(tmp_path: Path) -> Path:
    """A model folder with random weights that say something."""
    save_model(tmp_path / "talkative", random_network(), ModelCard("talkative"), torch.float32)
    return tmp_path / "talkative"


def test_torchrun_hands_every_flag_on() -> None:
    parser = argparse.ArgumentParser()
    add_train_flags(parser)
    flags = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--") and flag != "--help"]
    assert "--out" in flags
    for flag in flags:  # torchrun looks through all arguments for abbreviations of its own options
        given = ["train", "default", flag, "value"]
        found = get_args_parser().parse_args(["--nproc-per-node", "2", "-m", "monoscribe", *given])
        assert found.training_script_args == given


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own
def test_train_goes_on_and_leaves_a_model(recordings: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "run"
    arguments = ["train", str(recipe), "--data", str(recordings), "--dev", str(recordings), "--out", str(out)]
    assert monoscribe.main([*arguments, "--evaluate-steps", "3"]) == 0
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 6
    assert set(log[-1]["dev"]) == {"ctc", "hard"}
    assert log[-1]["dev"]["hard"]["recordings"].keys() == {"wer", "cer"}
    assert sorted(path.name for path in (out / "alignments").iterdir()) == ["00000003.png", "00000006.png"]
    assert (out / "curves.png").stat().st_size > 1000
    assert list((out / "tensorboard").iterdir())
    assert len(list((out / "cache").iterdir())) == 1  # the same recordings, once
    assert Recognizer.load(out / "model").card.facts["steps"] == 6

    recipe.write_text(RECIPE.replace("steps = 6", "steps = 8"))
    (cached,) = (out / "cache").iterdir()
    built = (cached / "mels.f16").stat().st_mtime_ns
    assert monoscribe.main([*arguments, "--from", str(tmp_path / "nothing")]) == 0  # a run that is there needs no start
    assert torch.load(out / CHECKPOINT, weights_only=True)["step"] == 8
    assert (cached / "mels.f16").stat().st_mtime_ns == built
    assert [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()] == [6, 8]


def test_train_says_what_is_wrong(recordings: Path, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert monoscribe.main(["train", "nothing", "--data", str(recordings), *out]) == 2
    assert "recipe='nothing': expected a TOML file or one of" in capsys.readouterr().err
    assert monoscribe.main(["train", str(recipe), "--data", str(tmp_path / "absent"), *out]) == 2
    assert "no such file or folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        monoscribe.main(["train", str(recipe), "--data", str(recordings), *out, "--limit-hours", "-1"])
    assert "-1: expected more than 0" in capsys.readouterr().err

    with pytest.raises(SystemExit):
        monoscribe.main(["train", str(recipe), "--data", str(recordings), *out, "--evaluate-steps", "0"])
    assert "0: expected a whole number, at least 1" in capsys.readouterr().err
    assert monoscribe.main(["train", str(recipe), "--data", str(recordings), "--out", str(recipe)]) == 1
    assert f"monoscribe train: {recipe}/cache" in capsys.readouterr().err


def test_a_dev_set_that_does_not_fit_is_found_out_before_the_first_step(
    recordings: Path, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev.tsv").write_text(f"path\ttext\n{next(recordings.rglob('*.wav'))}\tПривет\n")
    out = tmp_path / "run"
    arguments = ["train", str(recipe), "--data", str(recordings), "--out", str(out), "--dev", str(tmp_path / "dev.tsv")]
    assert monoscribe.main(arguments) == 2
    assert "dev: no recordings with a text to compare with" in capsys.readouterr().err
    assert not (out / CHECKPOINT).exists()


def test_two_runs_do_not_share_a_folder(recordings: Path, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with alone_in(out):
        assert monoscribe.main(["train", str(recipe), "--data", str(recordings), "--out", str(out)]) == 2
    assert "another run is writing there" in capsys.readouterr().err
    assert not (out / CHECKPOINT).exists()
    with alone_in(out):  # the lock is gone with who held it
        pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own
def test_another_recipe_leaves_a_run_as_it_was(
    recordings: Path, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["train", str(recipe), "--data", str(recordings), "--out", str(out)]
    assert monoscribe.main(arguments) == 0
    before = [(out / name).read_bytes() for name in ("recipe.json", "log.jsonl", CHECKPOINT)]
    recipe.write_text(RECIPE.replace("lstm_units = [6]", "lstm_units = [7]"))
    assert monoscribe.main(arguments) == 2
    assert "another model's or optimiser's" in capsys.readouterr().err
    assert [(out / name).read_bytes() for name in ("recipe.json", "log.jsonl", CHECKPOINT)] == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(
    number: signal.Signals, cache_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def clock() -> float:
        os.kill(os.getpid(), number)
        return 0.0

    before = signal.getsignal(number)
    pace = Pace(decide_steps=1_000_000)  # nothing else would save
    train(TINY_RECIPE, cache_folder, cache_folder, tmp_path, pace=pace, clock=iter_once(clock))
    assert "stopped at step 1; the same command goes on" in capsys.readouterr().err
    assert torch.load(tmp_path / CHECKPOINT, weights_only=True)["step"] == 1
    assert not (tmp_path / "model").exists()  # no evaluation that nobody waits for
    assert signal.getsignal(number) == before


def test_sigterm_is_as_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    @in_one_sentence
    def command(chosen: argparse.Namespace) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    assert command(argparse.Namespace(command="train")) == 130
    assert capsys.readouterr().err == "monoscribe train: interrupted\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_interrupted_features_leave_nothing_behind(tmp_path: Path) -> None:
    def utterances() -> Iterator[Utterance]:
        yield Utterance(tmp_path / "a.wav", "a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(utterances(), tmp_path / "cache", TINY.features, workers=1)
    assert list((tmp_path / "cache").iterdir()) == []


def iter_once(clock: Callable[[], float]) -> Callable[[], float]:
    """A clock of which only the first look counts."""
    looks = iter([clock])
    return lambda: next(looks, float)()


def test_bad_recordings_are_named_and_left_out(
    talkative: Path, recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (recordings / "speaker0" / "0.wav").write_bytes(b"RIFF")
    soundfile.write(recordings / "speaker1" / "1.wav", babble(1.0)[:0], 16_000)
    manifest = tmp_path / "list.tsv"
    paths = [str(path.relative_to(tmp_path)) for path in sorted(recordings.rglob("*.wav"))]
    manifest.write_text("path\ttext\n" + "".join(f"{path}\tab\n" for path in [*paths, "absent.wav", "recordings", *paths[:1]]))
    for flags, unread in ([], 5), (["--streaming"], 4):  # a live stream of no samples at all is nothing wrong
        assert monoscribe.main(["evaluate", str(talkative), "--data", str(manifest), "--json", *flags]) == 0
        printed = capsys.readouterr()
        (result,) = json.loads(printed.out)
        assert result["utterances"] == len(TEXTS) + 3 - unread
        assert f"{unread} of {len(TEXTS) + 3} recordings" in printed.err
        assert "absent.wav: no such file" in printed.err
    for path in recordings.rglob("*.wav"):
        path.unlink()
    assert monoscribe.main(["evaluate", str(talkative), "--data", str(manifest)]) == 2
    assert f"none of {len(TEXTS) + 3} recordings could be read; the first:" in capsys.readouterr().err


def test_evaluate_every_decoder(talkative: Path, recordings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoders = ["hard", "beam", "soft", "softmax", "ctc"]
    assert monoscribe.main(["evaluate", str(talkative), "--data", str(recordings), "--json", "--decoder", *decoders]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["decoder"] for result in results] == decoders
    for result in results:
        assert result["utterances"] == len(TEXTS)
        assert result["length"] == sum(len(text.split()) for text in TEXTS)
        assert result["rate"]["low"] <= result["rate"]["value"] <= result["rate"]["high"]
        assert set(result["speakers"]) == {"speaker0", "speaker1", "speaker2"}
    assert LAG in results[0]["delay"]
    assert monoscribe.main(["evaluate", str(talkative), "--data", str(recordings), "--limit", "4"]) == 0
    assert "WER %" in capsys.readouterr().out


def test_streaming_says_what_a_stream_says(talkative: Path, recordings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert monoscribe.main(["evaluate", str(talkative), "--data", str(recordings), "--streaming", "--json", "--limit", "3"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    recognizer = Recognizer.load(talkative)
    for scored in result["scored"]:
        samples, _ = soundfile.read(next(recordings.rglob(scored["name"])), dtype="float32")
        assert scored["said"] == recognizer.transcribe(samples).text
    assert TAIL in result["delay"]


def test_streamed_phones_are_scored_after_folding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, manifest = tmp_path / "phones", tmp_path / "phones.tsv"
    save_model(model, random_network(symbols=Phones().table), ModelCard("phones"), torch.float32)
    samples = babble(2.0, seed=1)
    soundfile.write(tmp_path / "babble.wav", samples, 16_000, subtype="FLOAT")
    manifest.write_text("path\ttext\nbabble.wav\th# sh ix hv eh dcl d h#\n")
    assert monoscribe.main(["evaluate", str(model), "--data", str(manifest), "--streaming", "--json"]) == 0
    (scored,) = json.loads(capsys.readouterr().out)[0]["scored"]
    said = Recognizer.load(model).transcribe(samples).text
    assert scored["said"] == Phones().reference(said) != said
    assert set(said.split()) <= set(PHONES)


def test_evaluate_says_what_is_wrong(
    talkative: Path, cache_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert monoscribe.main(["evaluate", str(talkative), "--data", str(cache_folder)]) == 2
    assert "features of 8 bins; expected 20, as the model says" in capsys.readouterr().err
    assert monoscribe.main(["evaluate", str(talkative), "--data", str(cache_folder), "--streaming"]) == 2
    assert "a feature cache holds no audio" in capsys.readouterr().err
    assert monoscribe.main(["evaluate", str(talkative), "--data", str(cache_folder), "--streaming", "--decoder", "ctc"]) == 2
    assert "expected hard or beam with --streaming" in capsys.readouterr().err
    assert monoscribe.main(["evaluate", str(tmp_path / "absent"), "--data", str(cache_folder)]) == 2
    assert "expected a model folder" in capsys.readouterr().err


def test_phones_are_measured_as_phones(cache_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(cache_folder, tmp_path / "cache")
    index = tmp_path / "cache" / "index.json"
    index.write_text(index.read_text().replace('"text": "a ', '"text": "h# ').replace('"text": "', '"text": "sh '))
    torch.manual_seed(0)
    save_model(tmp_path / "model", Network(TINY, Phones().table), ModelCard("phones"))
    assert (
        monoscribe.main(["evaluate", str(tmp_path / "model"), "--data", str(tmp_path / "cache"), "--decoder", "ctc", "--json"]) == 0
    )
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["unit"], result["character_rate"]) == ("phone", None)


def test_pseudo_labels_become_a_manifest_to_train_on(talkative: Path, recordings: Path, tmp_path: Path) -> None:
    for text in recordings.rglob("*.txt"):
        text.write_text("")
    arguments = ["pseudo-label", str(talkative), "--data", str(recordings), "--agreement", "0"]
    assert monoscribe.main([*arguments, "--out", str(tmp_path / "sure.tsv"), "--confidence", "1"]) == 0
    assert (tmp_path / "sure.tsv").read_text().count("\n") == 1  # nobody is as sure as that
    assert monoscribe.main([*arguments, "--out", str(tmp_path / "all.tsv"), "--confidence", "0"]) == 0
    header, *rows = (tmp_path / "all.tsv").read_text().splitlines()
    assert header.split("\t") == ["path", "text", "speaker", "set", "confidence"]
    assert rows
    assert all((tmp_path / row.split("\t")[0]).is_file() for row in rows)


def test_a_teacher_labels_but_is_not_listened_to_live(
    cache_folder: Path, recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = replace(TINY, encoder=replace(TINY.encoder, both_ways=4))
    torch.manual_seed(0)
    save_model(tmp_path / "model", Network(teacher, Characters().table), ModelCard("teacher"))
    arguments = ["--data", str(cache_folder), "--decoder", "ctc", "--confidence", "0", "--agreement", "0"]
    assert monoscribe.main(["pseudo-label", str(tmp_path / "model"), *arguments, "--out", str(tmp_path / "labelled")]) == 0
    capsys.readouterr()
    assert monoscribe.main(["evaluate", str(tmp_path / "model"), "--data", str(recordings), "--streaming"]) == 2
    assert "both_ways=4: a teacher" in capsys.readouterr().err
    with pytest.raises(ModelFileError, match="model: a teacher, which hears whole recordings"):
        Recognizer.load(tmp_path / "model")


def test_pseudo_labels_of_a_cache_share_its_features(
    talkative: Path, recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache_folder,) = prepare([str(recordings)], "train", tmp_path / "keep", SMALL.features, workers=1)
    arguments = ["pseudo-label", str(talkative), "--data", str(cache_folder), "--confidence", "0", "--agreement", "0"]
    assert monoscribe.main([*arguments, "--out", str(tmp_path / "labelled")]) == 0
    labelled, original = FeatureCache(tmp_path / "labelled"), FeatureCache(cache_folder)
    assert 0 < len(labelled.utterances) <= len(original.utterances)
    by_name = {utterance.name: utterance for utterance in original.utterances}
    for utterance in labelled.utterances:
        assert (labelled.mels(utterance) == original.mels(by_name[utterance.name])).all()
    assert monoscribe.main([*arguments, "--out", str(tmp_path / "labelled.txt")]) == 2
    assert "expected a .tsv file" in capsys.readouterr().err
    both = FeatureCache(tmp_path / "labelled", cache_folder)
    assert len(both.utterances) == len(labelled.utterances) + len(original.utterances)


def test_heads_are_compared_only_where_agreement_is_asked_for(talkative: Path, recordings: Path, tmp_path: Path) -> None:
    arguments = ["pseudo-label", str(talkative), "--data", str(recordings), "--confidence", "0"]
    ctc = mock.Mock(side_effect=selftrain.ctc_symbols)
    kept = []
    with mock.patch.dict(selftrain.HEADS, ctc=ctc):
        for agreement in ("0", "1"):
            assert monoscribe.main([*arguments, "--agreement", agreement, "--out", str(tmp_path / "out.tsv")]) == 0
            assert ctc.called == (agreement == "1")
            kept.append((tmp_path / "out.tsv").read_text().count("\n") - 1)
    assert kept[0] > kept[1] == 0  # random heads agree on nothing


@pytest.mark.parametrize("compiler", [recurrence.COMPILER, "no-such-compiler"])
def test_pseudo_labels_in_bfloat16(
    talkative: Path,
    recordings: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiler: str,
) -> None:
    """By the kernel of training, or not at all."""
    recurrence.kernel.cache_clear()
    monkeypatch.setattr(recurrence, "COMPILER", compiler)
    exact, rounded = tmp_path / "exact.tsv", tmp_path / "rounded.tsv"
    arguments = ["pseudo-label", str(talkative), "--data", str(recordings), "--confidence", "0", "--agreement", "0"]
    assert monoscribe.main([*arguments, "--out", str(exact)]) == 0
    assert monoscribe.main([*arguments, "--out", str(rounded), "--precision", "bfloat16"]) == 0
    assert exact.read_text().count("\n") > 1
    assert ("goes on in float32" in capsys.readouterr().err) == bool(recurrence.missing())
    assert (rounded.read_text() == exact.read_text()) == bool(recurrence.missing())


def test_pseudo_labels_do_not_write_over_what_they_come_from(
    talkative: Path, recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (prepare([str(recordings)], "train", tmp_path / name, SMALL.features, workers=1)[0] for name in "ab")
    manifest = tmp_path / "list.tsv"
    manifest.write_text(f"path\ttext\n{next(recordings.rglob('*.wav'))}\tab\n")
    for data, out in ((first, first), (first, second), (manifest, manifest)):
        before = [(path, path.read_bytes()) for path in (manifest, first / FEATURES_FILE, second / FEATURES_FILE)]
        assert monoscribe.main(["pseudo-label", str(talkative), "--data", str(data), "--out", str(out)]) == 2
        assert "holds data that would be lost; expected another name" in capsys.readouterr().err
        assert [(path, path.read_bytes()) for path, _ in before] == before


def test_pseudo_labels_are_words_of_the_language_model(recordings: Path, arpa: Path, tmp_path: Path) -> None:
    network, out = random_network(), tmp_path / "words.tsv"
    letters = network.symbols.encode("eyes ice cream")
    with torch.no_grad():  # it hears these letters everywhere, one as well as the other
        network.ctc.weight.zero_()
        network.ctc.bias.fill_(-9)
        network.ctc.bias[[network.symbols.blank, *letters]] = 0
    save_model(tmp_path / "lettered", network, ModelCard("lettered"), torch.float32)
    arguments = ["pseudo-label", str(tmp_path / "lettered"), "--data", str(recordings), "--decoder", "words", "--words", str(arpa)]
    assert monoscribe.main([*arguments, "--agreement", "0", "--confidence", "0", "--out", str(out)]) == 0
    texts = [line.split("\t")[1] for line in out.read_text().splitlines()[1:]]
    assert all(set(text.split()) <= {"ice", "eyes", "cream"} for text in texts)
    assert "".join(texts)


def test_the_language_model_belongs_to_its_decoder(
    talkative: Path, recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pseudo-label", str(talkative), "--data", str(recordings), "--out", str(tmp_path / "words.tsv")]
    for wrong in (["--decoder", "words"], ["--words", "words.arpa"]):
        assert monoscribe.main([*arguments, *wrong]) == 2
        assert "expected a language model for 'words', and only then" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("heard", "kept"),
    [
        (Heard("good morning to you", 0.95, 0.95), True),
        (Heard("", 0.99, 0.99), False),
        (Heard("good morning to you", 0.8, 0.95), False),
        (Heard("good morning to you", 0.95, 0.8), False),
        (Heard("a b c d a b c d a b c d", 0.95, 0.95), False),  # a loop
        (Heard("a", 0.95, 0.95), False),  # too little for two seconds
        (Heard("a very long text " * 6, 0.95, 0.95), False),  # too much
    ],
)
def test_the_filter(heard: Heard, kept: bool) -> None:
    assert Filter().keeps(heard, seconds=2.0) == kept


def test_the_filter_keeps_the_surest_share_of_all_in_their_order() -> None:
    sure = (0.5, 0.9, 0.0, 0.7, 0.8)  # the third one is not kept in any case
    heard = [(CachedUtterance(str(number), "", "", "", 0, 200), Heard("quite sure", each, 1.0)) for number, each in enumerate(sure)]
    for share, names in ((1.0, "0134"), (0.6, "134"), (0.4, "14"), (0.0, "")):
        kept = Filter(confidence=0.1, share=share).kept(heard)
        assert "".join(utterance.name for utterance, _ in kept) == names
    with pytest.raises(ValueError, match=r"share=60: expected 0\.\.1"):
        Filter(share=60)


def test_confidence_is_per_symbol() -> None:
    assert geometric_mean([0.5, 0.5, 0.5]) == pytest.approx(0.5)
    assert geometric_mean([1.0, 0.25]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"confidence=90: expected 0\.\.1"):
        Filter(confidence=90)


def test_the_end_of_speech() -> None:
    samples = babble(1.0) * 0
    samples[1600:4800] = 0.5
    assert last_sound(samples) == 0.3
    assert last_sound(samples[:0]) == 0.0


def test_a_missing_extra_is_named() -> None:
    program = "import sys; sys.modules['jiwer'] = None; import monoscribe; sys.exit(monoscribe.main(['evaluate', '--data', 'x']))"
    folder = Path(monoscribe.__file__).parent
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.stderr == 'monoscribe evaluate: needs jiwer; pip install "monoscribe[train]"\n'
    assert done.returncode == 2


def test_a_language_model_from_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out = tmp_path / "book.txt", tmp_path / "model" / "language.safetensors"
    text.write_text("the cat sat. the cat sat. the dog\n")
    assert monoscribe.main(["language", str(text), "--out", str(out), "--trigrams", "2"]) == 0
    assert "3 words, 4 bigrams, 3 trigrams" in capsys.readouterr().out
    assert load_language(out).words == ["", "cat", "sat", "the"]
    assert monoscribe.main(["language", str(text), str(text), "--out", str(out)]) == 0
    assert "dog" in load_language(out).words  # named twice, it counts twice


def test_a_full_disk_leaves_the_language_model_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    text, out = tmp_path / "book.txt", tmp_path / "language.safetensors"
    text.write_text("the cat sat. the cat sat. the dog\n")
    assert monoscribe.main(["language", str(text), "--out", str(out)]) == 0
    before = out.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    assert monoscribe.main(["language", str(text), str(text), "--out", str(out)]) == 1
    assert out.read_bytes() == before


def test_text_that_makes_no_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(b"caf\xe9")
    out = ["--out", str(tmp_path / "language.safetensors")]
    for arguments, reason in (
        ([str(tmp_path / "absent.txt")], "No such file"),
        ([str(tmp_path)], "Is a directory"),
        ([str(wrong)], "not UTF-8 at byte 3"),
        ([str(wrong), "--vocabulary", "100000"], "vocabulary=100000: expected 1..65534"),
        ([str(wrong), "--bigrams", "0"], "bigrams=0: expected at least 1"),
    ):
        assert monoscribe.main(["language", *arguments, *out]) == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "language.safetensors").exists()
