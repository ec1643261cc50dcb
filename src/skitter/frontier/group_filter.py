"""GroupFilter: how a stored request tells which task it belongs to, and how those of one are found among millions."""

from __future__ import annotations

from typing import Any

import msgspec

TASK = "task"
"""Key of ``meta`` and of ``cb_kwargs``: the name of the task. Part of a request's identity."""


class _Words(msgspec.Struct):
    cb_kwargs: dict[str, Any] = {}


_encode = msgspec.msgpack.Encoder().encode
_read_words = msgspec.msgpack.Decoder(_Words).decode


class GroupFilter:
    """The mark of one task. ``trace`` is in the record of each of its requests, and by chance in few others."""

    def __init__(self, task: str) -> None:
        self._task = task
        self.trace = _encode(TASK) + _encode(task)

    def is_on(self, record: bytes) -> bool:
        """Tell whether a stored request is one of the task's; one that cannot be read is nobody's."""
        if self.trace not in record:
            return False
        try:
            return _read_words(memoryview(record)[1:]).cb_kwargs.get(TASK) == self._task  # behind the version
        except msgspec.MsgspecError:
            return False
