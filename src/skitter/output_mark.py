"""OutputMark: what a store says of the items of a page, and a frontier keeps."""

from __future__ import annotations

import msgspec


class OutputMark(msgspec.Struct, array_like=True, frozen=True):
    """A byte range of a part file that holds the items of one outcome."""

    part: str
    start: int
    end: int
