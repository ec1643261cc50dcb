"""Lookup: what nsqlookupd knows of nsqd and their topics, over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import quote

from skitter.brokers.nsq_client.errors import LookupFailed

Address = tuple[str, int]

_LARGEST_ANSWER = 16 << 20


class NsqLookup:
    """One nsqlookupd. Questions are asked in a thread; ``timeout`` in seconds."""

    def __init__(self, host: str, port: int = 4161, *, timeout: float = 5.0) -> None:
        self.host, self.port = host, port
        self._timeout = timeout

    async def producers(self, topic: str) -> list[Address]:
        """Return the nsqd that have a topic; none for a topic that nobody has published to yet.

        Raises :class:`LookupFailed`.
        """
        return _addresses(await self._ask(f"/lookup?topic={quote(topic)}", missing={"producers": []}))

    async def nodes(self) -> list[Address]:
        """Return all nsqd. Raises :class:`LookupFailed`."""
        return _addresses(await self._ask("/nodes"))

    async def _ask(self, path: str, missing: Any = None) -> Any:
        try:
            status, body = await asyncio.to_thread(self._get, path)
            if status == 404 and missing is not None:
                return missing
            if status != 200:
                raise LookupFailed(f"nsqlookupd {self.host}:{self.port} answers {status}")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LookupFailed(f"nsqlookupd {self.host}:{self.port}: {error or 'no answer'}") from error

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self._timeout)
        try:
            connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
            response = connection.getresponse()
            return response.status, response.read(_LARGEST_ANSWER)
        finally:
            connection.close()


def _addresses(answer: Any) -> list[Address]:
    try:
        return [(str(one["broadcast_address"]), int(one["tcp_port"])) for one in answer["producers"]]
    except (TypeError, KeyError, ValueError) as error:
        raise LookupFailed(f"nsqlookupd answers something else: {str(answer)[:80]}") from error
