"""Runs all benchmarks and writes docs/benchmarks.md with their tables and plots: what the README quotes.

Peers take part where they can: pocketsphinx where it is installed, vosk where --vosk names its model. Nothing else should run on
the machine meanwhile. Run: python -m benchmarks.report --manifest ../shared/speech/dev.tsv --vosk FOLDER
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def run(module: str, folder: Path, *arguments: str) -> Any:
    """The numbers that `benchmarks.<module>` writes; its table goes to the terminal."""
    result = folder / f"{module}.json"
    subprocess.run([sys.executable, "-m", f"benchmarks.{module}", "--json", str(result), *arguments], check=True)
    return json.loads(result.read_text())


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def attention_section(cells: list[dict[str, float]]) -> str:
    ratios = sorted(cell["speedup"] for cell in cells)
    return (
        "## Attention\n`python -m benchmarks.attention`: hard monotonic against softmax, lengths of 10 to 1000.\n"
        f"It is {ratios[0]:.0f} to {ratios[-1]:.0f} times as fast, {ratios[len(ratios) // 2]:.0f} times in the median "
        "(the paper reports 4 to 40).\n\n![speed of the attention](attention.png)\n"
    )


def engine_section(result: dict[str, Any]) -> str:
    rows = [
        [str(row["streams"]), f"{row['sustained']:.0f}", f"{row['share']:.0%}", f"{1 / row['sustained']:.2%}"]
        for row in result["rows"]
    ]
    return (
        "## Engine\n`python -m benchmarks.engine`: streams that one core sustains, 100 ms per step, without sockets.\n"
        f"If there were nothing but matrix products, this core would sustain {result['limit']:.0f}.\n\n"
        + table(["streams in the batch", "streams per core", "share of that limit", "of a core per stream"], rows)
    )


def load_section(levels: list[dict[str, float]]) -> str:
    rows = [
        [
            f"{level['streams']:.0f}",
            *(f"{level[name]:.0f} ms" for name in ("p50", "p95", "p99")),
            f"{level['cores']:.2f}",
            f"{level['memory']:.0f} MiB",
        ]
        for level in levels
    ]
    return "## Server\n`python -m benchmarks.load`: live streams until the 99th percentile of lag passes 300 ms.\n\n" + table(
        ["streams", "lag p50", "p95", "p99", "cores", "memory"], rows
    )


def accuracy_section(results: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = [
        [name, part, f"{row['wer']:.1%}", f"{row['cer']:.1%}", f"{row['processor']:.3f}"]
        for name, parts in results.items()
        for part, row in parts.items()
    ]
    return "## Accuracy\n`python -m benchmarks.accuracy`: live streams of 100 ms chunks, one normalisation for all.\n\n" + table(
        ["recogniser or condition", "set", "WER", "CER", "processor seconds per second"], rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--manifest", type=Path, help="recordings with text, for the accuracy")
    parser.add_argument("--vosk", type=Path, metavar="FOLDER", help="model of vosk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sections = [
            attention_section(run("attention", folder, "--plot", str(DOCS / "attention.png"))),
            engine_section(run("engine", folder)),
            load_section(run("load", folder)["levels"]),
        ]
        if options.manifest:
            flags = [str(options.manifest), "--beam", "--robustness"]
            flags += ["--pocketsphinx"] if importlib.util.find_spec("pocketsphinx") else []
            flags += ["--vosk", str(options.vosk)] if options.vosk else []
            sections.append(accuracy_section(run("accuracy", folder, *flags)))
    (DOCS / "benchmarks.md").write_text("# Benchmarks\n\nWritten by `python -m benchmarks.report`.\n\n" + "\n".join(sections))


if __name__ == "__main__":
    main()
