"""All sessions of one process: who may come in, who may come back, who has to go."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from model import Recognizer
from server.channel import Posts
from server.live import Attachment, Live
from server.messages import Closed, Error, ProtocolError, Resume, ServerMessage
from server.orders import AbandonStream, Draining, End, Failed, Tick
from server.relay import Relay, unknown_session
from server.settings import Settings
from server.worker import ENGINE_FAILED, Step, Worker

TICK = 0.2  # seconds
RETRY_AFTER = 5  # seconds, for clients that find no room

logger = logging.getLogger(__name__)


class FullError(Exception):
    """No room, for now."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.error = Error("at_capacity", f"{why}; try again in {RETRY_AFTER} s", fatal=True)


class Hall:
    """Made and used on the event loop. `start` before, `stop` after."""

    def __init__(
        self,
        settings: Settings,
        recognizer: Recognizer,
        *,
        on_message: Callable[[Live, ServerMessage], None] = lambda live, message: None,
        on_step: Callable[[Step], None] = lambda step: None,
        relay: Relay | None = None,
    ) -> None:
        self.settings = settings
        self.model = recognizer.card.name
        self.is_draining = False
        self.relay = relay
        self.relayed = 0  # connections to sessions of other processes, passed on here
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[str, Live] = {}
        self._reserved = 0
        self._kept: dict[str, tuple[float, Live]] = {}  # over, but a client may still come for their last words
        self.worker = Worker(recognizer.batch(), self._post, self._wake, on_step=on_step, gather=settings.gather_seconds)
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.worker.start()
        self._ticker = asyncio.create_task(self._tick_on(), name="ticker")

    async def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        for live in list(self._sessions.values()):
            live.feed(Failed(ENGINE_FAILED))
        self._kept.clear()
        await asyncio.to_thread(self.worker.stop)

    @property
    def is_healthy(self) -> bool:
        ticking = self._ticker is not None and not self._ticker.done()
        return ticking and self.worker.is_alive and not self._is_stalled()

    @property
    def is_ready(self) -> bool:
        return self.is_healthy and not self.is_draining

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self) -> Live:
        """A new session, which waits for its first message."""
        self._check_room()
        name = (self.relay.prefix if self.relay is not None else "") + secrets.token_urlsafe(16)
        live = Live(name, self.worker, self.settings, self.model, self._heard)
        self._sessions[live.name] = live
        return live

    @contextmanager
    def place(self) -> Iterator[None]:
        """Holds a session's place for whoever will open one: a file on its way in."""
        self._check_room()
        self._reserved += 1
        try:
            yield
        finally:
            self._reserved -= 1

    def resume(self, resume: Resume) -> tuple[Live, Attachment]:
        live = self._sessions.get(resume.session)
        if live is None and resume.session in self._kept:
            live = self._kept[resume.session][1]
        if live is None or not live.session.has_begun:
            raise ProtocolError(unknown_session(resume))
        return live, live.attach(resume)

    def leave(self, live: Live, attachment: Attachment) -> None:
        """A connection broke."""
        live.detach(attachment, time.monotonic())
        if live.session.phase == "new" and live.attachment is None:
            self._sessions.pop(live.name, None)

    def discard(self, live: Live) -> None:
        """For a session that nobody will resume."""
        self._sessions.pop(live.name, None)
        self._kept.pop(live.name, None)
        live.line.obey(AbandonStream())

    async def drain(self, seconds: float) -> None:
        """Takes nobody in, lets the others go on for a while, then finishes them; returns when all has been said and sent."""
        self.is_draining = True
        for live in list(self._sessions.values()):
            live.feed(Draining())
        if await self._is_empty(seconds):
            return
        for live in list(self._sessions.values()):
            live.feed(End("draining"))
        await self._is_empty(self.settings.stall_seconds)

    def _check_room(self) -> None:
        if self.is_draining:
            raise FullError("the server is about to go")
        if not self.worker.is_alive:
            raise FullError("the recogniser is not running")
        if len(self._sessions) + self._reserved >= self.settings.max_sessions and not self._evict():
            raise FullError(f"{self.settings.max_sessions} sessions are open")

    async def _is_empty(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.relayed or any(live.attachment or not live.is_over for live in [*self._sessions.values(), *self._all_kept()]):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(TICK / 2)
        return True

    def _all_kept(self) -> list[Live]:
        return [live for _, live in self._kept.values()]

    def _evict(self) -> bool:
        """Gives the place of the session that has been without a connection for longest to a new one."""
        detached = [live for live in self._sessions.values() if live.detached_at is not None]
        if not detached:
            return False
        self.discard(min(detached, key=lambda live: live.detached_at or 0.0))
        return True

    def _heard(self, live: Live, message: ServerMessage) -> None:
        self._on_message(live, message)
        if isinstance(message, Closed):
            self._sessions.pop(live.name, None)
            if live.session.has_begun:
                self._kept[live.name] = (time.monotonic(), live)
            while len(self._kept) > 2 * self.settings.max_sessions:
                self._kept.pop(next(iter(self._kept)))

    async def _tick_on(self) -> None:
        try:
            while True:
                await asyncio.sleep(TICK)
                self._tick(time.monotonic())
        except Exception:
            logger.exception("the ticker died")
            raise

    def _tick(self, now: float) -> None:
        for name, (since, _) in list(self._kept.items()):
            if now - since > self.settings.resume_seconds:
                del self._kept[name]
        stalled = self._is_stalled()
        for live in list(self._sessions.values()):
            if stalled:
                live.feed(Failed(ENGINE_FAILED))
            elif live.detached_at is None:
                live.feed(Tick(now))
            elif now - live.detached_at > self.settings.resume_seconds:
                self.discard(live)

    def _is_stalled(self) -> bool:
        return self.worker.busy_for() > self.settings.stall_seconds

    # ------------------------------------------------------------ called from the engine's thread
    def _post(self, posts: Posts) -> None:
        self._call([partial(report, what) for report, what in posts])

    def _wake(self, wakes: list[Callable[[], None]]) -> None:
        self._call(wakes)

    def _call(self, functions: Sequence[Callable[[], object]]) -> None:
        try:
            self._loop.call_soon_threadsafe(_call_each, functions)
        except RuntimeError:  # the loop is closed: nobody is left to hear it
            logger.debug("a report came after the end")


def _call_each(functions: Sequence[Callable[[], object]]) -> None:
    for function in functions:
        try:
            function()
        except Exception:  # of one session: the others must have theirs
            logger.exception("a report could not be delivered")
