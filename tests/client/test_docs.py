"""docs/client.md does what it says."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import soundfile

import monoscribe
from client import Event, Transcript
from client.flags import EXIT_CODES, add_mic_flags
from model import Recognizer
from tests.server.conftest import RunningServer, noise

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "client.md").read_text()
DEFAULT_SERVER = "ws://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for seed, name in enumerate(("speech.wav", "more.wav")):
        soundfile.write(tmp_path / name, noise(2, seed=40 + seed), 16_000, subtype="PCM_16")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python(folder: Path, server: RunningServer, recognizer: Recognizer, number: int) -> None:
    code = blocks("python")[number].replace(DEFAULT_SERVER, server.url)
    assert server.url in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/client.md", "exec"), {})
    for segment in recognizer.transcribe(noise(2, seed=40)).segments:
        assert segment.text.split()[0] in printed.getvalue()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("monoscribe file")])
def test_file_commands(folder: Path, server: RunningServer, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = shlex.split(command)[1:]
    assert monoscribe.main([*arguments, "--server", server.url]) == 0
    if "--output" in arguments:
        assert Path(arguments[arguments.index("--output") + 1]).exists()
    else:
        assert capsys.readouterr().out.strip()


def test_pipe(folder: Path, server: RunningServer, recognizer: Recognizer) -> None:
    (command,) = [command for command in COMMANDS if "|" in command]
    runnable = command.replace("monoscribe file", f"{sys.executable} -m monoscribe file --server {server.url}")
    done = subprocess.run(
        runnable, shell=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.stdout == "".join(segment.text + "\n" for segment in recognizer.transcribe(noise(2, seed=40)).segments), done.stderr


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("monoscribe mic")])
def test_mic_commands_have_such_flags(command: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_mic_flags(parser)
    parser.parse_args(shlex.split(command)[2:])


def test_every_event_is_explained() -> None:
    for kind in get_args(Event):
        fields = ", ".join(kind.__dataclass_fields__)
        assert f"`{kind.__name__}({fields})`" in DOCUMENT


def test_every_exit_code_is_explained() -> None:
    codes = re.findall(r"^  (\d+)", EXIT_CODES, re.MULTILINE)
    assert codes == re.findall(r"^\| (\d+) \|", DOCUMENT, re.MULTILINE)


def test_formats_of_nothing() -> None:
    assert [Transcript().to("text"), Transcript().to("srt"), Transcript().to("vtt")] == ["", "", "WEBVTT\n"]
