"""Extensions: small habits that a collector can be given."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.collector.collector import Collector
    from skitter.collector.request import CollectorRequest


def referer(collector: Collector) -> None:
    """Send with each request the page that it was found on, as browsers do within a site."""

    @collector.on_request
    def set_referer(request: CollectorRequest) -> None:
        if request.referer:
            request.headers.setdefault("Referer", request.referer)


def random_user_agent(collector: Collector, agents: Sequence[str]) -> None:
    """Send with each request one of several user agents, at random.

    The group in robots.txt is still that of the option ``user_agent``.
    Raises :class:`~skitter.errors.UsageError` for an empty list.
    """
    if not agents:
        raise UsageError("there is no user agent to choose from", remedy="give at least one")
    choices = tuple(agents)

    @collector.on_request
    def set_user_agent(request: CollectorRequest) -> None:
        request.headers["User-Agent"] = random.choice(choices)
