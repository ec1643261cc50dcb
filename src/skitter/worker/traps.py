"""TrapDetector: recognizes infinite URL spaces, such as calendars, filters, session ids and repeated folders.

Rules for single URLs are strict and cost one regular expression. Rules for patterns compare the contents of pages.
They first lower the priority of links, and refuse links only on strong evidence. ``docs/design/traps.md`` explains
them.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import xxhash

from skitter.frontier.records import ComparedPage
from skitter.settings import Settings
from skitter.web.urls import normalize

PATH_REPEATS = "trap_path_repeats"
PATH_SEGMENTS = "trap_path_segments"
PARAMETERS = "trap_parameters"
PATTERN = "trap_pattern"
PATTERN_URLS = "trap_pattern_urls"
DUPLICATE_CONTENT = "duplicate_content"

_PROBATION = 64
"""Links of a pattern that are queued without any check."""
_PROVEN_BY = 3
"""Pages with new words that prove a pattern."""
_STALE = 8
"""Consecutive pages without new words that disprove a pattern."""
_CHAIN = 20
"""Links from page to page within a pattern that are evidence of a trap."""
_COMBINATIONS = 8
"""Sets of parameters of one path that are evidence of a trap."""
_CHECKED = 12
"""The first pages of a pattern are all compared, up to this number, unless the pattern is disproved earlier."""
_SAMPLE, _SAMPLE_OF_SUSPECTS = 512, 8
"""After the first :data:`_CHECKED` pages, one page in this number is compared: normally, and if there is evidence against
a proven pattern. If there is evidence against an unproven pattern, all of its pages are compared."""
_MANY = 64
"""Number of links from which many links of a page are expected to have the same shape."""
_UNKNOWN_DEPTH = sys.maxsize
_MAX_PATTERNS = 50_000
_MAX_WORDS = 20_000
"""Maximum number of words kept per path."""
_SHORT = 6
"""A URL with fewer slashes has at most three segments, which no limit refuses."""
_MAX_DIGESTS = 100_000
_SEEDS = 2**64 - 1
_MAX_COMPARED = 32 * 1024
"""Bytes of a body that are compared."""

_NUMBERS = re.compile(r"\d+")
_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_TEXTS = re.compile(rb">([^<]+)")
_LETTERS = bytes(code if chr(code).isalpha() or code > 127 else 32 for code in range(256))
"""Translates everything else to spaces."""
_SOURCES = re.compile(rb" src=[\"']?([^\"'\s>?#]+)")
_SESSION_SEGMENT = re.compile(r";(?:jsessionid|phpsessid|sessionid|sid)=[^/?#;]*", re.IGNORECASE)
_SESSION_NAMES = r"phpsessid|jsessionid|aspsessionid[a-z]*|cfid|cftoken"
_GENERIC_SESSION_NAMES = r"s|sid|session|sessid|sessionid|session_id|oscsid|zenid"


LinkDecision = tuple[str | None, int, bool]
"""The reason to refuse a new link, its penalty in priority, and whether it has the pattern of its page."""
_NO_PATTERN: LinkDecision = (None, 0, False)


def _stripper(settings: Settings) -> re.Pattern[str] | None:
    """Return a pattern that finds the parameters of a query to remove, each with its separator."""
    names = []
    if settings.strip_session_ids:
        names += [rf"(?:{_SESSION_NAMES})=[^&]*", rf"(?:{_GENERIC_SESSION_NAMES})=[0-9A-Za-z_-]{{16,}}"]
    names += [
        re.escape(name).replace(r"\*", "[^=&]*") + "(?:=[^&]*)?" for name in settings.stripped_parameters
    ]
    return re.compile(rf"([?&])(?:{'|'.join(names)})(?=&|$)", re.IGNORECASE) if names else None


def _refusal(settings: Settings, url: str) -> str | None:
    """Return the reason to refuse a URL by its form alone."""
    slashes = url.count("/")
    if "?" not in url and slashes < _SHORT:
        return None
    path, _, query = url.partition("?")
    limit = settings.max_query_parameters
    if query and limit is not None and query.count("&") >= limit:
        return PARAMETERS
    if slashes < _SHORT:
        return None
    segments = path.split("/")[3:]
    if settings.max_path_segments is not None and len(segments) > settings.max_path_segments:
        return PATH_SEGMENTS
    limit = settings.max_path_repeats
    if limit is not None and len(segments) > limit and len(segments) - len(set(segments)) >= limit:
        segments = [segment for segment in segments if segment]
        if segments and max(Counter(segments).values()) > limit:
            return PATH_REPEATS
    return None


@dataclass(slots=True, eq=False)
class PathGroup:
    """The patterns with the same path, and the words on their pages."""

    patterns: int = 0
    """Number of patterns with this path."""
    admitted: int = 0
    """Number of links that were queued."""
    stale: int = 0
    """Consecutive compared pages without new words, but with new links to the path."""
    closed: bool = False
    """Whether the path is a trap: unproven patterns of it are refused."""
    words: set[int] = field(default_factory=set)
    """CRC-32 of each word on its pages."""


@dataclass(slots=True, eq=False)
class _Pattern:
    """URLs that differ only in the numbers of their path and in the values of their parameters."""

    path: PathGroup
    first_depth: int
    hops: int = 0
    """Longest known chain of links within the pattern since its first page."""
    admitted: int = 0
    """Number of links that were queued."""
    pages: int = 0
    checked: int = 0
    """Number of compared pages."""
    novel: int = 0
    """Number of compared pages with new words."""
    novel_since_disproved: int = 0
    """Number of compared pages with new words since the pattern was last disproved."""
    repetitive: int = 0
    """Consecutive compared pages without new words."""
    stale: int = 0
    """Compared pages without new words, but with new links to the path, since the last page with new words."""
    closed: bool = False
    """Whether the pattern is a trap, and refused."""

    def record_depth(self, depth: int) -> None:
        self.first_depth = min(self.first_depth, depth)
        self.hops = max(self.hops, depth - self.first_depth)

    @property
    def is_proven(self) -> bool:
        return self.novel_since_disproved >= _PROVEN_BY

    @property
    def is_repetitive(self) -> bool:
        """Whether links of the pattern lose priority. To be refused, a pattern must also be :attr:`is_closed`."""
        return self.repetitive >= _STALE or (self.checked >= _CHECKED and 2 * self.novel < self.checked)

    @property
    def interval(self) -> int:
        """One page in this number of pages is compared."""
        has_evidence = self.hops >= _CHAIN or self.path.patterns >= _COMBINATIONS
        if not has_evidence:
            return _SAMPLE
        return _SAMPLE_OF_SUSPECTS if self.is_proven else 1

    @property
    def is_closed(self) -> bool:
        return self.closed or (self.path.closed and not self.is_proven)


class TrapDetector:
    """The URL patterns and page contents that a worker has seen on its hosts.

    The workers of an embedded frontier share their comparisons of pages. The size is bounded, and nothing is stored.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stripper = _stripper(settings)
        self._patterns: dict[str, _Pattern] = {}
        """The patterns, by the name that :func:`_names_of` gives them."""
        self._shapes: dict[bytes, _Pattern] = {}
        """The patterns of URLs that were seen, by their shape."""
        self._paths: dict[str, PathGroup] = {}
        self._contents: dict[int, int] = {}
        """The hash of the first URL with a content, by the digest of its body and origin."""
        self._last_url = ""
        self._last_pattern: _Pattern | None = None
        self.has_closed = False
        """Whether any pattern is refused."""
        self._compared: list[ComparedPage] = []
        """Pages compared since the last call of :meth:`take_compared`."""

    # --- links -----------------------------------------------------------------------------------------

    def strip(self, url: str) -> str:
        """Return a link without session ids and the parameters to remove. They follow ``?`` or ``;``."""
        if self._settings.strip_session_ids and ";" in url:
            path = url.find("/", 8)
            stripped = url[:path] + _SESSION_SEGMENT.sub("", url[path:])
            if len(stripped) < len(url):
                url = normalize(stripped) or url  # the segment may now be ".."
        if self._stripper is not None and "?" in url:
            stripped = self._stripper.sub(lambda found: "?" if found[1] == "?" else "", url)
            if len(stripped) < len(url):
                url = stripped.replace("?&", "?", 1).rstrip("?")
        return url

    def admit_all(
        self, urls: Sequence[str], depth: int, parent: PathGroup | None
    ) -> list[tuple[int, LinkDecision]]:
        """Judge the new links of a page, whose path is ``parent``.

        Return decisions in the order of the links, each with the number of links it is for.
        """
        decisions: list[tuple[int, LinkDecision]] = []
        pattern: _Pattern | None = None
        first = end = 0
        """Consecutive links that have the pattern and are not judged yet."""
        for shape, amount in _shapes(urls):
            found = self._shapes.get(shape)
            if found is None and not _is_without_pattern(shape):
                found = self._add(urls[end], shape, depth)
            if found is not pattern:
                self._admit_alike(pattern, end - first, parent, decisions)
                pattern, first = found, end
            if b"?" in shape or shape.count(b"/") >= _SHORT:
                for url in urls[end : end + amount]:
                    if (refusal := _refusal(self._settings, url)) is not None:
                        self._admit_alike(pattern, end - first, parent, decisions)
                        decisions.append((1, (refusal, 0, False)))
                        first = end + 1
                    end += 1
            else:
                end += amount
        self._admit_alike(pattern, end - first, parent, decisions)
        return decisions

    def _admit_alike(
        self,
        pattern: _Pattern | None,
        amount: int,
        parent: PathGroup | None,
        decisions: list[tuple[int, LinkDecision]],
    ) -> None:
        """Judge links of one pattern, and add the decisions."""
        if not amount:
            return
        if pattern is None:
            decisions.append((amount, _NO_PATTERN))
            return
        path = pattern.path
        is_own = path is parent
        if pattern.is_closed:
            decisions.append((amount, (PATTERN, 0, is_own)))
            return
        refused = 0
        if (most := self._settings.max_urls_per_pattern) is not None:
            refused = max(0, amount - max(0, most - pattern.admitted))
        admitted = amount - refused
        unchecked = min(admitted, max(0, _PROBATION - path.admitted))
        pattern.admitted += admitted
        path.admitted += admitted
        is_repetitive = pattern.is_repetitive
        if pattern.is_proven and not is_repetitive:
            unchecked = admitted
        if unchecked:
            decisions.append((unchecked, (None, 0, is_own)))
        if admitted > unchecked:
            is_repetitive = is_repetitive or path.stale >= _STALE
            decisions.append(
                (admitted - unchecked, (None, -2 if is_repetitive else -1 if is_own else 0, is_own))
            )
        if refused:
            decisions.append((refused, (PATTERN_URLS, 0, is_own)))

    def count_urls(self, urls: Sequence[str]) -> None:
        """Count links that another worker has queued for the probation of their paths."""
        first = 0
        for shape, amount in _shapes(urls):
            pattern = self._shapes.get(shape)
            if pattern is None and not _is_without_pattern(shape):
                pattern = self._add(urls[first], shape, _UNKNOWN_DEPTH)
            if pattern is not None:
                pattern.path.admitted += amount
            first += amount

    def _find(self, url: str) -> _Pattern | None:
        """Return the pattern of a page. Successive calls are for the same page, so the last result is kept."""
        if url != self._last_url:
            shape = _shape_of(url)
            pattern = self._shapes.get(shape)
            if pattern is None and not _is_without_pattern(shape):
                pattern = self._named(url, shape)
            self._last_url, self._last_pattern = url, pattern
        return self._last_pattern

    def _named(self, url: str, shape: bytes) -> _Pattern | None:
        """Return the pattern of a URL that has an unknown shape."""
        pattern = self._patterns.get(_names_of(url)[0])
        if pattern is not None:
            if len(self._shapes) >= _MAX_PATTERNS:
                self._shapes.clear()
            self._shapes[shape] = pattern
        return pattern

    def _add(self, url: str, shape: bytes, depth: int) -> _Pattern:
        """Add the pattern of a URL, unless it is known."""
        pattern = self._named(url, shape)
        if pattern is not None:
            return pattern
        name, path_name = _names_of(url)
        if len(self._patterns) >= _MAX_PATTERNS:
            self._patterns.clear()
            self._paths.clear()
            self._shapes.clear()
            self.has_closed = False
        self._last_url = ""
        path = self._paths.setdefault(path_name, PathGroup())
        path.patterns += 1
        pattern = self._patterns[name] = self._shapes[shape] = _Pattern(path, depth)
        return pattern

    def path_of(self, url: str) -> PathGroup | None:
        """Return the patterns with the path of a URL; ``None`` if its pattern is unknown."""
        pattern = self._find(url)
        return None if pattern is None else pattern.path

    def is_closed(self, url: str) -> bool:
        """Return whether a URL has a pattern that is refused."""
        pattern = self._find(url)
        return pattern is not None and pattern.is_closed

    # --- pages -----------------------------------------------------------------------------------------

    def is_duplicate(self, url: str, body: bytes) -> bool:
        """Return whether another page of the host had the same content, and remember this one."""
        if self._settings.duplicate_content == "follow" or not body:
            return False
        contents = self._contents
        if len(contents) >= _MAX_DIGESTS:
            contents.clear()
        page, origin = hash(url), hash(url[: url.find("/", 8)])
        return contents.setdefault(xxhash.xxh3_64_intdigest(body, origin & _SEEDS), page) != page

    def record_page(self, url: str, depth: int, body: bytes, own_links: int, *, is_duplicate: bool) -> None:
        """Compare a page with earlier pages of its path. ``own_links``: its new links with the same path."""
        pattern = self._find(url)
        if pattern is None:
            return
        path = pattern.path
        if path.admitted < _PROBATION:
            return
        pattern.pages += 1
        pattern.record_depth(depth)
        if (pattern.checked >= _CHECKED or pattern.repetitive >= _STALE) and pattern.pages % pattern.interval:
            return
        words = set() if is_duplicate else _words_of(body) - path.words
        self._compared.append(ComparedPage(url, depth, list(words), own_links))
        self._count_comparison(pattern, words, own_links)

    def take_compared(self) -> list[ComparedPage]:
        """Return the pages that were compared since the last call, for the other workers of the machine."""
        compared, self._compared = self._compared, []
        return compared

    def learn(self, compared: Sequence[ComparedPage]) -> None:
        """Count the comparisons of another worker as if this one had made them."""
        for page in compared:
            pattern = self._find(page.url) or self._add(page.url, _shape_of(page.url), page.depth)
            pattern.record_depth(page.depth)
            self._count_comparison(pattern, set(page.new_words) - pattern.path.words, page.own_links)

    def _count_comparison(self, pattern: _Pattern, new_words: set[int], own_links: int) -> None:
        path = pattern.path
        pattern.checked += 1
        if new_words:
            if len(path.words) > _MAX_WORDS:
                path.words.clear()
            path.words |= new_words
            pattern.novel += 1
            pattern.novel_since_disproved += 1
            pattern.repetitive = pattern.stale = path.stale = 0
            return
        pattern.repetitive += 1
        if pattern.repetitive >= _STALE:
            pattern.novel_since_disproved = 0
        if own_links:
            pattern.stale += 1
            path.stale += 1
            self._judge(pattern)

    def _judge(self, pattern: _Pattern) -> None:
        path = pattern.path
        if pattern.hops >= _CHAIN and pattern.stale >= self._settings.trap_patience:
            pattern.closed = self.has_closed = True
        if path.patterns >= _COMBINATIONS and path.stale >= self._settings.trap_patience:
            path.closed = self.has_closed = True


