"""Request data in items: what travelled with a request is stored with what its page gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skitter.item import item_fields
from skitter.request import Request

ALL = "*"
"""Stands for every name in ``meta`` and ``cb_kwargs``."""


def with_request_data(items: Sequence[Any], request: Request, names: Sequence[str]) -> list[Any]:
    """Return the items with the named values of ``meta`` and ``cb_kwargs`` as further fields.

    A field of the item itself is never overwritten, and ``cb_kwargs`` win over ``meta``. A name that the request
    does not have is passed over. Items other than dicts become dicts. Raises
    :class:`~skitter.errors.StoreError` for an item that cannot be stored.
    """
    there = {**request.meta, **request.cb_kwargs}
    data = there if ALL in names else {name: there[name] for name in names if name in there}
    return [_with(item, data) for item in items] if data else list(items)


def _with(item: Any, data: dict[str, Any]) -> dict[str, Any]:
    fields = dict(item) if item.__class__ is dict else item_fields(item)
    for name, value in data.items():
        fields.setdefault(name, value)
    return fields
