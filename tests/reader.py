"""A reader who does what a document says: runs its snippets and commands, and looks for the files that it names."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from torch.distributed.run import get_args_parser as torchrun_parser

import monoscribe
from model import Recognizer
from server.codec import protocol_schema
from server.settings import read_settings
from tests.conftest import BEST
from tests.documents import ROOT, Block
from tests.server.conftest import RunningServer
from training.audio import Samples, read_audio
from training.recipe import load_recipe

ADDRESS = "127.0.0.1:8000"  # where the documents have their server
AUDIO = re.compile(r'"([\w/.]+\.(?:wav|flac|raw))"')
FILES = re.compile(r"[\w./-]+\.(?:py|wav|flac|mp3|txt)\b")
VARIABLE = re.compile(r"[A-Z_]+=")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


class Reader:
    """Does what a document says, in a folder of its own."""

    def __init__(self, server: RunningServer, recognizer: Recognizer) -> None:
        self.server = server
        self.recognizer = recognizer
        self.lacking: list[str] = []  # what this machine has not
        self.ways: dict[str, Callable[[Block], object]] = {
            "python": self.run_python,
            "sh": self.run_shell,
            "toml": self.load_recipe,
            "mermaid": self.check_sequence,
            "text": self.check_files,
            "js": lambda block: None,  # in a browser: tests/page/test_modules.py
        }
        self.programs: dict[str, Callable[[list[str]], object]] = {
            "monoscribe": self.run_monoscribe,
            "make": check_make,
            "python": check_pip,
            "docker": check_docker,
            "curl": self.run_curl,
            "torchrun": check_torchrun,
        }

    def read(self, block: Block) -> None:
        assert block.language in self.ways, f"{block.place}: nobody knows how to run {block.language or 'what has no language'}"
        try:
            self.ways[block.language](block)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block.place}: {error}") from error

    def run_python(self, block: Block) -> None:
        """What it prints holds the first word of every segment in the recording that it names."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text.replace(ADDRESS, f"127.0.0.1:{self.server.port}"), block.place, "exec"), {})
        if ADDRESS in block.text:
            for segment in self.recognizer.transcribe(read_samples(AUDIO.findall(block.text)[0])).segments:
                assert segment.text.split()[0] in printed.getvalue()
        else:
            assert printed.getvalue()

    def run_shell(self, block: Block) -> None:
        for line in block.commands:
            line = os.path.expandvars(line).replace(ADDRESS, f"127.0.0.1:{self.server.port}")
            words = shlex.split(line, comments=True)
            if "|" in words:
                self.run_piped(line)
                continue
            variables = dict(word.split("=", 1) for word in takewhile(VARIABLE.match, words))
            command, file = split_at(words[len(variables) :], ">")
            program = Path(command[0]).name
            assert program in self.programs, f"nobody knows how to run {line}"
            with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
                for name, value in variables.items():
                    patch.setenv(name, value)
                self.programs[program](command[1:])
            if file:
                Path(file[0]).write_text(printed.getvalue())

    def run_piped(self, line: str) -> None:
        """In a shell, which finds the interpreter of these tests under the command's name."""
        program = f"{shlex.quote(sys.executable)} -m monoscribe file --server {self.server.url}"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            line.replace("monoscribe file", program), shell=True, env=environment, capture_output=True, text=True, timeout=60
        )
        expected = [segment.text for segment in self.recognizer.transcribe(read_samples("speech.wav"), BEST).segments]
        assert done.stdout.splitlines() == expected, done.stderr

    def run_monoscribe(self, arguments: list[str]) -> None:
        chosen = monoscribe.build_parser().parse_args(arguments)
        if chosen.command == "mic":  # needs a sound card: tests/client/test_mic.py
            return
        if chosen.command == "serve":
            start_and_stop(arguments)
            return
        if chosen.command == "file":
            arguments = [*arguments, "--server", self.server.url]
        if chosen.command == "pseudo-label":  # of a model that talks, whatever it says
            arguments = [*arguments, "--confidence", "0", "--agreement", "0"]
            arguments[1] = "talkative"
        if chosen.command == "average":
            arguments = ["talkative" if Path(argument) in chosen.models else argument for argument in arguments]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert monoscribe.main(arguments) == 0, shlex.join(arguments)
        print(printed.getvalue(), end="")
        output = getattr(chosen, "output", None) or getattr(chosen, "out", None)
        assert Path(output).exists() if output else printed.getvalue().strip()

    def run_curl(self, arguments: list[str]) -> None:
        if not shutil.which("curl"):
            self.lacking.append("curl")
            return
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail", *arguments], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()

    def load_recipe(self, block: Block) -> None:
        Path("own.toml").write_text(block.text)
        load_recipe("own.toml")

    def check_sequence(self, block: Block) -> None:
        """Messages and queries with fields that the protocol has."""
        kinds: dict[str, set[str]] = {}
        for entry in protocol_schema()["$defs"].values():
            fields = entry.get("properties", {})
            kinds[fields.get("type", {}).get("const", "")] = set(fields)
        told = re.findall(r"->>[CS]: (\w+) \{(.*)\}", block.text)
        assert told
        for kind, fields in told:
            assert set(re.findall(r"(?:^|, )(\w+)", fields)) <= kinds[kind], (kind, fields)
        for query in re.findall(r"GET /v1/stream\?(\S+)", block.text):
            assert {pair.partition("=")[0] for pair in query.split("&")} <= kinds["start"] | kinds["resume"], query

    def check_files(self, block: Block) -> None:
        """A drawing or a listing: the files that it names are there."""
        names = FILES.findall(block.text)
        assert names
        for name in names:
            assert Path(name).exists() or any(ROOT.glob(f"*/{name}")), name


def split_at(words: list[str], mark: str) -> tuple[list[str], list[str]]:
    place = words.index(mark) if mark in words else len(words)
    return words[:place], words[place + 1 :]


def read_samples(path: str) -> Samples:
    if path.endswith(".raw"):
        return np.asarray(np.fromfile(path, "<i2") / 32768, dtype=np.float32)
    return read_audio(Path(path))


def start_and_stop(arguments: list[str]) -> None:
    command = [sys.executable, str(ROOT / "monoscribe.py"), *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert "http://127.0.0.1:" in first, errors
    assert process.returncode == 0, errors


def check_make(arguments: list[str]) -> None:
    subprocess.run(["make", "--dry-run", "--directory", ROOT, *arguments], check=True, capture_output=True)


def check_pip(arguments: list[str]) -> None:
    assert arguments[:3] == ["-m", "pip", "install"]
    check_extra(arguments[-1])


def check_extra(requirement: str) -> None:
    found = re.fullmatch(r'"?(?:\.|monoscribe)\[(\w+)\]"?', requirement)
    assert found, requirement
    assert found[1] in EXTRAS


def check_docker(arguments: list[str]) -> None:
    """There may be no engine: the files are there, the port is the one that the image exposes, the variables are settings."""
    image, line = (ROOT / "Dockerfile").read_text(), " ".join(arguments)
    assert arguments[0] in ("build", "run", "compose")
    assert (ROOT / "compose.yaml").exists()
    for inside in re.findall(r"-p \d+:(\d+)", line):
        assert f"EXPOSE {inside}\n" in image
    read_settings({}, dict(re.findall(r"-e (\w+)=(\S+)", line)))


def check_torchrun(arguments: list[str]) -> None:
    chosen = torchrun_parser().parse_args(arguments)
    assert (chosen.module, chosen.training_script) == (True, "monoscribe")
    load_recipe(monoscribe.build_parser().parse_args(chosen.training_script_args).recipe)
