"""What a user of `monoscribe file` sees meanwhile: bars, or with --realtime the text as it grows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from client.events import Event, Status
from client.files import AudioSource
from client.output import write_stdout
from client.screen import Screen


class View(Protocol):
    def file(self, path: str, audio: AudioSource) -> AbstractContextManager[None]: ...
    def show(self, text: str) -> None: ...
    def say(self, sentence: str) -> None: ...
    def sent(self, seconds: float, level: float) -> None: ...
    def hear(self, event: Event) -> None: ...


class BarView:
    """A bar for the file at hand and, if there are several, one for all."""

    def __init__(self, files: int, *, quiet: bool) -> None:
        self._is_on_stdout = sys.stdout.isatty()
        self._console = Console(file=sys.stdout if self._is_on_stdout else sys.stderr, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amount]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._all = self._progress.add_task("all files", total=files, amount=f"0/{files}", visible=files > 1)
        self._files = files
        self._done = 0
        self._task: TaskID | None = None

    def __enter__(self) -> BarView:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @contextmanager
    def file(self, path: str, audio: AudioSource) -> Iterator[None]:
        self._task = self._progress.add_task(path, total=audio.seconds, amount="")
        try:
            yield
        finally:
            self._progress.remove_task(self._task)
            self._done += 1
            self._progress.update(self._all, completed=self._done, amount=f"{self._done}/{self._files}")

    def show(self, text: str) -> None:
        if self._is_on_stdout:
            self._console.out(text, end="")
        else:
            write_stdout(text)

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    def sent(self, seconds: float, level: float) -> None:
        """Says little: the server may be far behind. See hear."""

    def hear(self, event: Event) -> None:
        if self._task is not None and isinstance(event, Status):
            self._progress.update(self._task, completed=event.processed, amount=f"{event.processed:.0f} s")


class LiveView(Screen):
    @contextmanager
    def file(self, path: str, audio: AudioSource) -> Iterator[None]:
        self.note(path)
        yield
