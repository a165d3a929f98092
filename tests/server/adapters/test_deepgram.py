"""Deepgram's own package, pointed at us."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment

from model import Recognizer
from server.audio import Samples
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.encode import encode
from tests.server.talk import chunks, connected

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:websockets.* is deprecated:DeprecationWarning"),
]  # in the package

RAW: dict[str, Any] = {"encoding": "linear16", "sample_rate": "16000", "channels": "1"}


async def listen(
    server: RunningServer, data: bytes, *, finalize: bool = False, pause: float = 0, key: str = "none", **query: str
) -> list[Any]:
    """All messages, to the end."""
    address = f"127.0.0.1:{server.port}"
    place = DeepgramClientEnvironment(base="http://" + address, production="ws://" + address, agent="", agent_rest="")
    client = AsyncDeepgramClient(api_key=key, environment=place)
    heard: list[Any] = []
    async with client.listen.v1.connect(model="nova-3", **query) as connection:

        async def hear() -> None:
            heard.extend([message async for message in connection])

        hearing = asyncio.create_task(hear())
        for piece in chunks(data, seed=1, smallest=2000, largest=8000):
            await connection.send_media(piece)
        await connection.send_keep_alive()
        if finalize:
            await connection.send_finalize()
        await asyncio.sleep(pause)
        await connection.send_close_stream()
        await asyncio.wait_for(hearing, 60)
    return heard


def of(heard: list[Any], kind: str) -> list[Any]:
    return [message for message in heard if message.type == kind]


def finals(heard: list[Any]) -> list[Any]:
    return [message for message in of(heard, "Results") if message.is_final]


def text(heard: list[Any]) -> str:
    return " ".join(result.channel.alternatives[0].transcript for result in finals(heard))


async def test_the_text_is_the_recognisers(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(12, seed=1)
    transcript = recognizer.transcribe(samples)
    heard = await listen(server, pcm(samples), **RAW, punctuate="true", smart_format="true", diarize="false")
    assert text(heard) == transcript.text != ""
    words = [word for result in finals(heard) for word in result.channel.alternatives[0].words]
    assert [(word.word, word.start, word.end) for word in words] == [(w.text, w.start, w.end) for w in transcript.words]
    assert len(finals(heard)) == len(of(heard, "Results")), "interim results, unasked for"
    assert all(result.speech_final for result in finals(heard))
    assert heard[-1].type == "Metadata"
    assert heard[-1].duration == 12


async def test_interim_results_only_grow(server: RunningServer) -> None:
    heard = await listen(server, pcm(noise(6, seed=2)), **RAW, interim_results="true", vad_events="true", endpointing="false")
    so_far = ""
    for result in of(heard, "Results"):
        said = result.channel.alternatives[0].transcript
        assert said.startswith(so_far)
        assert not result.speech_final
        so_far = "" if result.is_final else said
    assert len(of(heard, "SpeechStarted")) == len(finals(heard)) > 0


async def test_a_finalize_is_answered_once(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(3, seed=3)
    heard = await listen(server, pcm(samples), finalize=True, **RAW)
    assert [result.from_finalize for result in finals(heard)].count(True) == 1
    stream = recognizer.stream()
    events = stream.accept(samples) + stream.flush()
    assert text(heard).strip() == " ".join(event.text for event in events if hasattr(event, "words"))
    silent = await listen(server, bytes(3200), finalize=True, **RAW)
    assert [(text([result]), result.from_finalize) for result in finals(silent)] == [("", True)]


async def test_the_end_of_an_utterance(server: RunningServer) -> None:
    speech: Samples = noise(3, seed=4)
    data = pcm(speech) + bytes(2 * 16_000 * 3)
    heard = await listen(server, data, pause=0.7, **RAW, interim_results="true", utterance_end_ms="1000")
    assert of(heard, "UtteranceEnd")
    last = [result.channel.alternatives[0].words[-1].end for result in finals(heard)][-1]
    assert of(heard, "UtteranceEnd")[-1].last_word_end <= last


async def test_a_container_needs_no_encoding(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(4, seed=5)
    assert text(await listen(server, encode(samples, "flac"))) == recognizer.transcribe(samples).text


async def test_keys(start_server: ServerFactory) -> None:
    server = start_server(api_keys="secret")
    assert (await listen(server, bytes(3200), key="secret", **RAW))[-1].type == "Metadata"
    with pytest.raises(Exception, match="401"):
        await listen(server, bytes(3200), key="wrong", **RAW)


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("diarize=true", "diarize=true: expected diarize to be left out"),
        ("language=de", "language=de: expected en"),
        ("encoding=speex", "encoding=speex: expected one of linear16"),
        ("encoding=linear16", "sample_rate=: expected whole number 8000..48000"),
        ("encoding=linear16&sample_rate=44", "sample_rate=44: expected whole number 8000..48000"),
        ("endpointing=soon", "endpointing=soon: expected whole number 0..10000"),
        ("interim_results=maybe", "interim_results=maybe: expected true or false"),
    ],
)
async def test_what_is_not_served_is_said(server: RunningServer, query: str, complaint: str) -> None:
    async with connected(f"ws://127.0.0.1:{server.port}/v1/listen?{query}") as client:
        told = json.loads(await client.recv())
    assert told["type"] == "Error"
    assert told["description"].startswith(complaint)


async def test_an_unknown_message_does_no_harm(server: RunningServer) -> None:
    async with connected(f"ws://127.0.0.1:{server.port}/v1/listen?encoding=linear16&sample_rate=16000") as client:
        await client.send('{"type": "Configure"}')
        assert json.loads(await client.recv())["description"].startswith("type=Configure: expected one of KeepAlive, Finalize")
        await client.send(b"")
        assert json.loads(await client.recv())["type"] == "Metadata"
