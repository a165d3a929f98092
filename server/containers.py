"""Containers and codecs (webm, ogg/Opus, flac, mp3, ...) to samples, while their bytes arrive.

PyAV pulls its input, a socket pushes: so each such stream has a thread, which reads from a pipe that the session fills. What comes
out depends only on the bytes, never on how they were cut.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from typing import IO, Any, Protocol

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler

from server.audio import Samples, bad_audio
from server.messages import Encoding, Error

OUTPUT_RATE = 16_000
FORMATS: dict[str, str | None] = {"webm": "matroska", "ogg": "ogg", "flac": "flac", "mp3": "mp3", "wav": "wav", "auto": None}
KNOWN = "aac,ac3,aiff,amr,ape,asf,au,avi,caf,eac3,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,tta,w64,wav,wv"
# FFmpeg would also follow a playlist to other files of ours, and listen to the network where a session description says so
SAFE_OPTIONS = {"format_whitelist": KNOWN, "protocol_whitelist": "none"}
LIVE_OPTIONS = {"analyzeduration": "0", "probesize": "4096"}  # do not wait for seconds of audio before saying what it is
READ_SIZE = 4096
SOFTEST_PATIENCE = 1.0  # seconds between two looks at whether a wait still makes sense

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Where decoded audio goes. Called from the decoder's thread."""

    room: threading.Event

    def hear(self, samples: Samples) -> None: ...
    def flush(self, name: str) -> None: ...
    def finish(self) -> None: ...
    def fail(self, error: Error) -> None: ...


class ContainerDecoder:
    """Takes bytes and flushes without blocking; decodes them in order in its own thread, as fast as the listener has room."""

    def __init__(self, encoding: Encoding, listener: Listener) -> None:
        self._encoding = encoding
        self._listener = listener
        self._changed = threading.Condition()
        self._items: deque[bytes | str] = deque()  # audio, and the names of flushes between it
        self._ended = False
        self._abandoned = False
        self._is_empty = True
        self.waiting_bytes = 0
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)
        self._thread.start()

    def decode(self, data: bytes) -> None:
        with self._changed:
            self._items.append(data)
            self._is_empty = False
            self.waiting_bytes += len(data)
            self._changed.notify()

    def flush(self, name: str) -> None:
        """Everything that the bytes so far yield will be heard before this flush."""
        with self._changed:
            self._items.append(name)
            self._changed.notify()

    def finish(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def abandon(self) -> None:
        with self._changed:
            self._abandoned = True
            self._items.clear()
            self._changed.notify()

    def read(self, size: int) -> bytes:
        """For PyAV: at least one byte, or none at the end. A flush is due when the bytes before it have all been asked for."""
        with self._changed:
            while not self._abandoned:
                if not self._items:
                    if self._ended:
                        return b""
                    self._changed.wait(SOFTEST_PATIENCE)
                    continue
                item = self._items.popleft()
                if isinstance(item, str):
                    self._listener.flush(item)
                    continue
                if len(item) > size:
                    self._items.appendleft(item[size:])
                    item = item[:size]
                self.waiting_bytes -= len(item)
                return item
        return b""

    def _run(self) -> None:
        try:
            for samples in decode_file(self, self._encoding, live=True):
                while not self._abandoned and not self._listener.room.wait(SOFTEST_PATIENCE):
                    pass
                if self._abandoned:
                    return
                self._listener.hear(samples)
            self._pass_on_late_flushes()
            self._listener.finish()
        except UndecodableError as problem:
            if self._is_empty and not self._abandoned:
                self._listener.finish()  # nothing was said, which is no fault
            elif not self._abandoned:
                self._listener.fail(bad_audio(self._encoding, str(problem), f"audio that is {self._encoding}"))
        except Exception:
            logger.exception("a decoder died")
            self._listener.fail(Error("engine_failed", "the decoder failed; this is the server's fault"))

    def _pass_on_late_flushes(self) -> None:
        """The container said that it was over; what came after its end is not audio, but flushes want their answer."""
        while self.read(READ_SIZE):
            pass


class UndecodableError(ValueError):
    pass


def decode_file(file: IO[bytes] | ContainerDecoder, encoding: Encoding, *, live: bool = False) -> Iterator[Samples]:
    """Mono samples at OUTPUT_RATE. A packet that is damaged is left out, as long as others are whole."""
    try:
        container = _open(file, encoding, live)
    except (av.FFmpegError, ValueError) as problem:
        raise UndecodableError(f"cannot be decoded ({_reason(problem)})") from problem
    with container:
        if not container.streams.audio:
            raise UndecodableError("no audio in it")
        decoded = 0
        for frame in _resampled(_frames(container)):
            samples = _samples(frame)
            decoded += len(samples)
            yield samples
        if not decoded:
            raise UndecodableError("no audio in it")


def _open(file: IO[bytes] | ContainerDecoder, encoding: Encoding, live: bool) -> Any:
    source: Any = file
    if not live:
        return av.open(source, "r", format=FORMATS[encoding], options=SAFE_OPTIONS)
    return av.open(source, "r", format=FORMATS[encoding], options=SAFE_OPTIONS | LIVE_OPTIONS, buffer_size=READ_SIZE)


def _frames(container: Any) -> Iterator[AudioFrame]:
    stream = container.streams.audio[0]
    fruitless = 0
    whole = False
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            if packet is None:
                return
            frames = packet.decode()
        except av.EOFError:
            return
        except av.FFmpegError as problem:
            fruitless += 1
            if not whole or fruitless > 100:
                raise UndecodableError(f"cannot be decoded ({_reason(problem)})") from problem
            continue
        if frames:
            whole, fruitless = True, 0
        yield from frames


def _resampled(frames: Iterator[AudioFrame]) -> Iterator[AudioFrame]:
    """Rate or channels may change midway, as in recordings that were joined: another resampler takes over."""
    resampler, taken = None, None
    for frame in frames:
        found = (frame.sample_rate, frame.layout.name, frame.format.name)
        if resampler is None or found != taken:
            yield from resampler.resample(None) if resampler is not None else ()
            resampler, taken = AudioResampler(format="flt", layout="mono", rate=OUTPUT_RATE), found
        yield from resampler.resample(frame)
    yield from resampler.resample(None) if resampler is not None else ()


def _samples(frame: AudioFrame) -> Samples:
    samples: Samples = frame.to_ndarray().reshape(-1).astype(np.float32, copy=False)
    return samples


def _reason(problem: Exception) -> str:
    return problem.strerror or "unknown error" if isinstance(problem, av.FFmpegError) else str(problem)
