"""A session at work: the core, its line to the engine, and what it has said. It outlives the connection that carries it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from server.line import Line
from server.messages import Closed, Error, Numbered, ProtocolError, Resume, ServerMessage
from server.orders import Failed, Meter, Order, Report
from server.session import Input, Session
from server.settings import Settings
from server.worker import Worker

TAKEN_OVER = 4001  # close code of a connection whose session was resumed by another
DROPPED = 1008
MOST_UNSENT = 10_000  # messages: far beyond any burst; that a client does not read shows earlier, in its socket


class Attachment:
    """What a session says, on its way to one connection. Bounded: whoever does not read loses the connection."""

    def __init__(self, bound: int) -> None:
        self.close_code: int | None = None  # set when nothing more will come
        self._bound = bound
        self._messages: deque[ServerMessage] = deque()
        self._changed = asyncio.Event()

    def put(self, message: ServerMessage) -> None:
        if self.close_code is not None:
            return
        if len(self._messages) >= self._bound:
            self._messages.clear()
            self._messages.append(Error("slow_reader", f"{self._bound} messages unread: dropped; resume to get them", fatal=True))
            self.end(DROPPED)
            return
        self._messages.append(message)
        self._changed.set()

    def end(self, code: int) -> None:
        if self.close_code is None:
            self.close_code = code
            self._changed.set()

    async def take(self) -> list[ServerMessage]:
        """What there is to send; nothing means that it is over."""
        while not self._messages and self.close_code is None:
            self._changed.clear()
            await self._changed.wait()
        messages = list(self._messages)
        self._messages.clear()
        return messages


class Live:
    def __init__(
        self, name: str, worker: Worker, settings: Settings, model: str, on_message: Callable[[Live, ServerMessage], None]
    ):
        self.line = Line(worker, self.feed, buffer_seconds=settings.buffer_seconds, buffer_bytes=4 * settings.max_message_bytes)
        self.session = Session(name, settings.session_limits, self.line.meter, model)
        self.attachment: Attachment | None = None
        self.detached_at: float | None = None
        self._on_message = on_message
        self._journal: deque[tuple[int, Numbered]] = deque(maxlen=settings.journal_messages)

    @property
    def name(self) -> str:
        return self.session.name

    @property
    def is_over(self) -> bool:
        return self.session.phase == "over"

    @property
    def meter(self) -> Meter:
        return self.line.meter

    def feed(self, message: Input | Report) -> None:
        for output in self.session.feed(message):
            if isinstance(output, Order):
                self._order(output)
            else:
                self._tell(output)

    def attach(self, resume: Resume | None = None) -> Attachment:
        """A new connection takes the session; a former one loses it. With `resume`, all that the client has not got comes again."""
        missed = self._missed(resume) if resume is not None else []
        if self.attachment is not None:
            self.attachment.end(TAKEN_OVER)
        self.attachment, self.detached_at = Attachment(MOST_UNSENT), None
        if resume is not None:
            self.attachment.put(self.session.ready(resumed=True))
        for message in missed:
            self.attachment.put(message)
        if self.is_over:
            self.attachment.end(self.session.close_code)
        return self.attachment

    def detach(self, attachment: Attachment, now: float) -> None:
        """The connection is gone. Does nothing if another has taken the session meanwhile."""
        if self.attachment is attachment:
            self.attachment, self.detached_at = None, now

    def _missed(self, resume: Resume) -> list[Numbered]:
        last, first = self.session.seq, self._journal[0][0] if self._journal else self.session.seq + 1
        if resume.seq > last:
            accepted = f"whole number up to {last}"
            raise ProtocolError(
                Error("bad_message", f"seq={resume.seq}: expected {accepted}", "seq", str(resume.seq), accepted, fatal=True)
            )
        if resume.seq + 1 < first:
            accepted = f"whole number from {first - 1}"
            message = f"seq={resume.seq}: what came after it is no longer kept; expected {accepted}"
            raise ProtocolError(Error("resume_gap", message, "seq", str(resume.seq), accepted, fatal=True))
        return [message for seq, message in self._journal if seq > resume.seq]

    def _order(self, order: Order) -> None:
        try:
            self.line.obey(order)
        except ProtocolError as problem:
            self.feed(Failed(problem.error))

    def _tell(self, message: ServerMessage) -> None:
        if isinstance(message, Numbered) and message.seq is not None:
            self._journal.append((message.seq, message))
        if self.attachment is not None:
            self.attachment.put(message)
        self._on_message(self, message)
        if isinstance(message, Closed) and self.attachment is not None:
            self.attachment.end(self.session.close_code)
