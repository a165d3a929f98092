"""Sentences become recordings in many voices, sounds stay sounds, and the manifest names what there is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.features import SAMPLE_RATE
from monoscribe import main
from training.audio import read_audio
from training.corpora import read_corpus
from training.sounds import sound
from training.synthesis import HABITS, VOWELS, Synthesizer, Voice, accented, in_a_room, read_as_written, recorded, sung, tilted

SENTENCES = ("The ship sailed at dawn.", "It cost 12 pounds.", "Nobody knew where it went, or why!", "…")


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    return Synthesizer()


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(SENTENCES), encoding="utf-8")
    return path


def centroid(samples: npt.NDArray[np.float32]) -> float:
    """Hz around which the power lies."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    return float((power * np.linspace(0, SAMPLE_RATE / 2, len(power))).sum() / power.sum())


def test_sentences_and_sounds_become_a_manifest(sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made.tsv"
    assert main(["synthesize", str(sentences), "--out", str(out), "--sounds", "2", "--jobs", "2"]) == 0
    assert "2 lines left out" in capsys.readouterr().err  # with digits, and with nothing to read
    made = read_corpus(str(out), "train")
    assert [utterance.text for utterance in made] == ["<noise>", "<noise>", SENTENCES[0], SENTENCES[2]]
    for utterance in made[2:]:
        assert 1.0 < len(read_audio(utterance.path)) / SAMPLE_RATE < 8.0


def test_the_same_seed_says_it_in_the_same_voice_and_another_one_does_not(sentences: Path, tmp_path: Path) -> None:
    def first(name: str, *flags: str) -> npt.NDArray[np.float32]:
        assert main(["synthesize", str(sentences), "--out", str(tmp_path / f"{name}.tsv"), *flags]) == 0
        return read_audio(tmp_path / name / "speech-0.flac")

    once, again, other = first("once"), first("again"), first("other", "--seed", "1")
    assert np.array_equal(once, again)
    assert len(once) != len(other)


def test_it_stops_when_there_is_enough(tmp_path: Path) -> None:
    text, out = tmp_path / "many.txt", tmp_path / "few.tsv"
    text.write_text("Go on.\n" * 200)
    assert main(["synthesize", str(text), "--out", str(out), "--hours", "0.0001"]) == 0
    assert 0 < len(read_corpus(str(out), "train")) < 200
    assert {utterance.path for utterance in read_corpus(str(out), "train")} == set((tmp_path / "few").iterdir())


def test_a_larger_head_sounds_darker_and_no_slower(synthesizer: Synthesizer) -> None:
    large, small = (
        synthesizer.say("She had a very good voice.", Voice(size=size), np.random.default_rng(0)) for size in (0.8, 1.1)
    )
    assert centroid(large) < 0.9 * centroid(small)
    assert len(large) == pytest.approx(len(small), rel=0.2)  # played slower alone, it would take 1.375 times as long


def test_another_pitch_is_sung_where_there_is_one() -> None:
    pitch = np.array([0, 100, 200, 400, 0], np.float32)
    assert sung(pitch, Voice()).tolist() == pytest.approx(pitch.tolist())
    assert sung(pitch, Voice(pitch=0.7)).tolist() == pytest.approx([0, 70, 140, 280, 0])
    assert sung(pitch, Voice(melody=0)).tolist() == pytest.approx([0, 200, 200, 200, 0])
    assert sung(np.zeros(3, np.float32), Voice(pitch=0.5)).tolist() == [0, 0, 0]


def test_an_accent_changes_what_is_said_and_is_said_with_the_phonemes_there_are(synthesizer: Synthesizer) -> None:
    assert accented("ðə θɹˈi kˈæɹz", [("θ", "s"), ("[ˈˌ]", ""), (f"ɹ(?![ˈˌ]?[{VOWELS}])", "")]) == "ðə sɹi kæz"
    known = set(synthesizer._hibari.vocab)
    assert {phoneme for _, ways in HABITS for way in ways for phoneme in way} | set(VOWELS) <= known
    accents = [Voice.drawn(np.random.default_rng(seed)).accent for seed in range(100)]
    assert 20 < accents.count(()) < 60
    assert len(set(accents)) > 40


def test_a_tilt_darkens_and_none_changes_nothing() -> None:
    noise = np.random.default_rng(0).standard_normal(SAMPLE_RATE).astype(np.float32)
    assert tilted(noise, 0) == pytest.approx(noise, abs=1e-5)
    assert len(tilted(noise[:0], -4)) == 0
    assert centroid(tilted(noise, -4)) < 0.8 * centroid(noise)


def test_a_room_answers_after_the_sound_only() -> None:
    clap = np.zeros(SAMPLE_RATE, np.float32)
    clap[8000] = 1
    heard = in_a_room(clap, np.random.default_rng(0))
    assert len(heard) == len(clap)
    assert np.abs(heard[:7999]).max() < 1e-6
    assert 0.01 < np.abs(heard[8010:9000]).max() < 1


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_sounds_are_sounds(seed: int) -> None:
    made = sound(np.random.default_rng(seed))
    assert 2 * SAMPLE_RATE <= len(made) <= 9 * SAMPLE_RATE
    assert np.isfinite(made).all()
    assert 0.01 < np.abs(made).max() <= 1


@given(st.integers(0, 10_000))
def test_a_recording_has_silence_around_it_and_does_not_clip(seed: int) -> None:
    spoken = np.sin(np.arange(SAMPLE_RATE) / 5).astype(np.float32)
    made = recorded(spoken, np.random.default_rng(seed))
    assert len(spoken) < len(made) <= len(spoken) + 1.2 * SAMPLE_RATE
    assert 0 < np.abs(made).max() <= 1
    assert np.abs(made[: SAMPLE_RATE // 20]).max() < 0.05 * np.abs(made).max() + 0.02


def test_what_it_cannot_use_it_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = tmp_path / "nothing.txt"
    nothing.write_text("1\n2\n")
    assert main(["synthesize", str(nothing), "--out", str(tmp_path / "x.tsv")]) == 2
    assert "none of 2 lines" in capsys.readouterr().err
    assert main(["synthesize", str(tmp_path / "absent.txt"), "--out", str(tmp_path / "x.tsv")]) == 1
    assert "absent.txt" in capsys.readouterr().err
    assert not (tmp_path / "x.tsv").exists()


@pytest.mark.parametrize("name", ["made", "made.jsonl", "two  spaces.tsv"])
def test_a_name_that_is_none_of_a_manifest_is_refused_before_the_work(
    name: str, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synthesize", str(sentences), "--out", str(tmp_path / name)]) == 2
    assert "expected a .tsv file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [sentences]


def test_recordings_that_are_there_are_not_written_over(
    sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made").mkdir()
    assert main(["synthesize", str(sentences), "--out", str(tmp_path / "made.tsv")]) == 1
    assert "made: File exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "At 5 o'clock.",
        "Henry VIII was king.",
        "Dr. Smith vs. St. John",
        "About ½ of it.",
        "[hello](/wɜɹld/) there",
        "the <noise> end",
        "привет мир",
        "one % more",
        "…",
        "go on " * 100,
    ],
)
def test_what_is_read_in_another_way_than_it_is_written_is_left_out(text: str) -> None:
    assert not read_as_written(text)


@pytest.mark.parametrize("text", ["“Don't go!” she said; ‘not yet’…", "A naïve café (closed) — or was it?", "go"])
def test_sentences_of_words_are_read(text: str) -> None:
    assert read_as_written(text)


def test_without_the_synthesiser_the_extra_is_named(
    sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "hibari", None)
    assert main(["synthesize", str(sentences), "--out", str(tmp_path / "x.tsv")]) == 2
    assert "monoscribe[synthesis]" in capsys.readouterr().err
