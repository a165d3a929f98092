"""The flags of `monoscribe file` and `monoscribe mic`, and what they have in common."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from client.address import stream_address
from client.events import ClientError
from client.formats import FORMATS, SUFFIXES, Format

EXIT_CODES = """exit codes:
  0    everything was transcribed
  1    some audio could not be read, or something could not be written
  2    the command line is wrong
  3    no server, or it refused
  130  interrupted"""

AUDIO_FAILED, USAGE, SERVER_FAILED, INTERRUPTED = 1, 2, 3, 130


class UsageError(ClientError):
    """Flags that do not go together."""


def add_file_flags(parser: argparse.ArgumentParser) -> None:
    _use_epilog(parser)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="audio file (wav, flac, ogg, mp3; others through ffmpeg), or -")
    parser.add_argument("--realtime", action="store_true", help="send no faster than one speaks, and show characters as they come")
    parser.add_argument("--local", action="store_true", help="recognise in this process instead of on a server")
    parser.add_argument("--model", default="", metavar="FOLDER", help="with --local: the model; otherwise the embedded one")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_common_flags(parser, "FILE or FOLDER", "write to this file; with several PATHs, to a file for each in this folder")


def add_mic_flags(parser: argparse.ArgumentParser) -> None:
    _use_epilog(parser)
    parser.add_argument("--list-devices", action="store_true", help="show the microphones and end")
    parser.add_argument("--device", default=None, metavar="NAME", help="number or part of the name of a microphone")
    parser.add_argument("--save", default="", metavar="FILE", help="keep the recording, as wav, flac or ogg")
    _add_common_flags(parser, "FILE", "write to this file while the screen shows the text")


def _add_common_flags(parser: argparse.ArgumentParser, output: str, output_help: str) -> None:
    parser.add_argument("--server", default="ws://127.0.0.1:8000", metavar="ADDRESS", help="default %(default)s")
    parser.add_argument("--key-file", default="", metavar="FILE", help="file with the API key, if the server wants one")
    parser.add_argument("--format", default="text", choices=FORMATS, help="default %(default)s")
    parser.add_argument("--output", default="", metavar=output, help=output_help)
    parser.add_argument("--endpointing", type=float, default=0.8, metavar="SECONDS", help="pause that ends a segment (default 0.8)")
    parser.add_argument("--beam", type=int, default=0, metavar="N", help="hypotheses to follow: 1 is fastest, 0 (default) best")


def _use_epilog(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_CODES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def session_options(chosen: argparse.Namespace) -> dict[str, Any]:
    try:
        stream_address(chosen.server)
    except ClientError as error:  # no fault of a file, nor of a server
        raise UsageError(f"--{error}") from error
    return {"api_key": read_key(chosen.key_file), "endpointing": chosen.endpointing, "beam": chosen.beam}


def read_key(path: str) -> str:
    if not path:
        return ""
    try:
        key = Path(path).read_text(errors="replace").strip()
    except OSError as error:
        raise UsageError(f"--key-file={path}: {error.strerror}.") from error
    if not key.isprintable() or not key.isascii():  # another line, or something that no header can carry
        raise UsageError(f"--key-file={path}: expected nothing but a key, of printable ASCII.")
    return key


def output_paths(chosen: argparse.Namespace) -> list[Path | None]:
    """Where the transcript of each file goes; None is standard output."""
    format: Format = chosen.format
    if not chosen.output:
        if len(chosen.paths) > 1 and format in ("srt", "vtt"):
            raise UsageError(f"--format={format} of {len(chosen.paths)} files: expected --output FOLDER, for a file of each.")
        return [None] * len(chosen.paths)
    folder = Path(chosen.output)
    if len(chosen.paths) == 1 and not folder.is_dir():
        return [folder]
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output={folder}: expected a folder, as there are {len(chosen.paths)} files.")
    stems = ["stdin" if path == "-" else Path(path).stem for path in chosen.paths]
    outputs: list[Path | None] = [folder / (stem + SUFFIXES[format]) for stem in stems]
    twice = next((path for path in outputs if outputs.count(path) > 1), None)
    if twice is not None:
        raise UsageError(f"--output={folder}: two of the files would be written to {twice}.")
    return outputs
