"""The client against a real server, over wires that break: nothing doubled, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

import client
from client import Closed, Event, Flushed, Interrupted, Resumed, Segment, Status, Text
from model import Recognizer
from server.settings import Settings
from tests.client.conftest import Wire
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm, run_server

pytestmark = pytest.mark.anyio


async def listen(session: client.Session) -> list[Event]:
    async with asyncio.timeout(60):
        return [event async for event in session]


def said(events: Sequence[Event]) -> str:
    """By segments; and the characters, put together, must say the same."""
    text = " ".join(event.text for event in events if isinstance(event, Segment))
    assert characters(events) == text
    return text


def characters(events: Sequence[Event]) -> str:
    """As a reader sees it who appends texts and drops those that a restart voids."""
    lines, current = [], ""
    for event in events:
        match event:
            case Text(text):
                current += text
            case Segment():
                lines.append(current)
                current = ""
            case Resumed(restarted=True):
                current = ""
    return " ".join([*lines, *([current] if current else [])])


async def test_says_what_the_recogniser_says(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(5, seed=1)
    async with client.connect(server.url) as session:
        for start in range(0, len(samples), 1777):
            await session.send(samples[start : start + 1777])
        await session.stop()
        events = await listen(session)
    expected = recognizer.transcribe(samples)
    assert said(events) == expected.text
    segments = [event for event in events if isinstance(event, Segment)]
    assert [word.start for segment in segments for word in segment.words] == [word.start for word in expected.words]
    assert events[-1] == Closed(5.0, 5.0, len(expected.segments))
    assert session.model == "gibberish"


@pytest.mark.parametrize("audio", ["float32", "float64", "int16", "bytes"])
async def test_takes_audio_as_it_comes(server: RunningServer, recognizer: Recognizer, audio: str) -> None:
    samples = noise(2, seed=2)
    given = pcm(samples) if audio == "bytes" else (samples * 32768).astype(np.int16) if audio == "int16" else samples.astype(audio)
    async with client.connect(server.url) as session:
        await session.send(given)
        await session.stop()
        assert said(await listen(session)) == recognizer.transcribe(samples).text


@pytest.mark.parametrize("cuts", [[700], [30_000], [100_000, 50_000, 50_000], [20_000] * 12])
async def test_resumes_after_every_break(wire: Wire, recognizer: Recognizer, cuts: list[int]) -> None:
    wire.cuts = cuts.copy()
    samples = noise(8, seed=3)
    async with client.connect(wire.url) as session:
        for start in range(0, len(samples), 3200):
            await session.send(samples[start : start + 3200])
            await asyncio.sleep(0.005)
        await session.stop()
        events = await listen(session)
    assert said(events) == recognizer.transcribe(samples).text
    assert events[-1] == Closed(8.0, 8.0, len(recognizer.transcribe(samples).segments))
    assert sum(isinstance(event, Interrupted) for event in events) >= 1
    assert sum(isinstance(event, Resumed) for event in events) >= 1
    assert not any(event.restarted for event in events if isinstance(event, Resumed))


async def test_a_flush_survives_a_break(wire: Wire, recognizer: Recognizer) -> None:
    first, second = noise(2, seed=4), noise(2, seed=5)
    async with client.connect(wire.url) as session:
        await session.send(first)
        flushing = asyncio.create_task(session.flush())
        await asyncio.sleep(0.01)
        wire.cut()
        await asyncio.wait_for(flushing, 30)
        await session.send(second)
        wire.cut()
        await session.stop()
        events = await listen(session)
    stream = recognizer.stream()
    expected = stream.accept(first) + stream.flush() + stream.accept(second) + stream.finish()
    assert said(events) == " ".join(event.text for event in expected if type(event).__name__ == "Segment")
    assert sum(isinstance(event, Flushed) for event in events) == 1


async def test_goes_on_elsewhere_when_the_server_drains(recognizer: Recognizer, wire: Wire, start_server: ServerFactory) -> None:
    second = wire.target
    first = start_server(drain_seconds=0)
    wire.target = first.port
    samples = noise(6, seed=6)
    heard: list[Event] = []
    async with client.connect(wire.url) as session:
        await session.send(samples[:48_000])
        async for event in session:
            heard.append(event)
            if isinstance(event, Status) and event.received == 3.0:
                break
        wire.target = second
        first.loop.call_soon_threadsafe(first.server.begin_drain)
        await session.send(samples[48_000:])
        await session.stop()
        heard += await listen(session)
    moved_at = next(event.received for event in heard if isinstance(event, Status) and event.draining)
    cut = round(moved_at * 16_000)
    expected = [recognizer.transcribe(samples[:cut]).text, recognizer.transcribe(samples[cut:]).text]
    assert said(heard).split() == " ".join(expected).split()
    last = [event for event in heard if isinstance(event, Segment)][-1]
    assert last.start >= moved_at, "times go on, though the second server began at zero"
    assert heard[-1] == Closed(6.0, 6.0, sum(isinstance(event, Segment) for event in heard))


async def test_a_server_that_forgot_the_session_hears_it_again(
    recognizer: Recognizer, wire: Wire, start_server: ServerFactory
) -> None:
    second = wire.target
    wire.target = start_server().port
    samples = noise(4, seed=7)
    heard: list[Event] = []
    async with client.connect(wire.url) as session:
        await session.send(samples[:20_000])
        async for event in session:
            heard.append(event)
            if isinstance(event, Text):
                break
        settled = [event for event in heard if isinstance(event, Segment)]
        wire.target = second
        wire.cut()
        await session.send(samples[20_000:])
        await session.stop()
        heard += await listen(session)
    assert any(event.restarted for event in heard if isinstance(event, Resumed))
    assert not settled, "the recording has no pause before the break; choose another seed"
    assert said(heard) == recognizer.transcribe(samples).text


async def test_gives_up_in_the_end_and_says_why(recognizer: Recognizer, wire: Wire) -> None:
    async with client.connect(wire.url, reconnect_seconds=0.5) as session:
        await session.send(noise(1, seed=8))
        wire.target = None
        wire.cut()
        with pytest.raises(client.ConnectionFailedError, match="No connection for"):
            await listen(session)
        with pytest.raises(client.ConnectionFailedError):
            await session.send(b"")
        assert session.untold()


async def test_a_full_buffer_makes_the_sender_wait(wire: Wire) -> None:
    async with client.connect(wire.url, buffer_seconds=1, reconnect_seconds=60) as session:
        target, wire.target = wire.target, None
        wire.cut()
        await asyncio.sleep(0.05)
        await session.send(noise(1.5, seed=9))
        waiting = asyncio.create_task(session.send(noise(0.5, seed=10)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        wire.target = target
        await asyncio.wait_for(waiting, 30)
        await session.stop()
        assert (await listen(session))[-1] == Closed(2.0, 2.0, session._conversation._segments)


async def test_errors_are_sentences(server: RunningServer) -> None:
    with pytest.raises(client.ServerError, match=r"sample_rate=44: expected .*8000\.\.48000"):
        async with client.connect(server.url, sample_rate=44):
            pass
    with pytest.raises(client.ConnectionFailedError, match=r"Nothing listens at ws://127\.0\.0\.1:1;"):
        async with client.connect("127.0.0.1:1"):
            pass
    with pytest.raises(client.ClientError, match="server=ftp://x: expected an address"):
        async with client.connect("ftp://x"):
            pass
    with pytest.raises(TypeError, match="colour='red': no such option; expected one of sample_rate"):
        async with client.connect(server.url, colour="red"):
            pass
    async with client.connect(server.url) as session:
        with pytest.raises(client.AudioError, match=r"audio.shape=\(5, 2\): expected 1 channel"):
            await session.send(np.zeros((5, 2), np.float32))


async def test_keys(start_server: ServerFactory) -> None:
    url = start_server(api_keys="sesame").url
    with pytest.raises(client.ServerError, match="no valid API key") as caught:
        async with client.connect(url):
            pass
    assert caught.value.code == "unauthorized"
    async with client.connect(url, api_key="sesame") as session:
        await session.stop()
        assert (await listen(session))[-1] == Closed(0.0, 0.0, 0)


async def test_a_session_that_ends_by_itself_begins_anew(recognizer: Recognizer) -> None:
    """A limit of the server's on the length of sessions is none on ours."""
    with run_server(Settings(port=0, session_seconds=0.5), recognizer) as limited:
        async with client.connect(limited.url) as session:
            for seed in range(12):
                await session.send(noise(0.5, seed))
                await asyncio.sleep(0.1)
            await session.stop()
            events = await listen(session)
    said(events)
    assert any(isinstance(event, Resumed) for event in events)
    assert events[-1].received == 6.0  # type: ignore[union-attr]


def test_the_same_without_await(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(3, seed=11)
    with client.open(server.url) as session:
        session.send(samples)
        session.flush()
        session.stop()
        events = list(session)
    assert said(events) == recognizer.transcribe(samples).text
    with pytest.raises(client.ConnectionFailedError), client.open("127.0.0.1:1"):
        pass
