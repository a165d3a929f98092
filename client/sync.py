"""The same session for scripts that are not asynchronous: a loop in a thread of its own, and calls that wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, TypeVar

from client.audio import Audio
from client.events import Event
from client.feed import feeding
from client.files import read_audio
from client.formats import Transcript
from client.session import Session, connect

T = TypeVar("T")


class SyncSession:
    """Made by `open`. Like `Session`, without the awaiting."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop

    @property
    def model(self) -> str:
        return self._session.model

    def send(self, audio: Audio) -> None:
        self._wait(self._session.send(audio))

    def flush(self) -> None:
        self._wait(self._session.flush())

    def stop(self) -> None:
        self._wait(self._session.stop())

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            return self._wait(self._session.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return _wait(self._loop, work)


@contextmanager
def open(url: str = "ws://127.0.0.1:8000", **options: Any) -> Iterator[SyncSession]:
    """As `connect`, for scripts that are not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="monoscribe client", daemon=True)
    thread.start()
    try:
        context = connect(url, **options)
        session = _wait(loop, context.__aenter__())
        try:
            yield SyncSession(session, loop)
        finally:
            _wait(loop, context.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def transcribe(path: str | PathLike[str], url: str = "ws://127.0.0.1:8000", **options: Any) -> Transcript:
    """A whole file. `options` are those of `connect`."""
    return asyncio.run(_transcribe(path, url, options))


async def _transcribe(path: str | PathLike[str], url: str, options: dict[str, Any]) -> Transcript:
    with read_audio(path) as audio:
        async with connect(url, **{**options, "sample_rate": audio.rate}) as session:
            transcript = Transcript(model=session.model)
            async with feeding(session, audio.chunks()):
                async for event in session:
                    transcript.hear(event)
    return transcript


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result()
