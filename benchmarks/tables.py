"""What the benchmarks measured, as the tables that the documents show. A part that was not measured says so and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Part = Mapping[str, Any]  # numbers, machine and, if known, load before the start; or why it is missing
Results = Mapping[str, Part]
Render = Callable[[Results], str]

COMMAND = "monoscribe benchmark"
SETS = {"commonvoice": "Common Voice", "librispeech": "LibriSpeech"}  # whose names are written otherwise
PEERS_EXPLAINED = f"""
All as live streams of 100 ms chunks. A word is there: the median time from its end until it and all before it stand as they will
stay, in seconds of audio; by vosk's alignment, and of words that vosk said too. Taken back: per word. Processor: seconds per second
of audio, one stream alone.
Again with `{COMMAND} accuracy --peers` and `{COMMAND} peers`, and `--manifest` with a list of recordings.
"""
NOT_ASKED = "has not been run yet"


def replace_between(page: str, name: str, text: str) -> str:
    """The page with another text between `<!-- name -->` and `<!-- /name -->`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"expected one {begin.strip()} and one {end}")
    return re.sub(f"(?s){re.escape(begin)}.*{re.escape(end)}", lambda _: f"{begin}{text}{end}", page)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def why_missing(results: Results, name: str) -> str:
    return str(results.get(name, {}).get("missing", NOT_ASKED))


def numbers(results: Results, name: str) -> Any:
    return results.get(name, {}).get("numbers")


# ---------------------------------------------------------------- the README
def figures(results: Results) -> str:
    """Speed, then us among our peers."""
    rows: list[list[str]] = []
    for name, describe in (("attention", _attention_rows), ("engine", _engine_rows), ("load", _load_rows)):
        found = numbers(results, name)
        rows += [[what, value, f"`{COMMAND} {name}`"] for what, value in (describe(found) if found else [])]
    told = f"Single runs on {machine(results)}.\nAll that was measured: [docs/benchmarks.md](docs/benchmarks.md).\n\n"
    speed = table(["", "", "again with"], rows) if rows else ""
    return told + "\n".join(part for part in (speed, peer_table(results), absences(results)) if part)


def machine(results: Results) -> str:
    return "; ".join(dict.fromkeys(part["machine"] for part in results.values() if "machine" in part)) or "no machine yet"


def _attention_rows(found: Any) -> list[tuple[str, str]]:
    ratios, lengths = [cell["speedup"] for cell in found["cells"]], [cell["input"] for cell in found["cells"]]
    hard, softmax = (f"length^{found['growth'][name]:.2f}" for name in ("hard", "softmax"))
    return [
        (
            f"hard monotonic against softmax attention, lengths of {min(lengths)} to {max(lengths)}",
            f"{min(ratios):.0f} to {max(ratios):.0f} times as fast, growing with {hard} instead of {softmax}",
        )
    ]


def _engine_rows(found: Any) -> list[tuple[str, str]]:
    best, alone = max(found["rows"], key=lambda row: row["sustained"]), found["rows"][0]
    return [
        (
            "greedy streams that one core sustains, without sockets",
            f"{best['sustained']:.0f}, {percent(best['share'], 0)} of what it could if there were nothing but matrix products",
        ),
        ("one greedy stream alone", f"{percent(1 / alone['sustained'])} of a core"),
    ]


def _load_rows(found: Any) -> list[tuple[str, str]]:
    what = f"greedy live streams over web sockets on one core, lag p99 below {found['limit']:.0f} ms"
    if not found["streams"]:
        return [(what, f"fewer than {found['levels'][0]['streams']}")]
    good = next(level for level in found["levels"] if level["streams"] == found["streams"])
    value = f"{found['streams_per_core']:.0f}, with a p99 of {good['p99']:.0f} ms; {found['memory_per_stream']:.1f} MiB each"
    if peer := found.get("peer"):
        value += f". vosk, by the same driver: {peer['streams_per_core']:.0f}, so ours are {found['ratio']:.0f} times as many"
    return [(what, value)]


def peer_table(results: Results) -> str:
    """Errors, and what a live user sees, of everyone who was measured."""
    accuracy, live = numbers(results, "accuracy"), numbers(results, "peers")
    rates: Mapping[str, Any] = accuracy["rates"] if accuracy else {}
    seen: Mapping[str, Any] = live["seen"] if live else {}
    if not rates and not seen:
        return ""
    sets = sorted(accuracy["recordings"]) if accuracy else []
    header = ["", *(f"WER, {SETS.get(part, part)}" for part in sets), "a word is there", "words taken back", "processor"]
    rows = []
    for name in dict.fromkeys([*rates, *seen]):
        errors = [percent(rates[name][part]["wer"]) if name in rates else "–" for part in sets]
        rows.append([name, *errors, *_seen_cells(seen.get(name))])
    return table(header, rows) + (f"\nErrors on {_counts(accuracy)}." if accuracy else "") + PEERS_EXPLAINED


def _seen_cells(row: Any) -> list[str]:
    if row is None:
        return ["–"] * 3
    return ["–" if row["delay"] is None else f"{row['delay']:.2f} s", f"{row['taken_back']:.2f}", f"{row['processor']:.3f} s"]


