"""The terminal: settled text above, the characters of the current segment and a status line below."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text as Styled

from client.events import Complaint, Event, Interrupted, Resumed, Segment, Status, Text
from client.output import write_stdout

METER_WIDTH = 16
QUIETEST = -60.0  # dB of full scale, at the meter's left end
LOUD, TOO_LOUD = -12.0, -3.0
REFRESH = 12  # per second


class Screen:
    """Draws where a terminal is: on standard output, or beside it on standard error if the text goes into a pipe."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.is_on_stdout = sys.stdout.isatty()
        self._console = Console(file=sys.stdout if self.is_on_stdout else sys.stderr, highlight=False)
        self._live: Live | None = None
        self._is_shown = self._console.is_terminal and not quiet
        self._current = ""
        self._level = QUIETEST
        self._begun = time.monotonic()
        self._sent = 0.0
        self._lag = 0.0
        self._doing = "listening"
        self._trouble = ""
        self.is_away = False  # the server

    def __enter__(self) -> Self:
        if self._is_shown:
            self._live = Live(
                get_renderable=self._draw,
                console=self._console,
                refresh_per_second=REFRESH,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: str) -> None:
        """Settled text: goes to standard output, above everything that moves."""
        if self.is_on_stdout:
            self._console.out(text, end="")
        else:
            write_stdout(text)

    def say(self, sentence: str) -> None:
        """For the person, not for the transcript."""
        if self._live is not None:
            self._console.out(sentence)
        else:
            print(sentence, file=sys.stderr, flush=True)

    def note(self, doing: str) -> None:
        self._doing = doing

    def sent(self, seconds: float, level: float = 0.0) -> None:
        """How much audio there is by now, and how loud its last piece was (root mean square, 0..1)."""
        self._sent = seconds
        self._level = max(20 * math.log10(level) if level > 0 else QUIETEST, QUIETEST)

    def hear(self, event: Event) -> None:
        match event:
            case Text(text):
                self._current += text
            case Segment():
                self._current = ""
            case Status(processed=processed, draining=draining):
                self._lag = max(0.0, self._sent - processed)
                self._trouble = "the server is about to go" if draining else ""
            case Interrupted():
                self.is_away, self._trouble = True, "connection lost, trying again"
            case Resumed(restarted, lost):
                self._current = "" if restarted else self._current
                self.is_away, self._trouble = False, ""
                self.say(f"(connected again; {f'{lost:.0f} s of audio were no longer kept' if lost else 'nothing was lost'})")
            case Complaint(message=message):
                self.say(f"The server says: {message}")
        if self._live is not None and isinstance(event, Text | Segment):
            self._live.refresh()

    def _draw(self) -> Group:
        room = max(1, self._console.height - 2) * self._console.width  # of a segment longer than the screen, the end is what is new
        lines = [Styled(self._current[-room:], style="bold")] if self._current else []
        return Group(*lines, self._status_line())

    def _status_line(self) -> Table:
        elapsed = int(time.monotonic() - self._begun)
        line = Table.grid(padding=(0, 2))
        cells = [Styled("●", style="red"), Styled(f"{elapsed // 60:02d}:{elapsed % 60:02d}"), meter(self._level)]
        cells += [Styled(f"lag {self._lag:.1f} s", style="yellow" if self._lag > 2 else "dim")]
        cells += [Styled("; ".join(filter(None, (self._trouble, self._doing))), style="dim")]
        line.add_row(*cells)
        return line


def meter(level: float) -> Styled:
    """A bar from QUIETEST to full scale."""
    filled = round((level - QUIETEST) / -QUIETEST * METER_WIDTH)
    colour = "red" if level > TOO_LOUD else "yellow" if level > LOUD else "green"
    return Styled.assemble(("▮" * filled, colour), ("▯" * (METER_WIDTH - filled), "dim"))
