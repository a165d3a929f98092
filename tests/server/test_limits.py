"""Clients that vanish, stall, send garbage, lie, or come in too great a number; and nothing left of them afterwards."""

from __future__ import annotations

import asyncio
import gc
import io
import random
import socket as sockets
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import websockets

from model import Event, Recognizer, StreamOptions
from server.containers import decode_file
from server.line import MOST_FLUSHES
from server.messages import Error, Flush, Flushed, Keepalive, Start, Stop
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.encode import encode
from tests.server.talk import Heard, assert_same, chunks, connected, converse, hear, send

pytestmark = pytest.mark.anyio


def errors(heard: Heard) -> list[Error]:
    return [message for message in heard.messages if isinstance(message, Error)]


async def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


async def test_beyond_the_most_sessions_new_ones_are_refused(start_server: ServerFactory, recognizer: Recognizer) -> None:
    server = start_server(max_sessions=2)
    samples = noise(1.5, seed=1)
    async with connected(server.stream_url) as first, connected(server.stream_url) as second:
        with pytest.raises(websockets.InvalidStatus) as refused:
            await converse(server.stream_url, [Stop()])
        assert refused.value.response.status_code == 503
        assert int(refused.value.response.headers["Retry-After"]) > 0
        page = await converse(server.stream_url, [Stop()], origin=server.url)  # a page cannot see a status
        assert page.code == 1013
        assert errors(page)[0].code == "at_capacity"
        for socket in (first, second):
            await socket.send(pcm(samples))
            await send(socket, Stop())
            assert_same(await hear(socket), recognizer.transcribe(samples))
    counted = await asyncio.to_thread(lambda: urllib.request.urlopen(server.url + "/metrics").read().decode())
    assert 'monoscribe_errors_total{code="at_capacity"} 2.0' in counted
    await eventually(lambda: len(server.hall) == 0)
    assert_same(await converse(server.stream_url, [pcm(samples), Stop()]), recognizer.transcribe(samples))


async def test_a_broken_session_gives_way_to_a_new_one(start_server: ServerFactory) -> None:
    server = start_server(max_sessions=1)
    async with connected(server.stream_url) as socket:
        await socket.send(pcm(noise(1, seed=1)))
        await socket.recv()
        socket.transport.abort()
    await eventually(lambda: all(live.detached_at for live in server.hall._sessions.values()))
    assert (await converse(server.stream_url, [Stop()])).code == 1000


async def test_a_message_that_is_too_large(start_server: ServerFactory) -> None:
    server = start_server(max_message_bytes=2000)
    heard = await converse(server.stream_url, [bytes(3000), Stop()])
    assert heard.code == 1009
    await eventually(lambda: not [live for live in server.hall._sessions.values() if live.attachment])


async def test_a_client_that_sends_too_fast_is_slowed_not_buffered(start_server: ServerFactory, recognizer: Recognizer) -> None:
    server = start_server(buffer_seconds=1)
    samples = noise(60, seed=2)
    most = 0.0
    async with connected(server.stream_url) as socket:
        listening = asyncio.create_task(hear(socket))
        for chunk in chunks(pcm(samples), seed=1, smallest=3200, largest=6400):
            await socket.send(chunk)
            most = max([most, *(live.meter.lag for live in list(server.hall._sessions.values()))])
        await send(socket, Stop())
        heard = await listening
    assert most < 1 + 2 * 6400 / 32_000
    assert_same(heard, recognizer.transcribe(samples))