def _shape_of(url: str) -> bytes:
    """Return a URL with 0 for each digit after its origin."""
    raw = url.encode()
    start = raw.find(b"/", 8)
    return raw[:start] + raw[start:].translate(_TO_ZERO)


def _shapes(urls: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """Return the shape of each URL, in order, with the number of URLs in a row that have it.

    A shape is a URL with 0 for each digit after its origin. The URLs of one origin, such as most links of a page, are
    translated together.
    """
    origin = urls[0][: urls[0].find("/", 8)]
    text = "\n".join(urls)
    if len(urls) > 1 and text.count(f"\n{origin}/") < len(urls) - 1:
        for url in urls:
            yield from _shapes([url])
        return
    start, begin = len(origin), origin.encode()
    zeros = text.encode().translate(_TO_ZERO)
    if len(urls) >= _MANY:
        for line, amount in _runs(zeros):
            yield begin + line[start:], amount
        return
    for line, alike in groupby(zeros.split(b"\n")):
        yield begin + line[start:], len(list(alike))


def _runs(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Return each line that differs from the one before, with the number of equal lines in a row.

    Long runs take few steps, because the search doubles its length.
    """
    text += b"\n"
    at = 0
    while at < len(text):
        line = block = text[at : text.find(b"\n", at) + 1]
        end = at + len(line)
        while text.startswith(block, end):  # one line, then two, four, ...
            end += len(block)
            block += block
        while len(block) > len(line):
            block = block[: len(block) // 2]
            if text.startswith(block, end):
                end += len(block)
        yield line[:-1], (end - at) // len(line)
        at = end


def _is_without_pattern(shape: bytes) -> bool:
    """Return whether URLs of a shape have neither a query nor a number in their path."""
    return b"?" not in shape and shape.find(b"0", shape.find(b"/", 8)) < 0


def _names_of(url: str) -> tuple[str, str]:
    """Return the name of the pattern of a URL, and that of its path.

    A name is the URL with 0 for each number, and the names of parameters.
    """
    start = url.find("/", 8)
    spelling = _NUMBERS.sub("0", url[start:])
    path, mark, query = spelling.partition("?")
    if not mark:
        return (url[:start] + path,) * 2
    parameters = "&".join(sorted({part.partition("=")[0] for part in query.split("&")}))
    return f"{url[:start]}{path}?{parameters}", f"{url[:start]}{path}?"


def _words_of(body: bytes) -> set[int]:
    """Return the CRC-32 of each word and of each embedded file of a page, which is the same in all processes."""
    body = body[:_MAX_COMPARED]
    text = b" ".join(_TEXTS.findall(body)).translate(_LETTERS)
    return {zlib.crc32(word) for word in {*text.split(), *_SOURCES.findall(body)} if len(word) > 2}
