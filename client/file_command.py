"""`monoscribe file`: recordings to text."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from client.audio import Samples
from client.events import AudioError, ClientError, ConnectionFailedError, Event, ServerError
from client.feed import feeding, paced
from client.files import AudioSource, read_audio
from client.flags import AUDIO_FAILED, INTERRUPTED, SERVER_FAILED, USAGE, UsageError, output_paths, session_options
from client.output import Output, OutputError, StdoutError
from client.progress import BarView, LiveView, View
from client.session import connect

FILE_BUFFER_SECONDS = 120.0  # enough for any segment: a file can be read again, but not in the middle of a session


class Recognition(Protocol):
    model: str

    def events(self, rate: int, chunks: Iterator[Samples]) -> AsyncGenerator[Event, None]: ...


class RemoteRecognizer:
    def __init__(self, chosen: argparse.Namespace) -> None:
        self.model = ""
        self._server = chosen.server
        self._options = session_options(chosen) | {"interim": chosen.realtime, "buffer_seconds": FILE_BUFFER_SECONDS}

    async def events(self, rate: int, chunks: Iterator[Samples]) -> AsyncGenerator[Event, None]:
        async with connect(self._server, sample_rate=rate, **self._options) as session:
            self.model = session.model
            async with feeding(session, chunks):
                async for event in session:
                    yield event


def run(chosen: argparse.Namespace) -> int:
    try:
        with _interruptible():
            return asyncio.run(_run(chosen))
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        return _complain(error, USAGE)
    except OutputError as error:
        return _complain(error, AUDIO_FAILED)
    except ClientError as error:
        return _complain(error, SERVER_FAILED)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends it even while a read waits for a pipe: asyncio's own handler would wait for the read."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _run(chosen: argparse.Namespace) -> int:
    outputs = output_paths(chosen)
    recognition = _recognition(chosen)
    code = 0
    with LiveView(quiet=chosen.quiet) if chosen.realtime else BarView(len(outputs), quiet=chosen.quiet) as view:
        for path, output in zip(chosen.paths, outputs, strict=True):
            if output is None and len(outputs) > 1 and chosen.format == "text":
                view.show(f"==> {path} <==\n")
            try:
                await _transcribe(path, output, recognition, chosen, view)
            except (ConnectionFailedError, ServerError, StdoutError):
                raise
            except ClientError as error:  # of this file; the others may be better
                view.say(f"monoscribe file: {error}")
                code = AUDIO_FAILED
    return code


def _recognition(chosen: argparse.Namespace) -> Recognition:
    if not chosen.local:
        return RemoteRecognizer(chosen)
    from client.local import LocalRecognizer  # needs torch, which no one else here does

    return LocalRecognizer(chosen.model, chosen.endpointing, chosen.beam)


async def _transcribe(path: str, output: Path | None, recognition: Recognition, chosen: argparse.Namespace, view: View) -> None:
    extra = {"file": path}
    with read_audio(path) as audio, view.file(path, audio), Output(chosen.format, output, view.show, **extra) as written:
        async with aclosing(recognition.events(audio.rate, _watched(path, audio, view, chosen.realtime))) as events:
            async for event in events:
                written.transcript.model = recognition.model
                written.hear(event)
                view.hear(event)


def _watched(path: str, audio: AudioSource, view: View, realtime: bool) -> Iterator[Samples]:
    """The audio, while the view hears how far it is."""
    passed = 0
    try:
        for chunk in paced(audio.chunks(), audio.rate) if realtime else audio.chunks():
            passed += len(chunk)
            view.sent(passed / audio.rate, float(np.sqrt(np.mean(np.square(chunk)))) if len(chunk) else 0.0)
            yield chunk
    except OSError as error:
        raise AudioError(f"{path}: breaks off: {error.strerror}.") from error


def _complain(error: ClientError, code: int) -> int:
    if not isinstance(error.__cause__, BrokenPipeError):  # whoever read our output has seen enough
        print(f"monoscribe file: {error}", file=sys.stderr)
    return code
