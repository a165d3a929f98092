"""The seam that everything else builds on: load a model, open a stream, get events."""

from __future__ import annotations

import copy
from pathlib import Path

from model.encoder import fold_batch_norm
from model.engine import Engine, Samples, StreamOptions
from model.events import Event, Segment, Transcript
from model.features import SAMPLE_RATE
from model.files import PRETRAINED, ModelCard, ModelFileError, load_model
from model.network import Network


class Recognizer:
    """A model, ready to listen. Holds no state of any stream."""

    sample_rate = SAMPLE_RATE

    def __init__(self, network: Network, card: ModelCard | None = None) -> None:
        self.card = card or ModelCard()
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        fold_batch_norm(self.network.encoder)

    @classmethod
    def load(cls, path: str | Path | None = None) -> Recognizer:
        """The model in the folder `path`, or the embedded one."""
        folder = Path(path) if path is not None else PRETRAINED
        network, card = load_model(folder)
        if network.encoder.both_ways is not None:
            raise ModelFileError(f"{folder}: a teacher, which hears whole recordings (both_ways); expected a live model")
        return cls(network, card)

    def batch(self) -> Engine:
        """Many streams, one forward pass."""
        return Engine(self.network, self.card.delay)

    def stream(self, options: StreamOptions | None = None) -> Stream:
        """One live stream."""
        return Stream(self.batch(), options)

    def transcribe(self, samples: Samples, options: StreamOptions | None = None) -> Transcript:
        """A whole recording, by the same path as a live stream."""
        stream = self.stream(options)
        events = stream.accept(samples) + stream.finish()
        return Transcript(tuple(event for event in events if isinstance(event, Segment)))


class Stream:
    """One live stream: a batch of one."""

    def __init__(self, engine: Engine, options: StreamOptions | None = None) -> None:
        self._engine = engine
        self._name = engine.open(options)

    def accept(self, samples: Samples) -> list[Event]:
        """Takes mono samples of any number, none included, at the stream's rate; returns what was decided with them."""
        self._engine.accept(self._name, samples)
        return self._drain()

    def flush(self) -> list[Event]:
        """Says everything so far as if the audio ended here, and goes on."""
        self._engine.flush(self._name)
        return self._drain()

    def finish(self) -> list[Event]:
        """Says all that is left. The stream is then closed."""
        self._engine.finish(self._name)
        return self._drain()

    def _drain(self) -> list[Event]:
        events: list[Event] = []
        while self._name in self._engine and self._engine.is_ready(self._name):
            events += self._engine.step().get(self._name, [])
        return events
