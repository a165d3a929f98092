"""What all adapters say about parameters of others: a value that we do not serve is named, together with those that we do."""

from __future__ import annotations

import json
from typing import Any

from server.messages import Error, ProtocolError

LANGUAGES = "en, en-US and other kinds of English"


def refused(name: str, value: object, accepted: str) -> ProtocolError:
    shown = value if isinstance(value, str) else json.dumps(value, default=str)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return ProtocolError(Error("bad_message", f"{name}={shown}: expected {accepted}", name, shown, accepted))


def check_language(name: str, value: object) -> None:
    """Another language would be heard as English: nonsense, and nobody would know why."""
    if value in (None, ""):
        return
    if not isinstance(value, str) or value.lower().replace("_", "-").partition("-")[0] not in ("en", "english"):
        raise refused(name, value, LANGUAGES)


def read_object(text: str | bytes, accepted: str) -> dict[str, Any]:
    """A message that has to be a JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise refused("message", text if isinstance(text, str) else "(binary)", accepted)
    return found


def read_number(name: str, value: object, least: int, most: int) -> int:
    """A whole number, as JSON or as text."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise refused(name, value, f"whole number {least}..{most}")
    return number
