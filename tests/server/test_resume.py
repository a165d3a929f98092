"""A connection that breaks comes back: nothing doubled, nothing lost."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable

import pytest
from websockets.asyncio.client import ClientConnection

from model import Event, Recognizer
from server.codec import parse_server
from server.messages import Closed, Error, Flush, Keepalive, Ready, Resume, ServerMessage, Stop
from server.pump import Connection
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.talk import Heard, assert_same, connected, hear, send

pytestmark = pytest.mark.anyio


async def get(socket: ClientConnection) -> ServerMessage:
    return parse_server(str(await asyncio.wait_for(socket.recv(), 60)))


async def break_off(socket: ClientConnection) -> None:
    """As a lost network does: no goodbye."""
    socket.transport.abort()
    await socket.wait_closed()


@pytest.mark.parametrize("by_query", [True, False])
async def test_a_stream_that_breaks_many_times_says_what_the_whole_says(
    server: RunningServer, recognizer: Recognizer, by_query: bool
) -> None:
    samples = noise(10, seed=5)
    data = pcm(samples)
    choose = random.Random(by_query)
    heard = Heard()
    name, position, seq, breaks = "", 0, 0, 0
    while not any(isinstance(message, Closed) for message in heard.messages):
        url = f"{server.stream_url}?session={name}&seq={seq}" if name and by_query else server.stream_url
        async with connected(url) as socket:
            if name and not by_query:
                await send(socket, Resume(name, seq))
            elif not name:
                await send(socket, Keepalive())
            ready = await get(socket)
            assert isinstance(ready, Ready)
            assert ready.resumed == bool(name)
            name, position = ready.session, ready.bytes
            listening = asyncio.create_task(hear(socket, heard))
            for _ in range(choose.randint(1, 8)):
                size = choose.randint(1, 20_000)
                await socket.send(data[position : position + size])
                position = min(position + size, len(data))
            if position == len(data):
                await send(socket, Stop())
            await asyncio.wait({listening}, timeout=choose.choice([0, 0.02, 0.1]) if position < len(data) else 60)
            await break_off(socket)
            await listening
            breaks += 1
        seq = max(heard.numbers, default=0)
    assert breaks > 3
    assert_same(heard, recognizer.transcribe(samples))
    assert heard.numbers == list(range(1, len(heard.numbers) + 1))
    assert heard.closed.bytes == len(data)


async def test_last_words_can_be_fetched_after_the_end(server: RunningServer, recognizer: Recognizer) -> None:
    """The client stops or closes, and does not stay to listen."""
    samples = noise(3, seed=6)
    for goodbye in (True, False):
        async with connected(server.stream_url) as socket:
            await socket.send(pcm(samples))
            ready = await get(socket)
            assert isinstance(ready, Ready)
            await (socket.close() if goodbye else send(socket, Stop()))
            await break_off(socket)
        async with connected(f"{server.stream_url}?session={ready.session}") as socket:
            heard = await hear(socket)
        assert_same(heard, recognizer.transcribe(samples))
        assert heard.code == 1000


async def test_the_newer_connection_wins(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(3, seed=7)
    async with connected(server.stream_url) as old:
        await old.send(pcm(samples))
        ready = await get(old)
        assert isinstance(ready, Ready)
        async with connected(f"{server.stream_url}?session={ready.session}") as new:
            lost = await hear(old)
            assert lost.code == 4001
            await send(new, Stop())
            assert_same(await hear(new), recognizer.transcribe(samples))


async def test_what_a_lost_connection_still_held_is_not_heard_twice(
    start_server: ServerFactory, recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader waits for room with a piece in its hands, which the client has every reason to send again."""
    server = start_server(buffer_seconds=0.5)
    release = threading.Event()
    engine = server.hall.worker._engine
    step, close = engine.step, Connection._close

    def slow_step(streams: Iterable[int] | None = None) -> dict[int, list[Event]]:
        release.wait(60)
        return step(streams)

    async def slow_close(self: Connection, code: int) -> None:
        await asyncio.sleep(1)
        await close(self, code)

    monkeypatch.setattr(engine, "step", slow_step)
    monkeypatch.setattr(Connection, "_close", slow_close)
    samples = noise(3, seed=8)
    data = pcm(samples)
    async with connected(server.stream_url) as old:
        for start in range(0, 96_000, 32_000):
            await old.send(data[start : start + 32_000])
        ready = await get(old)
        assert isinstance(ready, Ready)
        while server.hall._sessions[ready.session].session.bytes < 32_000:  # noqa: ASYNC110 (the server has a thread of its own)
            await asyncio.sleep(0.01)
        async with connected(f"{server.stream_url}?session={ready.session}") as new:
            resumed = await get(new)
            assert isinstance(resumed, Ready)
            assert resumed.bytes == 32_000
            release.set()
            assert (await hear(old)).code == 4001
            await new.send(data[resumed.bytes :])
            await send(new, Stop())
            heard = await hear(new)
    assert_same(heard, recognizer.transcribe(samples))
    assert heard.closed.bytes == len(data)


