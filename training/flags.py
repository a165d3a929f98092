"""Flags of the commands that train and measure. Light: nothing here needs more than Python has."""

from __future__ import annotations

import argparse
from pathlib import Path

DECODERS = ("hard", "beam", "soft", "softmax", "ctc")
DATA = "a corpus's folder, FOLDER:PART for another part of it than usual, a .tsv or .jsonl manifest, or a feature cache"


def add_train_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="the name of one of our recipes, or a .toml file")
    parser.add_argument("--data", nargs="+", required=True, metavar="DATA", help=f"what to learn from: {DATA}")
    parser.add_argument("--dev", nargs="+", default=[], metavar="DATA", help="what to evaluate on meanwhile")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; a run that is there already goes on")
    parser.add_argument(  # not --start, which torchrun would take for the beginning of an option of its own
        "--from", dest="start", type=Path, help="weights to begin with: a model folder, another run's folder or a checkpoint"
    )
    parser.add_argument("--cache", type=Path, help="where feature caches are kept; OUT/cache if not given")
    parser.add_argument("--limit-hours", type=positive, default=0.0, help="stop after so many hours; the next call goes on")
    parser.add_argument("--evaluate-steps", type=count, default=1000, help="evaluate every so many steps; 1000 if not given")
    parser.add_argument("--checkpoint-minutes", type=positive, default=3.0, help="how much a crash may cost; 3 if not given")


def add_evaluate_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", type=Path, help="a model folder; the embedded model if not given")
    parser.add_argument("--data", nargs="+", required=True, metavar="DATA", help=f"what to measure on: {DATA}")
    parser.add_argument("--decoder", nargs="+", choices=DECODERS, help="hard if not given")
    parser.add_argument("--streaming", action="store_true", help="decode as a live stream, in chunks of 100 ms")
    parser.add_argument("--json", action="store_true", help="print everything, each utterance included, as JSON")
    parser.add_argument(
        "--limit", type=count, default=0, help="measure on so many utterances, drawn at random, always the same ones"
    )
    parser.add_argument("--worst", type=count_or_none, default=5, help="how many of the worst utterances to show")
    parser.add_argument("--speakers", action="store_true", help="show every speaker")
    parser.add_argument("--cache", type=Path, help="where feature caches are kept; nowhere if not given")


def add_pseudo_label_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--data", nargs="+", required=True, metavar="DATA", help=f"recordings without text: {DATA}")
    parser.add_argument("--out", type=Path, required=True, help="the manifest (.tsv) to write; a folder if DATA is a feature cache")
    parser.add_argument(
        "--decoder",
        choices=("hard", "ctc", "words"),
        default="hard",
        help="whose text to keep; hard if not given; words needs --words",
    )
    parser.add_argument("--words", type=Path, metavar="ARPA", help="a language model of words, for the decoder of that name")
    parser.add_argument("--confidence", type=float, default=0.9, help="least confidence of a text, 0 to 1; 0.9 if not given")
    parser.add_argument("--agreement", type=float, default=0.9, help="least agreement of attention and CTC; 0.9 if not given")
    parser.add_argument("--share", type=float, default=1.0, help="keep the surest share of all recordings, 0 to 1; 1 if not given")
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of the encoder's products; bfloat16 is twice as fast where the processor has it; float32 if not given",
    )
    parser.add_argument("--jobs", type=count, default=1, help="processes; 1 if not given")
    parser.add_argument("--cache", type=Path, help="where feature caches are kept; nowhere if not given")


def add_average_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="model folders of the same sizes")
    parser.add_argument("--shares", nargs="+", type=positive, default=[], help="how much of each, 1 in all; the same if not given")
    parser.add_argument("--bits", type=int, choices=(8, 16), default=16, help="of a stored weight; 16 if not given")
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")


def add_language_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "texts", nargs="+", type=Path, metavar="TEXT", help="text files in UTF-8; one that is named twice counts twice"
    )
    parser.add_argument("--out", type=Path, required=True, help="the file to write: language.safetensors in a model's folder")
    parser.add_argument("--vocabulary", type=int, default=60_000, help="most words; 60000 if not given")
    parser.add_argument("--bigrams", type=int, default=2, help="how often two words must have been seen to be kept; 2 if not given")
    parser.add_argument("--trigrams", type=int, default=3, help="how often three words must; 3 if not given")


def add_synthesize_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sentences", type=Path, metavar="TEXT", help="a text file in UTF-8 with one sentence per line, as it is written"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the manifest (.tsv) to write; recordings go to a folder of its name"
    )
    parser.add_argument("--hours", type=positive, default=0.0, help="stop after so much speech; all sentences if not given")
    parser.add_argument("--sounds", type=count_or_none, default=0, help="so many sounds without speech besides; none if not given")
    parser.add_argument("--jobs", type=count, default=1, help="processes; 1 if not given")
    parser.add_argument("--seed", type=count_or_none, default=0, help="of the voices; 0 if not given")


def positive(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0")
    return value


def count(text: str, least: int = 1) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number, at least {least}")
    return value


def count_or_none(text: str) -> int:
    return count(text, 0)
