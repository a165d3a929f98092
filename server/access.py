"""Who may come in: API keys, and which sites' pages."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from server.messages import Error
from server.settings import Settings

KEY_PARAMETER = "api_key"  # in the query, for browsers: they cannot set the headers of a WebSocket


class Access:
    def __init__(self, settings: Settings) -> None:
        self._keys = [key.encode() for key in settings.keys]
        self._origins = settings.origins

    def refusal(self, connection: HTTPConnection) -> tuple[int, Error] | None:
        """The HTTP status and the error for someone who may not come in."""
        origin = connection.headers.get("origin")
        if origin is not None and not self._is_allowed_origin(origin, connection.headers.get("host", "")):
            accepted = "this server's own page, or one of allowed_origins"
            return 403, Error("forbidden_origin", f"origin={origin}: expected {accepted}", "origin", origin, accepted, fatal=True)
        if self._keys and not self._is_known(shown_key(connection)):
            accepted = f"Authorization: Bearer KEY, X-API-Key: KEY, or {KEY_PARAMETER}=KEY in the query"
            return 401, Error("unauthorized", f"no valid API key; expected {accepted}", KEY_PARAMETER, None, accepted, fatal=True)
        return None

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin.rstrip("/") in self._origins:
            return True
        try:
            return urlsplit(origin).netloc == host
        except ValueError:  # a bracket without its other
            return False

    def _is_known(self, key: str) -> bool:
        """Compares with every key, each in constant time: how long it takes tells nothing."""
        shown = key.encode(errors="replace")
        matches = [hmac.compare_digest(shown, known) for known in self._keys]
        return any(matches)


def shown_key(connection: HTTPConnection) -> str:
    scheme, _, credential = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "token"):
        return credential.strip()
    return connection.headers.get("x-api-key") or connection.query_params.get(KEY_PARAMETER, "")
