"""Ports of their own: one that is taken is said before anything begins."""

from __future__ import annotations

import socket

import pytest

from model import Recognizer
from server import run
from server.settings import Settings


@pytest.mark.parametrize("name", ["vosk_port", "wyoming_port"])
def test_a_port_that_is_taken(
    name: str, recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "load_model", lambda settings: recognizer)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as listener:
        settings = Settings(port=0, **{name: taken.getsockname()[1]})
        assert run.run_process(settings, listener) == run.UNUSABLE
        assert f"{name}={taken.getsockname()[1]}" in capsys.readouterr().err
