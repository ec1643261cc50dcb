"""Retry-After: how long a server asks us to stay away."""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST = 86_400.0
"""Seconds; a longer wish is cut to this."""

_MAX_DIGITS = 18


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` value asks for (RFC 9110, 10.2.3).

    ``value``
        Seconds as digits, or an HTTP-date; ``None`` if there is no such header.
    ``now``
        Unix time to which a date is compared.

    The answer lies between 0 (a date gone by) and ``LONGEST``; ``None`` for a value that is neither form.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:_MAX_DIGITS]), LONGEST)
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(math.ceil(seconds), 0.0), LONGEST)