async def test_a_client_that_flushes_all_the_time_is_slowed(start_server: ServerFactory) -> None:
    """A few bytes and a flush cost the engine as much as some tenths of a second, and hardly count as audio."""
    server = start_server()
    release = threading.Event()
    engine = server.hall.worker._engine
    step = engine.step

    def slow_step(streams: Iterable[int] | None = None) -> dict[int, list[Event]]:
        release.wait(60)
        return step(streams)

    engine.step = slow_step  # type: ignore[method-assign]
    async with connected(server.stream_url) as socket:
        listening = asyncio.create_task(hear(socket))
        for number in range(100):
            await socket.send(bytes(320))
            await send(socket, Flush(str(number)))
        await send(socket, Stop())
        await eventually(lambda: [live.line.is_full for live in server.hall._sessions.values()] == [True])
        (live,) = server.hall._sessions.values()
        assert live.session.bytes == 320 * MOST_FLUSHES
        release.set()
        heard = await listening
    assert [message.id for message in heard.messages if isinstance(message, Flushed)] == [str(number) for number in range(100)]


async def test_a_client_that_never_reads_is_dropped(start_server: ServerFactory) -> None:
    server = start_server(send_seconds=0.5, resume_seconds=0.5, buffer_seconds=3600)
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", server.port))
    request = "GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    request += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    await loop.sock_sendall(raw, request.encode())
    frame = b"\x81\x94\0\0\0\0" + b'{"type":"keepalive"}'  # masked with zeros

    async def ask_on() -> None:
        while True:
            await loop.sock_sendall(raw, frame * 1000)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(ask_on(), 60)
    raw.close()
    await eventually(lambda: len(server.hall) == 0)
    await eventually(lambda: not server.server.server_state.connections)


async def test_idle_sessions_are_finished(start_server: ServerFactory, recognizer: Recognizer) -> None:
    server = start_server(idle_seconds=0.5)
    samples = noise(2, seed=3)
    heard = await converse(server.stream_url, [pcm(samples)])
    assert_same(heard, recognizer.transcribe(samples))
    assert heard.closed.reason == "idle"
    silent = await converse(server.stream_url, [])
    assert silent.closed.reason == "idle"


async def test_long_sessions_are_finished(start_server: ServerFactory) -> None:
    server = start_server(session_seconds=0.5)
    async with connected(server.stream_url) as socket:
        listening = asyncio.create_task(hear(socket))
        while not listening.done():
            try:
                await send(socket, Keepalive())
            except websockets.ConnectionClosed:
                break
            await asyncio.sleep(0.05)
        assert (await listening).closed.reason == "too_long"


