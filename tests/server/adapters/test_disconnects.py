"""Clients that cannot resume: what they leave behind when they vanish is nobody's."""

from __future__ import annotations

import base64
import json

import pytest

from tests.server.conftest import ServerFactory, noise, pcm
from tests.server.talk import connected
from tests.server.test_limits import eventually

pytestmark = pytest.mark.anyio

AUDIO = pcm(noise(1, seed=1))
APPENDED = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(AUDIO).decode()})


@pytest.mark.parametrize(
    ("path", "audio", "is_kept"),
    [
        ("/v1/stream", AUDIO, True),
        ("/v1/listen?encoding=linear16&sample_rate=16000", AUDIO, False),
        ("/v1/realtime?intent=transcription", APPENDED, False),
        ("/v1/vosk", AUDIO, False),
    ],
)
async def test_a_broken_session_is_kept_only_for_those_who_can_resume(
    start_server: ServerFactory, path: str, audio: str | bytes, is_kept: bool
) -> None:
    server = start_server(resume_seconds=600)
    async with connected(f"ws://127.0.0.1:{server.port}{path}") as client:
        await client.send(audio)
        await eventually(lambda: [live.session.has_begun for live in server.hall._sessions.values()] == [True])
        client.transport.abort()
    await eventually(lambda: [live.attachment for live in server.hall._sessions.values()] == [None] * is_kept)
