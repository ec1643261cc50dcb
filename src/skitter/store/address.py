"""Address: what the name of an output says."""

from __future__ import annotations

import msgspec


class Address(msgspec.Struct, frozen=True):
    """The parts of ``-o NAME``."""

    target: str
    """As the user gave it."""
    kind: str
    """The scheme or the suffix, in lower case."""
    rest: str
    """Without scheme and options: a path, or what follows ``scheme:`` of a service."""
    options: dict[str, str] = {}
    """What follows ``?``, decoded."""
