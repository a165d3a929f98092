"""Health, metrics, keys, origins, logs."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

import httpx
import pytest
import websockets

from model import Event, Recognizer
from server.logs import LineFormatter
from server.messages import Error, Stop
from tests.server.conftest import RunningServer, ServerFactory, noise, pcm
from tests.server.talk import assert_same, chunks, converse

pytestmark = pytest.mark.anyio


async def get(server: RunningServer, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        return await client.get(path, headers=headers)


async def value(server: RunningServer, name: str) -> float:
    page = (await get(server, "/metrics")).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_health_and_metrics(start_server: ServerFactory) -> None:
    server = start_server()
    assert (await get(server, "/healthz")).status_code == 200
    assert (await get(server, "/readyz")).status_code == 200
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        assert (await client.head("/healthz")).status_code == (await client.head("/readyz")).status_code == 200
    heard = await converse(server.stream_url, [*chunks(pcm(noise(4, seed=1)), 1), Stop()])
    await converse(server.stream_url + "?beam=17", [])
    assert await value(server, 'monoscribe_sessions_closed_total{reason="stopped"}') == 1
    assert await value(server, 'monoscribe_errors_total{code="bad_message"}') == 1
    assert 4 <= await value(server, "monoscribe_audio_seconds_total") < 5
    assert await value(server, "monoscribe_characters_total") == heard.closed.characters > 0
    assert await value(server, "monoscribe_emission_lag_seconds_count") > 0
    assert await value(server, "monoscribe_step_seconds_count") > 0
    assert await value(server, "monoscribe_batch_streams_count") > 0
    assert await value(server, "monoscribe_busy_seconds_total") > 0
    assert await value(server, "monoscribe_sessions") == 0


async def test_a_dead_engine_takes_health_and_readiness_down(start_server: ServerFactory) -> None:
    server = start_server()
    server.hall.worker.stop()
    assert (await get(server, "/healthz")).status_code == 503
    assert (await get(server, "/readyz")).status_code == 503
    with pytest.raises(websockets.InvalidStatus):
        await converse(server.stream_url, [Stop()])


async def test_a_stalled_engine_fails_its_sessions_instead_of_letting_them_hang(start_server: ServerFactory) -> None:
    server = start_server(stall_seconds=0.3)
    release = threading.Event()

    def stall(streams: Iterable[int] | None = None) -> dict[int, list[Event]]:
        release.wait(60)
        return {}

    server.hall.worker._engine.step = stall  # type: ignore[method-assign]
    heard = await converse(server.stream_url, [pcm(noise(1, seed=1))])
    assert heard.code == 1011
    assert [message.code for message in heard.messages if isinstance(message, Error)] == ["engine_failed"]
    assert (await get(server, "/healthz")).status_code == 503
    release.set()


async def test_keys(start_server: ServerFactory, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server(api_keys="right,other")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "righ"}, {"X-API-Key": "röght"}):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await converse(server.stream_url, [Stop()], additional_headers=headers)
        assert refused.value.response.status_code == 401
    for headers in ({"Authorization": "Bearer right"}, {"Authorization": "Token other"}, {"X-API-Key": "right"}):
        assert (await converse(server.stream_url, [Stop()], additional_headers=headers)).code == 1000
    assert (await converse(server.stream_url + "?api_key=right", [Stop()])).code == 1000
    assert (await get(server, "/v1/models")).status_code == 401
    assert (await get(server, "/v1/models", authorization="Bearer right")).status_code == 200
    assert (await get(server, "/readyz")).status_code == 200
    page = await converse(server.stream_url, [Stop()], origin=server.url)
    assert page.code == 1008
    assert [message.code for message in page.messages if isinstance(message, Error)] == ["unauthorized"]
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []  # of ours, that is no error


async def test_origins(start_server: ServerFactory) -> None:
    server = start_server(allowed_origins="https://friend.example")
    for origin in (server.url, "https://friend.example"):
        assert (await converse(server.stream_url, [Stop()], origin=origin)).code == 1000
    strangers = ("https://stranger.example", "null", "http://[", server.url + ".example", f"http://x@127.0.0.1:{server.port}")
    for origin in strangers:
        heard = await converse(server.stream_url, [Stop()], origin=origin)
        assert heard.code == 1008
        assert [message.code for message in heard.messages if isinstance(message, Error)] == ["forbidden_origin"]
    assert (await get(server, "/v1/models", origin="https://stranger.example")).status_code == 403
    answer = await get(server, "/v1/models", origin="https://friend.example")
    assert answer.headers["access-control-allow-origin"] == "https://friend.example"


@pytest.mark.parametrize("with_text", [True, False])
async def test_logs_tell_of_sessions_but_not_what_was_said(
    start_server: ServerFactory, caplog: pytest.LogCaptureFixture, with_text: bool
) -> None:
    server = start_server(log_text=with_text, api_keys="secret")
    with caplog.at_level(logging.DEBUG):
        heard = await converse(server.stream_url + "?api_key=secret", [pcm(noise(3, seed=1)), Stop()])
    formatter = LineFormatter(as_json=True)
    lines = [formatter.format(record) for record in caplog.records if not record.name.startswith(("websockets", "asyncio"))]
    told = [json.loads(line) for line in lines]
    assert {"session opened", "session closed"} <= {line["message"] for line in told}
    assert any(heard.text[:5] in line for line in lines) == with_text
    session = heard.messages[0].session  # type: ignore[union-attr]
    assert not any(session in line or "secret" in line for line in lines)
    assert any(line.get("session") == session[:8] for line in told)
    plain = LineFormatter(as_json=False).format(caplog.records[0])
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", plain)


def test_nobody_can_forge_a_line_of_the_log() -> None:
    record = logging.makeLogRecord({"msg": "session error", "field": "x\n2026-01-31T12:00:00.000Z INFO all is well", "code": "é"})
    for as_json in (True, False):
        assert len(LineFormatter(as_json=as_json).format(record).splitlines()) == 1
    assert "code=é" in LineFormatter(as_json=False).format(record)


async def test_tls(start_server: ServerFactory, recognizer: Recognizer, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    try:
        await asyncio.to_thread(
            subprocess.run,
            [*make, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("needs openssl")
    server = start_server(tls_certificate=str(certificate), tls_key=str(key))
    samples = noise(2, seed=1)
    trust = ssl.create_default_context(cafile=str(certificate))
    heard = await converse(server.stream_url.replace("ws:", "wss:"), [pcm(samples), Stop()], ssl=trust)
    assert_same(heard, recognizer.transcribe(samples))
