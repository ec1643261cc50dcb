"""Queue settings: what the setting ``queues`` says of one named queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skitter.errors import SettingsError
from skitter.politeness import QueueLimits, Rate
from skitter.queues import NAME_RULE, is_queue_name

_SIZE = "concurrency"


def read_limits(name: str, fields: Mapping[str, Any]) -> QueueLimits:
    """Return the limits that a queue has of its own. Raises :class:`~skitter.errors.SettingsError`."""
    if not is_queue_name(name):
        raise SettingsError(f"{name!r:.80} is no name of a queue", remedy=NAME_RULE)
    known = QueueLimits.__struct_fields__
    if unknown := set(fields) - {_SIZE, *known}:
        raise SettingsError(
            f"queue {name} has no field {min(unknown)!r}",
            remedy=f"its fields are {_SIZE}, {', '.join(known)}",
        )
    given = {field: value for field, value in fields.items() if field not in {_SIZE, "rates"}}
    limits: QueueLimits = _converted(name, given, QueueLimits)
    rates = fields.get("rates", ())
    texts = _converted(name, [rates] if isinstance(rates, str) else rates, tuple[str, ...])
    return msgspec.structs.replace(limits, rates=tuple(Rate.parse(text) for text in texts))


def read_size(name: str, fields: Mapping[str, Any]) -> int | None:
    """Return how many fetches of a queue may be in flight in one worker process; ``None``: it does not say.

    Raises :class:`~skitter.errors.SettingsError`.
    """
    if fields.get(_SIZE) is None:
        return None
    size: int = _converted(name, fields[_SIZE], int)
    if size < 1:
        raise SettingsError(f"queue {name} has {_SIZE} {size}", remedy="give a number above zero")
    return size


def _converted(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"queue {name}: {error}", remedy="see Queues in the manual") from error
