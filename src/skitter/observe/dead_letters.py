"""Dead letters: a filter, and conversion to plain values for display and for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from skitter.errors import SkitterError
from skitter.frontier.records import DeadLetter
from skitter.request import decode_request
from skitter.secrets import is_secret_name, shown_url


class DeadLetterFilter(msgspec.Struct, frozen=True):
    """Selects dead letters."""

    kind: str | None = None
    """Kind of error, such as ``timeout`` or ``status/404``, or ``status`` for all statuses."""
    contains: str = ""
    """Text within the URL or the error, ignoring case."""

    def includes(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter is selected."""
        found = letter.error.partition(":")[0]
        if self.kind is not None and found != self.kind and not found.startswith(f"{self.kind}/"):
            return False
        text = self.contains.casefold()
        return text in letter.url.casefold() or text in letter.error.casefold()

    @property
    def is_all(self) -> bool:
        """Whether all dead letters are selected."""
        return self.kind is None and not self.contains


def letter_fields(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter with its request as plain values, with ``***`` in place of credentials."""
    fields: dict[str, Any] = {
        "id": letter.id,
        "url": letter.url,
        "error": letter.reason,
        "attempts": letter.attempts,
        "lost": letter.lost,
        "failed_at": moment(letter.failed_at),
        "slot": letter.slot,
        "fingerprint": letter.fingerprint.hex(),
    }
    if letter.traceback:
        fields["traceback"] = letter.traceback
    try:
        request = decode_request(letter.url, letter.record)
    except SkitterError as error:
        return fields | {"request": None, "request_error": str(error)}
    shown = fields["request"] = msgspec.to_builtins(request)
    if request.headers:
        shown["headers"] = {
            name: "***" if is_secret_name(name) else value for name, value in request.headers.items()
        }
    if request.proxy:
        shown["proxy"] = shown_url(request.proxy)
    return fields


def moment(seconds: float) -> str:
    """Return a Unix time as a date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
