"""Ends transfers in which no data moves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pycurl

from skitter.fetch.contract import TimedOut

_MIN_CHECKS = 4
_MAX_INTERVAL = 5.0


class StallWatch:
    """Checks all running transfers periodically, so that the read time-out costs a request nothing.

    A transfer is ended when several checks in a row find that no byte has moved in either direction. Counting checks
    instead of seconds keeps a busy event loop from ending transfers whose data has arrived but was not read yet.
    """

    def __init__(self, running: Mapping[pycurl.Curl, asyncio.Future[float]], limit: float) -> None:
        """``limit``: seconds without a byte."""
        self._running = running
        self._limit = limit
        self._interval = min(limit / _MIN_CHECKS, _MAX_INTERVAL)
        self._checks = max(_MIN_CHECKS, round(limit / self._interval))
        self._timer: asyncio.TimerHandle | None = None
        self._seen: dict[asyncio.Future[float], tuple[int, int]] = {}
        """Bytes that each transfer had moved at the last check, and the number of checks before it without a change."""

    def start(self) -> None:
        """Check from now on until no transfer runs."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        seen, self._seen = self._seen, {}
        for curl, future in list(self._running.items()):
            moved = _moved_bytes(curl)
            before, checks = seen.get(future, (None, 0))
            checks = checks + 1 if moved is not None and moved == before else 0
            if moved is not None:
                self._seen[future] = moved, checks
            if checks >= self._checks and not future.done():
                future.set_exception(
                    TimedOut(
                        f"no data for {self._limit:g} s",
                        remedy="raise read_timeout if the server is slow",
                        field="read_timeout",
                    )
                )
        if self._running:
            self.start()


def _moved_bytes(curl: pycurl.Curl) -> int | None:
    """Return the bytes that a transfer has sent and received; ``None`` before it is connected, which has its own time-out."""
    getinfo = curl.getinfo
    if getinfo(pycurl.PRETRANSFER_TIME) == 0:
        return None
    moved = getinfo(pycurl.SIZE_DOWNLOAD_T) + getinfo(pycurl.SIZE_UPLOAD_T) + getinfo(pycurl.HEADER_SIZE)
    return int(moved)
