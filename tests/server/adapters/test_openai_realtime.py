"""OpenAI's own package, pointed at us."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from starlette.websockets import WebSocket

from model import Recognizer, Segment, StreamOptions
from server.adapters.openai_realtime import Realtime
from server.audio import Samples
from server.pump import serve_websocket
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.talk import chunks, connected

pytestmark = pytest.mark.anyio

SAMPLES = noise(8, seed=1)  # of 24 kHz, as far as anybody can tell
COMPLETED = "conversation.item.input_audio_transcription.completed"
SILENCE = np.zeros(2400, np.float32)
DELTA = "conversation.item.input_audio_transcription.delta"


@asynccontextmanager
async def session(server: RunningServer, key: str = "none", **audio_input: Any) -> AsyncIterator[AsyncRealtimeConnection]:
    client = AsyncOpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
    async with client, client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        assert (await connection.recv()).type == "session.created"
        wish: Any = {"type": "transcription", "audio": {"input": audio_input}}
        await connection.session.update(session=wish)
        assert (await connection.recv()).type == "session.updated"
        yield connection


async def speak(connection: AsyncRealtimeConnection, data: bytes) -> None:
    for piece in chunks(data, seed=1, smallest=2000, largest=8000):
        await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())


async def hear(connection: AsyncRealtimeConnection, last: str, number: int = 1) -> list[Any]:
    """Everything up to the last of so many events of that kind."""
    heard: list[Any] = []
    async with asyncio.timeout(60):
        while sum(event.type == last for event in heard) < number:
            heard.append(await connection.recv())
    return heard


def of(heard: list[Any], kind: str) -> list[Any]:
    return [event for event in heard if event.type == kind]


def commits(recognizer: Recognizer, *recordings: Samples) -> list[list[str]]:
    """What the recogniser says, with a flush after each."""
    stream = recognizer.stream(StreamOptions(24_000))
    said = [stream.accept(samples) + stream.flush() for samples in recordings]
    return [[event.text for event in events if isinstance(event, Segment)] for events in said]


async def test_turns(server: RunningServer, recognizer: Recognizer) -> None:
    [expected] = commits(recognizer, SAMPLES)
    assert " ".join(expected) == recognizer.transcribe(SAMPLES, StreamOptions(24_000)).text != ""
    async with session(server, transcription={"model": "whisper-1", "language": "en"}) as connection:
        await speak(connection, pcm(SAMPLES))
        await connection.input_audio_buffer.commit()
        heard = await hear(connection, COMPLETED, len(expected))
    assert [event.transcript for event in of(heard, COMPLETED)] == expected
    for event in of(heard, COMPLETED):
        assert "".join(delta.delta for delta in of(heard, DELTA) if delta.item_id == event.item_id) == event.transcript
    committed = of(heard, "input_audio_buffer.committed")
    assert [event.previous_item_id for event in committed] == [None, *(event.item_id for event in committed[:-1])]
    started, stopped = (of(heard, f"input_audio_buffer.speech_{what}") for what in ("started", "stopped"))
    assert [event.item_id for event in started] == [event.item_id for event in stopped] == [event.item_id for event in committed]
    assert len({event.event_id for event in heard}) == len(heard)


async def test_without_turn_detection_a_commit_ends_an_item(server: RunningServer, recognizer: Recognizer) -> None:
    async with session(server, turn_detection=None) as connection:
        await speak(connection, pcm(SAMPLES))
        await connection.input_audio_buffer.commit()
        heard = await hear(connection, COMPLETED)
        first, second = (" ".join(said) for said in commits(recognizer, SAMPLES, SILENCE))
        assert heard[-1].transcript == "".join(delta.delta for delta in of(heard, DELTA)) == first
        assert not of(heard, "input_audio_buffer.speech_started")
        await speak(connection, pcm(SILENCE))
        await connection.input_audio_buffer.commit()
        assert (await hear(connection, COMPLETED))[-1].transcript == second
        await connection.input_audio_buffer.commit()
        assert "no new audio" in (await hear(connection, "error"))[-1].error.message


async def test_what_is_cleared_is_never_completed(server: RunningServer, recognizer: Recognizer) -> None:
    cleared, kept = SAMPLES[:8000], SAMPLES[8000:40_000]
    async with session(server, turn_detection=None) as connection:
        await speak(connection, pcm(cleared))
        await connection.input_audio_buffer.clear()
        heard = await hear(connection, "input_audio_buffer.cleared")
        assert not of(heard, COMPLETED)
        await speak(connection, pcm(kept))
        await connection.input_audio_buffer.commit()
        assert (await hear(connection, COMPLETED))[-1].transcript == " ".join(commits(recognizer, cleared, kept)[1])


async def test_telephone_audio(server: RunningServer) -> None:
    data = bytes(range(256)) * 100
    async with session(server, format={"type": "audio/pcmu"}, turn_detection=None) as connection:
        await speak(connection, data)
        await connection.input_audio_buffer.commit()
        heard = await hear(connection, COMPLETED)
    assert heard[-1].transcript == "".join(delta.delta for delta in of(heard, DELTA))


async def test_keys(start_server: ServerFactory) -> None:
    server = start_server(api_keys="secret")
    async with session(server, key="secret"):
        pass
    with pytest.raises(Exception, match="401"):
        async with session(server, key="wrong"):
            pass


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"type": "realtime"}, "session.type=realtime: expected transcription"),
        ({"include": ["item.input_audio_transcription.logprobs"]}, "session.include="),
        ({"audio": 3}, "session.audio=3: expected a JSON object"),
        ({"audio": {"input": {"transcription": {"language": "de"}}}}, "session.audio.input.transcription.language=de: expected en"),
        ({"audio": {"input": {"format": {"type": "mp3"}}}}, "session.audio.input.format.type=mp3: expected one of audio/pcm"),
        (
            {"audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}},
            "session.audio.input.turn_detection.type=semantic_vad",
        ),
    ],
)
async def test_what_is_not_served_is_said(server: RunningServer, wish: dict[str, Any], complaint: str) -> None:
    async with connected(f"ws://127.0.0.1:{server.port}/v1/realtime") as client:
        assert json.loads(await client.recv())["type"] == "session.created"
        await client.send(json.dumps({"type": "session.update", "session": wish}))
        assert json.loads(await client.recv())["error"]["message"].startswith(complaint)
        await client.send(json.dumps({"type": "session.update", "session": {"type": "transcription"}}))
        assert json.loads(await client.recv())["type"] == "session.updated"


async def test_bad_messages_and_late_changes(server: RunningServer) -> None:
    async with connected(f"ws://127.0.0.1:{server.port}/v1/realtime") as client:
        await client.recv()
        for message, complaint in (
            ("hello", "message=hello: expected a JSON object"),
            ('{"type": "response.create"}', "type=response.create: expected one of session.update"),
            ('{"type": "input_audio_buffer.append", "audio": "?"}', "audio=?: expected audio as base64"),
            ('{"type": "input_audio_buffer.append"}', "audio=null: expected audio as base64"),
        ):
            await client.send(message)
            assert json.loads(await client.recv())["error"]["message"].startswith(complaint)
        await client.send(json.dumps({"type": "input_audio_buffer.append", "audio": "AAAA"}))
        late = {"audio": {"input": {"turn_detection": {"silence_duration_ms": 500}}}}
        await client.send(json.dumps({"type": "session.update", "session": late}))
        assert "as before the first audio" in json.loads(await client.recv())["error"]["message"]
    async with connected(f"ws://127.0.0.1:{server.port}/v1/realtime?intent=conversation") as client:
        assert json.loads(await client.recv())["error"]["message"] == "intent=conversation: expected transcription"


async def test_the_server_speaks_first_however_quick_the_client_is(server: RunningServer) -> None:
    for _ in range(20):
        async with connected(f"ws://127.0.0.1:{server.port}/v1/realtime?intent=transcription") as socket:
            await socket.send('{"type": "session.update", "session": {"type": "transcription"}}')
            heard = [json.loads(await asyncio.wait_for(socket.recv(), 60))["type"] for _ in range(2)]
            assert heard == ["session.created", "session.updated"]


async def test_a_client_that_vanishes_between_two_answers_is_no_error(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The session's text fails to reach it; at that very moment a message of it is to be answered, too."""
    audio = base64.b64encode(pcm(SAMPLES)).decode()
    frames: list[dict[str, Any]] = [{"type": "websocket.connect"}, told(type="input_audio_buffer.append", audio=audio)]
    tried: list[str] = []

    async def converse() -> None:
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if frames:
                return frames.pop(0)
            await gone.wait()
            return told(type="session.update", session={"type": "transcription"})

        async def send(message: Any) -> None:
            tried.append(json.loads(message["text"])["type"] if "text" in message else message["type"])
            if len(tried) > 2:
                gone.set()
                raise BrokenPipeError

        scope = {"type": "websocket", "headers": [], "query_string": b"", "path": "/v1/realtime"}
        await serve_websocket(WebSocket(scope, receive, send), server.hall, Realtime(), {})

    await asyncio.wait_for(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(converse(), server.loop)), 60)
    assert tried == ["websocket.accept", "session.created", "input_audio_buffer.speech_started"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def told(**fields: object) -> dict[str, Any]:
    return {"type": "websocket.receive", "text": json.dumps(fields)}
