"""The command line: one subcommand per job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

PACKAGES = ("model", "training", "server", "client")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="monoscribe", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_serve(commands)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in PACKAGES:
            raise
        print(f'monoscribe {chosen.command}: needs {error.name}; pip install "monoscribe[{chosen.extra}]"', file=sys.stderr)
        return 2


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from server.settings import add_flags

    parser = commands.add_parser("serve", help="serve live streams over WebSockets, and files over HTTP")
    add_flags(parser)
    parser.set_defaults(run=_serve, extra="serve")


def _serve(chosen: argparse.Namespace) -> int:
    from server.settings import read_settings

    try:
        settings = read_settings(vars(chosen))
    except ValueError as error:
        print(f"monoscribe serve: {error}", file=sys.stderr)
        return 2
    from server.run import serve

    return serve(settings)


if __name__ == "__main__":
    sys.exit(main())
