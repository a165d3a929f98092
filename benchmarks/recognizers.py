"""Our recogniser and others, all as live streams: audio in by pieces, text that may change until the end.

The others are imported when they are asked for, and who is not there is named with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.vosk_model import find_model
from model import Emission, Event, Recognizer, Segment, StreamOptions
from model.engine import Samples

RATE = Recognizer.sample_rate
CHUNK = RATE // 10  # a live client sends 100 ms at a time


class Live(Protocol):
    """One stream of one recogniser."""

    def accept(self, samples: Samples) -> None: ...

    def shown(self) -> str:
        """All that a user sees at this moment."""

    def finish(self) -> str:
        """All that was said. The stream is then over."""


Open = Callable[[], Live]


def transcribe(open_stream: Open, samples: Samples) -> str:
    live = open_stream()
    for start in range(0, len(samples), CHUNK):
        live.accept(samples[start : start + CHUNK])
    return live.finish()


def pcm(samples: Samples) -> bytes:
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


class Ours:
    def __init__(self, recognizer: Recognizer, beam: int) -> None:
        self._stream = recognizer.stream(StreamOptions(beam=beam))
        self._segments: list[str] = []
        self._growing = ""

    def accept(self, samples: Samples) -> None:
        self._hear(self._stream.accept(samples))

    def shown(self) -> str:
        return " ".join([*self._segments, self._growing])

    def finish(self) -> str:
        self._hear(self._stream.finish())
        return self.shown()

    def _hear(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Emission):
                self._growing += event.text
            elif isinstance(event, Segment):
                self._segments.append(event.text)
                self._growing = ""


def monoscribe(model: str | None = None, beam: int = 1) -> Open:
    recognizer = Recognizer.load(model)
    return lambda: Ours(recognizer, beam)


def pocketsphinx() -> Open:
    """With the model in its wheel."""
    from pocketsphinx import Decoder

    decoder = Decoder(samprate=RATE, loglevel="FATAL")

    class Pocketsphinx:
        def __init__(self) -> None:
            decoder.start_utt()

        def accept(self, samples: Samples) -> None:
            decoder.process_raw(pcm(samples))

        def shown(self) -> str:
            best = decoder.hyp()
            return best.hypstr if best else ""

        def finish(self) -> str:
            decoder.end_utt()
            return self.shown()

    return Pocketsphinx


class Vosk:
    """Keeps the words of its results, too: `text`, `start` and `end` in seconds."""

    def __init__(self, model: object) -> None:
        from vosk import KaldiRecognizer

        self._recognizer = KaldiRecognizer(model, RATE)
        self._recognizer.SetWords(True)
        self._texts: list[str] = []
        self.words: list[tuple[str, float, float]] = []

    def accept(self, samples: Samples) -> None:
        if self._recognizer.AcceptWaveform(pcm(samples)):
            self._keep(self._recognizer.Result())

    def shown(self) -> str:
        return " ".join([*self._texts, json.loads(self._recognizer.PartialResult()).get("partial", "")])

    def finish(self) -> str:
        self._keep(self._recognizer.FinalResult())
        return " ".join(self._texts)

    def _keep(self, result: str) -> None:
        heard = json.loads(result)
        self._texts.append(heard["text"])
        self.words += [(word["word"], word["start"], word["end"]) for word in heard.get("result", ())]


def vosk(model: Path) -> Callable[[], Vosk]:
    """With a model folder such as vosk-model-small-en-us-0.15."""
    from vosk import Model, SetLogLevel

    SetLogLevel(-1)
    loaded = Model(str(model))
    return lambda: Vosk(loaded)


def moonshine() -> Open:
    """With the model in its wheel; it looks at its audio again every half second, which is its default."""
    from moonshine_voice.moonshine_api import ModelArch
    from moonshine_voice.transcriber import Transcriber
    from moonshine_voice.utils import get_model_path

    transcriber = Transcriber(get_model_path("tiny-en"), ModelArch.TINY)

    class Moonshine:
        def __init__(self) -> None:
            self._lines: dict[int, str] = {}
            self._failure: object = None  # what a listener raises, the stream swallows
            self._stream = transcriber.create_stream()
            self._stream.add_listener(self._hear)
            self._stream.start()

        def accept(self, samples: Samples) -> None:
            self._stream.add_audio(samples.tolist(), RATE)

        def shown(self) -> str:
            return " ".join(self._lines.values())

        def finish(self) -> str:
            self._stream.stop()
            self._stream.close()
            if self._failure:
                raise RuntimeError(f"moonshine: {self._failure}")
            return self.shown()

        def _hear(self, event: Any) -> None:
            if event.line is None:
                self._failure = event.error
            else:
                self._lines[event.line.line_id] = event.line.text

    return Moonshine


def find_peers(vosk_model: Path | None, *, fetch: bool) -> tuple[dict[str, Open], dict[str, str]]:
    """Those that are installed, by name and version; and why the rest is not here."""

    def vosk_with_model() -> Open:
        return vosk(find_model(vosk_model, fetch=fetch))

    found: dict[str, Open] = {}
    missing: dict[str, str] = {}
    for package, load in (("vosk", vosk_with_model), ("moonshine-voice", moonshine), ("pocketsphinx", pocketsphinx)):
        try:
            name = f"{package} {metadata.version(package)}"
            found[name] = load()
        except metadata.PackageNotFoundError:
            missing[package] = 'is not installed: pip install ".[bench]"'
        except (ImportError, OSError) as error:
            missing[package] = str(error)
    return found, missing


@contextmanager
def without(name: str, missing: dict[str, str]) -> Iterator[None]:
    """A recogniser that fails is named, and the others go on."""
    try:
        yield
    except Exception as error:
        missing[name] = f"failed: {type(error).__name__}: {error}"
        print(f"{name}: {missing[name]}", flush=True)
