"""ByUrl: how frontiers on Valkey and Redis are made from the URL of their servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from skitter.frontier.options import FrontierContext


class ByUrl:
    """A frontier that is made from a URL, a job's name, politeness and options."""

    @classmethod
    def from_url(cls, url: str, context: FrontierContext) -> Self:
        """Build the frontier on what the URL names. Raises :class:`~skitter.errors.FrontierError` for one that is none."""
        make: Callable[..., Self] = cls
        return make(
            url, context.job, context.politeness, context.options, patient=context.joining, attach=context.attach,
        )  # fmt: skip
