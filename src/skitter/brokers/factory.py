"""Making a broker frontier from its URL: the broker, the state behind it, and both together."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from skitter.brokers.address import BrokerAddress, NameRule, parse_address
from skitter.brokers.by_queue import BrokerFrontierByQueue
from skitter.brokers.contract import Broker
from skitter.brokers.state import StateFrontier
from skitter.errors import FrontierError
from skitter.frontier.contract import Frontier
from skitter.frontier.options import FrontierContext
from skitter.plugins import needing
from skitter.secrets import shown_url

_ON_REDIS = {"redis", "rediss", "unix", "redis+sentinel"}


def make_broker_frontier(
    url: str,
    context: FrontierContext,
    rule: NameRule,
    make_broker: Callable[[BrokerAddress, FrontierContext], Broker],
) -> Frontier:
    """Return the frontier that a URL with ``state=`` names.

    Raises :class:`~skitter.errors.FrontierError` for a URL that is wrong.
    """
    address = parse_address(url, context.job, rule)
    options = context.options
    frontier = BrokerFrontierByQueue(
        _state(address.state, context),
        lambda queue: make_broker(address.of_queue(queue), context),
        known_for_ever=options.visited_ttl is None and not options.refetch_failed,
        patient=context.joining,
    )
    return cast(Frontier, frontier)  # what is not its own is the state's


def _state(url: str, context: FrontierContext) -> StateFrontier:
    kind = url.partition(":")[0].lower()
    if kind == "sqlite":
        from skitter.brokers.sqlite_state import SqliteState  # noqa: PLC0415 - only one of them is needed

        return cast(SqliteState, SqliteState.from_url(url, context))
    if kind in _ON_REDIS:
        with needing("redis", f"state {kind!r}", FrontierError):
            from skitter.brokers.redis_state import RedisState  # noqa: PLC0415 - its client is an extra
        return RedisState.from_url(url, context)
    raise FrontierError(
        f"{shown_url(url)!r} cannot be the state of a broker frontier",
        remedy="write state=redis://HOST (for several machines) or state=sqlite: (for this one)",
    )
