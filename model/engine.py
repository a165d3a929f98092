"""Batch engine: many live streams advance together in one forward pass.

Streams join and leave at any step. What a stream says depends neither on how its audio was chunked nor on the others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import soxr
import torch
from torch import Tensor

from model.beam import BeamConfig, BeamDecoder
from model.encoder import EncoderState
from model.endpoint import HANGOVER, EndpointConfig, Endpointer, recently_loud, to_entries
from model.events import Event
from model.features import FLUSH_FRAMES, HOP, SAMPLE_RATE, FeatureState, clean
from model.hard import HardDecoder, HardState, Said
from model.network import Network
from model.state import State
from model.writer import Writer

LONGEST_ADVANCE = 10  # entries of the memory that a stream may take in one step: others wait for it
LOWEST_RATE, HIGHEST_RATE = 8_000, 48_000

Samples = npt.NDArray[np.float32]


def as_samples(samples: npt.ArrayLike) -> Samples:
    """What was given as mono audio. Whole numbers are refused, and so are several channels: taken as they are, they are noise."""
    array = np.asarray(samples)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.floating) or array.size == 0):
        raise ValueError(f"samples: {array.dtype} of shape {array.shape}: expected floating-point numbers in -1..1 of shape (n,)")
    with np.errstate(over="ignore"):  # what is beyond full scale is clipped anyway
        return array.astype(np.float32, copy=False)


@dataclass(frozen=True)
class StreamOptions:
    sample_rate: int = SAMPLE_RATE
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    beam: int = 1  # hypotheses; 1 is greedy: each character is said as soon as it is decided

    def __post_init__(self) -> None:
        if not LOWEST_RATE <= self.sample_rate <= HIGHEST_RATE:
            raise ValueError(f"sample_rate={self.sample_rate}: expected {LOWEST_RATE}..{HIGHEST_RATE}")
        BeamConfig(self.beam)  # says what it accepts


@dataclass(frozen=True)
class RecognizerState(State):
    features: FeatureState
    encoder: EncoderState
    hard: HardState


class _Stream:
    """What the engine keeps of a stream besides its row of tensors."""

    def __init__(self, row: int, options: StreamOptions, network: Network, delay: float) -> None:
        self.row = row
        self.resampler = None
        if options.sample_rate != SAMPLE_RATE:
            self.resampler = soxr.ResampleStream(options.sample_rate, SAMPLE_RATE, 1, dtype="float32")
        self.pending: Samples = np.zeros(0, np.float32)
        self.received = 0  # samples, at the model's rate
        self.origin = 0  # the sample at which entry 0 begins
        self.entries = 0
        self.fed = False  # whether it got any audio since the last flush
        self.ending = False  # a flush or the finish is under way
        self.finishing = False
        self.endpointer = Endpointer(options.endpoint, network.config.encoder.reduction)
        self.writer = Writer(network.symbols, delay)
        self.beam = BeamDecoder(network, BeamConfig(options.beam)) if options.beam != 1 else None

    def queue(self, samples: Samples) -> None:
        self.pending = np.concatenate([self.pending, samples])

    def drop(self, count: int) -> None:
        rest, whole = self.pending[count:], self.pending if self.pending.base is None else self.pending.base
        self.pending = rest.copy() if 2 * len(rest) < len(whole) else rest  # a short rest must not keep a long recording alive


class Engine:
    def __init__(self, network: Network, delay: float = 0.0) -> None:
        if network.encoder.both_ways is not None:
            units = network.config.encoder.both_ways
            raise ValueError(f"both_ways={units}: a teacher, which hears whole recordings; expected 0 for live streams")
        self._network = network
        self._delay = delay
        self._decoder = HardDecoder(network.decoder, network.symbols)
        self._block = HOP * network.config.encoder.reduction  # samples per entry of the memory
        self._hangover = to_entries(HANGOVER, network.config.encoder.reduction)
        self._streams: dict[int, _Stream] = {}
        self._undelivered: dict[int, list[Event]] = {}
        self._next = 0
        self._fresh = self._initial_state(1)
        self._state = self._initial_state(1)  # of all streams, each in its row
        self._free = [0]

    def __contains__(self, stream: int) -> bool:
        return stream in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[int]:
        return iter(self._streams)

    def open(self, options: StreamOptions | None = None) -> int:
        """A new stream's name."""
        if not self._free:
            capacity = self._state.hard.symbol.shape[0]
            self._state = self._state.join(self._initial_state(capacity))
            self._free = list(range(2 * capacity - 1, capacity - 1, -1))
        row = self._free.pop()
        with torch.inference_mode():
            self._state.put(torch.tensor([row]), self._fresh)
        name, self._next = self._next, self._next + 1
        self._streams[name] = _Stream(row, options or StreamOptions(), self._network, self._delay)
        return name

    def close(self, stream: int) -> None:
        """Forgets a stream at once; what was not processed yet is lost."""
        self._free.append(self._known(stream).row)
        del self._streams[stream]

    def accept(self, stream: int, samples: Samples) -> None:
        """Queues mono samples of any number, none included, at the stream's own rate: floating-point numbers in -1..1."""
        self._queue(self._open_stream(stream), samples, last=False)

    def flush(self, stream: int) -> None:
        """Ends the segment: everything so far will be said as if the audio ended here. The stream then goes on.

        Without any audio since the last flush there is nothing to end.
        """
        entry = self._open_stream(stream)
        if not entry.fed:
            return
        self._queue(entry, np.zeros(0, np.float32), last=True)
        if entry.resampler is not None:
            entry.resampler.clear()
        silence = FLUSH_FRAMES * HOP
        entry.queue(np.zeros(silence + -(len(entry.pending) + silence) % self._block, np.float32))
        entry.ending = True

    def finish(self, stream: int) -> None:
        """Ends the stream: when a step has said everything, or at once if there is nothing to say, the stream is closed."""
        self.flush(stream)
        if self._known(stream).ending:
            self._known(stream).finishing = True
        else:
            self.close(stream)

    def pending(self, stream: int) -> float:
        """Seconds of audio that a stream has queued."""
        return len(self._known(stream).pending) / SAMPLE_RATE

    def received(self, stream: int) -> float:
        """Seconds of audio that a stream was given."""
        return self._known(stream).received / SAMPLE_RATE

    def is_ready(self, stream: int) -> bool:
        """Whether the next step would advance this stream."""
        return len(self._known(stream).pending) >= self._block

    @torch.inference_mode()
    def step(self, streams: Iterable[int] | None = None) -> dict[int, list[Event]]:
        """Advances every stream that has enough audio, or those of `streams`, each by at most LONGEST_ADVANCE entries.

        Returns what they said. If it raises, no stream has lost anything: audio that was not processed is still queued, and what
        was said before the failure comes with the next step.
        """
        wanted = self._streams if streams is None else streams
        budget = {name: LONGEST_ADVANCE for name in wanted if self.is_ready(name)}
        while budget:
            together = min(min(left, len(self._streams[name].pending) // self._block) for name, left in budget.items())
            for name, said in self._advance(list(budget), together).items():
                self._undelivered.setdefault(name, []).extend(said)
            budget = {
                name: left - together
                for name, left in budget.items()
                if left > together and name in self._streams and self.is_ready(name)
            }
        events, self._undelivered = self._undelivered, {}
        return events

    def _advance(self, names: list[int], entries: int) -> dict[int, list[Event]]:
        """Advances the streams `names` by `entries` entries of the memory, and one that comes to an endpoint only to that.

        What it heard behind the endpoint belongs to the next segment, whose encoder has to begin there: it stays queued.
        """
        streams = [self._streams[name] for name in names]
        rows = torch.tensor([stream.row for stream in streams])
        samples = clean(torch.from_numpy(np.stack([stream.pending[: entries * self._block] for stream in streams])))
        state = self._state.rows(rows)
        frames, loud_frames, features = self._network.features(samples, state.features)
        memory, encoder = self._network.encoder(frames, state.encoder)
        loud = loud_frames.unflatten(1, (entries, -1)).any(-1)  # (B, entries)
        allowed = recently_loud(loud, torch.tensor([stream.endpointer.since_loud for stream in streams]), self._hangover)
        said, hard, beams = self._decode(streams, memory, allowed, state.hard)
        endpointers, ends = self._endpoints(streams, beams, said, loud.tolist())
        for row, taken in ends.items():
            if taken < entries:  # back to the endpoint, the front end and the search: all else starts anew
                index = torch.tensor([row])
                heard = samples[row : row + 1, : taken * self._block]
                features.put(index, self._network.features(heard, state.features.rows(index))[-1])
                beams[row] = beam = copy.copy(streams[row].beam)
                if beam is not None:
                    beam(memory[row, :taken], allowed[row, :taken])

        for row, stream in enumerate(streams):  # from here on nothing fails, so that a failed step changes nothing
            stream.drop(ends.get(row, entries) * self._block)
            stream.beam, stream.endpointer = beams[row], endpointers[row]
        events, restart = self._tell(names, said, ends, entries)
        if restart:  # what the normaliser learnt of the speaker and the room stays
            again = torch.tensor(restart)
            encoder.put(again, self._fresh.encoder.rows(torch.zeros_like(again)))
            hard.put(again, self._fresh.hard.rows(torch.zeros_like(again)))
        self._state.put(rows, RecognizerState(features, encoder, hard))
        return {name: said for name, said in zip(names, events, strict=True) if said or name not in self._streams}

    def _decode(
        self, streams: list[_Stream], memory: Tensor, allowed: Tensor, state: HardState
    ) -> tuple[list[Said], HardState, list[BeamDecoder | None]]:
        """What the streams say at new entries (B, T, D), where it is allowed (B, T); each by its own search."""
        greedy = torch.tensor([stream.beam is None for stream in streams])
        said, state = self._decoder(memory, allowed & greedy[:, None], state)
        beams = [copy.copy(stream.beam) for stream in streams]
        for row, beam in enumerate(beams):
            if beam is not None:
                said += [each._replace(row=row) for each in beam(memory[row], allowed[row])]
        return said, state, beams

    def _endpoints(
        self, streams: list[_Stream], beams: list[BeamDecoder | None], said: list[Said], loud: list[list[bool]]
    ) -> tuple[list[Endpointer], dict[int, int]]:
        """The endpointers after new entries, and the rows with an endpoint among them: how many entries those take.

        A beam search is late to be certain, so what counts as said there is what its best hypothesis says.
        """
        symbols = self._network.symbols
        texts = [beam.spoken if beam is not None else set() for beam in beams]
        ends = {}
        for each in said:
            if each.symbol == symbols.end:
                ends[each.row] = each.entry + 1
            elif beams[each.row] is None and symbols.is_text(each.symbol):
                texts[each.row].add(each.entry)
        endpointers = [copy.copy(stream.endpointer) for stream in streams]
        for row, endpointer in enumerate(endpointers):
            taken = endpointer.advance(loud[row][: ends.get(row)], texts[row])
            if taken is not None:
                ends[row] = taken
        return endpointers, ends

    def _tell(self, names: list[int], said: list[Said], ends: dict[int, int], entries: int) -> tuple[list[list[Event]], list[int]]:
        """The events of each stream after new entries, and the rows that start anew. A row in `ends` took only so many of them."""
        streams = [self._streams[name] for name in names]
        events: list[list[Event]] = [[] for _ in streams]
        for each in said:
            if each.entry < ends.get(each.row, entries):
                events[each.row] += self._write(streams[each.row], each)
        restart = []
        for row, stream in enumerate(streams):
            stream.entries += ends.get(row, entries)
            flushed = stream.ending and len(stream.pending) < self._block
            if flushed or row in ends:
                events[row] += self._end_segment(stream)
                restart.append(row)
            if flushed:
                self._after_flush(names[row], stream)
        return events, restart

    def _write(self, stream: _Stream, said: Said) -> list[Event]:
        """The events of a symbol. The stream's count of entries is still that of the chunk's beginning."""
        decided, heard = (
            min(stream.received, stream.origin + (stream.entries + entry + 1) * self._block) / SAMPLE_RATE
            for entry in (said.entry, said.entry - said.late)
        )
        emission = stream.writer.say(said.symbol, decided, round(said.probability, 4), heard)
        return [emission] if emission else []

    def _end_segment(self, stream: _Stream) -> list[Event]:
        """Says what the search still holds back, and closes the segment."""
        stream.endpointer.reset()
        events: list[Event] = []
        if stream.beam is not None:
            for said in stream.beam.finish():
                events += self._write(stream, said)
        segment = stream.writer.close()
        return [*events, segment] if segment else events

    def _after_flush(self, name: int, stream: _Stream) -> None:
        if stream.finishing:
            self.close(name)
            return
        stream.ending = stream.fed = False
        stream.origin, stream.entries = stream.received, 0

    def _queue(self, stream: _Stream, samples: Samples, *, last: bool) -> None:
        samples = as_samples(samples)
        stream.fed = stream.fed or len(samples) > 0
        if stream.resampler is not None:  # a filter would spread one number that is none over its neighbours
            samples = stream.resampler.resample_chunk(clean(torch.from_numpy(samples.copy())).numpy(), last=last)
        stream.received += len(samples)
        stream.queue(samples)

    def _known(self, name: int) -> _Stream:
        stream = self._streams.get(name)
        if stream is None:
            raise ValueError(f"stream={name}: not open")
        return stream

    def _open_stream(self, name: int) -> _Stream:
        stream = self._known(name)
        if stream.ending:
            raise ValueError(f"stream={name}: its end is under way; step until it has been said")
        return stream

    def _initial_state(self, streams: int) -> RecognizerState:
        with torch.inference_mode():
            return RecognizerState(
                self._network.features.initial_state(streams),
                self._network.encoder.initial_state(streams),
                self._decoder.initial_state(streams),
            )
