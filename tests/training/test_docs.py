"""Every command in the documentation is one that the command line takes."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

import monoscribe
from training import commands
from training.recipe import load_recipe

DOCUMENT = (Path(monoscribe.__file__).parent / "docs" / "training.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", DOCUMENT, re.DOTALL)
COMMANDS = [line.partition("#")[0].strip() for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_real(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []
    for name in ("run_train", "run_evaluate", "run_pseudo_label"):
        monkeypatch.setattr(commands, name, lambda chosen: seen.append(chosen) or 0)  # type: ignore[func-returns-value]
    words = shlex.split(command.partition(">")[0])
    arguments = words[words.index("monoscribe") + 1 :]
    assert monoscribe.main(arguments) == 0
    if seen[0].command == "train":
        load_recipe(seen[0].recipe)


def test_every_recipe_is_in_the_table() -> None:
    for name in re.findall(r"`((?:wsj|timit|default)[a-z-]*)`", DOCUMENT):
        load_recipe(name)
