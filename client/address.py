"""Where a server is, and what to tell a user who does not reach it."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit, urlunsplit

import websockets

from client.events import ClientError

STREAM_PATH = "/v1/stream"
SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}


def stream_address(url: str) -> str:
    """`localhost:8000`, `https://host/base` or the whole address: all become the address of the stream."""
    try:
        parts = urlsplit(url if "://" in url else f"ws://{url}")
        is_usable = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number
        is_usable = False
    if not is_usable:
        raise ClientError(f"server={url}: expected an address such as 127.0.0.1:8000 or wss://speech.example.org.")
    path = parts.path.rstrip("/")
    if not path.endswith(STREAM_PATH):
        path += STREAM_PATH
    return urlunsplit((SCHEMES[parts.scheme], parts.netloc, path, "", ""))


def is_loopback(address: str) -> bool:
    """Whether a proxy would only be in the way."""
    return urlsplit(address).hostname in ("127.0.0.1", "::1", "localhost")


def explain_refusal(error: Exception, address: str) -> str:
    parts = urlsplit(address)
    server = f"{parts.scheme}://{parts.netloc}"
    if isinstance(error, ConnectionRefusedError):
        return f"Nothing listens at {server}; start a server there with `monoscribe serve`, or name another with --server."
    if isinstance(error, TimeoutError):
        return f"{server} does not answer."
    if isinstance(error, ssl.SSLError):
        return f"No secure connection to {server}: {error.reason or error}."
    if isinstance(error, websockets.InvalidStatus):
        return f"{server} answers with HTTP status {error.response.status_code}: expected a Monoscribe server."
    if isinstance(error, websockets.InvalidHandshake | websockets.InvalidMessage):
        return f"What listens at {server} is no Monoscribe server ({error})."
    return f"{server} cannot be reached: {getattr(error, 'strerror', None) or error}."
