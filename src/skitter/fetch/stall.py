"""StallWatch: ends transfers in which nothing moves any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pycurl

from skitter.fetch.contract import TimedOut
from skitter.fetch.transfer import Transfer

_LOOKS = 4
_LONGEST_PAUSE = 5.0


class StallWatch:
    """Looks at all running transfers now and then, so that a read time-out costs a request nothing.

    A transfer is ended when several looks in a row saw no byte move in either direction. Counting looks and
    not seconds keeps a loop that was busy elsewhere from ending transfers whose data lies waiting.
    """

    def __init__(self, running: Mapping[Transfer, asyncio.Future[None]], limit: float) -> None:
        """``limit``: seconds without a byte."""
        self._running = running
        self._limit = limit
        self._pause = min(limit / _LOOKS, _LONGEST_PAUSE)
        self._looks = max(_LOOKS, round(limit / self._pause))
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look on from now until nothing runs any more."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        for transfer, future in list(self._running.items()):
            if self._stalled(transfer) and not future.done():
                future.set_exception(
                    TimedOut(
                        f"no data for {self._limit:g} s", remedy="raise read_timeout if the server is slow"
                    )
                )
        if self._running:
            self.start()

    def _stalled(self, transfer: Transfer) -> bool:
        getinfo = transfer.curl.getinfo
        if getinfo(pycurl.PRETRANSFER_TIME) == 0:
            # Still connecting (or waiting for a connection), which has a time-out of its own.
            return False
        moved = getinfo(pycurl.SIZE_DOWNLOAD_T) + getinfo(pycurl.SIZE_UPLOAD_T) + getinfo(pycurl.HEADER_SIZE)
        if moved != transfer.seen_bytes:
            transfer.seen_bytes = moved
            transfer.idle_looks = 0
            return False
        transfer.idle_looks += 1
        return transfer.idle_looks >= self._looks
