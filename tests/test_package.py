"""What is installed: everything that a server needs, found from any folder; and the script that installs it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from model.files import PRETRAINED

ROOT = Path(__file__).parents[1]
INSTALL = ROOT / ".ci" / "install.py"
PACKAGES = ("model", "training", "server", "client")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves folders in the source, from which a later build would take what is long deleted."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "tests", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "monoscribe.py"):
        shutil.copy(ROOT / name, source)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(out),
    ]
    done = subprocess.run([*build, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("monoscribe-*.whl")
    return built


def test_the_wheel_has_all_of_the_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    expected = {str(path.relative_to(ROOT)) for path in sources if "__pycache__" not in path.parts}
    assert names == expected | {"monoscribe.py"}
    card = (PRETRAINED / "README.md").relative_to(ROOT)
    assert {str(card), "server/page/index.html", "training/recipes/wsj.toml", "client/py.typed"} <= names


def test_an_installed_server_finds_its_model_and_its_page_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MONOSCRIBE_")}
    environment["PYTHONPATH"] = str(tmp_path / "installed")
    command = [sys.executable, "-m", "monoscribe", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=elsewhere, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://[\d.]+:\d+/", process.stdout.readline())
        assert found
        with httpx.Client(base_url=found[0], trust_env=False) as client:
            assert "<title>Monoscribe" in client.get("/").text
            assert client.get("/v1/models").json()["data"][0]["id"]
            assert client.get("/client.js").status_code == 200
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 0


def test_an_old_python_is_told() -> None:
    program = f"import runpy, sys; sys.version_info = (3, 9, 2); runpy.run_path({str(INSTALL)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program, ".venv", "serve"], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"Python 3.11 or newer is needed, and \S+ is 3.9. Name another one: make PYTHON=python3.11\n", done.stderr)


def test_two_that_set_up_at_once_do_it_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nif [ "$3" = install ]; then sleep 0.5; echo "$@" >> pip.log; fi\n')
    python.chmod(0o755)
    command = [sys.executable, str(INSTALL), ".venv", "serve"]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
    assert [process.returncode for process in both] == [0, 0]
    assert (tmp_path / "pip.log").read_text().splitlines() == [
        "-m pip install --quiet --disable-pip-version-check --editable .[serve]"
    ]
    assert (tmp_path / ".venv" / "serve.installed").exists()
