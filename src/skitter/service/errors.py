"""Errors that the service reports to the caller of its API."""

from __future__ import annotations

from collections.abc import Callable

from skitter.errors import SkitterError, UsageError


class ApiError(UsageError):
    """A refused request. ``field`` names the part of the request to change; empty means the request as a whole."""

    status = 422
    title = "The request cannot be performed"


class NotFound(ApiError):
    """The job, recipe, task or run does not exist."""

    status = 404
    title = "Not found"


class Conflict(ApiError):
    """The request conflicts with the current state: the name is taken, the job is running, or another caller was faster."""

    status = 409
    title = "Conflict with the current state"


def naming_field(field: str, check: Callable[[], object]) -> None:
    """Run a check. If it fails, raise an :class:`ApiError` that names the field of the request."""
    try:
        check()
    except ApiError:
        raise
    except SkitterError as error:
        raise ApiError(str(error), remedy=error.remedy, field=field[:100]) from None


def too_busy(name: str) -> Conflict:
    """Return the error for a change that failed too often because other callers changed the same record."""
    return Conflict(f"{name!r} is being changed by many callers at once", remedy="try again")
