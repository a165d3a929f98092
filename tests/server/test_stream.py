"""The native protocol over real sockets: whatever the chunking, over the wire comes what the recogniser says offline."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from model import Recognizer, StreamOptions
from server.containers import decode_file
from server.messages import ControlMessage, Flush, Flushed, Keepalive, Ready, Start, Status, Stop
from tests.conftest import SHARED_SPEECH
from tests.server.conftest import RunningServer, noise, pcm
from tests.server.talk import assert_same, chunks, converse

pytestmark = pytest.mark.anyio


async def test_text_equals_the_offline_text(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(6, seed=1)
    heard = await converse(server.stream_url, [*chunks(pcm(samples), seed=1), Stop()])
    assert_same(heard, recognizer.transcribe(samples))
    assert heard.code == 1000
    assert isinstance(heard.messages[0], Ready)
    assert heard.closed.reason == "stopped"
    assert heard.closed.received == heard.closed.processed == 6.0
    assert heard.closed.bytes == 2 * len(samples)


@pytest.mark.parametrize("size", [1, 333, 100_000])
async def test_chunking_does_not_matter(server: RunningServer, recognizer: Recognizer, size: int) -> None:
    samples = noise(2, seed=2) if size == 1 else noise(8, seed=2)
    data = pcm(samples)[: 4000 if size == 1 else None]
    samples = samples[: len(data) // 2]
    heard = await converse(server.stream_url, [*(data[i : i + size] for i in range(0, len(data), size)), Stop()])
    if size > 1:
        assert_same(heard, recognizer.transcribe(samples))
    assert heard.text == recognizer.transcribe(samples).text


async def test_fifty_streams_at_once(server: RunningServer, recognizer: Recognizer) -> None:
    recordings = [noise(1.5 + seed % 5, seed) for seed in range(50)]
    conversations = [converse(server.stream_url, [*chunks(pcm(audio), seed), Stop()]) for seed, audio in enumerate(recordings)]
    for heard, audio in zip(await asyncio.gather(*conversations), recordings, strict=True):
        assert_same(heard, recognizer.transcribe(audio))


async def test_start_by_query_and_by_message_say_the_same(server: RunningServer) -> None:
    by_query = await converse(server.stream_url + "?sample_rate=8000&words=false&interim=false", [Stop()])
    by_message = await converse(server.stream_url, [Start(sample_rate=8000, words=False, interim=False), Stop()])
    accepted = [heard.messages[0].accepted for heard in (by_query, by_message) if isinstance(heard.messages[0], Ready)]
    assert accepted == [Start(sample_rate=8000, words=False, interim=False)] * 2


async def test_an_acknowledged_flush_comes_after_everything_before_it(server: RunningServer, recognizer: Recognizer) -> None:
    first, second = noise(2.2, seed=3), noise(3.1, seed=4)
    items: list[bytes | ControlMessage] = [
        *chunks(pcm(first), 3),
        Flush("one"),
        *chunks(pcm(second), 4),
        Flush("two"),
        Flush("three"),
        Stop(),
    ]
    heard = await converse(server.stream_url, items)
    stream = recognizer.stream()
    expected = [stream.accept(first) + stream.flush(), stream.accept(second) + stream.flush()]
    at = [index for index, message in enumerate(heard.messages) if isinstance(message, Flushed)]
    assert [message.id for message in heard.of(Flushed) if isinstance(message, Flushed)] == ["one", "two", "three"]
    numbered = [message for message in heard.messages[: at[0]] if not isinstance(message, Ready | Status)]
    assert len(numbered) == len(expected[0])
    assert heard.characters.replace(" ", "") == "".join(
        event.text for part in expected for event in part if type(event).__name__ == "Segment"
    ).replace(" ", "")


async def test_keepalive_is_answered_with_the_lag(server: RunningServer) -> None:
    heard = await converse(server.stream_url, [pcm(noise(1, seed=1)), Keepalive(), Stop()])
    status = heard.of(Status)[0]
    assert isinstance(status, Status)
    assert status.bytes == 32_000
    assert 0 <= status.processed <= status.received == 1.0


async def test_a_beam_says_what_it_says_offline(server: RunningServer, recognizer: Recognizer) -> None:
    samples = noise(3, seed=5)
    heard = await converse(server.stream_url + "?beam=3", [*chunks(pcm(samples), 5), Stop()])
    assert_same(heard, recognizer.transcribe(samples, StreamOptions(beam=3)))


async def test_real_speech_as_browsers_send_it(server: RunningServer, recognizer: Recognizer) -> None:
    recordings = sorted((SHARED_SPEECH / "dev").glob("*.opus"))[:4]
    if not recordings:
        pytest.skip("no recordings here")
    for number, path in enumerate(recordings):
        data = path.read_bytes()
        samples = np.concatenate(list(decode_file(io.BytesIO(data), "ogg")))
        heard = await converse(server.stream_url + "?encoding=ogg", [*chunks(data, number, largest=2000), Stop()])
        assert_same(heard, recognizer.transcribe(samples))


async def test_the_documented_client_works(server: RunningServer, recognizer: Recognizer, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    samples = noise(3, seed=6)
    (tmp_path / "speech.raw").write_bytes(pcm(samples))
    code = code.replace("ws://127.0.0.1:8000", f"ws://127.0.0.1:{server.port}")
    script = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    said, _ = await script.communicate()
    assert said.decode() == "".join(segment.text for segment in recognizer.transcribe(samples).segments)
