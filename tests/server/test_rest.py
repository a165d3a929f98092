"""Files over HTTP: the same text as a live stream's, in every format."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from model import Recognizer
from server.channel import Channel
from server.codec import parse_server
from server.formats import as_srt, as_vtt, cues
from server.line import Line
from server.messages import Closed, Error, SegmentEnd, Text, WordTime
from server.worker import Worker
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.encode import encode

pytestmark = pytest.mark.anyio

RAW = {"encoding": "pcm_s16le"}


async def post(server: RunningServer, data: bytes, query: dict[str, str] | None = None, *, form: bool = False) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, timeout=120, trust_env=False) as client:
        if form:
            return await client.post("/v1/transcribe", files={"file": ("name.wav", data)}, params=query)
        return await client.post("/v1/transcribe", content=data, params=query)


@pytest.mark.parametrize("form", [True, False])
@pytest.mark.parametrize("container", ["wav", "flac"])
async def test_a_file_says_what_the_recogniser_says(
    server: RunningServer, recognizer: Recognizer, form: bool, container: str
) -> None:
    samples = noise(30, seed=1)
    transcript = recognizer.transcribe(samples)
    answer = await post(server, encode(samples, container), form=form)
    assert answer.status_code == 200
    told = answer.json()
    assert told["text"] == transcript.text != ""
    assert [(s["text"], s["start"], s["end"]) for s in told["segments"]] == [(s.text, s.start, s.end) for s in transcript.segments]
    assert [word["text"] for segment in told["segments"] for word in segment["words"]] == [word.text for word in transcript.words]
    assert told["duration"] == 30


async def test_an_mp4_whose_index_comes_last(server: RunningServer) -> None:
    answer = await post(server, encode(noise(5, seed=2), "mp4"))
    assert answer.status_code == 200
    assert answer.json()["text"]


async def test_raw_samples_and_every_format(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(12, seed=3)
    transcript = recognizer.transcribe(samples)
    text = await post(server, pcm(samples), RAW | {"format": "text"})
    assert text.text == "".join(segment.text + "\n" for segment in transcript.segments)
    srt = await post(server, pcm(samples), RAW | {"format": "srt"})
    assert srt.text.startswith("1\n00:00:0")
    vtt = await post(server, pcm(samples), RAW | {"format": "vtt"})
    assert vtt.text.startswith("WEBVTT\n\n00:00:0")
    assert vtt.headers["content-type"].startswith("text/vtt")
    brief = await post(server, pcm(samples), RAW | {"words": "false"})
    assert "words" not in brief.json()["segments"][0]


async def test_a_streamed_answer_comes_as_messages(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(12, seed=4)
    answer = await post(server, pcm(samples), RAW | {"stream": "true"})
    messages = [parse_server(line) for line in answer.text.splitlines()]
    segments = [message.text for message in messages if isinstance(message, SegmentEnd)]
    assert " ".join(segments) == recognizer.transcribe(samples).text
    assert any(isinstance(message, Text) for message in messages)
    assert isinstance(messages[-1], Closed)


@pytest.mark.parametrize(
    ("data", "query", "status", "field"),
    [
        (b"hello", {}, 415, "file"),
        (b"", {}, 415, "file"),
        (b"hello", {"stream": "true"}, 415, "file"),
        (b"hello", {"sample_rate": "44"}, 422, "sample_rate"),
        (b"hello", {"encoding": "opus"}, 422, "encoding"),
        (b"hello", {"format": "pdf"}, 422, "format"),
    ],
)
async def test_what_is_wrong_is_named(server: RunningServer, data: bytes, query: dict[str, str], status: int, field: str) -> None:
    answer = await post(server, data, query)
    if answer.status_code == 200:  # a streamed answer may have begun
        error = parse_server(answer.text.splitlines()[-1])
        assert isinstance(error, Error)
        assert error.code == "bad_audio"
        return
    assert answer.status_code == status
    assert answer.json()["error"]["field"] == field
    assert answer.json()["error"]["accepted"]


async def test_a_form_without_a_file(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        answer = await client.post("/v1/transcribe", files={"other": b"x"})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "file: missing; expected a file in the form"
        broken = await client.post("/v1/transcribe", content=b"x", headers={"content-type": "multipart/form-data"})
        assert broken.status_code == 400


async def test_limits_of_size_time_and_number(start_server: ServerFactory) -> None:
    server = start_server(max_upload_bytes=1024, max_sessions=1)
    for form in (True, False):
        answer = await post(server, bytes(3000), form=form)
        assert answer.status_code == 413
        assert answer.json()["error"]["accepted"] == "up to 1024 bytes"
    server = start_server(upload_seconds=0.1)
    answer = await post(server, pcm(noise(120, seed=1)), RAW)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "too_slow"


async def test_files_do_not_stay_behind(server: RunningServer) -> None:
    await post(server, pcm(noise(1, seed=1)), RAW)
    await post(server, b"hello")
    assert len(server.hall) == 0


@pytest.mark.parametrize("stream", ["true", "false"])
async def test_a_client_that_goes_away_is_not_transcribed_to_the_end(start_server: ServerFactory, stream: str) -> None:
    server = start_server(buffer_seconds=1)
    data = pcm(noise(30, seed=1)) * 20
    query = RAW | {"stream": stream}
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=httpx.Timeout(60, read=1)) as client:
        with suppress(httpx.ReadTimeout):
            async with client.stream("POST", "/v1/transcribe", content=data, params=query) as answer:
                await anext(answer.aiter_lines())
    while len(server.hall):  # noqa: ASYNC110 (the server has a thread of its own)
        await asyncio.sleep(0.05)
    processed = await asyncio.to_thread(lambda: urllib.request.urlopen(server.url + "/metrics").read().decode())
    found = re.search(r"^monoscribe_audio_seconds_total (\S+)$", processed, re.MULTILINE)
    assert found
    assert float(found[1]) < 600


async def test_models_and_openapi(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "gibberish"
        api = (await client.get("/openapi.json")).json()
        assert "multipart/form-data" in api["paths"]["/v1/transcribe"]["post"]["requestBody"]["content"]
        assert (await client.get("/")).headers["content-type"].startswith("text/html")
        schema = (await client.get("/v1/schema.json")).json()
        assert json.dumps(schema).count("ControlMessage")


def test_long_segments_become_several_cues() -> None:
    words = tuple(WordTime("word", number * 0.5, number * 0.5 + 0.4, 0.9) for number in range(40))
    segment = SegmentEnd(" ".join(word.text for word in words), 0.0, 19.9, 0.9, words)
    made = list(cues([segment]))
    assert all(end - start <= 7 and len(text) <= 84 for start, end, text in made)
    assert " ".join(text for _, _, text in made) == segment.text
    assert as_srt([segment]).startswith("1\n00:00:00,000 --> 00:00:06,900\nword word")
    assert as_vtt([SegmentEnd("a", 3725.5, 3726.0, 0.9)]) == "WEBVTT\n\n01:02:05.500 --> 01:02:06.000\na\n"


async def test_nobody_waits_for_room_in_a_stream_that_was_given_up() -> None:
    line = Line(cast(Worker, None), lambda _: None, buffer_seconds=0.5, buffer_bytes=1)
    line._channel = cast(Channel, SimpleNamespace(is_over=True, wake=None))
    line.meter.received = 3600.0  # the engine will never get to that
    assert line.is_full
    await asyncio.wait_for(line.room(), 30)
