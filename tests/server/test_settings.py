"""Settings from flags and variables, and errors that name where a value came from."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import monoscribe
from server.run import own_name
from server.settings import Settings, add_flags, read_settings


def test_flags_go_before_variables_before_defaults() -> None:
    settings = read_settings({"port": "1"}, {"MONOSCRIBE_PORT": "2", "MONOSCRIBE_MAX_SESSIONS": "3", "MONOSCRIBE_LOG_TEXT": "on"})
    assert (settings.port, settings.max_sessions, settings.log_text, settings.host) == (1, 3, True, "127.0.0.1")


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        ({"port": "x"}, {}, "--port=x: expected a whole number"),
        ({}, {"MONOSCRIBE_IDLE_SECONDS": "soon"}, "MONOSCRIBE_IDLE_SECONDS=soon: expected a number"),
        ({}, {"MONOSCRIBE_IDLE_SECONDS": "nan"}, "idle_seconds=nan: expected 0.1.."),
        ({}, {"MONOSCRIBE_LOG_TEXT": "perhaps"}, "MONOSCRIBE_LOG_TEXT=perhaps: expected on or off"),
        ({}, {"MONOSCRIBE_PROT": "1"}, "MONOSCRIBE_PROT: no such setting; expected one of MONOSCRIBE_"),
        ({"workers": "0"}, {}, "workers=0: expected 1..256"),
        ({"log_format": "xml"}, {}, "log_format=xml: expected text or json"),
        ({"tls_key": "/x"}, {}, "tls_certificate, tls_key: expected both or neither"),
        ({"api_keys_file": "/nowhere"}, {}, "api_keys_file=/nowhere: expected a file that exists"),
    ],
)
def test_wrong_values_are_named(flags: dict[str, str], environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_settings(flags, environment)


def test_every_setting_has_a_flag_and_is_documented() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    shown = parser.format_help()
    documented = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    for field in dataclasses.fields(Settings):
        assert "--" + field.name.replace("_", "-") in shown
        assert f"`{field.name}`" in documented, f"docs/operations.md says nothing of {field.name}"


def test_keys_come_from_both_places(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("c\n\n d \n")
    assert Settings(api_keys="a, b,", api_keys_file=str(file)).keys == ("a", "b", "c", "d")


@pytest.fixture
def logs_as_before() -> Iterator[None]:
    """The command sets up the logs of the whole process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.usefixtures("logs_as_before")
def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert monoscribe.main(["serve", "--port", "-1"]) == 2
    assert capsys.readouterr().err == "monoscribe serve: port=-1: expected 0..65535\n"
    for workers in ("1", "2"):
        assert monoscribe.main(["serve", "--port", "0", "--workers", workers, "--model", "/nowhere"]) == 78
        assert "monoscribe serve: /nowhere/model.json: No such file" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert monoscribe.main(["serve", "--port", str(taken.getsockname()[1])]) == 78
    assert "Address already in use; choose another with --port" in capsys.readouterr().err


def test_the_greeting_names_the_command_as_it_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "monoscribe"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/monoscribe", "serve"])
    assert own_name() == "bin/monoscribe"
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_name() == "monoscribe"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "monoscribe.py"), "serve"])
    assert own_name() == "monoscribe"


def test_the_command_names_a_missing_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("server.run")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert monoscribe.main(["serve"]) == 2
    assert 'needs uvicorn; pip install "monoscribe[serve]"' in capsys.readouterr().err
