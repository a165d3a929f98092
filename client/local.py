"""Recognition in this process. The only module of the client that needs a model; nobody imports it unless asked to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

from client.audio import Samples
from client.events import ClientError, Closed, Event, Segment, Status, Text, Word
from model import EndpointConfig, ModelFileError, Recognizer, StreamOptions
from model import Segment as Said
from model.beam import BeamConfig


class LocalRecognizer:
    def __init__(self, model: str, endpointing: float, beam: int) -> None:
        try:
            self._recognizer = Recognizer.load(model or None)
            self._endpoint = EndpointConfig(silence=endpointing)
        except (ModelFileError, ValueError) as error:
            raise ClientError(f"{error}.") from error
        self._beam = beam or BeamConfig().width
        self.model = self._recognizer.card.name

    async def events(self, rate: int, chunks: Iterator[Samples]) -> AsyncGenerator[Event, None]:
        """As a session's. Nobody else is on the loop: it may well wait for the recogniser."""
        try:
            stream = self._recognizer.stream(StreamOptions(sample_rate=rate, endpoint=self._endpoint, beam=self._beam))
        except ValueError as error:
            raise ClientError(f"{error}.") from error
        seconds, segments = 0.0, 0
        for chunk in chunks:
            for said in stream.accept(chunk):
                segments += isinstance(said, Said)
                yield _translate(said)
            seconds += len(chunk) / rate
            yield Status(round(seconds, 3), round(seconds, 3))
        for said in stream.finish():
            segments += isinstance(said, Said)
            yield _translate(said)
        yield Closed(round(seconds, 3), round(seconds, 3), segments)


def _translate(said: object) -> Event:
    if not isinstance(said, Said):
        return Text(said.text, round(said.time, 3), said.confidence, round(said.heard, 3))  # type: ignore[attr-defined]
    words = tuple(Word(word.text, word.start, word.end, word.confidence) for word in said.words)
    confidence = round(sum(word.confidence for word in words) / len(words), 4) if words else 0.0
    return Segment(said.text, said.start, said.end, confidence, words)
