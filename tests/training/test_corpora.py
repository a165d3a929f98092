"""Readers of corpora, on small trees in each corpus's own layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from model.symbols import NOISE
from tests.training.conftest import TINY
from tests.training.discs import SOUND, write, write_timit, write_wsj
from tests.training.sphere import write_sphere
from training.audio import read_audio
from training.cache import FeatureCache, build
from training.corpora import read_corpus, split_part
from training.corpora.manifest import read_manifest, write_manifest
from training.corpora.timit import CORE_TEST_SPEAKERS, DEV_SPEAKERS
from training.corpora.wsj import spoken
from training.text import Characters, Phones


@pytest.fixture
def wsj(tmp_path: Path) -> Path:
    write_wsj(tmp_path)
    return tmp_path


def test_wsj_has_its_official_sets(wsj: Path) -> None:
    training = read_corpus(str(wsj), "train")
    assert [utterance.path.name for utterance in training] == ["01ic0201.wv1", "01ic0202.wv1", "46zc0301.wv1"]
    assert [utterance.speaker for utterance in training] == ["01i", "01i", "46z"]
    assert {utterance.part for utterance in training} == {"si284"}
    assert len(read_corpus(f"{wsj}:si84", "train")) == 2
    (dev,), (test,) = read_corpus(str(wsj), "dev"), read_corpus(str(wsj), "test")
    assert (dev.text, dev.part, dev.path.name) == ("SALE OF THE HOTELS", "dev93", "4K0C0301.WV1")
    assert (test.text, test.part) == ("Drexel wasn't it", "eval92")
    for utterance in (*training, dev, test):
        np.testing.assert_allclose(read_audio(utterance.path), SOUND / 32768, atol=1e-6)


def test_wsj_text_is_what_was_said(wsj: Path) -> None:
    texts = [utterance.text for utterance in read_corpus(str(wsj), "train")]
    assert texts == [f"Mr. Smith {NOISE} paid comma he said period", "Moreover the well ampersand pre-", "Ten percent"]
    assert Characters().reference(texts[0]) == "mr smith paid comma he said period"
    assert Characters().reference(texts[1]) == "moreover the well ampersand pre"


@pytest.mark.parametrize(
    ("dot", "text"),
    [
        ('"DOUBLE-QUOTE I do "DOUBLE-QUOTE', "double quote I do double quote"),
        ("twenty -HYPHEN one --DASH yes ?QUESTION-MARK", "twenty hyphen one dash yes question mark"),
        ("(LEFT-PAREN no )RIGHT-PAREN ;SEMI-COLON :COLON", "left paren no right paren semi colon colon"),
        ("A. T. \\& T. .POINT five", "A. T. & T. point five"),
        ("[loud_breath] . well [door_slam>] then ~", f"{NOISE} well then"),
        ("the '90s can't", "the '90s can't"),
    ],
)
def test_marks_of_detailed_transcripts(dot: str, text: str) -> None:
    assert spoken(dot) == text


def test_wsj_without_a_disc_names_what_is_missing(wsj: Path) -> None:
    (wsj / "LDC93S6B/11-1.1/wsj0/si_tr_s/01i/01ic0202.wv1").unlink()
    with pytest.raises(ValueError, match=r"no wsj0/si_tr_s/01i/01ic0202\.wv1, which .*tr_s_wv1\.ndx names: is a disc missing"):
        read_corpus(str(wsj), "train")
    (wsj / "LDC94S13B/13-34.1/wsj1/doc/indices/h1_p0.ndx").unlink()
    with pytest.raises(ValueError, match=r"no wsj1/doc/indices/h1_p0\.ndx, the index of dev93"):
        read_corpus(str(wsj), "dev")
    with pytest.raises(ValueError, match="part='si285': expected one of si84, si284, dev93, eval92 of WSJ"):
        read_corpus(f"{wsj}:si285", "train")


def test_wsj_with_an_unreadable_recording(wsj: Path) -> None:
    broken = wsj / "LDC93S6B/11-1.1/wsj0/si_tr_s/01i/01ic0202.wv1"
    broken.write_bytes(broken.read_bytes()[:500])  # not even the header
    (unread,) = build(read_corpus(str(wsj), "train"), wsj / "cache", TINY.features, workers=1)
    assert str(broken) in unread
    assert [utterance.name for utterance in FeatureCache(wsj / "cache").utterances] == ["01ic0201.wv1", "46zc0301.wv1"]


@pytest.fixture(params=[str.upper, str.lower], ids=["upper", "lower"])
def timit(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    write_timit(tmp_path / "TIMIT", request.param)
    return tmp_path


def test_timit_has_its_official_sets(timit: Path) -> None:
    sets = {role: read_corpus(str(timit / "TIMIT"), role) for role in ("train", "dev", "test")}
    assert {role: [u.speaker for u in found] for role, found in sets.items()} == {
        "train": ["fcjf0"] * 2,
        "dev": ["faks0"] * 2,
        "test": ["mdab0"] * 2,
    }
    assert sets["train"] == read_corpus(str(timit), "train")  # the folder above will do as well
    assert sets["test"][0].text == "h# sh ix q"
    assert Phones().reference(sets["test"][0].text) == "sil sh ih"
    assert all(len(read_audio(utterance.path)) == len(SOUND) for utterance in sets["train"])
    assert (len(CORE_TEST_SPEAKERS), len(DEV_SPEAKERS)) == (24, 50)
    assert not CORE_TEST_SPEAKERS & DEV_SPEAKERS


def test_librispeech(tmp_path: Path) -> None:
    for part in ("train-clean-100", "dev-clean", "dev-other"):
        write(tmp_path / f"LibriSpeech/{part}/84/121/84-121.trans.txt", "84-121-0000 GO DO YOU HEAR\n84-121-0001 BUT YES\n")
    training, dev = read_corpus(str(tmp_path), "train"), read_corpus(str(tmp_path / "LibriSpeech"), "dev")
    assert training[0].path == tmp_path / "LibriSpeech/train-clean-100/84/121/84-121-0000.flac"
    assert (training[0].text, training[0].speaker, training[0].part) == ("go do you hear", "84", "train-clean-100")
    assert [utterance.part for utterance in dev] == ["dev-clean"] * 2 + ["dev-other"] * 2
    assert len(read_corpus(f"{tmp_path}:dev-other", "dev")) == 2
    with pytest.raises(ValueError, match=r"part='eval': expected one of train-clean-100, .* of LibriSpeech"):
        read_corpus(f"{tmp_path}:eval", "dev")


def test_common_voice(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    write(tmp_path / "train.tsv", 'client_id\tpath\tsentence\tup_votes\nabc\ta.mp3\tHe said "no.\t2\n')
    write(tmp_path / "dev.tsv", "client_id\tpath\tsentence\tup_votes\n")
    (utterance,) = read_corpus(str(tmp_path), "train")
    assert (utterance.path, utterance.text, utterance.speaker) == (tmp_path / "clips/a.mp3", 'He said "no.', "abc")
    with pytest.raises(ValueError, match="no utterances"):
        read_corpus(str(tmp_path), "dev")
    with pytest.raises(ValueError, match="part='test': expected one of train, dev of Common Voice"):
        read_corpus(str(tmp_path), "test")


def test_a_folder_of_recordings(tmp_path: Path) -> None:
    write_sphere(tmp_path / "anna/1.wav", SOUND)
    write(tmp_path / "anna/1.txt", "Good morning.\n")
    write(tmp_path / "2.wav", "")
    write(tmp_path / "2.txt", "alone")
    write(tmp_path / "3.wav", "no text")
    utterances = read_corpus(str(tmp_path), "train")
    assert [(u.path.name, u.text, u.speaker) for u in utterances] == [("2.wav", "alone", "2"), ("1.wav", "Good morning.", "anna")]
    (unread,) = build(utterances, tmp_path / "cache", TINY.features, workers=1)
    assert str(tmp_path / "2.wav") in unread  # the empty file
    (cached,) = FeatureCache(tmp_path / "cache").utterances
    assert (cached.name, cached.text, cached.frames) == ("1.wav", "Good morning.", len(SOUND) // 160)


def test_manifests(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", 'path\tset\tspeaker\ttext\nclips/1.wav\tx\ts1\tSay "hi\nclips/2.wav\ty\t\t\n')
    lines = [dict(path="clips/1.wav", text='Say "hi', speaker="s1", set="x"), dict(path="clips/2.wav", set="y")]
    write(tmp_path / "a.jsonl", "\n".join(json.dumps(line) for line in lines) + "\n\n")
    listed = list(read_manifest(tmp_path / "a.tsv"))
    assert listed == list(read_manifest(tmp_path / "a.jsonl"))
    assert listed[0].path == tmp_path / "clips/1.wav"
    assert (listed[0].text, listed[0].part, listed[1].text) == ('Say "hi', "x", "")
    assert read_corpus(f"{tmp_path / 'a.tsv'}:y", "test") == listed[1:]


def test_a_manifest_survives_writing(tmp_path: Path) -> None:
    write_manifest(tmp_path / "b.tsv", [dict(path="1.wav", text="two\twords\n", speaker="s", set="")])
    (utterance,) = read_manifest(tmp_path / "b.tsv")
    assert (utterance.path, utterance.text) == (tmp_path / "1.wav", "two words")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "file\ttext\n1.wav\thi\n", "line 1: no path; expected the columns path, text, speaker, set"),
        ("a.tsv", "path\ttext\n1.wav\thi\n\tho\n", "a.tsv, line 3: no path"),
        ("a.tsv", "", "line 1: no path"),
        ("a.jsonl", '{"path": 5.5}\n', "line 1: path=5.5: expected a string"),
        ("a.jsonl", '{"path": "1.wav", "text": ["hi"]}\n', r"line 1: text=\['hi'\]: expected a string"),
        ("a.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("a.jsonl", '{"text": "hi"}\n', "line 1: no path"),
        ("a.jsonl", "{oops\n", "line 1: not JSON"),
        ("a.jsonl", "[1]\n", r"line 1: \[1\]: expected an object"),
        ("a.csv", "path,text\n", r"expected a \.tsv or \.jsonl file"),
        ("a.tsv", "path\ttext\n", "no utterances"),
    ],
)
def test_manifests_that_are_none(name: str, content: str, message: str, tmp_path: Path) -> None:
    write(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        read_corpus(str(tmp_path / name), "train")


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "1.txt"])
def test_texts_in_another_encoding_are_named(name: str, tmp_path: Path) -> None:
    write(tmp_path / "1.wav", "")
    (tmp_path / name).write_bytes("path\ttext\n1.wav\tcafé".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{name}: .* at byte 19: expected UTF-8"):
        read_corpus(str(tmp_path if name == "1.txt" else tmp_path / name), "train")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lists_as_other_systems_write_them(mark: str, end: str, tmp_path: Path) -> None:
    odd = f"{'long ' * 50_000}\u2028 Привет"  # no line ends within
    lines = ["path\ttext\tspeaker", f"1.wav\t{odd}\ts1\tone more", "", "1.wav\thi"]
    (tmp_path / "a.tsv").write_bytes((mark + end.join(lines) + end).encode())
    assert [(u.text, u.speaker) for u in read_corpus(str(tmp_path / "a.tsv"), "train")] == [(odd, "s1"), ("hi", "")]
    (tmp_path / "a.jsonl").write_bytes((mark + json.dumps(dict(path="1.wav", text=odd, speaker=7)) + end).encode())
    assert [(u.text, u.speaker) for u in read_corpus(str(tmp_path / "a.jsonl"), "train")] == [(odd, "7")]


def test_common_voice_without_its_columns(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    write(tmp_path / "train.tsv", "client_id\tfile\nabc\ta.mp3\n")
    with pytest.raises(ValueError, match=r"train.tsv, line 1: no path; expected the columns path, sentence, client_id"):
        read_corpus(str(tmp_path), "train")
    write(tmp_path / "train.tsv", "client_id\tpath\tsentence\nabc\ta.mp3\n")
    assert [u.text for u in read_corpus(str(tmp_path), "train")] == [""]


def test_timit_in_mixed_letters_and_cut_off(timit: Path) -> None:
    found = {u.path.name for u in read_corpus(str(timit), "train")}
    for path in sorted(timit.rglob("*")):
        if path.suffix in (".WAV", ".wav"):
            path.rename(path.with_suffix(path.suffix.swapcase()))
    assert {u.path.name for u in read_corpus(str(timit), "train")} == {name[:-4] + name[-4:].swapcase() for name in found}
    for path in timit.rglob("*"):
        if path.suffix.lower() == ".phn":
            path.write_text("0 3050 h#\n3050 41\n")
    with pytest.raises(ValueError, match=r"(?i)\.phn, line 2: '3050 41': expected begin, end and phone"):
        read_corpus(str(timit), "train")


def test_a_folder_that_is_no_corpus(tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", "nothing")
    with pytest.raises(ValueError, match=r"not a corpus; expected one of: WSJ .*TIMIT .*LibriSpeech .*recordings"):
        read_corpus(str(tmp_path), "train")
    with pytest.raises(ValueError, match="no such file or folder"):
        read_corpus(str(tmp_path / "absent"), "train")


def test_a_part_is_what_follows_the_last_colon(tmp_path: Path) -> None:
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert split_part(str(odd)) == (odd, "")
    assert split_part(f"{odd}:dev") == (odd, "dev")
    assert split_part(f"{tmp_path}:dev") == (tmp_path, "dev")
    assert split_part("nowhere:dev") == (Path("nowhere:dev"), "")
