"""The package of the Wyoming protocol as client, as Home Assistant uses it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading

import pytest
from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong

from model import Recognizer
from server.audio import Samples
from server.live import Attachment
from server.messages import ServerMessage
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.talk import chunks

pytestmark = pytest.mark.anyio


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    return number


@pytest.fixture
def wyoming(start_server: ServerFactory, port: int) -> RunningServer:
    return start_server(wyoming_port=port, max_sessions=1, max_message_bytes=20_000)


async def read(client: AsyncTcpClient) -> Event:
    event = await asyncio.wait_for(client.read_event(), 60)
    assert event is not None
    return event


async def hear(client: AsyncTcpClient, samples: Samples) -> list[Event]:
    """What comes for a recording, to the end."""
    await client.write_event(Transcribe(language="en").event())
    await client.write_event(AudioStart(16_000, 2, 1).event())
    for piece in chunks(pcm(samples), seed=1, smallest=2000, largest=8000):
        await client.write_event(AudioChunk(16_000, 2, 1, piece).event())
    await client.write_event(AudioStop().event())
    events = [await read(client)]
    while not TranscriptStop.is_type(events[-1].type):
        events.append(await read(client))
    return events


@pytest.mark.usefixtures("wyoming")
async def test_the_text_is_the_recognisers(recognizer: Recognizer, port: int) -> None:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        for seed in (1, 2):  # one recording after another
            samples = noise(4, seed)
            text = recognizer.transcribe(samples).text
            events = await hear(client, samples)
            assert TranscriptStart.is_type(events[0].type)
            assert Transcript.from_event(events[-2]).text == text != ""
            assert "".join(TranscriptChunk.from_event(event).text for event in events[1:-2]) == text


@pytest.mark.usefixtures("wyoming")
async def test_what_there_is(port: int) -> None:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Describe().event())
        [program] = Info.from_event(await read(client)).asr
        assert program.supports_transcript_streaming
        assert [(model.name, model.languages) for model in program.models] == [("gibberish", ["en"])]
        await client.write_event(Ping("hm").event())
        assert Pong.from_event(await read(client)).text == "hm"


@pytest.mark.usefixtures("wyoming")
async def test_questions_in_the_middle_of_a_recording(port: int) -> None:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(AudioStart(16_000, 2, 1).event())
        assert TranscriptStart.is_type((await read(client)).type)
        await client.write_event(Ping("hm").event())
        assert Pong.from_event(await read(client)).text == "hm"
        await client.write_event(Describe().event())
        assert Info.is_type((await read(client)).type)
        await client.write_event(Transcribe(language="de").event())
        assert Error.from_event(await read(client)).text.startswith("language=de: expected en")


@pytest.mark.parametrize(
    ("chunk", "complaint"),
    [
        (AudioChunk(8_000, 2, 1, bytes(320)), "rate=8000: expected 16000, as in audio-start"),
        (AudioChunk(16_000, 4, 1, bytes(320)), "width=4: expected 2, as in audio-start"),
        (AudioChunk(16_000, 2, 2, bytes(320)), "channels=2: expected 1, as in audio-start"),
    ],
)
@pytest.mark.usefixtures("wyoming")
async def test_a_chunk_that_contradicts_the_start(port: int, chunk: AudioChunk, complaint: str) -> None:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(AudioStart(16_000, 2, 1).event())
        assert TranscriptStart.is_type((await read(client)).type)
        await client.write_event(chunk.event())
        assert Error.from_event(await read(client)).text == complaint


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (Transcribe(language="de").event(), "language=de: expected en"),
        (AudioStart(16_000, 4, 1).event(), "width=4: expected 2 bytes per sample"),
        (AudioStart(44, 2, 1).event(), "rate=44: expected whole number 8000..48000"),
        (AudioStop().event(), "type=audio-stop: expected audio-start before"),
        (AudioChunk(16_000, 2, 1, bytes(30_000)).event(), "length=30000: expected up to 20000 bytes"),
    ],
)
@pytest.mark.usefixtures("wyoming")
async def test_what_is_not_served_is_said(port: int, event: Event, complaint: str) -> None:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(event)
        assert Error.from_event(await read(client)).text.startswith(complaint)


@pytest.mark.parametrize(
    "line",
    [
        b"[]\n", b"{}\n", b'{"type": 3}\n', b'{"type": "ping", "data": 3}\n', b"hello\n", b'{"data_length": "x"}\n', b"\xff\n",
        b"[" * 70_000 + b"\n", b'{"type": "ping", "data_length": 4}\nhm{}',
    ],
)  # fmt: skip
async def test_nonsense_is_said_and_does_no_harm(wyoming: RunningServer, recognizer: Recognizer, port: int, line: bytes) -> None:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        assert client._writer is not None
        client._writer.write(line)
        assert Error.from_event(await read(client)).text.endswith(": expected an event of the Wyoming protocol")
    assert wyoming.hall.is_ready


async def test_a_client_that_vanishes_before_its_text_is_no_error(
    wyoming: RunningServer, port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_gone = threading.Event()
    take = Attachment.take

    async def take_late(attachment: Attachment) -> list[ServerMessage]:
        while not is_gone.is_set():  # noqa: ASYNC110 (the server has a thread of its own)
            await asyncio.sleep(0.01)
        return await take(attachment)

    monkeypatch.setattr(Attachment, "take", take_late)
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(AudioStart(16_000, 2, 1).event())
        await client.write_event(AudioChunk(16_000, 2, 1, bytes(320)).event())
        await client.write_event(AudioStop().event())
        assert TranscriptStart.is_type((await read(client)).type)
        assert client._writer is not None
        connection = client._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no goodbye, but a reset
        client._writer.transport.abort()
    await asyncio.sleep(0.3)  # until the server has seen it
    is_gone.set()
    while any(task.get_name() == "wyoming" for task in asyncio.all_tasks(wyoming.loop)):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_client_that_goes_leaves_its_place(wyoming: RunningServer, recognizer: Recognizer, port: int) -> None:
    samples = noise(3, seed=3)
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(AudioStart(16_000, 2, 1).event())
        assert TranscriptStart.is_type((await read(client)).type)
        async with AsyncTcpClient("127.0.0.1", port) as other:
            await other.write_event(AudioStart(16_000, 2, 1).event())
            assert Error.from_event(await read(other)).code == "at_capacity"
    while len(wyoming.hall):  # noqa: ASYNC110 (the server has a thread of its own)
        await asyncio.sleep(0.02)
    async with AsyncTcpClient("127.0.0.1", port) as client:
        assert Transcript.from_event((await hear(client, samples))[-2]).text == recognizer.transcribe(samples).text
