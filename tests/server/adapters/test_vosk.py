"""vosk-server's example client, written anew: it sends a piece, waits for the reply, and so on."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
import websockets

from model import Recognizer
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.talk import chunks, connected

pytestmark = pytest.mark.anyio


async def ask(url: str, data: bytes, *, config: dict[str, Any] | None = None, end: str = '{"eof" : 1}') -> list[dict[str, Any]]:
    replies = []
    async with connected(url) as server:
        await server.send(json.dumps({"config": config or {"sample_rate": 16000}}))
        for piece in chunks(data, seed=1, smallest=2000, largest=8000):
            await server.send(piece)
            replies.append(json.loads(await server.recv()))
        await server.send(end)
        replies.append(json.loads(await server.recv()))
        if "eof" in end:
            with pytest.raises(websockets.ConnectionClosedOK):
                await server.recv()
    return replies


def texts(replies: list[dict[str, Any]]) -> str:
    return " ".join(reply["text"] for reply in replies if reply.get("text"))


async def test_the_text_is_the_recognisers(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(12, seed=1)
    transcript = recognizer.transcribe(samples)
    replies = await ask(f"ws://127.0.0.1:{server.port}/v1/vosk", pcm(samples))
    assert texts(replies) == transcript.text != ""
    words = [word for reply in replies for word in reply.get("result", [])]
    assert [(word["word"], word["start"], word["end"]) for word in words] == [(w.text, w.start, w.end) for w in transcript.words]
    assert all(("partial" in reply) != ("text" in reply) for reply in replies)


async def test_any_path_at_the_port_of_its_own(start_server: ServerFactory, recognizer: Recognizer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start_server(vosk_port=port)
    samples = noise(3, seed=2)
    for path in ("", "/anything"):
        assert texts(await ask(f"ws://127.0.0.1:{port}{path}", pcm(samples))) == recognizer.transcribe(samples).text


async def test_a_reset_says_what_is_left(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(3, seed=3)
    replies = await ask(f"ws://127.0.0.1:{server.port}/v1/vosk", pcm(samples), end='{"reset" : 1}')
    stream = recognizer.stream()
    events = stream.accept(samples) + stream.flush()
    assert texts(replies) == " ".join(event.text for event in events if hasattr(event, "words"))


async def test_shapes_of_results(server: RunningServer, recognizer: Recognizer) -> None:
    samples, url = noise(3, seed=4), f"ws://127.0.0.1:{server.port}/v1/vosk"
    without_words = await ask(url, pcm(samples), config={"sample_rate": 16000.0, "words": False})
    assert all("result" not in reply for reply in without_words)
    alternatives = await ask(url, pcm(samples), config={"max_alternatives": 3})
    assert (
        " ".join(r["alternatives"][0]["text"] for r in alternatives if "alternatives" in r) == recognizer.transcribe(samples).text
    )


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ('{"config": {"phrase_list": ["one"]}}', 'phrase_list=["one"]: expected config with'),
        ('{"config": {"sample_rate": 44}}', "sample_rate=44: expected whole number 8000..48000"),
        ('{"config": 3}', "config=3: expected config with"),
        ("hello", "message=hello: expected audio"),
        ("{}", "message={}: expected audio"),
    ],
)
async def test_what_is_not_served_is_said(server: RunningServer, message: str, complaint: str) -> None:
    async with connected(f"ws://127.0.0.1:{server.port}/v1/vosk") as client:
        await client.send(message)
        assert json.loads(await client.recv())["error"].startswith(complaint)
        with pytest.raises(websockets.ConnectionClosedError):
            await client.recv()


async def test_the_rate_is_set_before_the_audio(server: RunningServer) -> None:
    async with connected(f"ws://127.0.0.1:{server.port}/v1/vosk") as client:
        await client.send(bytes(320))
        assert json.loads(await client.recv()) == {"partial": ""}
        await client.send('{"config": {"sample_rate": 8000}}')
        assert json.loads(await client.recv())["error"].startswith("sample_rate=8000: expected 16000")
