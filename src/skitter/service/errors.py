"""Refusals: what the service answers to a caller who asks for something that cannot be."""

from __future__ import annotations

from skitter.errors import UsageError

TRIES = 20
"""How often a change is tried again because another node was faster."""


class Refusal(UsageError):
    """A call that is refused. ``field`` is the part of the call that has to change; empty: the call as a whole."""

    status = 422
    title = "The call cannot be carried out as asked"

    def __init__(self, message: str, *, remedy: str = "", field: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.field = field


class Missing(Refusal):
    """There is no such job, recipe, task or run."""

    status = 404
    title = "There is no such thing"


class Conflict(Refusal):
    """It cannot be done now: the name is taken, the job is in another state, others were faster."""

    status = 409
    title = "Not in this state"


def too_busy(name: str) -> Conflict:
    """Return the refusal of a change that others were always faster than."""
    return Conflict(f"{name!r} is being changed by many at once", remedy="try again")
