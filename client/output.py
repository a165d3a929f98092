"""Where a transcript is written as it grows: a file, or standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from client.events import ClientError, Event, Segment
from client.formats import Format, Transcript, Writer


class OutputError(ClientError):
    """A file that cannot be written."""


class StdoutError(OutputError):
    """Of standard output: no other file will fare better."""


def write_stdout(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is in its buffer would fail again at the end
        raise StdoutError(f"standard output: cannot be written: {error.strerror}.") from error


class Output:
    """Takes a session's events and keeps the transcript. What has settled is in the file, whatever happens afterwards."""

    def __init__(self, format: Format, path: Path | None, show: Callable[[str], None], **extra: Any) -> None:
        self.transcript = Transcript()
        self._writer = Writer(format)
        self._path = path
        self._show = show
        self._extra = extra  # for the JSON document
        self._file: IO[str] | None = None

    def __enter__(self) -> Output:
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("w", encoding="utf-8")
            except OSError as error:
                raise OutputError(f"{self._path}: cannot be written: {error.strerror}.") from error
        self._write(self._writer.begin())
        return self

    def hear(self, event: Event) -> None:
        self.transcript.hear(event)
        if isinstance(event, Segment):
            self._write(self._writer.segment(event))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._write(self._writer.end(self.transcript, **self._extra))
        finally:
            if self._file is not None:
                with suppress(OSError):  # what could not be written has been said
                    self._file.close()

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._file is None:
            self._show(text)
            return
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror}.") from error
