"""Results on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from training.scores import LEVEL, Rate, Result

WIDTH = 120  # of what goes into a file


def show(results: Sequence[Result], *, worst: int, speakers: bool, console: Console | None = None) -> None:
    console = console or Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    console.print(summary(results))
    drawn = ", ".join(sorted({f"{result.part or 'all'}: {result.drawn}" for result in results}))
    console.print(f"Brackets: {LEVEL} % confidence interval by bootstrap over speakers or utterances ({drawn}).", style="dim")
    for result in results:
        for meaning in sorted(result.delay):
            console.print(f"{result.decoder}, {result.part or 'all'}: {meaning}: {result.delay[meaning]:.2f} s", style="dim")
    for result in results:
        if speakers:
            console.print(speaker_table(result))
        if worst:
            console.print(worst_table(result, worst))


def summary(results: Sequence[Result]) -> Table:
    short = "PER" if results[0].unit == "phone" else "WER"
    table = Table(box=SIMPLE, pad_edge=False)
    for column in ("set", "decoder", "clips", f"{short} %", *(["CER %"] if short == "WER" else []), "sub, del, ins %"):
        table.add_column(column, no_wrap=True)
    for result in results:
        rates = [percent(result.rate)] + ([percent(result.character_rate)] if result.character_rate else [])
        counts = [f"{100 * n / max(1, result.length):.1f}" for n in (result.substitutions, result.deletions, result.insertions)]
        table.add_row(result.part or "all", result.decoder, str(result.utterances), *rates, ", ".join(counts))
    return table


def percent(rate: Rate) -> str:
    return f"{100 * rate.value:.1f} [{100 * rate.low:.1f}, {100 * rate.high:.1f}]".replace("[", "\\[")


def speaker_table(result: Result) -> Table:
    table = Table("speaker", "error rate %", title=f"{result.part or 'all'}, {result.decoder}")
    for speaker, rate in sorted(result.speakers.items(), key=lambda item: -item[1]):
        table.add_row(speaker or "(unknown)", f"{100 * rate:.1f}")
    return table


def worst_table(result: Result, count: int) -> Table:
    table = Table("recording", "errors", "reference, and what was said", title=f"worst of {result.part or 'all'}, {result.decoder}")
    for each in result.worst(count):
        table.add_row(each.name, f"{each.words.count}/{each.words.length}", f"{each.reference}\n{each.said or '(nothing)'}")
    return table
