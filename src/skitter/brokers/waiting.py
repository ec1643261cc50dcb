"""Calls that wait while a broker is unavailable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from skitter.errors import FrontierError

log = logging.getLogger("skitter.frontier")

PUBLISH_TIMEOUT = 3600.0
"""Seconds for which publishing waits."""
RETRY_INTERVAL = 0.5
"""Seconds between two attempts."""
Errors = tuple[type[Exception], ...]


async def wait_for_broker(
    attempt: Callable[[], Awaitable[Any]],
    unavailable: Errors,
    seconds: float,
    is_refused: Callable[[Exception], bool] = lambda _: False,
) -> None:
    """Repeat a call while it raises one of the errors ``unavailable``. The first of them is logged.

    Raises the error after ``seconds``, and at once if the broker has refused the call.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    is_logged = False
    while True:
        try:
            await attempt()
        except unavailable as error:
            if is_refused(error) or loop.time() >= deadline:
                raise
            if not is_logged:
                log.warning("%s; waiting for the broker", error)
                is_logged = True
            await asyncio.sleep(RETRY_INTERVAL)
        else:
            return


async def publish_patiently(
    attempt: Callable[[], Awaitable[Any]],
    unavailable: Errors,
    is_refused: Callable[[Exception], bool] = lambda _: False,
) -> None:
    """Publish messages as :meth:`~skitter.brokers.contract.Broker.publish` describes; see :func:`wait_for_broker`."""
    try:
        await wait_for_broker(attempt, unavailable, PUBLISH_TIMEOUT, is_refused)
    except unavailable as error:
        raise FrontierError(
            f"the broker does not accept messages: {error}",
            field="frontier",
            remedy="see the log and the limits of the broker, then run the same command again to resume",
        ) from error
