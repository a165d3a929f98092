"""What a live user sees: how long after its end a word is there to stay, how many words are taken back, and what that costs.

Every recogniser gets 100 ms of audio at a time, and is asked after each for what it shows. Times are of the audio, not of the
clock: computing comes on top. When a word ended is what vosk's alignment says, for all of them; only words that both said count.
Run, for example: python -m benchmarks.peers --manifest ../shared/speech/dev.tsv --limit 20
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.accuracy import BEAM, add_recognizer_flags
from benchmarks.recognizers import CHUNK, RATE, Open, Vosk, find_peers, monoscribe, transcribe, without
from benchmarks.recordings import Recording, draw
from model.engine import Samples
from training.text import normalize

Shown = list[tuple[float, list[str]]]  # (seconds of audio so far, the words on the screen)
Words = list[tuple[str, float]]  # (word, when it ended or stood)
Summary = dict[str, float | None]


@dataclass
class Seen:
    delays: list[float] = field(default_factory=list)
    words: int = 0
    taken_back: int = 0
    processor: float = 0.0
    seconds: float = 0.0

    def summary(self) -> Summary:
        middle, late = np.percentile(self.delays, (50, 90)) if self.delays else (None, None)
        return dict(
            delay=None if middle is None else float(middle),
            late=None if late is None else float(late),
            timed=len(self.delays),
            words=self.words,
            taken_back=self.taken_back / max(1, self.words),
            processor=self.processor / self.seconds,
        )


def watch(open_stream: Open, samples: Samples, seen: Seen) -> Shown:
    """Plays a recording and looks at the screen after every chunk."""
    live = open_stream()
    shown: Shown = []
    before = time.process_time()
    for start in range(0, len(samples), CHUNK):
        live.accept(samples[start : start + CHUNK])
        shown.append((min(start + CHUNK, len(samples)) / RATE, live.shown().split()))
    final = live.finish().split()
    seen.processor += time.process_time() - before
    seen.seconds += len(samples) / RATE
    shown.append((len(samples) / RATE, final))
    return [(when, normalize(" ".join(words)).split()) for when, words in shown]


def taken_back(shown: Shown) -> int:
    """Words that were on the screen and then were not. One that only grew longer was not taken back."""
    count = 0
    for (_, old), (_, new) in pairwise(shown):
        kept = 0
        while kept < len(old) and kept < len(new) and old[kept] == new[kept]:
            kept += 1
        if kept == len(old) - 1 and kept < len(new) and new[kept].startswith(old[kept]):
            kept += 1
        count += len(old) - kept
    return count


def settled(shown: Shown) -> Words:
    """The final words, each with the time from which it and all before it stood as they stayed."""
    final = shown[-1][1]
    times: list[float] = [shown[-1][0]] * len(final)
    for when, words in reversed(shown):
        same = 0
        while same < min(len(words), len(final)) and words[same] == final[same]:
            same += 1
        times[:same] = [when] * same
        if same < len(final):
            final = final[:same]  # what was not there now cannot have stood from before
    return list(zip(shown[-1][1], times, strict=True))


def delays(said: Words, ends: Words) -> list[float]:
    """From the end of a word to when it was there to stay, for the words that both have."""
    matcher = SequenceMatcher(None, [word for word, _ in said], [word for word, _ in ends], autojunk=False)
    return [said[a + k][1] - ends[b + k][1] for a, b, length in matcher.get_matching_blocks() for k in range(length)]


def word_ends(open_vosk: Open, samples: Samples) -> Words:
    live = open_vosk()
    assert isinstance(live, Vosk)
    transcribe(lambda: live, samples)
    return [(normalize(word), end) for word, _, end in live.words]


def measure(recognizers: dict[str, Open], recordings: Sequence[Recording], missing: dict[str, str]) -> dict[str, Summary]:
    clock = next((open_stream for name, open_stream in recognizers.items() if name.startswith("vosk ")), None)
    ends = [word_ends(clock, recording.samples) if clock else [] for recording in recordings]
    results = {}
    for name, open_stream in recognizers.items():
        with without(name, missing):
            results[name] = look(open_stream, recordings, ends).summary()
            print(describe(name, results[name]), flush=True)
    return results


def look(open_stream: Open, recordings: Sequence[Recording], ends: Sequence[Words]) -> Seen:
    seen = Seen()
    for recording, end in zip(recordings, ends, strict=True):
        shown = watch(open_stream, recording.samples, seen)
        seen.words += len(shown[-1][1])
        seen.taken_back += taken_back(shown)
        seen.delays += delays(settled(shown), end)
    return seen


def describe(name: str, row: Summary) -> str:
    known = row["delay"] is not None
    delay = f"{row['delay']:.2f} s (p90 {row['late']:.2f}, {row['timed']} words)" if known else "not measured without vosk"
    return f"{name:<24}delay {delay}   taken back {row['taken_back']:.2f} per word   {row['processor']:.3f} s of processor per s"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_recognizer_flags(parser)
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    peers, missing = find_peers(options.vosk, fetch=options.fetch)
    for name, why in missing.items():
        print(f"{name}: {why}")
    results: dict[str, Any] = {"missing": missing}
    ours = {"monoscribe": monoscribe(options.model), f"monoscribe, beam {BEAM}": monoscribe(options.model, BEAM)}
    results["seen"] = measure(ours | peers, draw(options.manifest, options.limit, options.seconds), missing)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
