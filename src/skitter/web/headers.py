"""Response headers, kept as they came until somebody asks."""

from __future__ import annotations

import re
from functools import lru_cache

from multidict import CIMultiDict, CIMultiDictProxy

Headers = CIMultiDictProxy[str]
"""Read-only; names without case, in the order received; ``getall`` gives every value of a repeated one."""


def parse_headers(block: bytes) -> Headers:
    """Read a header block (``Name: value`` lines as received; RFC 9112, section 5).

    Bytes are read as Latin-1. A folded line goes on with the one before; a line without colon is passed over.
    """
    fields: CIMultiDict[str] = CIMultiDict()
    text = _FOLD.sub(" ", block.decode("latin-1"))
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name:
            fields.add(name.strip(), value.strip())
    return CIMultiDictProxy(fields)


_FOLD = re.compile(r"\r?\n[ \t]+")


def find_header(block: bytes, name: str) -> str | None:
    """Return the first value of one header without reading the others."""
    lines, key = b"\n" + block.lower(), _key_of(name)
    at = lines.find(key)
    if at < 0:  # RFC 9112, 5.1 forbids space before the colon; some send it
        return parse_headers(block).get(name) if b" :" in lines or b"\t:" in lines else None
    start = at + len(key) - 1
    return block[start:].partition(b"\n")[0].strip().decode("latin-1")


@lru_cache(maxsize=256)
def _key_of(name: str) -> bytes:
    """Return how the line of a header begins, with the end of the line before it."""
    return b"\n" + name.lower().encode("latin-1") + b":"
