"""Near duplicates: signatures of texts, and groups of texts with small differences.

Two texts are near duplicates if the Jaccard similarity of their shingles (overlapping runs of three words) is at least
:data:`SIMILARITY`. A signature of 16 bytes finds the pairs to compare (MinHash with locality-sensitive hashing: Broder
1997, Indyk and Motwani 1998; one permutation: Li, Owen and Zhang 2012). The pairs are then compared exactly.
``docs/design/near-duplicates.md`` explains the choice.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from xxhash import xxh3_64_intdigest, xxh32_intdigest

SIMILARITY = 0.75
"""Minimum share of common shingles among all shingles of two near duplicates."""
SIGNATURE_BYTES = 16
_WIDTH = 3
"""Words in a shingle."""
_BANDS = 4
"""Near duplicates agree in at least one band: with a probability of 96 % at a similarity of 0.75, 99.9 % at 0.9."""
_BINS = 8
"""Number of minima in the signature of a text. A band consists of two of them."""
_BIN_STARTS = [number << 61 for number in range(_BINS)]
_MAX_PARTNERS = 64
"""Maximum number of texts in a bucket that another text is compared with: the first by digest. This limits the time if
many pages share a part of their text."""
_MAX_MISSES = 16
"""Number of unsuccessful comparisons after which a text is not compared any further."""
_CACHED = 200
"""Number of sets of shingles that are cached for further comparisons. A set takes 50 KB for a text of 500 words, at most 1 MB."""
MAX_WORDS = 10_000
"""Maximum number of words at the beginning of a text that are compared."""
_MAX_CHARACTERS = 200_000
"""Maximum number of characters in which these words are searched."""
# Scripts without spaces between words: Thai to Myanmar, Khmer, kana, CJK ideographs. Each of their characters is a word.
_NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"

_ASCII_WORDS = (
    bytes(code if chr(code).isalnum() or chr(code) == "_" else ord(" ") for code in bytes(range(128)).lower())
    + b" " * 128
)
"""Translates ASCII word characters to lower case, and all other characters to spaces."""


@cache
def _words() -> re.Pattern[str]:
    return re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+")


def shingles(text: str) -> frozenset[int]:
    """Return the hashes of the shingles of a text. The set may be empty.

    Case, whitespace and punctuation have no influence. Only the first :data:`MAX_WORDS` words count.
    """
    text = text[:_MAX_CHARACTERS]
    if text.isascii():  # finds the same words in less time
        words = text.encode().translate(_ASCII_WORDS).split()[:MAX_WORDS]
    else:
        words = [word.encode() for word in _words().findall(text.casefold())[:MAX_WORDS]]
    if len(words) < _WIDTH:
        return frozenset({xxh3_64_intdigest(b" ".join(words))}) if words else frozenset()
    runs = map(b" ".join, zip(words, words[1:], words[2:], strict=False))
    return frozenset(map(xxh3_64_intdigest, runs))


def signature_of(hashes: Iterable[int]) -> bytes:
    """Return the signature of a text, which has :data:`SIGNATURE_BYTES` bytes. ``hashes``: its shingles, not empty."""
    ordered = sorted(hashes)
    # The smallest hash of each bin. An empty bin uses the hash of the next bin.
    minima = [ordered[bisect_left(ordered, start) % len(ordered)] for start in _BIN_STARTS]
    pairs = zip(minima[::2], minima[1::2], strict=True)
    return b"".join(
        xxh32_intdigest(first.to_bytes(8, "big") + second.to_bytes(8, "big")).to_bytes(4, "big")
        for first, second in pairs
    )


def similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """Return the Jaccard similarity of two sets of shingles; 0 if both are empty."""
    common = len(one & other)
    return common / (len(one) + len(other) - common) if common else 0.0


class Text(NamedTuple):
    """A text to group."""

    url: str
    """URL of its page."""
    digest: int
    """The first 64 bits of a hash of the text, so that equal texts have equal digests."""
    signature: bytes
    text: str


def find_duplicates(read: Callable[[], Iterable[Text | None]]) -> dict[int, str]:
    """Return the URL of the page to keep for each text that duplicates another text, by its number in the order of reading.

    ``read`` is called twice and returns the same texts each time; ``None`` is skipped, but counted. The groups are the
    connected components of the near duplicates, so they only depend on the texts, not on their order. The page to keep
    is the page with the shortest URL in its group or, of several, the first in alphabetical order.

    Takes 24 bytes of memory for each text, and 100 more while it sorts them. The shingles of texts that have to be
    compared are stored in a temporary file.
    """
    digests, bands = array("Q"), [array("I") for _ in range(_BANDS)]
    numbers = array("Q")
    """Numbers of the texts that are not ``None``."""
    for number, text in enumerate(read()):
        if text is None:
            continue
        numbers.append(number)
        digests.append(text.digest)
        for band, value in zip(bands, memoryview(text.signature).cast("I"), strict=True):
            band.append(value)
    order = sorted(range(len(digests)), key=digests.__getitem__)
    firsts, copies = _split_copies(order, digests)
    buckets = [_shared_values(band, firsts) for band in bands]
    compared = [
        text
        for text in firsts
        if any(band[text] in shared for band, shared in zip(bands, buckets, strict=True))
    ]
    if not compared and not copies:
        return {}
    with TemporaryFile() as file:
        stored = _ShingleFile(file)
        wanted = {*compared, *copies, *copies.values()}
        present = (text for text in read() if text is not None)
        urls = _collect(present, wanted, set(compared), stored)
        root_of = _components(compared, bands, buckets, stored)
    groups: dict[int, list[int]] = {}
    for member in wanted:
        first = copies.get(member, member)
        groups.setdefault(root_of.get(first, first), []).append(member)
    found: dict[int, str] = {}
    for members in groups.values():
        kept = min(members, key=lambda text: (len(urls[text]), urls[text], text))
        found |= {numbers[text]: urls[kept] for text in members if text != kept}
    return found


def _split_copies(order: list[int], digests: array[int]) -> tuple[list[int], dict[int, int]]:
    """Return the first text of each digest, in the order of digests, and for each other text the first text of its digest."""
    firsts: list[int] = []
    copies: dict[int, int] = {}
    for text in order:
        if firsts and digests[text] == digests[firsts[-1]]:
            copies[text] = firsts[-1]
        else:
            firsts.append(text)
    return firsts, copies


def _shared_values(band: array[int], texts: list[int]) -> set[int]:
    """Return the values of a band that several texts have."""
    values = sorted(map(band.__getitem__, texts))
    return {value for value, following in pairwise(values) if value == following}


class _ShingleFile:
    """The shingles of the texts that are compared, in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._positions: dict[int, tuple[int, int]] = {}
        self.read = lru_cache(maxsize=_CACHED)(self._read)

    def add(self, number: int, hashes: frozenset[int]) -> None:
        """Store the shingles of a text."""
        data = array("Q", hashes).tobytes()
        self._positions[number] = self._file.tell(), len(data)
        self._file.write(data)

    def _read(self, number: int) -> frozenset[int]:
        position, length = self._positions[number]
        self._file.seek(position)
        return frozenset(memoryview(self._file.read(length)).cast("Q"))