def absences(results: Results) -> str:
    """A line for each part, and each peer, that is missing."""
    lines = [f"- `{COMMAND} {name}`: {why_missing(results, name)}" for name in SECTIONS if not numbers(results, name)]
    peers: dict[str, str] = {}
    for name in ("accuracy", "peers"):
        peers |= (numbers(results, name) or {}).get("missing", {})
    lines += [f"- {name}: {why}" for name, why in peers.items()]
    return "Not measured:\n" + "\n".join(lines) + "\n" if lines else ""


# ---------------------------------------------------------------- the model's card
def card(results: Results) -> str:
    found = numbers(results, "accuracy")
    if not found:
        return f"Not measured: `{COMMAND} accuracy` {why_missing(results, 'accuracy')}.\n"
    text = (
        f"Word and character error rates as live streams of 100 ms chunks (`{COMMAND} accuracy`),\non {_counts(found)}, "
        "all of speakers that are in no training clip:\n\n" + _error_table(found)
    )
    if "long" in found:
        ((minutes, row),) = found["long"].items()
        text += f"\nOne recording of {minutes}, put together from all three sets: {percent(row['wer'])} / {percent(row['cer'])}.\n"
        silent = ", ".join(f"{name} {characters}" for name, characters in found["no_speech"].items())
        text += f"Characters that ten seconds of no speech give: {silent}.\n"
    return text


def _counts(found: Any) -> str:
    return ", ".join(f"{count} recordings of {SETS.get(part, part)}" for part, count in sorted(found["recordings"].items()))


def _error_table(found: Any) -> str:
    sets = sorted(found["recordings"])
    conditions = {f"monoscribe, {name}": row for name, row in found.get("conditions", {}).items()}
    return table(
        ["", *(f"{SETS.get(part, part)} WER / CER" for part in sets)],
        [
            [name, *(f"{percent(row[part]['wer'])} / {percent(row[part]['cer'])}" for part in sets)]
            for name, row in (found["rates"] | conditions).items()
        ],
    )


# ---------------------------------------------------------------- docs/benchmarks.md
def _attention_section(found: Any) -> str:
    ratios = sorted(cell["speedup"] for cell in found["cells"])
    return (
        f"It is {ratios[0]:.0f} to {ratios[-1]:.0f} times as fast, {ratios[len(ratios) // 2]:.0f} times in the median "
        "(the paper reports 4 to 40).\n\n![speed of the attention](attention.png)\n"
    )


def _engine_section(found: Any) -> str:
    rows = [
        [str(row["streams"]), f"{row['sustained']:.0f}", percent(row["share"], 0), percent(1 / row["sustained"], 2)]
        for row in found["rows"]
    ]
    return f"If there were nothing but matrix products, this core would sustain {found['limit']:.0f}.\n\n" + table(
        ["streams in the batch", "streams per core", "share of that limit", "of a core per stream"], rows
    )


def _load_section(found: Any) -> str:
    sides = [("monoscribe", found), *([("vosk", found["peer"])] if "peer" in found else [])]
    rows = [
        [
            name,
            str(level["streams"]),
            *(f"{level[share]:.0f} ms" for share in ("p50", "p95", "p99")),
            f"{level['cores']:.2f}",
            f"{level['memory']:.0f} MiB",
        ]
        for name, side in sides
        for level in side["levels"]
    ]
    return table(["", "streams", "lag p50", "p95", "p99", "cores", "memory"], rows)


def _peers_section(found: Any) -> str:
    rows = [
        [name, *_seen_cells(row), "–" if row["late"] is None else f"{row['late']:.2f} s", f"{row['timed']} of {row['words']}"]
        for name, row in found["seen"].items()
    ]
    header = ["", "a word is there, median", "taken back per word", "processor", "a word is there, 90th percentile", "words timed"]
    return table(header, rows)


Describe = Callable[[Any], str]
SECTIONS: dict[str, tuple[str, Describe]] = {
    "attention": ("Hard monotonic against softmax attention, in time per problem.", _attention_section),
    "engine": ("Streams that one core sustains, 100 ms per step, without sockets.", _engine_section),
    "load": ("Live streams over web sockets, until the 99th percentile of lag passes its limit.", _load_section),
    "accuracy": ("Errors of live streams of 100 ms chunks, one normalisation for all. WER / CER.", _error_table),
    "peers": ("What a live user sees, and what it costs. Times in seconds of audio.", _peers_section),
}


def everything(results: Results) -> str:
    page = "# Benchmarks\n\nWritten by `monoscribe benchmark report`; the numbers are in benchmarks.json. Single runs.\n"
    for name, (title, describe) in SECTIONS.items():
        page += f"\n## {name.capitalize()}\n`{COMMAND} {name}`: {title}\n"
        if found := numbers(results, name):
            part = results[name]
            load = f"; load {part['load']:.1f} before the start" if "load" in part else ""
            page += f"On {part['machine']}{load}.\n\n{describe(found)}"
        else:
            page += f"\nNot measured: {why_missing(results, name)}.\n"
    return page
