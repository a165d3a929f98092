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

IN_MEMORY = 1 << 20  # bytes, before an upload goes to a temporary file
MOST_FIELDS = 50


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
    body = _bounded(request, settings.max_upload_bytes)
    try:
        with hall.place():
            async with asyncio.timeout(settings.upload_seconds):
                is_form = request.headers.get("content-type", "").startswith("multipart/form-data")
                upload = await (_from_form(request, body) if is_form else _from_body(body))
    except TimeoutError:
        raise ProtocolError(Error("too_slow", f"file: not here in {settings.upload_seconds} s", "file")) from None
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


async def _bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    received = 0
    async for data in request.stream():
        received += len(data)
        if received > limit:
            accepted = f"up to {limit} bytes"
            raise ProtocolError(Error("too_large", f"file: too large; expected {accepted}", "file", None, accepted))
        yield data