def _collect(
    present: Iterable[Text], wanted: set[int], compared: set[int], file: _ShingleFile
) -> dict[int, str]:
    """Store the shingles of the texts to compare, and return the URLs of the wanted texts."""
    urls: dict[int, str] = {}
    for number, text in enumerate(present):
        if number in wanted:
            urls[number] = text.url
            if number in compared:
                file.add(number, shingles(text.text))
    return urls


def _components(
    compared: Sequence[int], bands: Sequence[array[int]], shared: Sequence[set[int]], file: _ShingleFile
) -> dict[int, int]:
    """Return a common text for the near duplicates of each group. The texts are in the order of their digests."""
    root_of: dict[int, int] = {}

    def root(text: int) -> int:
        while (parent := root_of.get(text, text)) != text:
            root_of[text] = root_of.get(parent, parent)
            text = parent
        return text

    buckets: dict[tuple[int, int], list[int]] = {}
    for text in compared:
        own = [
            buckets.setdefault((index, band[text]), [])
            for index, band in enumerate(bands)
            if band[text] in shared[index]
        ]
        misses = 0
        # Texts that agree in several bands are likely to be similar.
        for other, _ in Counter(other for bucket in own for other in bucket).most_common():
            if root(other) == root(text):
                continue
            if similarity(file.read(text), file.read(other)) >= SIMILARITY:
                root_of[root(text)] = root(other)
            elif (misses := misses + 1) >= _MAX_MISSES:
                break
        for bucket in own:
            if len(bucket) < _MAX_PARTNERS:
                bucket.append(text)
    return {text: root(text) for text in compared}
