"""A site of pages that name files: some are duplicates, and many requests for them fail at first."""

import hashlib
import random
from collections import Counter

from sites.cases import http_head
from skitter.testing import Answer, WireAnswer

PER_PAGE = 10
SHARES = 4
"""URLs of each content."""


class MediaSite:
    """``/`` links to pages; each page names ten files. Every content has four URLs, and every URL is on two pages.

    A file fails up to twice, depending on ``seed``: an error status, a truncated body, a wrong length, or a slow body.
    """

    def __init__(self, files=200, seed=0):
        self.files = files
        self._seed = seed
        self._visits = Counter()

    def __call__(self, visit):
        kind, _, rest = visit.path.strip("/").partition("/")
        if kind == "robots.txt":
            return Answer(status=404)
        if kind == "file":
            return self._file(visit, int(rest.partition(".")[0]))
        if kind == "page":
            links = "".join(f'<img src="{path}">' for path in self.files_of(int(rest)))
        else:
            links = "".join(f'<a href="/page/{page}">{page}</a>' for page in range(self.pages))
        return Answer(f"<title>x</title>{links}".encode())

    @property
    def pages(self):
        return 2 * self.files // PER_PAGE

    def files_of(self, page):
        """Return the paths of the files that a page names."""
        first = page * PER_PAGE // 2
        return [f"/file/{(first + place) % self.files}.bin" for place in range(PER_PAGE)]

    def content(self, number):
        """Return the content of a file."""
        rng = random.Random(f"{self._seed} {number % (self.files // SHARES)}")
        return rng.randbytes(rng.randrange(1, 60_000))

    def checksums(self):
        """Return the SHA-256 of each file, by its path."""
        return {f"/file/{n}.bin": hashlib.sha256(self.content(n)).hexdigest() for n in range(self.files)}

    def _file(self, visit, number):
        self._visits[number] += 1
        body, rng = self.content(number), random.Random(f"{self._seed} fault {number}")
        if self._visits[number] > rng.choice([0, 0, 1, 2]):
            return Answer(body, content_type="application/octet-stream")
        half = body[: len(body) // 2]
        fault = rng.choice(["status", "truncated", "length", "slow"])
        if fault == "status":
            return Answer(b"oops", status=rng.choice([500, 502, 503]))
        if fault == "truncated":
            return WireAnswer([http_head(f"Content-Length: {len(body)}"), half], end="reset")
        if fault == "length":
            return WireAnswer([http_head(f"Content-Length: {len(body) + 7}"), body])
        return WireAnswer(
            [http_head(f"Content-Length: {len(body)}"), half, 0.3, body[len(half) :]], end="keep"
        )
