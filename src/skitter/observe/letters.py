"""Dead letters as plain values, for display and for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from skitter.errors import SkitterError
from skitter.frontier.records import DeadLetter
from skitter.request import decode_request


def letter_fields(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter with its request as plain values."""
    fields: dict[str, Any] = {
        "id": letter.id,
        "url": letter.url,
        "error": letter.error,
        "attempts": letter.attempts,
        "lost": letter.lost,
        "failed_at": moment(letter.failed_at),
        "slot": letter.slot,
        "fingerprint": letter.fingerprint.hex(),
    }
    try:
        fields["request"] = msgspec.to_builtins(decode_request(letter.url, letter.record))
    except SkitterError as error:
        fields["request"] = None
        fields["request_error"] = str(error)
    return fields


def moment(seconds: float) -> str:
    """Return a Unix time as a date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
