"""Finds the stored requests of one group among millions."""

from __future__ import annotations

from typing import Any

import msgspec

TASK = "task"
"""Key of ``meta`` and of ``cb_kwargs`` that names the group of a request. It is part of the request's identity."""


class _Words(msgspec.Struct):
    cb_kwargs: dict[str, Any] = {}


_encode = msgspec.msgpack.Encoder().encode
_read_words = msgspec.msgpack.Decoder(_Words).decode


class GroupFilter:
    """Recognizes the requests of one group. All of their records contain ``trace``, and few others do by chance."""

    def __init__(self, task: str) -> None:
        self._task = task
        self.trace = _encode(TASK) + _encode(task)

    def is_on(self, record: bytes) -> bool:
        """Return whether a stored request belongs to the group. A record that cannot be read belongs to no group."""
        if self.trace not in record:
            return False
        try:
            return _read_words(memoryview(record)[1:]).cb_kwargs.get(TASK) == self._task  # behind the version
        except msgspec.MsgspecError:
            return False
