"""The command line: one subcommand per job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="monoscribe", description=__doc__)
    parser.add_subparsers(dest="command", required=True)
    parser.parse_args(arguments)
    return 0
