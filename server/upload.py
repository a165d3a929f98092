"""A file that a client uploads: as a form with a field `file`, or as the body itself."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from server.hall import Hall
from server.messages import Error, ProtocolError
from server.settings import Settings

IN_MEMORY = 1 << 20  # bytes, before an upload goes to a temporary file
MOST_FIELDS = 50
LEAST_RATE = 1000  # bytes per second: the thriftiest codec of a live recording; who is slower only holds a place


@dataclass(frozen=True)
class Upload:
    file: IO[bytes]
    fields: FormData  # empty, if the body was the file


@asynccontextmanager
async def receive_upload(request: Request, hall: Hall) -> AsyncIterator[Upload]:
    """Raises FullError if there is no room, ProtocolError if there is no file, or too large a one, or it comes too slowly.

    The file is gone afterwards.
    """
    settings = hall.settings
    try:
        with hall.place():
            async with asyncio.timeout(None) as patience:
                body = _bounded(request, settings, patience)
                is_form = request.headers.get("content-type", "").startswith("multipart/form-data")
                upload = await (_from_form(request, body) if is_form else _from_body(body))
    except TimeoutError:
        accepted = f"{LEAST_RATE} bytes per second, all within {settings.upload_seconds:g} s"
        raise ProtocolError(Error("too_slow", f"file: comes too slowly; expected {accepted}", "file", None, accepted)) from None
    except MultiPartException as problem:
        raise ProtocolError(Error("bad_message", f"the form cannot be read: {problem.message}", "file")) from problem
    try:
        yield upload
    finally:
        upload.file.close()
        await upload.fields.close()


async def _from_form(request: Request, body: AsyncGenerator[bytes, None]) -> Upload:
    fields = await MultiPartParser(request.headers, body, max_files=1, max_fields=MOST_FIELDS).parse()
    file = fields.get("file")
    if not isinstance(file, UploadFile):
        await fields.close()
        raise ProtocolError(Error("bad_message", "file: missing; expected a file in the form", "file", None, "a file in the form"))
    return Upload(file.file, fields)


async def _from_body(body: AsyncGenerator[bytes, None]) -> Upload:
    file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 (receive_upload closes it)
    try:
        async for data in body:
            file.write(data)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return Upload(file, FormData())


async def _bounded(request: Request, settings: Settings, patience: asyncio.Timeout) -> AsyncGenerator[bytes, None]:
    """The body, as long as it is neither too large nor too slow."""
    limit, received = settings.max_upload_bytes, 0
    began = asyncio.get_running_loop().time()
    patience.reschedule(began + min(settings.request_seconds, settings.upload_seconds))
    async for data in request.stream():
        received += len(data)
        if received > limit:
            accepted = f"up to {limit} bytes"
            raise ProtocolError(Error("too_large", f"file: too large; expected {accepted}", "file", None, accepted))
        patience.reschedule(began + min(settings.request_seconds + received / LEAST_RATE, settings.upload_seconds))
        yield data
