"""The command line: one subcommand per job."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

PACKAGES = ("model", "training", "server", "client", "benchmarks")
BENCHMARKS = ("report", "attention", "engine", "load", "accuracy", "peers")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="monoscribe", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_serve(commands)
    _add_file(commands)
    _add_mic(commands)
    _add_train(commands)
    _add_evaluate(commands)
    _add_pseudo_label(commands)
    _add_average(commands)
    _add_language(commands)
    _add_synthesize(commands)
    _add_benchmark(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    _open_standard_streams()
    chosen = build_parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in PACKAGES:
            raise
        print(f'monoscribe {chosen.command}: needs {error.name}; pip install "monoscribe[{chosen.extra}]"', file=sys.stderr)
        return 2


def _open_standard_streams() -> None:
    """Where whoever started us closed one, Python has None, and the next file that is opened would take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (it stays open)


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from server.settings import add_flags

    parser = commands.add_parser("serve", help="serve live streams over WebSockets, and files over HTTP")
    add_flags(parser)
    parser.set_defaults(run=_serve, extra="serve")


def _add_file(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from client.flags import add_file_flags

    parser = commands.add_parser("file", help="transcribe recordings")
    add_file_flags(parser)
    parser.set_defaults(run=_file, extra="serve")  # --local alone needs more than the client has


def _file(chosen: argparse.Namespace) -> int:
    from client.file_command import run

    return run(chosen)


def _add_mic(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from client.flags import add_mic_flags

    parser = commands.add_parser("mic", help="transcribe the microphone, live")
    add_mic_flags(parser)
    parser.set_defaults(run=_mic, extra="serve")


def _mic(chosen: argparse.Namespace) -> int:
    from client.mic_command import run

    return run(chosen)


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from training.flags import add_train_flags

    parser = commands.add_parser("train", help="train a model by a recipe, or go on with that")
    add_train_flags(parser)
    parser.set_defaults(run=_train, extra="train")


def _train(chosen: argparse.Namespace) -> int:
    from training.commands import run_train

    return run_train(chosen)


def _add_evaluate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from training.flags import add_evaluate_flags

    parser = commands.add_parser("evaluate", help="measure a model's errors and delay on recordings with text")
    add_evaluate_flags(parser)
    parser.set_defaults(run=_evaluate, extra="train")


def _evaluate(chosen: argparse.Namespace) -> int:
    from training.commands import run_evaluate

    return run_evaluate(chosen)


def _add_pseudo_label(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from training.flags import add_pseudo_label_flags

    parser = commands.add_parser("pseudo-label", help="self-training: write down what a model is sure of in unlabelled recordings")
    add_pseudo_label_flags(parser)
    parser.set_defaults(run=_pseudo_label, extra="train")


def _pseudo_label(chosen: argparse.Namespace) -> int:
    from training.commands import run_pseudo_label

    return run_pseudo_label(chosen)


def _add_average(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from training.flags import add_average_flags

    parser = commands.add_parser("average", help="one model from the weights of several, or one stored in fewer bits")
    add_average_flags(parser)
    parser.set_defaults(run=_average, extra="train")


def _average(chosen: argparse.Namespace) -> int:
    from training.commands import run_average

    return run_average(chosen)


def _add_language(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from training.flags import add_language_flags

    parser = commands.add_parser("language", help="build the language model of the beam search from text")
    add_language_flags(parser)
    parser.set_defaults(run=_language, extra="train")


def _language(chosen: argparse.Namespace) -> int:
    from training.commands import run_language

    return run_language(chosen)


def _add_synthesize(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from training.flags import add_synthesize_flags

    parser = commands.add_parser("synthesize", help="have sentences spoken by a synthesiser in many voices, to train on")
    add_synthesize_flags(parser)
    parser.set_defaults(run=_synthesize, extra="synthesis")


def _synthesize(chosen: argparse.Namespace) -> int:
    from training.commands import run_synthesize

    return run_synthesize(chosen)


def _add_benchmark(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("benchmark", help="measure what the README claims; needs a checkout of the source")
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, default="report", help="report, which runs them all, if not given")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="of that benchmark; --help tells them")
    parser.set_defaults(run=_benchmark, extra="bench")


def _benchmark(chosen: argparse.Namespace) -> int:
    root = Path(__file__).parent
    if not (root / "benchmarks").is_dir():
        print("monoscribe benchmark: needs a checkout of the source, which brings the recordings and documents", file=sys.stderr)
        return 2
    sys.path.insert(0, str(root))  # an installed command does not look there by itself
    return int(import_module(f"benchmarks.{chosen.name}").main(chosen.flags))


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
