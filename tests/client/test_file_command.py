"""`monoscribe file`, as a script calls it."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import soundfile

import monoscribe
from client import Segment, Transcript, Word
from client.formats import FORMATS
from model import Recognizer
from model.files import ModelCard, save_model
from model.network import Network
from server.formats import as_json, as_srt, as_text, as_vtt
from server.messages import SegmentEnd, WordTime
from tests.client.sound_card import wait_until
from tests.conftest import BEST
from tests.server.conftest import RunningServer, ServerFactory, noise


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    for number in (1, 2):
        soundfile.write(folder / f"{number}.wav", noise(3, seed=number), 16_000, subtype="PCM_16")
    return folder


def text_of(recognizer: Recognizer, *seeds: int) -> str:
    return "".join(f"{segment.text}\n" for seed in seeds for segment in recognizer.transcribe(noise(3, seed), BEST).segments)


def run(*arguments: object) -> int:
    return monoscribe.main(["file", *map(str, arguments)])


def test_text_comes_on_standard_output(
    server: RunningServer, recordings: Path, recognizer: Recognizer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--server", server.url, recordings / "1.wav") == 0
    assert capsys.readouterr() == (text_of(recognizer, 1), "")


def test_many_files_into_a_folder(server: RunningServer, recordings: Path, recognizer: Recognizer, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    assert run("--server", server.url, "--output", out, "--format", "json", *sorted(recordings.iterdir())) == 0
    documents = [json.loads((out / f"{number}.json").read_text()) for number in (1, 2)]
    assert [document["text"] for document in documents] == [recognizer.transcribe(noise(3, seed), BEST).text for seed in (1, 2)]
    assert documents[0]["file"].endswith("1.wav")
    assert documents[0]["duration"] == 3.0
    assert documents[0]["model"] == "gibberish"
    assert documents[0]["segments"][0]["words"][0]["start"] >= 0


def test_many_files_on_standard_output_are_told_apart(
    server: RunningServer, recordings: Path, recognizer: Recognizer, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = recordings / "1.wav", recordings / "2.wav"
    assert run("--server", server.url, one, two) == 0
    assert capsys.readouterr().out == f"==> {one} <==\n{text_of(recognizer, 1)}==> {two} <==\n{text_of(recognizer, 2)}"


@pytest.mark.parametrize("suffix", ["flac", "ogg", "mp3"])
def test_reads_what_libsndfile_reads(
    server: RunningServer, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    soundfile.write(tmp_path / f"a.{suffix}", noise(2, seed=3), 16_000)
    assert run("--server", server.url, tmp_path / f"a.{suffix}") == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg (Debian: ffmpeg)")
def test_reads_the_rest_through_ffmpeg(
    server: RunningServer, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ffmpeg", "-v", "error", "-i", str(recordings / "1.wav"), str(tmp_path / "a.m4a")]
    subprocess.run(command, check=True)
    assert run("--server", server.url, tmp_path / "a.m4a") == 0
    assert capsys.readouterr().out.strip()
    (tmp_path / "a.m4a").rename(tmp_path / "10:30 talk.m4a")
    monkeypatch.chdir(tmp_path)
    assert run("--server", server.url, "10:30 talk.m4a") == 0, "not a protocol that is called 10"
    assert capsys.readouterr().out.strip()
    (tmp_path / "b.m4a").write_bytes(b"no audio at all")
    assert run("--server", server.url, tmp_path / "b.m4a") == 1
    assert "b.m4a: cannot be read" in capsys.readouterr().err


def test_without_ffmpeg_it_says_what_helps(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.m4a").write_bytes(b"something")
    assert run("--server", server.url, tmp_path / "a.m4a") == 1
    assert "install ffmpeg, or convert it to wav" in capsys.readouterr().err


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2), (96_000, 1), (4_000, 1)])
def test_any_rate_and_channels(
    server: RunningServer, tmp_path: Path, rate: int, channels: int, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = np.repeat(noise(2, seed=4)[: 2 * rate, None], channels, axis=1)
    soundfile.write(tmp_path / "a.wav", np.resize(samples, (2 * rate, channels)), rate, subtype="FLOAT")
    assert run("--server", server.url, "--format", "json", tmp_path / "a.wav") == 0
    assert json.loads(capsys.readouterr().out)["duration"] == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("kind", ["wav", "wav without lengths", "flac"])
def test_standard_input(
    server: RunningServer,
    recordings: Path,
    recognizer: Recognizer,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = (recordings / "1.wav").read_bytes()
    if kind == "wav without lengths":
        data = data[:4] + b"\xff" * 4 + data[8:40] + b"\xff" * 4 + data[44:]
    elif kind == "flac":
        file = io.BytesIO()
        soundfile.write(file, noise(3, seed=1), 16_000, format="FLAC")
        data = file.getvalue()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert run("--server", server.url, "-") == 0
    assert capsys.readouterr().out == text_of(recognizer, 1)


def test_one_bad_file_does_not_spoil_the_others(
    server: RunningServer, recordings: Path, recognizer: Recognizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--server", server.url, "--output", tmp_path, recordings / "missing.wav", recordings / "2.wav") == 1
    assert (tmp_path / "2.txt").read_text() == text_of(recognizer, 2)
    assert capsys.readouterr().err == f"monoscribe file: {recordings / 'missing.wav'}: there is no such file.\n"


def test_an_empty_file_is_called_empty(server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.wav").touch()
    assert run("--server", server.url, tmp_path / "a.wav") == 1
    assert capsys.readouterr().err == f"monoscribe file: {tmp_path / 'a.wav'}: is empty; expected an audio file.\n"


@pytest.mark.parametrize(
    ("redirection", "told"),
    [
        ("1.wav 2.wav > /dev/full", "standard output: cannot be written: No space left on device."),
        ("--output /dev/full 1.wav", "/dev/full: cannot be written: No space left on device."),
        ("--format json --output /dev/full 1.wav", "/dev/full: cannot be written: No space left on device."),
        ("- <&-", "-: nothing came on standard input; expected audio"),
    ],
)
def test_what_a_shell_can_do_to_it_is_one_sentence(server: RunningServer, recordings: Path, redirection: str, told: str) -> None:
    done = run_in_shell(server, recordings, redirection)
    assert done.returncode == 1
    assert done.stderr.startswith(f"monoscribe file: {told}")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error(server: RunningServer, recordings: Path) -> None:
    done = run_in_shell(server, recordings, "1.wav 2.wav 1.wav | head -c 4")
    assert (done.stdout, done.stderr) == ("==> ", "")


def test_nobody_needs_to_read_what_goes_into_a_file(server: RunningServer, recordings: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    assert run_in_shell(server, recordings, f"--output '{out}' 1.wav >&- 2>&- <&-").returncode == 0
    assert out.read_text()


def run_in_shell(server: RunningServer, folder: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    command = f"'{sys.executable}' -m monoscribe file --server {server.url} {arguments}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_exit_codes_of_what_the_server_cannot_do(
    recordings: Path, start_server: ServerFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--server", "127.0.0.1:1", recordings / "1.wav") == 3
    assert "Nothing listens at ws://127.0.0.1:1" in capsys.readouterr().err
    url = start_server(api_keys="sesame").url
    assert run("--server", url, recordings / "1.wav") == 3
    assert "no valid API key" in capsys.readouterr().err
    (tmp_path / "key").write_text("sesame\n")
    assert run("--server", url, "--key-file", tmp_path / "key", recordings / "1.wav") == 0


def test_usage(recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = recordings / "1.wav", recordings / "2.wav"
    assert run("--format", "srt", one, two) == 2
    assert "expected --output FOLDER" in capsys.readouterr().err
    assert run("--output", tmp_path, one, one) == 2
    assert "two of the files would be written to" in capsys.readouterr().err
    assert run("--key-file", tmp_path / "none", one) == 2
    assert "--key-file=" in capsys.readouterr().err
    for key in (b"two\nlines", b"\xff\xfe", "schlüssel".encode()):
        (tmp_path / "key").write_bytes(key)
        assert run("--key-file", tmp_path / "key", one) == 2
        assert "expected nothing but a key" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["", "ftp://host", "host:99999", "host:port", "http://[::1"])
def test_an_address_that_is_none(address: str, recordings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--server", address, recordings / "1.wav", recordings / "2.wav") == 2
    told = capsys.readouterr()
    assert (
        told.err
        == f"monoscribe file: --server={address}: expected an address such as 127.0.0.1:8000 or wss://speech.example.org.\n"
    )
    assert told.out == ""


@pytest.mark.parametrize("head", [12, 60_000])
def test_ctrl_c_ends_it_though_the_pipe_has_more(server: RunningServer, recordings: Path, head: int) -> None:
    command = [sys.executable, "-m", "monoscribe", "file", "--server", server.url, "-"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write((recordings / "1.wav").read_bytes()[:head])
        process.stdin.flush()
        wait_until(lambda: waiting_in(process.stdin) == 0, "it does not read")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def waiting_in(pipe: IO[bytes] | None) -> int:
    """Bytes that nobody has read yet."""
    assert pipe is not None
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_realtime_says_the_same(
    server: RunningServer, recordings: Path, recognizer: Recognizer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--server", server.url, "--realtime", recordings / "1.wav") == 0
    assert capsys.readouterr().out == text_of(recognizer, 1)


def test_local_needs_no_server(recordings: Path, network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "model", network, ModelCard(name="small"))
    assert run("--local", "--model", tmp_path / "model", recordings / "1.wav") == 0
    stored = Recognizer.load(tmp_path / "model")
    assert capsys.readouterr().out == text_of(stored, 1)
    assert run("--local", "--model", tmp_path / "nothing", recordings / "1.wav") == 3
    assert "expected a model folder" in capsys.readouterr().err


def test_formats_agree_with_the_server_s() -> None:
    words = [(f"word{number}", number * 0.5, number * 0.5 + 0.4, 0.9) for number in range(30)]
    ours = [Segment("a b", 0.1, 1.25, 0.5, (Word("a", 0.1, 0.5, 0.5), Word("b", 1, 1.25, 0.5)))]
    ours += [Segment(" ".join(word[0] for word in words), 3661.5, 3676, 0.9, tuple(Word(*word) for word in words))]
    theirs = [
        SegmentEnd(segment.text, segment.start, segment.end, segment.confidence, tuple(WordTime(**vars(w)) for w in segment.words))
        for segment in ours
    ]
    transcript = Transcript(ours, 4000.0, "m")
    assert [transcript.to(format) for format in FORMATS if format != "json"] == [as_text(theirs), as_srt(theirs), as_vtt(theirs)]
    assert json.loads(transcript.to("json")) == json.loads(json.dumps(as_json(theirs, 4000.0, "m")))


def test_the_client_is_light() -> None:
    """Neither torch nor the model is imported by any of its modules but the one for --local."""
    program = """
import importlib, pathlib, sys
import client
for path in pathlib.Path(client.__file__).parent.glob("*.py"):
    if path.stem not in ("local", "__init__"):
        importlib.import_module(f"client.{path.stem}")
import monoscribe
heavy = {"torch", "torchaudio", "model", "server.app", "fastapi"} & set(sys.modules)
sys.exit(f"imports {heavy}" if heavy else 0)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_formats_of_nothing() -> None:
    assert [Transcript().to("text"), Transcript().to("srt"), Transcript().to("vtt")] == ["", "", "WEBVTT\n"]
