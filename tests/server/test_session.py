"""The session's core, without sockets, threads or clocks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from model import Emission, Segment, Word
from server.messages import (
    Audio,
    ClientMessage,
    Closed,
    Error,
    Flush,
    Flushed,
    Keepalive,
    Numbered,
    Ready,
    Resume,
    SegmentEnd,
    Start,
    Status,
    Stop,
    Text,
    WordTime,
)
from server.orders import (
    AbandonStream,
    Draining,
    End,
    Failed,
    Finished,
    FinishStream,
    FlushDone,
    FlushStream,
    Hear,
    Invalid,
    Meter,
    OpenStream,
    Order,
    Said,
    Tick,
)
from server.session import MOST_ERRORS, Input, Output, Session
from server.settings import SessionLimits

LIMITS = SessionLimits(idle=10, longest=100, resume=30)
NONSENSE = Error("bad_message", "nonsense")


def session(*messages: Input) -> Session:
    made = Session("name", LIMITS, Meter(), "model")
    for message in messages:
        made.feed(message)
    return made


def only(outputs: list[Output]) -> Output:
    assert len(outputs) == 1
    return outputs[0]


def test_start_opens_a_stream_with_what_was_asked_for() -> None:
    ready, order = session().feed(Start(sample_rate=8000, endpointing=0.5))
    assert isinstance(ready, Ready)
    assert ready.accepted == Start(sample_rate=8000, endpointing=0.5)
    assert isinstance(order, OpenStream)
    assert order.options.sample_rate == 8000
    assert order.options.endpoint.silence == 0.5


def test_audio_as_the_first_message_starts_with_the_defaults() -> None:
    ready, order, hear = session().feed(Audio(b"ab"))
    assert isinstance(ready, Ready)
    assert isinstance(order, OpenStream)
    assert hear == Hear(b"ab")


def test_stop_says_everything_before_closed() -> None:
    core = session(Start(), Audio(b"abcd"))
    assert core.feed(Stop()) == [FinishStream()]
    assert core.feed(Stop()) == []
    word = Word("hi", 0.1, 0.2, 0.5)
    events = (Emission("hi", 0.3, 0.5, 0.2), Segment("hi", 0.1, 0.2, (word,)))
    assert core.feed(Said(events)) == [
        Text("hi", 0.3, 0.5, 0.2, 1),
        SegmentEnd("hi", 0.1, 0.2, 0.5, (WordTime("hi", 0.1, 0.2, 0.5),), 2),
    ]
    assert core.feed(Finished()) == [Closed("stopped", 0.0, 0.0, 4, 1, 2, 3)]
    assert core.feed(Audio(b"ab")) == []
    assert core.close_code == 1000


def test_interim_and_words_can_be_switched_off() -> None:
    core = session(Start(interim=False, words=False))
    said = core.feed(Said((Emission("hi", 0.3, 0.5, 0.2), Segment("hi", 0.1, 0.2, (Word("hi", 0.1, 0.2, 0.5),)))))
    assert said == [SegmentEnd("hi", 0.1, 0.2, 0.5, None, 1)]


def test_flush_comes_back_with_its_name() -> None:
    core = session(Start())
    assert core.feed(Flush("a")) == [FlushStream("a")]
    assert core.feed(FlushDone("a")) == [Flushed("a", 1)]


def test_what_comes_at_the_wrong_time_is_refused_and_the_session_goes_on() -> None:
    core = session(Start())
    second = only(core.feed(Start()))
    assert isinstance(second, Error)
    assert (second.code, second.fatal) == ("out_of_order", False)
    core.feed(Stop())
    late = only(core.feed(Audio(b"ab")))
    assert isinstance(late, Error)
    assert late.message == "type=audio: came after the stop; expected keepalive, until closed comes"
    assert isinstance(only(core.feed(Keepalive())), Status)
    assert isinstance(only(core.feed(Finished())), Closed)


def test_too_much_nonsense_ends_the_session() -> None:
    core = session(Start(), *[Invalid(NONSENSE)] * (MOST_ERRORS - 1))
    abandon, error, closed = core.feed(Invalid(NONSENSE))
    assert abandon == AbandonStream()
    assert isinstance(error, Error)
    assert error.fatal
    assert isinstance(closed, Closed)
    assert core.close_code == 1008


def test_nonsense_as_the_first_message_ends_it_at_once() -> None:
    assert [type(output) for output in session().feed(Invalid(NONSENSE))] == [Error, Closed]
    assert [type(output) for output in session().feed(Resume("other"))] == [Error, Closed]


def test_a_failed_engine_closes_with_its_own_code() -> None:
    core = session(Start())
    assert [type(output) for output in core.feed(Failed(Error("engine_failed", "x")))] == [AbandonStream, Error, Closed]
    assert core.close_code == 1011


def test_idle_and_too_long_are_finished_in_order() -> None:
    core = session(Start(status_interval=0), Tick(0))
    assert core.feed(Tick(9)) == []
    assert core.feed(Tick(11)) == [FinishStream()]
    closed = only(core.feed(Finished()))
    assert isinstance(closed, Closed)
    assert closed.reason == "idle"
    core = session(Start(status_interval=0), Tick(0))
    for now in range(5, 101, 5):
        assert core.feed(Audio(b"")) == []
        assert core.feed(Tick(now)) == []
    assert core.feed(Tick(101)) == [FinishStream()]


def test_whoever_waits_for_the_engine_is_not_idle() -> None:
    meter = Meter(received=5.0)
    core = Session("name", LIMITS, meter)
    core.feed(Start(status_interval=0))
    for now in range(0, 60, 5):
        assert core.feed(Tick(now)) == []


def test_status_comes_at_its_interval_and_when_asked() -> None:
    meter = Meter()
    core = Session("name", LIMITS, meter)
    core.feed(Start(status_interval=2))
    core.feed(Audio(b"ab"))
    meter.received, meter.processed = 3.0, 2.5
    told = [only(outputs) for now in (0, 1, 2, 3, 4) if (outputs := core.feed(Tick(now)))]
    assert told == [Status(3.0, 2.5, 2)] * 2
    assert core.feed(Keepalive()) == [Status(3.0, 2.5, 2)]


def test_draining_is_announced_then_everything_is_said() -> None:
    core = session(Start(), Audio(b"ab"))
    status = only(core.feed(Draining()))
    assert isinstance(status, Status)
    assert status.draining
    assert core.feed(End("draining")) == [FinishStream()]
    closed = only(core.feed(Finished()))
    assert isinstance(closed, Closed)
    assert (closed.reason, closed.bytes, core.close_code) == ("draining", 2, 1012)


def test_a_beam_wider_than_the_server_offers_is_refused() -> None:
    opened = session().feed(Start(beam=LIMITS.beam))[1]
    assert isinstance(opened, OpenStream)
    assert opened.options.beam == LIMITS.beam
    refused = session().feed(Start(beam=LIMITS.beam + 1))[0]
    assert isinstance(refused, Error)
    assert refused.message == f"beam={LIMITS.beam + 1}: expected whole number 0..{LIMITS.beam}"


def test_a_beam_of_zero_is_as_wide_as_the_server_lets() -> None:
    ready, opened = session().feed(Start(beam=0))
    assert isinstance(ready, Ready)
    assert isinstance(opened, OpenStream)
    assert ready.accepted.beam == opened.options.beam == LIMITS.beam > 1


CLIENT: st.SearchStrategy[ClientMessage] = st.one_of(
    st.builds(Start, sample_rate=st.integers(8000, 48_000), interim=st.booleans(), status_interval=st.sampled_from([0.0, 1.0])),
    st.builds(Audio, st.binary(max_size=8)),
    st.builds(Flush, st.text(max_size=3)),
    st.builds(Resume, st.text(min_size=1, max_size=3)),
    st.just(Stop()),
    st.just(Keepalive()),
)
ENGINE: st.SearchStrategy[Input] = st.one_of(
    st.just(Said((Emission("a", 0.1, 0.5, 0.1), Segment("a", 0.0, 0.1, (Word("a", 0.0, 0.1, 0.5),))))),
    st.builds(FlushDone, st.text(max_size=3)),
    st.just(Finished()),
    st.just(Failed(Error("engine_failed", "x"))),
    st.builds(Tick, st.floats(0, 1000)),
    st.just(Invalid(NONSENSE)),
    st.just(Draining()),
    st.just(End("draining")),
)


@settings(max_examples=300)
@given(st.lists(st.one_of(CLIENT, ENGINE), max_size=40))
def test_any_sequence_of_messages_has_a_defined_end(messages: list[Input]) -> None:
    core = session()
    outputs = [output for message in messages for output in core.feed(message)]
    if core.phase != "over":
        outputs += core.feed(End("stopped"))
        outputs += core.feed(Finished())
    assert core.phase == "over"
    assert [type(output) for output in outputs].count(Closed) == 1
    assert isinstance(outputs[-1], Closed)
    numbers = [output.seq for output in outputs if isinstance(output, Numbered) and output.seq is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert core.close_code in (1000, 1008, 1011, 1012)
    orders = [output for output in outputs if isinstance(output, Order)]
    assert not orders or isinstance(orders[0], OpenStream)
    assert [type(order) for order in orders].count(OpenStream) <= 1
    if FinishStream() in orders:
        after = orders[orders.index(FinishStream()) + 1 :]
        assert all(isinstance(order, AbandonStream) for order in after)
