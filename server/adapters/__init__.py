"""Other services' protocols, so that their clients work as they are: docs/clients-of-others.md. The session core does the work."""

from __future__ import annotations

from collections.abc import Callable

from server.adapters import openai_files
from server.adapters.deepgram import Deepgram
from server.adapters.openai_realtime import Realtime
from server.adapters.vosk import Vosk
from server.pump import Dialect

__all__ = ["LIVE", "openai_files"]

LIVE: dict[str, Callable[[], Dialect]] = {  # address of a WebSocket, and what is spoken there
    "/v1/listen": Deepgram,
    "/v1/realtime": Realtime,
    "/v1/vosk": Vosk,
}
