"""What a browser is given stands on its own: no page, style or script of ours names another server."""

from __future__ import annotations

import re

import httpx
import pytest

from server.app import PAGE
from tests.server.conftest import RunningServer

pytestmark = pytest.mark.anyio

NAMES_ONLY = ("http://www.w3.org/2000/svg",)  # of namespaces, which nobody fetches


async def test_no_page_asks_anything_of_others(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        paths = ["/", "/docs", *(f"/{file.relative_to(PAGE)}" for file in PAGE.rglob("*") if file.is_file())]
        assert len(paths) > 10
        for path in paths:
            answer = await client.get(path)
            assert answer.status_code == 200, path
            found = re.findall(r"""(?:https?:|wss?:|["'(])//[\w.-]+[^\s"'`)>]*""", answer.text)
            assert [address for address in found if address not in NAMES_ONLY] == [], path
        assert (await client.get("/redoc")).status_code == 404
