"""Clients that take their time, or flood the server with what no session ever sees: they are dropped, and nobody else notices."""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest

from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.test_limits import eventually
from tests.server.test_operations import value

pytestmark = pytest.mark.anyio

HANDSHAKE = b"".join(
    line + b"\r\n"
    for line in (
        b"GET /v1/stream HTTP/1.1",
        b"Host: x",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        b"Sec-WebSocket-Version: 13",
        b"",
    )
)
MASK = bytes(4)  # of zeros, so that masked and plain data are the same


async def drip(server: RunningServer, start: bytes, drop: bytes, *, by_websocket: bool = False) -> bytes:
    """Sends the start at once, then one drop after another until the server has had enough; returns what it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    if by_websocket:
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")

    async def go_on() -> None:
        with suppress(ConnectionError):
            while drop:
                await asyncio.sleep(0.05)
                writer.write(drop)
                await writer.drain()

    writer.write(start)
    dripping = asyncio.create_task(go_on())
    said = b""
    try:
        with suppress(ConnectionError):
            while data := await asyncio.wait_for(reader.read(4096), 60):
                said += data
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()
    return said


async def is_well(server: RunningServer) -> bool:
    """Nothing is left of those clients, and others are served."""
    await eventually(lambda: not server.server.server_state.connections and len(server.hall) == 0)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        return (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b""),  # connects, and says nothing
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"X-A: b\r\n"),  # a head without an end
        (HANDSHAKE.removesuffix(b"\r\n"), b"X-A: b\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b"x"),  # a body that nobody asked for
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n"),  # a second request that never begins
    ],
    ids=["nothing", "head", "handshake", "unwanted body", "next request"],
)
async def test_a_request_that_takes_its_time(start_server: ServerFactory, start: bytes, drop: bytes) -> None:
    server = start_server(request_seconds=0.5)
    said = await drip(server, start, drop)
    assert said.startswith(b"HTTP/1.1 200") == (b"\r\n\r\n" in start)
    assert await is_well(server)


@pytest.mark.parametrize(
    ("start", "status"),
    [
        (b"GET /" + 300_000 * b"x", b"400"),
        (b"GET / HTTP/1.1\r\n" + 20_000 * b"X-A: abcdefgh\r\n", b"400"),
        (HANDSHAKE.replace(b"/v1/stream", b"/v1/stream?" + 10_000 * b"x"), b"414"),
        (HANDSHAKE.replace(b"Host: x\r\n", b"Host: x\r\n" + 200 * b"X-A: b\r\n"), b"431"),
    ],
    ids=["line", "headers", "handshake's line", "handshake's headers"],
)
async def test_a_head_without_measure(start_server: ServerFactory, start: bytes, status: bytes) -> None:
    server = start_server(request_seconds=60)
    assert (await drip(server, start, b"")).startswith(b"HTTP/1.1 " + status)
    assert await is_well(server)


async def test_requests_on_one_connection_may_each_take_their_time(start_server: ServerFactory) -> None:
    server = start_server(request_seconds=2)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        for _ in range(6):
            assert (await client.get("/healthz")).status_code == 200
            await asyncio.sleep(0.5)
        assert len(server.server.server_state.connections) == 1


@pytest.mark.parametrize("kind", [b"application/octet-stream", b"multipart/form-data; boundary=x"])
async def test_a_body_that_takes_its_time(start_server: ServerFactory, kind: bytes) -> None:
    server = start_server(request_seconds=0.5, max_sessions=1)
    head = b"POST /v1/transcribe?encoding=pcm_s16le HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nContent-Type: " + kind
    body = b'\r\n\r\n--x\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    said = await drip(server, head + body, b"x")
    assert b"too_slow" in said
    assert await is_well(server)


async def test_a_body_at_the_pace_of_speech_is_no_slow_one(start_server: ServerFactory) -> None:
    server = start_server(request_seconds=0.3)
    data = pcm(noise(1.2, seed=1))

    async def speak() -> AsyncIterator[bytes]:
        for position in range(0, len(data), 3200):
            await asyncio.sleep(0.1)
            yield data[position : position + 3200]

    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as client:
        answer = await client.post("/v1/transcribe?encoding=pcm_s16le", content=speak())
    assert answer.status_code == 200
    assert answer.json()["duration"] == 1.2


async def test_a_frame_that_takes_its_time(start_server: ServerFactory) -> None:
    """Its bytes are no sign of life: only whole messages are."""
    server = start_server(idle_seconds=0.5)
    said = await drip(server, b"\x82\xfe\xff\xff" + MASK, b"xx", by_websocket=True)
    assert b'"reason":"idle"' in said
    assert await is_well(server)


def slow_reader(server: RunningServer) -> sockets.socket:
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", server.port))
    raw.setblocking(False)
    return raw


async def test_answers_that_nobody_reads(start_server: ServerFactory) -> None:
    server = start_server(send_seconds=0.5, request_seconds=60)
    state = server.server.server_state
    raw = slow_reader(server)
    await eventually(lambda: state.connections)
    while state.connections:  # until the buffers on the way are full
        before = state.total_requests
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(raw, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda before=before: state.total_requests > before or not state.connections)  # type: ignore[misc]
    raw.close()
    assert await is_well(server)


async def test_many_requests_without_waiting_for_answers(start_server: ServerFactory) -> None:
    """Each would wait in memory for its turn, and each answer would let another thousand in."""
    server = start_server(request_seconds=0.5)
    said = await drip(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 10, b"")
    assert said.count(b"HTTP/1.1 200") == 10
    said = await drip(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1000, b"")
    assert said.count(b"HTTP/1.1 200") <= 17
    assert said.count(b"HTTP/1.1 400") == 1
    assert await is_well(server)


async def test_a_client_that_goes_while_its_next_request_waits(start_server: ServerFactory) -> None:
    server = start_server(upload_seconds=600)
    data = pcm(noise(30, seed=1)) * 20
    head = f"POST /v1/transcribe?encoding=pcm_s16le HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode() + data + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    await writer.drain()
    await eventually(lambda: len(server.hall) == 1)
    writer.transport.abort()
    await eventually(lambda: len(server.hall) == 0)
    assert await value(server, "monoscribe_audio_seconds_total") < 600


async def ask_on(raw: sockets.socket, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await loop.sock_sendall(raw, data)
        await asyncio.sleep(0)  # while there is room, sock_sendall lets nobody else have a turn


async def test_pings_whose_answers_nobody_reads_pile_up_nowhere(start_server: ServerFactory) -> None:
    server = start_server(idle_seconds=2, send_seconds=0.5, resume_seconds=0.1)
    raw = slow_reader(server)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(raw, HANDSHAKE)
    await eventually(lambda: len(server.hall) == 1)
    (protocol,) = server.server.server_state.connections
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, protocol.transport.get_write_buffer_size())
            await asyncio.sleep(0.01)

    looking = asyncio.create_task(look())
    ping = b"\x89\xfd" + MASK + bytes(125)
    with suppress(ConnectionError):
        await asyncio.wait_for(ask_on(raw, ping * 100), 60)
    looking.cancel()
    raw.close()
    assert 0 < most < 1 << 20
    assert await is_well(server)


async def test_a_message_of_endlessly_many_empty_frames(start_server: ServerFactory) -> None:
    server = start_server(resume_seconds=0.1)
    said = await drip(server, b"\x02\x80" + MASK, (b"\x00\x80" + MASK) * 100, by_websocket=True)
    assert said.endswith(b"frames")
    assert b"\x03\xf1" in said  # 1009
    assert await is_well(server)
