"""Asks nsqlookupd over HTTP for the nsqd and their topics."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import quote

from skitter.brokers.nsq_client.protocol import LookupFailed

NsqdAddress = tuple[str, int]
"""Host and port."""

_MAX_RESPONSE_SIZE = 16 << 20


class NsqLookup:
    """One nsqlookupd. Requests run in a thread. ``timeout``: seconds."""

    def __init__(self, host: str, port: int = 4161, *, timeout: float = 5.0) -> None:
        self.host, self.port = host, port
        self._timeout = timeout

    async def producers(self, topic: str) -> list[NsqdAddress]:
        """Return the nsqd that have a topic. The list is empty for an unused topic. Raises :class:`LookupFailed`."""
        return _addresses(await self._request(f"/lookup?topic={quote(topic)}", missing={"producers": []}))

    async def nodes(self) -> list[NsqdAddress]:
        """Return all nsqd. Raises :class:`LookupFailed`."""
        return _addresses(await self._request("/nodes"))

    async def _request(self, path: str, missing: Any = None) -> Any:
        try:
            status, body = await asyncio.to_thread(self._get, path)
            if status == 404 and missing is not None:
                return missing
            if status != 200:
                raise LookupFailed(f"nsqlookupd {self.host}:{self.port} responded with status {status}")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LookupFailed(f"nsqlookupd {self.host}:{self.port}: {error or 'no response'}") from error

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self._timeout)
        try:
            connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
            response = connection.getresponse()
            return response.status, response.read(_MAX_RESPONSE_SIZE)
        finally:
            connection.close()


def _addresses(response: Any) -> list[NsqdAddress]:
    try:
        return [(str(node["broadcast_address"]), int(node["tcp_port"])) for node in response["producers"]]
    except (TypeError, KeyError, ValueError) as error:
        raise LookupFailed(f"invalid response of nsqlookupd: {str(response)[:80]}") from error
