"""A session without sockets: what to send next, what to make of what comes, where to go on after a connection broke.

Positions are bytes of the whole recording. One recording may need several sessions of the server: each begins at a `base`, and
the server counts from there. Three ways lead to the next connection:

    the connection broke                   resume: the server says which byte comes next, and repeats what was missed
    the server ended the session (drain)   a new session from the byte up to which all has been said
    the server forgot the session (crash)  a new session from the end of the last segment; the texts since then are void
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from client.buffer import AudioBuffer
from client.events import Closed, Complaint, Event, Flushed, Resumed, Segment, ServerError, Status, Text, Word

Frame = str | bytes

LARGEST_FRAME = 32_768  # bytes: about a second, so that other messages need not wait for long
PAUSE = 0.2  # seconds after a segment's end that still belong to it
GONE = ("unknown_session", "resume_gap")  # errors after which only a new session helps
STOP = json.dumps({"type": "stop"})
KEEPALIVE = json.dumps({"type": "keepalive"})


@dataclass(frozen=True)
class Options:
    """What the audio is, and what is wanted of it. See docs/protocol.md for bounds."""

    sample_rate: int = 16_000
    encoding: Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"] = "pcm_s16le"
    channels: int = 1
    interim: bool = True
    words: bool = True
    endpointing: float = 0.8
    beam: int = 1
    status_interval: float = 1.0

    @property
    def frame_bytes(self) -> int:
        return {"pcm_s16le": 2, "pcm_f32le": 4}.get(self.encoding, 1) * self.channels

    @property
    def bytes_per_second(self) -> int:
        return self.frame_bytes * self.sample_rate


@dataclass
class _Flush:
    id: str
    position: int
    sent: bool = False


@dataclass
class _Remote:
    """The server's session, as far as we know it."""

    base: int  # where in the recording it began
    name: str = ""
    seq: int = 0
    cursor: int | None = None  # next byte to send; None until the server is ready
    stop_sent: bool = False
    said: bool = False  # any text since the last segment


