"""Messages to and from JSON, and the words for what is wrong with one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from server.messages import ControlMessage, Error, ProtocolError, Resume, ServerMessage, Start

_control: TypeAdapter[ControlMessage] = TypeAdapter(Annotated[ControlMessage, Field(discriminator="type")])
_server: TypeAdapter[ServerMessage] = TypeAdapter(Annotated[ServerMessage, Field(discriminator="type")])
_of_query: dict[type[Start] | type[Resume], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Start, Resume)}


def parse_control(text: str) -> ControlMessage:
    """The client's message in a text frame."""
    try:
        return _control.validate_json(text)
    except ValidationError as error:
        raise ProtocolError(explain(error)) from error


def parse_query(query: Mapping[str, str]) -> Start | Resume | None:
    """The first message, if the address's query carries it: `?encoding=…&sample_rate=…` or `?session=…&seq=…`."""
    if not query:
        return None
    kind: type[Start] | type[Resume] = Resume if "session" in query else Start
    try:
        message: Start | Resume = _of_query[kind].validate_python(dict(query))
    except ValidationError as error:
        raise ProtocolError(explain(error)) from error
    return message


def to_json(message: ServerMessage | ControlMessage) -> str:
    return json.dumps(_plain(message), separators=(",", ":"))


def parse_server(text: str) -> ServerMessage:
    """A server's message: for tests and tools in Python."""
    return _server.validate_json(text)


@cache
def protocol_schema() -> dict[str, Any]:
    """JSON schema of both directions: `#/$defs/ControlMessage` and `#/$defs/ServerMessage`."""
    template = "#/$defs/{model}"
    defs: dict[str, Any] = {}
    for name, adapter in (("ControlMessage", _control), ("ServerMessage", _server)):
        schema = adapter.json_schema(ref_template=template)
        defs |= schema.pop("$defs")
        defs[name] = schema
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Monoscribe stream protocol", "$defs": defs}


def explain(error: ValidationError) -> Error:
    """What a client needs in order to mend its message: field, value, what is accepted."""
    first = error.errors(include_url=False)[0]
    if first["type"] in ("json_invalid", "string_unicode"):
        accepted = "a JSON object, or audio in a binary frame"
        return Error("bad_message", f"not JSON: expected {accepted}", value=_short(first["input"]), accepted=accepted)
    if first["type"] in ("union_tag_invalid", "union_tag_not_found", "dict_type", "model_attributes_type", "dataclass_type"):
        accepted = "one of start, resume, flush, stop, keepalive"
        value = _short(first["input"].get("type") if isinstance(first["input"], dict) else first["input"])
        return Error("bad_message", f"type={value}: expected {accepted}", "type", value, accepted)
    kinds = {kind.__name__.lower(): kind for kind in get_args(ControlMessage)}
    path = [str(step) for step in first["loc"]]
    kind = kinds[path.pop(0)] if path and path[0] in kinds else kinds[error.title.lower()]
    name, value = path[0], _short(first["input"])
    if first["type"] == "unexpected_keyword_argument":
        known = ", ".join(entry.name for entry in fields(kind) if entry.name != "type")
        accepted = f"one of {known}" if known else "no fields"
        return Error("bad_message", f"{name}: no such field; expected {accepted}", name, value, accepted)
    accepted = accepted_values(kind, name)
    if first["type"] == "missing_argument" or first["type"] == "missing":
        return Error("bad_message", f"{name}: missing; expected {accepted}", name, None, accepted)
    return Error("bad_message", f"{name}={value}: expected {accepted}", name, value, accepted)


def accepted_values(kind: type[Any], name: str) -> str:
    """What a field takes, in words, off the schema."""
    entry = TypeAdapter(kind).json_schema()["properties"].get(name, {})
    if "enum" in entry:
        return f"one of {', '.join(entry['enum'])}"
    if "minimum" in entry:
        whole = "whole number " if entry.get("type") == "integer" else ""
        return f"{whole}{entry['minimum']}..{entry['maximum']}" if "maximum" in entry else f"{whole}from {entry['minimum']}"
    if "maxLength" in entry:
        return f"text of up to {entry['maxLength']} characters"
    return {"boolean": "true or false"}.get(str(entry.get("type")), str(entry.get("type")))


def _short(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _plain(value: Any) -> Any:
    """Dataclasses to dictionaries, without the copies that `asdict` makes; `type` first, for the eye."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    kind = {"type": value.type} if hasattr(value, "type") else {}
    return kind | {name: _plain(item) for name, item in vars(value).items() if name != "type" and item is not None}
