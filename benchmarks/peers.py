"""Other recognisers, as functions from samples (float32, 16 kHz, mono) to text. Each is imported only when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from model import Recognizer, Segment, StreamOptions
from model.engine import Samples

Transcribe = Callable[[Samples], str]
CHUNK = Recognizer.sample_rate // 10  # a live client sends 100 ms at a time


def pcm(samples: Samples) -> bytes:
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def monoscribe(model: str | None = None, beam: int = 1) -> Transcribe:
    """Ours, as a live stream."""
    recognizer, options = Recognizer.load(model), StreamOptions(beam=beam)

    def transcribe(samples: Samples) -> str:
        stream, events = recognizer.stream(options), []
        for start in range(0, len(samples), CHUNK):
            events += stream.accept(samples[start : start + CHUNK])
        events += stream.finish()
        return " ".join(event.text for event in events if isinstance(event, Segment))

    return transcribe


def pocketsphinx() -> Transcribe:
    """PyPI pocketsphinx, with the model in its wheel."""
    from pocketsphinx import Decoder

    decoder = Decoder(samprate=Recognizer.sample_rate, loglevel="FATAL")

    def transcribe(samples: Samples) -> str:
        decoder.start_utt()
        decoder.process_raw(pcm(samples), full_utt=True)
        decoder.end_utt()
        best = decoder.hyp()
        return best.hypstr if best else ""

    return transcribe


def vosk(model: Path) -> Transcribe:
    """PyPI vosk, with a model folder such as vosk-model-small-en-us-0.15."""
    from vosk import KaldiRecognizer, Model, SetLogLevel

    SetLogLevel(-1)
    loaded = Model(str(model))

    def transcribe(samples: Samples) -> str:
        recognizer = KaldiRecognizer(loaded, Recognizer.sample_rate)
        chunks = [pcm(samples[start : start + CHUNK]) for start in range(0, len(samples), CHUNK)]
        results = [recognizer.Result() for chunk in chunks if recognizer.AcceptWaveform(chunk)]
        results.append(recognizer.FinalResult())
        return " ".join(json.loads(result)["text"] for result in results)

    return transcribe
