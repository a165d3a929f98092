"""Messages against their own schema, and errors that say how to mend them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.codec import parse_control, parse_query, parse_server, protocol_schema, to_json
from server.messages import (
    Closed,
    ControlMessage,
    Error,
    Flush,
    Flushed,
    Keepalive,
    ProtocolError,
    Ready,
    Resume,
    SegmentEnd,
    ServerMessage,
    Start,
    Status,
    Stop,
    Text,
    WordTime,
)

CONTROL: list[ControlMessage] = [
    Start(),
    Start(encoding="ogg", beam=4),
    Resume("name", 3),
    Flush("a"),
    Flush(),
    Stop(),
    Keepalive(),
]
SERVER: list[ServerMessage] = [
    Ready("name", Start(), "model", True, 7, 30.0),
    Text("é", 1.25, 0.5, 1.21, 1),
    SegmentEnd("a b", 0.1, 0.9, 0.5, (WordTime("a", 0.1, 0.2, 0.5), WordTime("b", 0.3, 0.9, 0.5)), 2),
    SegmentEnd("a b", 0.1, 0.9, 0.5, None, 2),
    Flushed("a", 3),
    Status(1.0, 0.5, 32_000),
    Error("bad_message", "x=1: expected 2", "x", "1", "2"),
    Closed("stopped", 1.0, 1.0, 32_000, 1, 3, 4),
]


def validate(name: str, message: object) -> None:
    schema = protocol_schema() | {"$ref": f"#/$defs/{name}"}
    jsonschema.validate(message, schema)


@pytest.mark.parametrize("message", CONTROL)
def test_control_messages_keep_to_the_schema_and_come_back(message: ControlMessage) -> None:
    validate("ControlMessage", json.loads(to_json(message)))
    assert parse_control(to_json(message)) == message


@pytest.mark.parametrize("message", SERVER)
def test_server_messages_keep_to_the_schema_and_come_back(message: ServerMessage) -> None:
    validate("ServerMessage", json.loads(to_json(message)))
    assert parse_server(to_json(message)) == message


def test_schema_refuses_what_the_parser_refuses() -> None:
    for wrong in ({"type": "start", "sample_rate": 44}, {"type": "nonsense"}, {"type": "stop", "now": True}):
        with pytest.raises(jsonschema.ValidationError):
            validate("ControlMessage", wrong)
        with pytest.raises(ProtocolError):
            parse_control(json.dumps(wrong))


def test_the_documentation_names_every_message_and_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    words = set(re.findall(r"\w+", page))
    for name, entry in protocol_schema()["$defs"].items():
        for field, value in entry.get("properties", {}).items():
            assert field in words, f"docs/protocol.md says nothing of {name}.{field}"
            for choice in value.get("enum", []):
                assert choice in words, f"docs/protocol.md says nothing of {name}.{field}={choice}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type":"start","sample_rate":44}', "sample_rate=44: expected whole number 8000..48000"),
        ('{"type":"start","words":"perhaps"}', "words=perhaps: expected true or false"),
        ('{"type":"start","endpointing":"NaN"}', "endpointing=NaN: expected 0.1..10"),
        ('{"type":"start","speed":2}', "speed: no such field; expected one of encoding, sample_rate"),
        ('{"type":"stop","now":true}', "now: no such field; expected no fields"),
        ('{"type":"resume"}', "session: missing; expected text of up to 100 characters"),
        ('{"type":"dance"}', "type=dance: expected one of start, resume, flush, stop, keepalive"),
        ("[1]", "type=[1]: expected one of start"),
        ("hello", "not JSON: expected a JSON object, or audio in a binary frame"),
        ('"\ud800"', "not JSON"),
    ],
)
def test_an_error_names_field_value_and_what_is_accepted(text: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(message)) as caught:
        parse_control(text)
    assert caught.value.error.code == "bad_message"
    to_json(caught.value.error).encode()


def test_encoding_lists_what_there_is() -> None:
    with pytest.raises(ProtocolError, match=r"encoding=opus: expected one of pcm_s16le, pcm_f32le, mulaw, alaw, webm, ogg"):
        parse_query({"encoding": "opus"})


def test_query() -> None:
    assert parse_query({}) is None
    assert parse_query({"encoding": "mulaw", "interim": "false"}) == Start(encoding="mulaw", interim=False)
    assert parse_query({"session": "name", "seq": "7"}) == Resume("name", 7)
    with pytest.raises(ProtocolError, match=r"seq=-1: expected whole number from 0"):
        parse_query({"session": "name", "seq": "-1"})


@given(
    st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.dictionaries(st.text(), x)).map(str)
)
def test_any_text_is_a_message_or_a_protocol_error(text: str) -> None:
    try:
        parse_control(text)
    except ProtocolError as problem:
        to_json(problem.error).encode()


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["start", "resume", "flush", "stop", "keepalive", "x"])},
        optional={
            name: st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200) | st.lists(st.integers())
            for name in ("sample_rate", "encoding", "session", "seq", "id", "words", "beam", "other")
        },
    )
)
def test_any_object_is_a_message_or_a_protocol_error(value: dict[str, object]) -> None:
    try:
        message = parse_control(json.dumps(value))
    except ProtocolError as problem:
        to_json(problem.error).encode()
    else:
        assert parse_control(to_json(message)) == message
