"""Schedule: the times at which something begins, as five cron fields in UTC (those of Debian's cron)."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from skitter.errors import UsageError
from skitter.plugins import need

_FIELDS = 5
_MINUTE = 60


class Schedule:
    """Times by five cron fields. Raises :class:`~skitter.errors.UsageError` for a text that is no schedule."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.next(0.0)

    def next(self, after: float) -> float:
        """Return the first time after a Unix time."""
        return self._step(after, reverse=False)

    def last(self, until: float) -> float:
        """Return the last time that is not after a Unix time."""
        return self._step(int(until) + 1, reverse=True)

    def _step(self, moment: float, *, reverse: bool) -> float:
        cronsim: Any = need("cronsim", "service", "schedules")
        try:
            if len(self._text.split()) != _FIELDS:
                raise cronsim.CronSimError("it has not five fields")  # noqa: TRY301 - told like any other fault of it
            moments = cronsim.CronSim(self._text, datetime.fromtimestamp(moment, UTC), reverse=reverse)
            found: float = next(moments).timestamp()
        except (cronsim.CronSimError, StopIteration, ValueError) as error:
            raise UsageError(
                f"{self._text!r:.100} is no schedule: {error or 'it never comes'}",
                remedy="write five cron fields (UTC), such as 30 4 * * 1-5",
            ) from None
        return found


def last_of(text: str, now: float) -> float:
    """Return the last time of a schedule that is not after ``now``; cheap to ask again and again."""
    return _last_by_minute(text, int(now // _MINUTE))


@lru_cache(maxsize=10_000)
def _last_by_minute(text: str, minute: int) -> float:
    return Schedule(text).last(minute * _MINUTE)