class Conversation:
    def __init__(self, options: Options, buffer_seconds: float) -> None:
        self.options = options
        self.model = ""
        self.is_open = False  # a server has taken it
        self.is_over = False  # everything has been said
        self.buffer = AudioBuffer()
        self._bound = int(buffer_seconds * options.bytes_per_second)
        self._remote = _Remote(base=0)
        self._acknowledged = 0  # up to here, the server has the audio
        self._settled = 0  # up to here, segments have been made of it
        self._flushes: deque[_Flush] = deque()
        self._stopping = False
        self._segments = 0
        self._lost = 0  # bytes

    # ------------------------------------------------------------ from the user
    def append(self, audio: bytes) -> None:
        if self._stopping:
            raise ValueError("audio came after stop()")
        self.buffer.append(audio)
        excess = len(self.buffer) - self._bound
        if excess > 0:  # what the server has is needed only if it crashes; what it has not, the user waits with
            self.buffer.forget(min(self.buffer.start + excess, self._acknowledged))

    def flush(self, name: str) -> None:
        self._flushes.append(_Flush(name, self.buffer.end))

    def stop(self) -> None:
        self._stopping = True

    @property
    def has_room(self) -> bool:
        return self.buffer.end - self._acknowledged <= self._bound

    @property
    def next_is_known(self) -> bool:
        """The server is ready on the current connection."""
        return self._remote.cursor is not None

    def unsettled(self) -> bytes:
        """The audio of which no segment has come."""
        return self.buffer.read(self.buffer.start, len(self.buffer))

    # ------------------------------------------------------------ to the server
    def opening(self) -> dict[str, str]:
        """The query of the next connection's address."""
        remote = self._remote
        remote.cursor, remote.stop_sent = None, False
        if remote.name:
            return {"session": remote.name, "seq": str(remote.seq)}
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in vars(self.options).items()}

    def next_frame(self) -> Frame | None:
        """What to send now, if anything."""
        cursor = self._remote.cursor
        if cursor is None or self._remote.stop_sent:
            return None
        flush = next((flush for flush in self._flushes if not flush.sent), None)
        if flush is not None and flush.position <= cursor:
            flush.sent = True
            return json.dumps({"type": "flush", "id": flush.id})
        end = self.buffer.end if flush is None else flush.position
        if cursor < end:
            data = self.buffer.read(cursor, min(LARGEST_FRAME, end - cursor))
            self._remote.cursor = cursor + len(data)
            return data
        if self._stopping:
            self._remote.stop_sent = True
            return STOP
        return None

    # ------------------------------------------------------------ from the server
    def hear(self, frame: str) -> list[Event]:
        """Raises ServerError if the server ends it all. Fields and types that we do not know are for clients newer than us."""
        message: dict[str, Any] = json.loads(frame)
        if not self._remote.name and message.get("type") not in ("ready", "error"):
            return []  # of a session that we have given up
        if "seq" in message:
            if message["seq"] <= self._remote.seq:
                return []
            self._remote.seq = message["seq"]
        hear = getattr(self, f"_hear_{message.get('type')}", None)
        events: list[Event] = hear(message) if hear is not None else []
        return events

    def _hear_ready(self, message: dict[str, Any]) -> list[Event]:
        remote, is_first = self._remote, not self.is_open
        is_new = message["session"] != remote.name
        remote.name, self.model, self.is_open = message["session"], message["model"], True
        remote.cursor = remote.base + message["bytes"]
        self._acknowledged = max(self._acknowledged, remote.cursor)
        for flush in self._flushes:  # one that the server may not have got; if it had, a second one at the same place says nothing
            flush.sent = not is_new and flush.position < remote.cursor
        if is_first:
            return []
        restarted, lost, self._lost = is_new and remote.said, self._lost, 0
        remote.said = remote.said and not is_new
        return [Resumed(restarted, lost / self.options.bytes_per_second)]

    def _hear_text(self, message: dict[str, Any]) -> list[Event]:
        self._remote.said = True
        time, heard = self._shift(message["time"]), self._shift(message.get("heard", message["time"]))
        return [Text(message["text"], time, message["confidence"], heard)]

    def _hear_segment(self, message: dict[str, Any]) -> list[Event]:
        words = tuple(
            Word(word["text"], self._shift(word["start"]), self._shift(word["end"]), word["confidence"])
            for word in message.get("words") or ()
        )
        start, end = self._shift(message["start"]), self._shift(message["end"])
        self._remote.said = False
        self._segments += 1
        self._settle(self._position(end + PAUSE))
        return [Segment(message["text"], start, end, message["confidence"], words)]

    def _hear_flushed(self, message: dict[str, Any]) -> list[Event]:
        for flush in self._flushes:
            if flush.id == message["id"]:
                self._flushes.remove(flush)
                self._settle(flush.position)
                return [Flushed(flush.id)]
        return []

    def _hear_status(self, message: dict[str, Any]) -> list[Event]:
        self._acknowledge(self._remote.base + message["bytes"])
        return [Status(self._shift(message["received"]), self._shift(message["processed"]), message.get("draining", False))]

    def _hear_error(self, message: dict[str, Any]) -> list[Event]:
        if not message.get("fatal"):
            return [Complaint(message["code"], message["message"])]
        self.refused(message["code"], message["message"])
        return []

    def _hear_closed(self, message: dict[str, Any]) -> list[Event]:
        if message["reason"] == "error":  # which the error before it should have said
            raise ServerError("closed", "The server ended the session because of an error.")
        end = self._remote.base + message["bytes"]
        self._acknowledge(end)
        self._settled = end
        self.buffer.forget(end)
        if self._stopping and end >= self.buffer.end:
            self.is_over = True
            late = [Flushed(flush.id) for flush in self._flushes]  # all that was sent has been said: they are, too
            self._flushes.clear()
            return [*late, Closed(self._shift(message["received"]), self._shift(message["processed"]), self._segments)]
        self._remote = _Remote(base=end)
        return []

    # ------------------------------------------------------------ when things break
    def refused(self, code: str, message: str) -> None:
        """A connection was turned away or ended with that error. Returns if another attempt makes sense."""
        if code in GONE and self._remote.name:
            self._restart()
        elif code != "slow_reader":  # that one is resumed
            raise ServerError(code, message)

    def _restart(self) -> None:
        base = max(self._settled, self.buffer.start)
        base += -base % self.options.frame_bytes
        self._lost += base - self._settled
        self._remote = _Remote(base=base, said=self._remote.said)
        self._acknowledged = base  # nobody has heard what comes after

    # ------------------------------------------------------------ positions
    def _acknowledge(self, position: int) -> None:
        self._acknowledged = max(self._acknowledged, min(position, self.buffer.end))

    def _settle(self, position: int) -> None:
        """Audio before `position` will not be needed again, whatever happens."""
        pending = [flush.position for flush in self._flushes]
        self._settled = max(self._settled, min(position, self._acknowledged_or_sent(), *pending))
        self.buffer.forget(min(self._settled, self._acknowledged))

    def _acknowledged_or_sent(self) -> int:
        return max(self._acknowledged, self._remote.cursor or 0)

    def _shift(self, seconds: float) -> float:
        return round(self._remote.base / self.options.bytes_per_second + seconds, 3)

    def _position(self, seconds: float) -> int:
        return round(seconds * self.options.sample_rate) * self.options.frame_bytes
