"""OpenAI's own package, pointed at us."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from model import Recognizer
from tests.server.conftest import RunningServer, ServerFactory, noise
from tests.server.encode import encode

pytestmark = pytest.mark.anyio

SAMPLES = noise(8, seed=5)
FILE = ("talk.wav", encode(SAMPLES, "wav"))


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def text(recognizer: Recognizer) -> str:
    text = recognizer.transcribe(SAMPLES).text
    assert text
    return text


async def test_json_and_text(client: AsyncOpenAI, text: str) -> None:
    answer = await client.audio.transcriptions.create(file=FILE, model="whisper-1", language="en", prompt="Hm.", temperature=0)
    assert answer.text == text
    plain = await client.audio.transcriptions.create(file=FILE, model="whisper-1", response_format="text")
    assert str(plain) == text + "\n"


async def test_subtitles(client: AsyncOpenAI) -> None:
    srt = await client.audio.transcriptions.create(file=FILE, model="whisper-1", response_format="srt")
    assert str(srt).startswith("1\n00:00:0")
    vtt = await client.audio.transcriptions.create(file=FILE, model="whisper-1", response_format="vtt")
    assert str(vtt).startswith("WEBVTT\n\n00:00:0")


async def test_times(client: AsyncOpenAI, recognizer: Recognizer, text: str) -> None:
    transcript = recognizer.transcribe(SAMPLES)
    answer = await client.audio.transcriptions.create(
        file=FILE, model="whisper-1", response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert (answer.text, answer.duration, answer.language) == (text, 8, "english")
    assert [(s.text, s.start, s.end) for s in answer.segments or ()] == [(s.text, s.start, s.end) for s in transcript.segments]
    assert [(w.word, w.start, w.end) for w in answer.words or ()] == [(w.text, w.start, w.end) for w in transcript.words]
    usual = await client.audio.transcriptions.create(file=FILE, model="whisper-1", response_format="verbose_json")
    assert usual.segments
    assert usual.words is None


async def test_a_stream_only_appends(client: AsyncOpenAI, text: str) -> None:
    deltas, done = [], ""
    async for event in await client.audio.transcriptions.create(file=FILE, model="whisper-1", stream=True):
        if event.type == "transcript.text.delta":
            deltas.append(event.delta)
        elif event.type == "transcript.text.done":
            done = event.text
    assert "".join(deltas) == done == text
    assert len(deltas) > 1


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"language": "de"}, "language=de: expected en"),
        ({"response_format": "diarized_json"}, "response_format=diarized_json: expected one of json, text"),
        ({"include": ["logprobs"]}, "include[]=logprobs: expected one of file, model"),
        ({"stream": True, "response_format": "srt"}, "response_format=srt: expected json, with stream=true"),
        ({"timestamp_granularities": ["word"]}, "response_format=json: expected verbose_json"),
    ],
)
async def test_what_is_not_served_is_said(client: AsyncOpenAI, wish: dict[str, Any], complaint: str) -> None:
    with pytest.raises(openai.BadRequestError) as problem:
        await client.audio.transcriptions.create(file=FILE, model="whisper-1", **wish)
    assert complaint in problem.value.message


async def test_no_audio(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="file: "):
        await client.audio.transcriptions.create(file=("talk.wav", b"hello"), model="whisper-1")
    with pytest.raises(openai.APIError, match="file: "):
        async for _ in await client.audio.transcriptions.create(file=("talk.wav", b"hello"), model="whisper-1", stream=True):
            pass


async def test_what_is_not_served_at_all_is_said(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="POST /v1/embeddings: Method Not Allowed; /docs tells what is served"):
        await client.embeddings.create(input="hello", model="gibberish")


async def test_keys_and_models(start_server: ServerFactory, text: str) -> None:
    server = start_server(api_keys="secret")
    async with AsyncOpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.audio.transcriptions.create(file=FILE, model="whisper-1")
    async with AsyncOpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == ["gibberish"]
        assert (await client.models.retrieve("gibberish")).id == "gibberish"
        with pytest.raises(openai.NotFoundError, match="GET /v1/models/whisper-1: expected gibberish"):
            await client.models.retrieve("whisper-1")
        assert (await client.audio.transcriptions.create(file=FILE, model="gibberish")).text == text
