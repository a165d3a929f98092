"""The recogniser: arriving audio in, characters out."""

from model.endpoint import EndpointConfig
from model.engine import Engine, StreamOptions
from model.events import Emission, Event, Segment, Transcript, Word
from model.files import ModelFileError
from model.recognizer import Recognizer, Stream

__all__ = [
    "Emission",
    "EndpointConfig",
    "Engine",
    "Event",
    "ModelFileError",
    "Recognizer",
    "Segment",
    "Stream",
    "StreamOptions",
    "Transcript",
    "Word",
]
