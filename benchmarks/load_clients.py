"""Paced clients for benchmarks/load.py: each sends a recording in real time and notes how long it waits for what is said of it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection, connect

SAMPLE_RATE = 16_000
BYTES_PER_SAMPLE = 2


@dataclass(frozen=True)
class Load:
    """What a crowd of clients is to do."""

    url: str
    protocol: str  # native or vosk
    streams: int
    seconds: float
    chunk: float  # seconds of audio per message
    warm_up: float  # seconds at the beginning that do not count: all come at once, as no real crowd does
    audio: bytes  # 16-bit samples at SAMPLE_RATE, repeated as long as needed
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    lags: list[float] = field(default_factory=list)  # seconds, of everything said after the warm-up
    times: list[float] = field(default_factory=list)  # of their arrival, in seconds since the beginning
    characters: int = 0
    failures: list[str] = field(default_factory=list)
    late: float = 0.0  # worst delay of the clients themselves: if it is large, they are the bottleneck
    processor: float = 0.0  # seconds that the clients took


class Native:
    """An emission carries the audio time at which it was decided: its lag is the time since that audio was sent."""

    query = f"?encoding=pcm_s16le&sample_rate={SAMPLE_RATE}&status_interval=0"
    greeting: str | None = None
    goodbye = '{"type":"stop"}'

    def lag(self, message: dict[str, Any], sent: list[float], chunk: float, now: float) -> float | None:
        if message["type"] == "error":
            raise ConnectionError(message["message"])
        if message["type"] != "text":
            return None
        place = min(len(sent) - 1, max(0, math.ceil(float(message["time"]) / chunk - 1e-6) - 1))
        return now - sent[place]

    def characters(self, message: dict[str, Any]) -> int:
        return len(message["text"]) if message["type"] == "text" else 0


class Vosk:
    """Exactly one reply per audio message: its lag is the time since that message was sent."""

    query = ""
    greeting = json.dumps({"config": {"sample_rate": SAMPLE_RATE}})
    goodbye = '{"eof" : 1}'

    def __init__(self) -> None:
        self._replies = 0

    def lag(self, message: dict[str, Any], sent: list[float], chunk: float, now: float) -> float | None:
        place, self._replies = self._replies, self._replies + 1
        return now - sent[place] if place < len(sent) else None

    def characters(self, message: dict[str, Any]) -> int:
        return len(message.get("text", ""))


PROTOCOLS: dict[str, type[Native] | type[Vosk]] = {"native": Native, "vosk": Vosk}


def run_clients(load: Load, core: int | None) -> Outcome:
    """In a process of its own, on a core of its own where there is one."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    before = time.process_time()
    outcome = asyncio.run(_run_all(load))
    outcome.processor = time.process_time() - before
    return outcome


async def _run_all(load: Load) -> Outcome:
    outcome = Outcome()
    choose = random.Random(0)
    begin = time.monotonic() + 0.5 + load.streams * 0.01
    clients = (
        _run_one(load, outcome, begin + choose.random() * load.chunk, choose.randrange(1 << 30)) for _ in range(load.streams)
    )
    await asyncio.gather(*clients)
    return outcome


async def _run_one(load: Load, outcome: Outcome, begin: float, place: int) -> None:
    protocol = PROTOCOLS[load.protocol]()
    sent: list[float] = []
    try:
        async with connect(
            load.url + protocol.query,
            proxy=None,
            ping_interval=None,
            compression=None,
            open_timeout=60,
            additional_headers=load.headers,
        ) as socket:
            listening = asyncio.create_task(
                _listen(load, protocol, socket, sent, outcome, (begin + load.warm_up, begin + load.seconds))
            )
            try:
                if protocol.greeting:
                    await socket.send(protocol.greeting)
                await _speak(load, socket, sent, outcome, begin, place)
                await socket.send(protocol.goodbye)
                await asyncio.wait_for(listening, 60)
            finally:
                listening.cancel()
    except (OSError, websockets.WebSocketException, TimeoutError) as problem:
        outcome.failures.append(f"{type(problem).__name__}: {problem}")


async def _speak(load: Load, socket: ClientConnection, sent: list[float], outcome: Outcome, begin: float, place: int) -> None:
    size = round(load.chunk * SAMPLE_RATE) * BYTES_PER_SAMPLE
    start = place % max(1, len(load.audio) // BYTES_PER_SAMPLE) * BYTES_PER_SAMPLE
    twice = load.audio + load.audio[:size]
    for number in range(round(load.seconds / load.chunk)):
        due = begin + (number + 1) * load.chunk  # a chunk can be sent when its last sample has been spoken
        await asyncio.sleep(due - time.monotonic())
        outcome.late = max(outcome.late, time.monotonic() - due)
        offset = (start + number * size) % len(load.audio)
        sent.append(time.monotonic())
        await socket.send(twice[offset : offset + size])


async def _listen(
    load: Load, protocol: Native | Vosk, socket: ClientConnection, sent: list[float], outcome: Outcome, counts: tuple[float, float]
) -> None:
    async for frame in socket:
        now = time.monotonic()
        message = json.loads(frame)
        lag = protocol.lag(message, sent, load.chunk, now)
        outcome.characters += protocol.characters(message)
        if lag is not None and counts[0] <= now < counts[1]:
            outcome.lags.append(lag)
            outcome.times.append(now - counts[0] + load.warm_up)
