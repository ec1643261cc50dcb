"""A shop with two versions, known differences between them, and optional validators."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Literal

import msgspec
import xxhash

from skitter.testing.answer import Answer, Visit

Validators = Literal["etag", "modified", "none", "new-etag", "now"]
"""``new-etag`` and ``now`` are wrong: a new ``ETag`` for each response, or ``Last-Modified`` with the current time."""
_BLOCK = 100
"""Pages of a block: a list and 99 products."""
_RELATED = 25
_FIRST_VERSION_AT = 1_600_000_000
_VERSION_SECONDS = 86_400


class ExpectedChanges(msgspec.Struct, frozen=True):
    """Changes of the second version, as sets of URLs."""

    new: set[str]
    changed: set[str]
    unchanged: set[str]
    missing: set[str]
    """Pages that are still linked, but return 404."""
    unlinked: set[str]
    """Pages that exist, but are not linked."""


class ChangingSite:
    """A front page, lists, and products with prices. Products are linked by their list and by products of the same list.

    In the second version, 5 % of the pages have changed, 1 % answer 404, 1 % are no longer linked (whole lists), and
    3 % are new (whole lists), each rounded to at least one. ``POST /version/2`` switches to it.

    ``pages``
        Number of pages of the first version: a multiple of 100, and one more for the front page.

    """

    def __init__(
        self, pages: int = 20_000, validators: Validators = "etag", page_bytes: int = 5_000, seed: int = 1
    ) -> None:
        self.version = 1
        self._validators = validators
        self._page_bytes = page_bytes
        blocks = pages // _BLOCK
        rng = random.Random(seed)
        dropped = set(rng.sample(range(blocks), max(1, blocks // 100)))
        kept = [number for number in range(blocks) if number not in dropped]
        self._lists = {1: list(range(blocks)), 2: [*kept, *range(blocks, blocks + max(1, blocks * 3 // 100))]}
        products = [number * _BLOCK + place for number in kept for place in range(1, _BLOCK)]
        chosen = rng.sample(products, max(1, pages // 100) + max(1, pages // 20 - 1))
        missing = max(1, pages // 100)
        self._missing, self._repriced = set(chosen[:missing]), set(chosen[missing:])
        self._requests = itertools.count()

    def __call__(self, visit: Visit) -> Answer:
        """Return a page of the current version, or 304."""
        if visit.method == "POST" and visit.path.startswith("/version/"):
            self.version = int(visit.path.rpartition("/")[2])
            return Answer(b"")
        body = self._body(visit.path, self.version)
        if body is None:
            return Answer(b"<title>Not found</title>", status=404)
        return self._validated(visit, body)

    def expected_changes(self, origins: Sequence[str]) -> ExpectedChanges:
        """Return the changes of the second version, for a server with these origins."""
        first, second = (self._paths(version) for version in (1, 2))
        missing = {f"/p{number}" for number in self._missing}
        changed = {"/", *(f"/p{number}" for number in self._repriced)}
        both = (first & second) - missing
        sets = (second - first, changed, both - changed, missing, first - second)
        return ExpectedChanges(*({f"http://{origins[0]}{path}" for path in paths} for paths in sets))

    def price(self, number: int, version: int) -> int:
        """Return the price of a product."""
        return 100 + number % 97 + (1000 if version == 2 and number in self._repriced else 0)

    def prices(self, version: int) -> dict[int, int]:
        """Return the prices of the products that are linked in a version."""
        numbers = (block * _BLOCK + place for block in self._lists[version] for place in range(1, _BLOCK))
        gone = self._missing if version == 2 else set()
        return {number: self.price(number, version) for number in numbers if number not in gone}

    def _paths(self, version: int) -> set[str]:
        lists = self._lists[version]
        products = {f"/p{block * _BLOCK + place}" for block in lists for place in range(1, _BLOCK)}
        return {"/", *(f"/list{block}" for block in lists), *products}

    def _body(self, path: str, version: int) -> bytes | None:
        name, digits = path.lstrip("/").rstrip("0123456789"), "".join(filter(str.isdigit, path))
        if path == "/":
            return _page("Shop", [f"/list{block}" for block in self._lists[version]], "")
        if not digits:
            return None
        number = int(digits)
        known = self._lists[1] if version == 1 else [*self._lists[1], *self._lists[2]]
        if name == "list" and number in known:
            products = [f"/p{number * _BLOCK + place}" for place in range(1, _BLOCK)]
            return _page(f"List {number}", ["/", *products], "")
        block, place = divmod(number, _BLOCK)
        if name != "p" or not place or block not in known or (version == 2 and number in self._missing):
            return None
        related = [f"/p{block * _BLOCK + 1 + (place + step) % (_BLOCK - 1)}" for step in range(_RELATED)]
        price = f'<b class="price">{self.price(number, version)}</b>'
        return _page(f"Product {number}", ["/", f"/list{block}", *related], price + self._filler(number))

    def _filler(self, number: int) -> str:
        words = random.Random(number).choices(("oak", "elm", "ash", "fir", "yew"), k=self._page_bytes // 8)
        return f"<p>{' '.join(words):.{max(0, self._page_bytes - 1500)}}</p>"

    def _validated(self, visit: Visit, body: bytes) -> Answer:
        kind = self._validators
        if kind == "etag":
            etag = f'"{xxhash.xxh3_64_hexdigest(body)}"'
            if visit.headers.get("if-none-match") == etag:
                return Answer(status=304, content_type=None, headers={"ETag": etag})
            return Answer(body, headers={"ETag": etag})
        if kind == "modified":
            is_new = body != self._body(visit.path, 1)
            modified = formatdate(_FIRST_VERSION_AT + is_new * _VERSION_SECONDS, usegmt=True)
            if visit.headers.get("if-modified-since") == modified:
                return Answer(status=304, content_type=None)
            return Answer(body, headers={"Last-Modified": modified})
        if kind == "new-etag":
            return Answer(body, headers={"ETag": f'"{next(self._requests)}"'})
        return Answer(
            body, headers={"Last-Modified": formatdate(time.time(), usegmt=True)} if kind == "now" else {}
        )


def _page(title: str, paths: Sequence[str], content: str) -> bytes:
    links = "".join(f'<li><a href="{path}">{path}</a></li>\n' for path in paths)
    return f"<!DOCTYPE html>\n<title>{title}</title><h1>{title}</h1>{content}<ul>{links}</ul>\n".encode()