async def test_text_where_audio_belongs(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(2, seed=4)
    async with connected(server.stream_url) as socket:
        await send(socket, Start())
        await socket.send("hello")
        await socket.send(pcm(samples))
        await socket.send('{"type":"dance"}')
        await send(socket, Stop())
        heard = await hear(socket)
    assert_same(heard, recognizer.transcribe(samples))
    assert [error.code for error in errors(heard)] == ["bad_message", "bad_message"]
    assert heard.code == 1000


@pytest.mark.parametrize("query", ["sample_rate=44", "encoding=opus", "speed=2", "endpointing=nan", "beam=17"])
async def test_wrong_parameters_are_named(server: RunningServer, query: str) -> None:
    heard = await converse(f"{server.stream_url}?{query}", [])
    assert heard.code == 1008
    assert errors(heard)[0].field == query.partition("=")[0]
    assert errors(heard)[0].accepted
    assert heard.closed.reason == "error"


@pytest.mark.parametrize("encoding", ["webm", "ogg", "flac", "mp3", "wav", "auto"])
async def test_a_client_that_lies_about_its_encoding(server: RunningServer, encoding: str) -> None:
    heard = await converse(f"{server.stream_url}?encoding={encoding}", [*chunks(b"\1\2\3\4" * 20_000, 1), Stop()])
    assert heard.code == 1008
    assert errors(heard)[0].code == "bad_audio"
    assert errors(heard)[0].value == encoding
    assert errors(heard)[0].fatal


async def test_a_container_sent_as_raw_audio(server: RunningServer) -> None:
    heard = await converse(server.stream_url, [encode(noise(1, seed=1), "webm"), Stop()])
    assert errors(heard)[0].accepted == "raw samples, or encoding=webm"
    assert heard.code == 1008


@pytest.mark.parametrize("encoding", ["webm", "ogg", "flac", "wav"])
async def test_containers_over_the_wire(server: RunningServer, recognizer: Recognizer, encoding: str) -> None:
    data = encode(noise(4, seed=5), encoding)
    samples = np.concatenate(list(decode_file(io.BytesIO(data), "auto")))
    heard = await converse(f"{server.stream_url}?encoding={encoding}", [*chunks(data, 1, largest=3000), Stop()])
    assert_same(heard, recognizer.transcribe(samples))


@pytest.mark.parametrize(
    ("encoding", "rate", "channels"), [("pcm_f32le", 16_000, 1), ("pcm_s16le", 16_000, 3), ("pcm_s16le", 44_100, 1)]
)
async def test_raw_encodings_over_the_wire(
    server: RunningServer, recognizer: Recognizer, encoding: str, rate: int, channels: int
) -> None:
    samples = noise(4, seed=6)
    interleaved = np.repeat(samples, channels)
    data = interleaved.astype("<f4").tobytes() if encoding == "pcm_f32le" else pcm(interleaved)
    url = f"{server.stream_url}?encoding={encoding}&sample_rate={rate}&channels={channels}"
    mixed = interleaved.reshape(-1, channels).mean(axis=1, dtype=np.float32)
    assert_same(await converse(url, [*chunks(data, 1), Stop()]), recognizer.transcribe(mixed, StreamOptions(sample_rate=rate)))


async def test_nothing_is_left_of_any_client(start_server: ServerFactory, recognizer: Recognizer) -> None:
    """A crowd of the well and the badly behaved; then the server is as it was."""
    server = start_server(resume_seconds=0.2, idle_seconds=1)
    samples = noise(2, seed=7)
    expected = recognizer.transcribe(samples)
    await converse(server.stream_url, [pcm(samples), Stop()])
    await eventually(lambda: not server.server.server_state.connections and not server.hall._kept)
    before = await census(server)

    async def behave(number: int) -> None:
        choose = random.Random(number)
        match number % 6:
            case 0:
                assert_same(await converse(server.stream_url, [*chunks(pcm(samples), number), Stop()]), expected)
            case 1:  # vanishes
                async with connected(server.stream_url) as socket:
                    await socket.send(pcm(samples)[: choose.randint(0, 60_000)])
                    socket.transport.abort()
            case 2:  # a container, half of it, and gone
                async with connected(server.stream_url + "?encoding=webm") as socket:
                    await socket.send(encode(samples, "webm")[:5000])
                    socket.transport.abort()
            case 3:  # garbage
                await converse(server.stream_url, [choose.randbytes(5000), Stop()])
                await converse(server.stream_url + "?encoding=ogg", [choose.randbytes(50_000), Stop()])
            case 4:  # says nothing
                await converse(server.stream_url, [])
            case 5:  # wrong from the start
                await converse(server.stream_url + "?beam=none", [])

    await asyncio.gather(*(behave(number) for number in range(30)))
    await eventually(lambda: not server.server.server_state.connections)
    await eventually(lambda: len(server.hall) == 0 and not server.hall._kept and len(server.hall.worker) == 0)
    await eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "decoder"])
    after = await census(server)
    assert all(after[kind] <= before[kind] for kind in before), f"{before} became {after}"


async def census(server: RunningServer) -> dict[str, int]:
    def count() -> dict[str, int]:
        gc.collect()
        names = [type(thing).__name__ for thing in gc.get_objects()]
        kinds = {kind: names.count(kind) for kind in ("Live", "Session", "Channel", "Attachment", "Connection", "ContainerDecoder")}
        return kinds | {"tasks": len(asyncio.all_tasks())}

    async def on_the_loop() -> dict[str, int]:
        return count()

    future = asyncio.run_coroutine_threadsafe(on_the_loop(), server.loop)
    return await asyncio.wrap_future(future)
