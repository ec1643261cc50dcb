"""Seed format: how a seed is written by somebody who is no spider: a URL, or a JSON object.

The fields of the object are those of :class:`~skitter.request.Request`, but for ``referer`` and ``redirects``;
``url`` is needed. A body is text; to send bytes, write ``{"base64": "..."}``.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

import msgspec

from skitter.errors import RequestError
from skitter.request import Request

_FIELDS = frozenset(Request.__struct_fields__) - {"referer", "redirects"}
_REMEDY = 'write a URL, or {"url": "https://...", ...}'


def read_seed(data: bytes | str, *, priority: int = 0) -> Request:
    """Read one seed; ``priority`` holds where it names none itself.

    Raises :class:`~skitter.errors.RequestError` that says what is wrong with it.
    """
    if isinstance(data, bytes):
        try:
            data = data.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"it is no UTF-8: {error.reason}", remedy=_REMEDY) from error
    words = data.strip()
    if not words:
        raise RequestError("it is empty", remedy=_REMEDY)
    if words[0] not in "{[":
        return Request(words, priority=priority)
    try:
        fields = msgspec.json.decode(words)
    except msgspec.DecodeError as error:
        raise RequestError(f"it is no JSON: {error}", remedy=_REMEDY) from error
    if not isinstance(fields, dict):
        raise RequestError("it is no JSON object", remedy=_REMEDY)
    return _request({"priority": priority, **fields})


def _request(fields: dict[str, Any]) -> Request:
    if unknown := set(fields) - _FIELDS:
        raise RequestError(
            f"there is no field {min(unknown)!r}", remedy=f"the fields are {', '.join(sorted(_FIELDS))}"
        )
    if not isinstance(fields.get("url"), str):
        raise RequestError("it has no url", remedy=_REMEDY)
    if "body" in fields:
        fields["body"] = _body(fields["body"])
    try:
        return msgspec.convert(fields, Request)
    except msgspec.ValidationError as error:
        raise RequestError(str(error), remedy="see the fields of a request in the manual") from error


def _body(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise RequestError(f"its body is no base64: {error}", remedy=_REMEDY) from error
    raise RequestError("its body is no text", remedy='write "body": "text", or {"base64": "..."}')