async def test_an_unknown_session_is_told_so(server: RunningServer) -> None:
    async with connected(server.stream_url) as socket:
        await send(socket, Resume("nobody", 0))
        heard = await hear(socket)
    error = heard.of(Error)[0]
    assert isinstance(error, Error)
    assert error.code == "unknown_session"
    assert heard.code == 1008


async def test_a_sequence_number_from_the_future_is_refused_and_the_session_stays(server: RunningServer) -> None:
    async with connected(server.stream_url) as socket:
        await send(socket, Keepalive())
        ready = await get(socket)
        assert isinstance(ready, Ready)
        async with connected(server.stream_url) as other:
            await send(other, Resume(ready.session, 1000))
            heard = await hear(other)
            assert [message.code for message in heard.messages if isinstance(message, Error)] == ["bad_message"]
        await send(socket, Stop())
        assert (await hear(socket)).code == 1000


async def test_the_error_that_ended_a_session_comes_again(server: RunningServer) -> None:
    async with connected(server.stream_url + "?encoding=ogg") as socket:
        await socket.send("dance")
        await socket.send(bytes(50_000))
        told = await hear(socket)
    complaint, fatal = (message for message in told.messages if isinstance(message, Error))
    assert (complaint.code, fatal.code) == ("bad_message", "bad_audio")
    ready = told.messages[0]
    assert isinstance(ready, Ready)
    for seq, expected in ((0, [complaint, fatal, told.closed]), (complaint.seq, [fatal, told.closed]), (fatal.seq, [told.closed])):
        async with connected(f"{server.stream_url}?session={ready.session}&seq={seq}") as socket:
            again = await hear(socket)
        assert again.messages[1:] == expected
        assert again.code == told.code == 1008


async def test_a_session_that_never_began_is_not_kept(server: RunningServer) -> None:
    """Nobody knows its name; and a crowd of such must not drive out sessions that someone may come back to."""
    async with connected(server.stream_url + "?beam=17") as socket:
        heard = await hear(socket)
    assert [message.seq for message in heard.messages if isinstance(message, Error)] == [None]
    assert all(live.session.has_begun for live in server.hall._all_kept())


async def test_who_comes_back_too_late_finds_nothing(start_server: ServerFactory) -> None:
    server = start_server(resume_seconds=0.3)
    async with connected(server.stream_url) as socket:
        await socket.send(pcm(noise(1, seed=1)))
        ready = await get(socket)
        assert isinstance(ready, Ready)
        await break_off(socket)
    hall = server.hall
    while len(hall):  # noqa: ASYNC110 (the server has a thread of its own)
        await asyncio.sleep(0.05)
    async with connected(server.stream_url) as socket:
        await send(socket, Resume(ready.session, 0))
        heard = await hear(socket)
    assert [message.code for message in heard.messages if isinstance(message, Error)] == ["unknown_session"]
    while len(hall.worker):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_what_is_no_longer_kept_is_a_gap(start_server: ServerFactory) -> None:
    server = start_server(journal_messages=16)
    async with connected(server.stream_url + "?status_interval=0") as socket:
        for number in range(40):
            await send(socket, Flush(str(number)))
        await send(socket, Keepalive())
        messages = [await get(socket) for _ in range(42)]
        assert isinstance(messages[0], Ready)
        await break_off(socket)
    async with connected(server.stream_url) as socket:
        await send(socket, Resume(messages[0].session, 3))
        heard = await hear(socket)
    error = heard.of(Error)[0]
    assert isinstance(error, Error)
    assert error.message == "seq=3: what came after it is no longer kept; expected whole number from 24"
    async with connected(server.stream_url) as socket:
        await send(socket, Resume(messages[0].session, 30))
        await send(socket, Stop())
        heard = await hear(socket)
    assert heard.numbers == list(range(31, 42))
