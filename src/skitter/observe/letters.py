"""Letters: a request that was given up, as plain values for people and programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from skitter.errors import SkitterError
from skitter.frontier.records import DeadLetter
from skitter.request import decode_request


def letter_fields(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as plain values, its request included."""
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
    """Return a Unix time as date and time of day, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
