"""Talks to a Monoscribe server.

async with client.connect("ws://127.0.0.1:8000") as session:
    await session.send(audio)
    await session.stop()
    async for event in session:
        ...

Scripts that are not asynchronous use `client.open` in the same way, or `client.transcribe` for a whole file.
"""

from client.conversation import Options
from client.events import (
    AudioError,
    ClientError,
    Closed,
    Complaint,
    ConnectionFailedError,
    Event,
    Flushed,
    Interrupted,
    Resumed,
    Segment,
    ServerError,
    Status,
    Text,
    Word,
)
from client.formats import FORMATS, Transcript
from client.session import Session, connect
from client.sync import SyncSession, open, transcribe

__all__ = [
    "FORMATS",
    "AudioError",
    "ClientError",
    "Closed",
    "Complaint",
    "ConnectionFailedError",
    "Event",
    "Flushed",
    "Interrupted",
    "Options",
    "Resumed",
    "Segment",
    "ServerError",
    "Session",
    "Status",
    "SyncSession",
    "Text",
    "Transcript",
    "Word",
    "connect",
    "open",
    "transcribe",
]
