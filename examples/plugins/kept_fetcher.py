"""``-s fetcher=kept:FOLDER``: pages are kept in a folder, and the next crawl reads them from there, without a network."""

import asyncio
import json
from hashlib import sha256
from pathlib import Path

from skitter import Response
from skitter.fetch.contract import FetcherCapabilities
from skitter.fetch.http import HttpFetcher


class KeptFetcher:
    capabilities = FetcherCapabilities(keeps_cookies=True)  # the inner fetcher does

    def __init__(self, context):
        self.folder = Path(context.rest or "kept")
        self.web = HttpFetcher(context.settings, guard=context.guard)

    async def open(self):
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        await self.web.open()

    async def fetch(self, request, *, permit, on_headers=None):
        name = f"{request.method} {request.url}\n".encode() + request.body
        path = self.folder / sha256(name).hexdigest()
        if await asyncio.to_thread(path.exists):
            head, body = (await asyncio.to_thread(path.read_bytes)).split(b"\n", 1)
            return Response(request.url, headers=json.loads(head), body=body, request=request)
        response = await self.web.fetch(
            request, permit=permit
        )  # follows no redirect; any status is a response
        if response.ok:
            head = json.dumps(dict(response.headers)).encode()
            await asyncio.to_thread(path.write_bytes, head + b"\n" + response.body)
        return response

    async def close(self):
        await self.web.close()
