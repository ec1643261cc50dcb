"""DuplicateItems: a source of items that marks or leaves out near duplicates, for files that are written at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Literal

import msgspec

from skitter.content.near_duplicates import SIGNATURE_BYTES, Text, find_duplicates, shingles, signature_of

FIELD = "duplicate_of"
"""Field that is added to each item: the URL of the page that it duplicates, or null."""
DuplicateMode = Literal["mark", "drop"]


class _Item(msgspec.Struct):
    """The fields of an item that are compared."""

    url: str
    content: str
    digest: str | None = None
    signature: str | None = None


_decode = msgspec.json.Decoder(_Item).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_KEY = b'"%b"' % FIELD.encode()


class DuplicateItems:
    """The items of another source, with the field ``duplicate_of`` or without duplicates.

    Items without a string in the fields ``url`` and ``content`` are kept unchanged. The fields ``digest`` and ``signature``
    are optional, but without them each item is parsed completely twice. ``lines``: reads all items from the beginning.
    """

    def __init__(self, lines: Callable[[], Iterable[bytes]], mode: DuplicateMode) -> None:
        self._lines = lines
        self._mode = mode
        self._has_items = self._has_texts = False

    def lines(self) -> Iterator[bytes]:
        """Yield all items as JSON lines without line ends."""
        found = self._duplicates
        for number, line in enumerate(self._lines()):
            original = found.get(number)
            plain = _without_mark(line)
            if self._mode == "drop":
                if original is None:
                    yield plain
                continue
            separator = b"" if plain == b"{}" else b","
            yield b"%b%b%b:%b}" % (plain[:-1], separator, _KEY, msgspec.json.encode(original))

    def chunks(self) -> Iterator[bytes]:
        """Yield the same items as :meth:`lines`, with line ends."""
        for line in self.lines():
            yield line + b"\n"

    @cached_property
    def _duplicates(self) -> dict[int, str]:
        return find_duplicates(lambda: map(self._text_of, self._lines()))

    def _text_of(self, line: bytes) -> Text | None:
        self._has_items = True
        try:
            item = _decode(line)
        except msgspec.DecodeError:  # another kind of item
            return None
        self._has_texts = True
        return _comparable(item)

    def problem(self) -> str:
        """Describe why no item was compared; empty if there is no reason to warn. To be called after the items were read."""
        if self._has_texts or not self._has_items:
            return ""
        return "near duplicates were not searched, because no item has texts in the fields url and content"


def _without_mark(line: bytes) -> bytes:
    """Return an item without the mark of an earlier search."""
    line = line.strip()
    if _KEY not in line:
        return line
    return msgspec.json.encode({name: value for name, value in _decode_fields(line).items() if name != FIELD})


def _comparable(item: _Item) -> Text | None:
    digest, signature = _bytes_of(item.digest, SIGNATURE_BYTES), _bytes_of(item.signature, SIGNATURE_BYTES)
    if digest is None or signature is None:
        hashes = shingles(item.content)
        if not hashes:
            return None
        digest, signature = digest_of(item.content), signature_of(hashes)
    return Text(item.url, int.from_bytes(digest[:8], "big"), signature, item.content)


def _bytes_of(text: str | None, length: int) -> bytes | None:
    try:
        data = bytes.fromhex(text or "")
    except ValueError:
        return None
    return data if len(data) == length else None


def digest_of(text: str) -> bytes:
    """Return the hash of a text with normalized whitespace. It has 16 bytes."""
    return hashlib.blake2b(" ".join(text.split()).encode("utf-8", "replace"), digest_size=16).digest()
