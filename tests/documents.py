"""The documents, their fenced blocks, and the commands in their prose."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT) for pattern in ("*.md", "docs/*.md", "model/pretrained/*.md") for path in ROOT.glob(pattern)
)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    place: str  # document and line
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Of a shell: one per line, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def blocks(document: Path) -> list[Block]:
    page = (ROOT / document).read_text()
    return [Block(f"{document}:{page.count(chr(10), 0, found.start()) + 1}", found[1], found[2]) for found in FENCE.finditer(page)]


def spans(document: Path) -> list[str]:
    """What stands between backticks in the prose and the tables."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", (ROOT / document).read_text()))
