"""Factories of the built-in broker frontiers: entry points of the group ``skitter.frontiers``."""

from __future__ import annotations

from collections.abc import Callable

from skitter.brokers.address import BrokerAddress, UrlRules, parse_address
from skitter.brokers.contract import Broker, StateFrontier
from skitter.brokers.frontier import BrokerFrontier
from skitter.brokers.pending import BrokerTuning
from skitter.errors import FrontierError
from skitter.frontier.contract import Frontier
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierContext
from skitter.frontier.registry import SERVER_SCHEMES
from skitter.plugins import needing
from skitter.secrets import shown_url

_NSQD_REFRESH = 5.0
"""Seconds until nsqd looks for due messages of a new channel (``--queue-scan-refresh-interval``)."""


def nsq_frontier(url: str, context: FrontierContext) -> Frontier:
    """Return the frontier of an ``nsq:`` URL. Raises :class:`~skitter.errors.FrontierError` for an invalid URL."""
    from skitter.brokers.nsq import RULES, NsqBroker  # noqa: PLC0415 - users of NATS need no NSQ client

    return make_broker_frontier(url, context, RULES, NsqBroker, BrokerTuning(settling_time=_NSQD_REFRESH))


def jetstream_frontier(url: str, context: FrontierContext) -> Frontier:
    """Return the frontier of a ``nats:`` URL. Raises :class:`~skitter.errors.FrontierError` for an invalid URL."""
    with needing("nats", "frontier kind 'nats'", FrontierError):
        from skitter.brokers.jetstream import RULES, JetStreamBroker  # noqa: PLC0415 - its client is an extra

    return make_broker_frontier(url, context, RULES, JetStreamBroker)


def make_broker_frontier(
    url: str,
    context: FrontierContext,
    rules: UrlRules,
    make_broker: Callable[[BrokerAddress, float], Broker],
    tuning: BrokerTuning | None = None,
) -> Frontier:
    """Return the broker frontier that a URL names.

    ``make_broker`` gets the address of a queue's topic and the job's lease time in seconds. Raises
    :class:`~skitter.errors.FrontierError` for an invalid URL.
    """
    address = parse_address(url, context.job, rules)
    options = context.options
    return BrokerFrontier(
        _make_state(address.state, context),
        lambda queue: make_broker(address.of_queue(queue), options.lease_seconds),
        restore_lost=options.visited_ttl is None and not options.refetch_failed,
        patient=context.joining,
        tuning=tuning,
    )


def _make_state(url: str, context: FrontierContext) -> StateFrontier:
    name, _, path = url.partition(":")
    scheme = name.lower()
    if scheme == "sqlite":
        return EmbeddedFrontier.from_url(f"sqlite:{path}", context)
    if scheme in SERVER_SCHEMES:
        with needing("redis", f"state {scheme!r}", FrontierError):
            from skitter.frontier.redis.frontier import RedisFrontier  # noqa: PLC0415 - its client is an extra
        return RedisFrontier(url, context)
    raise FrontierError(
        f"unsupported state of a broker frontier: {shown_url(url)!r}",
        field="state",
        remedy="write state=redis://HOST (for several machines) or state=sqlite: (for this one)",
    )
