"""The decisions about what to send, in cases that hold for the JavaScript client, too (tests/page/test_modules.py)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.buffer import AudioBuffer
from client.conversation import Conversation, Options
from client.events import ServerError

CASES = json.loads((Path(__file__).parent / "conversations.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    conversation = Conversation(Options(**case.get("options", {})), case.get("buffer_seconds", 600))
    for step in case["steps"]:
        expected = step.get("expect")
        match step["do"]:
            case "opening":
                query = {name: value.removesuffix(".0") for name, value in conversation.opening().items()}
                assert expected is None or query == expected
            case "append":
                conversation.append(bytes(step["bytes"]))
            case "flush":
                conversation.flush(step["id"])
            case "stop":
                conversation.stop()
            case "room":
                assert conversation.has_room == expected
            case "over":
                assert conversation.is_over == expected
            case "frames":
                assert frames(conversation) == expected
            case "hear" if "raises" in step:
                with pytest.raises(ServerError) as caught:
                    conversation.hear(json.dumps(step["message"]))
                assert caught.value.code == step["raises"]
            case "hear":
                events = conversation.hear(json.dumps(step["message"]))
                assert (
                    json.loads(json.dumps([{"type": type(event).__name__.lower(), **asdict(event)} for event in events]))
                    == expected
                )


def frames(conversation: Conversation) -> list[int | str]:
    """All that there is to send: the length of audio, the gist of messages."""
    sent: list[int | str] = []
    while (frame := conversation.next_frame()) is not None:
        if isinstance(frame, bytes):
            sent.append(len(frame))
        else:
            message = json.loads(frame)
            sent.append(" ".join(filter(None, [message["type"], message.get("id", "")])))
    return sent


@given(st.lists(st.one_of(st.binary(max_size=9), st.integers(0, 60)), max_size=30), st.integers(0, 60), st.integers(1, 20))
def test_the_buffer_is_a_window_of_the_whole(actions: list[bytes | int], position: int, most: int) -> None:
    buffer, whole, start = AudioBuffer(), b"", 0
    for action in actions:
        if isinstance(action, bytes):
            buffer.append(action)
            whole += action
        else:
            buffer.forget(min(action, len(whole)))
            start = max(start, min(action, len(whole)))
    assert (buffer.start, buffer.end) == (start, len(whole))
    position = min(max(position, start), len(whole))
    assert buffer.read(position, most) == whole[position : position + most]
