"""Ends transfers in which no data moves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pycurl

from skitter.fetch.contract import TimedOut
from skitter.fetch.transfer import Transfer

_MIN_CHECKS = 4
_MAX_INTERVAL = 5.0


class StallWatch:
    """Checks all running transfers periodically, so that the read time-out costs a request nothing.

    A transfer is ended when several checks in a row find that no byte has moved in either direction. Counting checks
    instead of seconds keeps a busy event loop from ending transfers whose data has arrived but was not read yet.
    """

    def __init__(self, running: Mapping[Transfer, asyncio.Future[float]], limit: float) -> None:
        """``limit``: seconds without a byte."""
        self._running = running
        self._limit = limit
        self._interval = min(limit / _MIN_CHECKS, _MAX_INTERVAL)
        self._checks = max(_MIN_CHECKS, round(limit / self._interval))
        self._timer: asyncio.TimerHandle | None = None

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
        for transfer, future in list(self._running.items()):
            if self._stalled(transfer) and not future.done():
                future.set_exception(
                    TimedOut(
                        f"no data for {self._limit:g} s",
                        remedy="raise read_timeout if the server is slow",
                        field="read_timeout",
                    )
                )
        if self._running:
            self.start()

    def _stalled(self, transfer: Transfer) -> bool:
        getinfo = transfer.curl.getinfo
        if getinfo(pycurl.PRETRANSFER_TIME) == 0:
            # Connecting, or waiting for a connection, has a time-out of its own.
            return False
        moved = getinfo(pycurl.SIZE_DOWNLOAD_T) + getinfo(pycurl.SIZE_UPLOAD_T) + getinfo(pycurl.HEADER_SIZE)
        if moved != transfer.seen_bytes:
            transfer.seen_bytes = moved
            transfer.idle_checks = 0
            return False
        transfer.idle_checks += 1
        return transfer.idle_checks >= self._checks
