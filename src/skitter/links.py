"""Links: all links of a page that a callback follows, as one batch.

``yield response.follow_all("a")`` passes the raw ``href`` values to the engine together. They are joined, normalized,
checked against the scope and looked up among the known URLs as one batch, and a request object is created only for a new URL. Iterating over
the batch yields one :class:`~skitter.request.Request` per link instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from skitter.request import Request
from skitter.web.urls import join_all


class SkippedLinks(msgspec.Struct, frozen=True):
    """Links that user code skips. A callback yields them so that they are counted as ``refused/REASON``."""

    reason: str
    amount: int = 1


class Links:
    """The links of one page, with the common fields of their requests."""

    __slots__ = ("base_url", "fields", "hrefs")

    def __init__(self, base_url: str, hrefs: Sequence[str], fields: dict[str, Any]) -> None:
        self.base_url = base_url
        self.hrefs = hrefs
        # The callback may change a dict, such as meta, for its next batch before this one is stored.
        self.fields: dict[str, Any] = {
            name: dict(value) if isinstance(value, dict) else value for name, value in fields.items()
        }
        """Keyword arguments of :class:`~skitter.request.Request` shared by all links of the batch."""

    def __len__(self) -> int:
        return len(self.hrefs)

    def __iter__(self) -> Iterator[Request]:
        for url in join_all(self.base_url, self.hrefs):
            if url is not None:
                yield Request(url, **self.fields)

    def __repr__(self) -> str:
        return f"<Links {len(self.hrefs)} of {self.base_url}>"
