"""The format of a Redis output: the key and the bytes of each item."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from skitter.errors import StoreError
from skitter.item import encode_item, item_fields, without_surrogates
from skitter.plugins import PluginKind

_FIELD = re.compile(r"%\(([^()]+)\)s")
_SERIALIZERS = PluginKind("serializer of items", "skitter.serializers", {}, StoreError)

_encode_pair = msgspec.json.Encoder().encode
_decode_pair = msgspec.json.Decoder(tuple[str, bytes]).decode


class RedisItemFormat(msgspec.Struct, frozen=True):
    """The key and the bytes under which an item is stored.

    ``key`` may contain fields of the item, as in ``%(category)s:items``. ``serializer``: dotted path of a function that receives
    an item as the callback yielded it, and returns bytes or a string; empty: JSON.
    """

    key: str
    serializer: str = ""

    @property
    def has_fields(self) -> bool:
        """Whether items may go to different keys."""
        return _FIELD.search(self.key) is not None

    @property
    def is_plain(self) -> bool:
        """Whether every item is a JSON text in the same key."""
        return not self.serializer and not self.has_fields

    def function(self) -> Callable[[Any], Any]:
        """Import the serializer. Raises :class:`~skitter.errors.StoreError` if there is no such function."""
        if not self.serializer:
            return encode_item
        found = _SERIALIZERS.at_path(self.serializer)
        if found is None or not callable(found[0]):
            raise StoreError(
                f"no serializer of items: {self.serializer!r}",
                remedy="write ?serializer=package.module:function",
                field="serializer",
            )
        function: Callable[[Any], Any] = found[0]
        return function

    def encoder(self) -> Callable[[Any], tuple[str, bytes]]:
        """Return a function that returns the key and the bytes of an item.

        The function raises :class:`~skitter.errors.StoreError` for an item that lacks a field of the key, and for a
        serializer that returns anything but bytes or a string.
        """
        serialize, has_fields = self.function(), self.has_fields

        def encode(item: Any) -> tuple[str, bytes]:
            written = serialize(item)
            if isinstance(written, str):
                written = without_surrogates(written).encode()
            if not isinstance(written, bytes):
                raise StoreError(
                    f"{self.serializer} returned {type(written).__name__}",
                    remedy="return bytes or text",
                    field="serializer",
                )
            return (self._key_of(item_fields(item)) if has_fields else self.key), written

        return encode

    def _key_of(self, fields: dict[str, Any]) -> str:
        def value(match: re.Match[str]) -> str:
            found = fields.get(match[1])
            if not isinstance(found, (str, int, float)):
                raise StoreError(
                    f"the key {self.key} needs a text or a number in the field {match[1]!r}, not {found!r:.60}",
                    remedy="set the field in every item",
                    field=match[1],
                )
            text: str = without_surrogates(str(found))
            return text

        return _FIELD.sub(value, self.key)


def to_line(pair: tuple[str, bytes]) -> bytes:
    """Return a key and the bytes of an item as one line of a part file."""
    return _encode_pair(pair)


def by_key(lines: Iterable[bytes]) -> dict[str, list[bytes]]:
    """Return the items of lines by their keys, in order."""
    items: dict[str, list[bytes]] = {}
    for line in lines:
        key, item = _decode_pair(line)
        items.setdefault(key, []).append(item)
    return items


def to_frame(pair: tuple[str, bytes]) -> bytes:
    """Return a key and the bytes of an item in the form that the scripts on the server read: lengths first."""
    key = pair[0].encode()
    return b"%d %d\n%b%b" % (len(key), len(pair[1]), key, pair[1])
