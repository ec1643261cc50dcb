"""Limits on the memory and the time that a parsed page may take.

A parser may need far more memory than the page is long: a page of 60 KB can describe a tree of a million elements.
Pages above :data:`ALWAYS_SAFE` are therefore parsed in parts, and the growth of the process is measured after each part.
The design note "Limits" has the measurements.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from threading import current_thread, main_thread
from typing import Any, AnyStr

from skitter.errors import PageTooComplex

try:
    from skitter.html._tags import count_tags, tree_bound
except ImportError:
    count_tags = tree_bound = None  # type: ignore[assignment]

ALWAYS_SAFE = 10_000
"""Number of characters below which every page is parsed in one step; see :func:`is_always_safe`."""
_FEW_TAGS = 1_500
_FEW_TAGS_SAFE = 64_000
"""Number of characters below which a page is parsed in one step if it has at most this number of tags. A small page needs many
tags to describe a large tree, whether by formatting elements that are opened again or by attributes that are merged."""
LENGTH_OF_PLAIN = 1_200_000
_FEWER_TAGS, _SHORT_TAGS, _SHORT_ROOTS = 1_000, 48_000, 4_000
"""Limits of :func:`has_few_plain_tags`: characters of the page, tags, characters inside of tags, and inside of ``html`` and ``body``."""
_PROVEN_SIZE = 24 * 1024 * 1024
"""Maximum result of :func:`proven_size`. The worst page within it took 25 MB and 35 ms to parse, on a busy machine."""
DEFAULT_MEMORY = 96 * 1024 * 1024
"""Default of the setting ``max_page_memory``, in bytes."""

_PART = 4096
"""Number of characters passed to a parser at once. The worst known part takes 60 MB and 50 ms."""
_FIRST_PART = 8_192
_JSON_SHARE = 2
"""JSON is parsed from bytes, without a decoded text in memory, so its values may take twice the memory."""
_MAX_ATTRIBUTES = 2_000
"""Maximum number of attributes of one tag. The time of libxml2 and Lexbor grows with the square of this number."""


class TakesLong(Exception):
    """Parsing a page takes longer than it may on the event loop."""


class MemoryMeter:
    """Measures the memory that a page takes. ``limit``: bytes that it may take.

    ``pauses``: whether the page is parsed in a thread, which may wait while the event loop has work.
    ``is_fixed``: whether the limit follows from the length of the page, and not from ``max_page_memory``.
    ``max_seconds``: CPU time after which :class:`TakesLong` is raised; ``None`` (default): never.
    """

    def __init__(
        self,
        limit: int,
        *,
        pauses: bool = False,
        is_fixed: bool = False,
        max_seconds: float | None = None,
    ) -> None:
        self.limit = max(0, limit)
        """Bytes that the page may take."""
        self.refusal = too_complex if is_fixed else too_much_memory
        """Returns the error of a page that exceeds the limit."""
        self.used = 0
        """Memory that was counted."""
        self._source = _memory_file(os.getpid())
        self._buffer = _Buffer()
        self._pauses = pauses
        self._max_seconds = max_seconds
        self._others = 0.0
        """CPU time of other threads while the page was parsed."""
        self._began = self._seconds = time.thread_time()
        self.begin_turn()

    def begin_turn(self) -> None:
        """Start the next measurement at the current memory of the process."""
        self._others_before = time.process_time() - time.thread_time()
        self._resident = self.resident()
        self._turn_began = time.perf_counter()

    def resident(self) -> int:
        """Return the memory of this process in bytes; on systems without ``/proc``, its peak.

        The call keeps the interpreter lock, so memory that is taken between two calls without a pause belongs to the calling
        thread.
        """
        if self._source is None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * 1024
        _LIBC.pread(self._source, self._buffer, 64, _START)
        return int(self._buffer.raw.split(None, 2)[1]) * _PAGE_SIZE

    def measure(self) -> None:
        """Count the memory that the process has taken since the last measurement, and let other threads run if it is time.

        Raises :class:`~skitter.errors.PageTooComplex` above the limit.
        """
        resident = self.resident()
        self.used += max(0, resident - self._resident)
        self._resident = resident
        if self.used > self.limit:
            self._end_turn()
            raise self.refusal(f"the tree of the page takes more than {self.limit:,} bytes")
        if time.perf_counter() - self._turn_began >= _TURN:
            self._let_others_run()

    def _end_turn(self) -> None:
        self._others += time.process_time() - time.thread_time() - self._others_before

    def _let_others_run(self) -> None:
        """Let other threads run. Their memory does not count.

        A part is parsed without releasing the interpreter lock. So a page that takes long would leave the event loop too
        little time for the pages of other hosts. After some time, parsing pauses for as long as it has run.
        """
        self._end_turn()
        if self._max_seconds is not None and time.thread_time() - self._began > self._max_seconds:
            raise TakesLong
        pause, before = 0.0, self._seconds
        if self._pauses:
            self._seconds = time.thread_time()  # CPU time, so that a busy machine does not cause pauses
            if self._seconds - self._began > _USUAL_SECONDS:
                pause = min(self._seconds - before, _LONGEST_PAUSE)
        time.sleep(pause)
        self.begin_turn()

    @property
    def is_certain(self) -> bool:
        """Whether the page itself has taken the memory, and not a thread that runs without the interpreter lock."""
        own = time.thread_time() - self._began
        return self.used <= self.limit or self._others <= own * _NEGLIGIBLE_SHARE

    def check_runs(self, text: str) -> None:
        """Raise :class:`~skitter.errors.PageTooComplex` for a text node that would exceed the limit.

        A parser collects a text node and builds it in one step, which cannot be measured before.
        """
        longest = max(1, (self.limit - self.used) // _BYTES_PER_CHARACTER)
        position = 0
        while len(text) - position > longest:
            tag = text.rfind("<", position, position + longest)
            if tag < 0:
                raise self.refusal(f"the page contains a text of more than {longest:,} characters")
            position = tag + 1


_Buffer = ctypes.c_char * 64


@cache
def _memory_file(_pid: int) -> int | None:
    """Return the open file with the memory of this process. A forked process opens its own file. ``None`` without ``/proc``."""
    return os.open("/proc/self/statm", os.O_RDONLY) if sys.platform == "linux" else None


_BYTES_PER_CHARACTER = 24
"""Bytes of memory per character of a text node while the default engine builds the node."""
_SMALL_TREE = 32 * 1024 * 1024
_BYTES_PER_CHARACTER_OF_PAGE = 64
"""Bytes of memory per character of a page. Ordinary pages take 8 to 12, and pages of empty elements 42."""
_LIBC = ctypes.PyDLL(None)
"""The C library, called without releasing the global interpreter lock."""
_START = ctypes.c_long(0)
_trim: Callable[[int], int] = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)
_ATTEMPTS = 3
_TURN = 0.001
"""Seconds for which a page is parsed before other threads may run."""
_USUAL_SECONDS = 0.02
"""Seconds of parsing after which a page pauses. Ordinary pages of several megabytes take less."""
_LONGEST_PAUSE = 0.05
_LONG_TEXT = 256 * 1024
"""Number of characters above which a page is parsed in a thread."""
_NEGLIGIBLE_SHARE = 0.1
"""Share of the page's CPU time up to which the CPU time of other threads is too short for them to take much memory."""
_PAGE_SIZE = resource.getpagesize()


def is_always_safe(text: str) -> bool:
    """Return whether a page can be parsed in one step because it cannot take more than 100 MB or 100 ms."""
    length = len(text)
    if length <= _FEW_TAGS_SAFE:
        # Replacing the allowed number of tags, and searching for another tag, takes a fifth of the time of count().
        return length <= ALWAYS_SAFE or "<" not in text.replace("<", ">", _FEW_TAGS)
    return has_few_plain_tags(text)


def has_few_tags(body: bytes) -> bool:
    """Return whether a page in UTF-8 can be parsed in one step because it has few tags.

    It examines the bytes. If it returns ``False``, :func:`is_always_safe` can still decide from the text. Always ``False`` if
    skitter was installed without its compiled modules.
    """
    return count_tags is not None and len(body) <= _FEW_TAGS_SAFE and count_tags(body) <= _FEW_TAGS


def has_few_plain_tags(text: str) -> bool:
    """Return whether a long page is simple enough that its tree takes little memory and time: at most 20 MB and 10 ms.

    In the worst case, the memory of a tree grows with the product of the numbers of tags and attributes, so both have to
    be small. Each attribute is between a ``<`` and the next ``>``, because no quotes can hide a ``>``: a tag with quotes has
    to be well-formed.
    """
    length, middle = len(text), len(text) // 2
    if (
        length > LENGTH_OF_PLAIN
        or text.count("<", middle, middle + _PART) * length > 2 * _FEWER_TAGS * _PART  # most pages end here
        or "\0" in text  # each NUL character takes 80 ns
    ):
        return False
    find, inside, roots, left = text.find, _SHORT_TAGS, _SHORT_ROOTS, _FEWER_TAGS
    is_plain = re.compile(_PLAIN_TAG).fullmatch
    start = find("<")
    while start >= 0:
        end = find(">", start)
        left -= 1
        inside -= end - start
        if end < 0 or inside < 0 or not left:
            return False
        if (
            end - start >= _SHORTEST_QUOTE
            and (find('"', start, end) >= 0 or find("'", start, end) >= 0)
            and is_plain(text, start, end + 1) is None
        ):
            return False
        if end - start >= _SHORTEST_ROOT and text[start + 1 : start + 5].lower() in _ROOTS:
            roots -= end - start
            if roots < 0:
                return False
        start = find("<", end)
    return True


_SHORTEST_QUOTE = len('<a b="')
_SHORTEST_ROOT = len("<html a")
_PLAIN_TAG = (  # compiled at its first use
    r"""<[a-zA-Z][^\0- <>"'=/]*(?:[ \t\n\r\f]+[^\0- <>"'=/]+(?:=(?:"[^"<>]*"|'[^'<>]*'|[^\0- <>"'=`]+))?)*+[ \t\n\r\f]*/?>"""
    r"""|<![dD][oO][cC][tT][yY][pP][eE][^<>"']*(?:"[^"<>]*"[ \t\n\r\f]*)*+>"""
)


def proven_size(text: str) -> int | None:
    """Return an upper bound of the memory of a page's tree in bytes, if the tags of the page prove that it is small.

    ``None`` for any other page, and always if skitter was installed without its compiled modules. The memory of such a page
    has to be measured.
    """
    if tree_bound is None or len(text) > LENGTH_OF_PLAIN:
        return None
    bound = tree_bound(text if text.isascii() else text.encode("utf-8", "surrogatepass"), _PROVEN_SIZE)
    return None if bound < 0 else bound


def largest_tree(length: int, memory: int) -> int:
    """Return the number of bytes that the tree of a page of this length may take, if no page may take more than ``memory``.

    A page of moderate size is parsed on the event loop, so its tree may not take as much as the tree of a large page.
    """
    return min(memory, _SMALL_TREE + length * _BYTES_PER_CHARACTER_OF_PAGE)


def meter_for(text: str, memory: int, max_seconds: float | None = None) -> MemoryMeter:
    """Return a meter for the tree of a page that may take ``memory`` bytes together with its text."""
    left, largest = memory - sys.getsizeof(text), largest_tree(len(text), memory)
    pauses = _is_long(text) and current_thread() is not main_thread()
    return MemoryMeter(min(left, largest), pauses=pauses, is_fixed=largest < left, max_seconds=max_seconds)


def attempts_for(text: str) -> int:
    """Return how often a page is parsed before it is refused, if threads without the interpreter lock may have taken memory.

    Such a thread may be decompressing another body, for example.
    """
    return _ATTEMPTS if _is_long(text) else _ATTEMPTS - 1  # a shorter page may block the event loop


def _is_long(text: str) -> bool:
    return len(text) > _LONG_TEXT


def return_freed_memory() -> None:
    """Return freed memory to the system. By itself, glibc keeps the freed memory of each thread, up to the size of a tree."""
    _trim(0)


def too_much_memory(message: str) -> PageTooComplex:
    """Return the error of a page that exceeds the setting ``max_page_memory``."""
    return PageTooComplex(
        message, remedy="raise max_page_memory to parse larger pages", field="max_page_memory"
    )


def too_complex(message: str) -> PageTooComplex:
    """Return the error of a page that exceeds a limit that no setting changes."""
    return PageTooComplex(
        message, remedy="no setting changes this limit; read response.text without selectors"
    )


def parts_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the end of each part that is passed to a parser, and the part. The first part is longer: no element is open before it."""
    yield _FIRST_PART, text[:_FIRST_PART]
    for start in range(_FIRST_PART, len(text), _PART):
        yield start + _PART, text[start : start + _PART]


_LONG = _MAX_ATTRIBUTES * 2
_LONG_TAG = re.compile(rf"<[a-zA-Z][^<>]{{{_LONG - 2},}}")
_SEARCH_PART = 1_000_000
_QUOTED_VALUE = re.compile(r"""(?<=[^\s=/])\s*=\s*(?:"[^"]*"|'[^']*')""")
_ATTRIBUTE = re.compile(r"(?<=[\s/])[^\s/>]")
"""The first character of an attribute. Matching the preceding blanks as well would take quadratic time for many blanks."""


def check_attributes(text: str) -> None:
    """Raise :class:`~skitter.errors.PageTooComplex` for a tag with too many attributes."""
    for tag in _long_tags(text):
        outside = _QUOTED_VALUE.sub(" ", tag)  # an attribute may follow a quoted value without a space
        if len(outside) >= _LONG and _exceeds(_ATTRIBUTE, outside, _MAX_ATTRIBUTES):
            raise too_complex(f"a tag has more than {_MAX_ATTRIBUTES} attributes")


_MAX_ROOT_ATTRIBUTES = 10_000
_ROOT_PART = 262_144
_ROOT_TAG = re.compile(r"<[hHbB](?i:tml|ody)[\s/]")
"""The beginning of a tag of ``html`` or ``body`` that may have attributes."""
_ROOT_START = len("<html ")
_TAG_BODY = re.compile(r"""(?:[^"'>=]++|["']|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+""")
"""A tag to its end. A quote begins a value only after an equals sign."""


class RootCheck:
    """Limits the attributes of all tags of ``html`` and ``body`` together.

    The parser merges them into one element, and compares each attribute with all previous attributes.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._left = _MAX_ROOT_ATTRIBUTES

    def advance(self, end: int) -> None:
        """Check the tags that begin before a position. Raises :class:`~skitter.errors.PageTooComplex`."""
        while self._end < min(end, len(self._text)):
            start, self._end = self._end, self._end + _ROOT_PART
            for root in _ROOT_TAG.finditer(self._text, start, self._end + _ROOT_START - 1):
                self._count(root.end() - 1)

    def _count(self, start: int) -> None:
        tag = _TAG_BODY.match(self._text, start, start + _SEARCH_PART)
        assert tag is not None  # it matches any text
        self._left -= sum(1 for _ in _ATTRIBUTE.finditer(_QUOTED_VALUE.sub(" ", tag[0])))
        if self._left < 0 or len(tag[0]) == _SEARCH_PART:
            raise too_complex(
                f"the html and body tags of the page have more than {_MAX_ROOT_ATTRIBUTES:,} attributes"
            )


def _long_tags(text: str) -> Iterator[str]:
    """Return the tags that may have too many attributes. The text is searched in parts, because a search blocks threads."""
    position = 0
    while position < len(text):
        end = position + _SEARCH_PART
        if (start := _LONG_TAG.search(text, position, end + _LONG)) is not None:
            tag = _LONG_TAG.match(text, start.start())
            assert tag is not None  # the part found so far is long enough
            yield tag[0]
            end = tag.end()
        position = end


def _exceeds(pattern: re.Pattern[AnyStr], text: AnyStr, limit: int) -> bool:
    return any(number >= limit for number, _ in enumerate(pattern.finditer(text)))


def check_json(body: bytes, memory: int, taken: int = 0, *, is_fixed: bool = False) -> None:
    """Raise :class:`~skitter.errors.PageTooComplex` for JSON whose values would take too much memory.

    ``taken``: bytes of that memory that are not available. ``is_fixed``: no setting changes the limit.
    """
    if len(body) > ALWAYS_SAFE:
        refusal = too_complex if is_fixed else too_much_memory
        _check_counts(body, _JSON_SIZES, memory * _JSON_SHARE - taken, refusal)
        if any(_exceeds(tiny, body, _MAX_TINY_NUMBERS) for tiny in _TINY_NUMBERS):
            raise too_complex(f"the page has more than {_MAX_TINY_NUMBERS:,} numbers below 1e-199")


def check_xml(text: str, memory: int) -> None:
    """Raise :class:`~skitter.errors.PageTooComplex` for XML whose tree would take too much memory or time."""
    if len(text) > ALWAYS_SAFE:
        _check_counts(text, _XML_SIZES, memory - sys.getsizeof(text))
        check_attributes(text)


_TINY_NUMBERS = [re.compile(rb"%c-(?<=[0-9]%c-)[23][0-9][0-9]" % (sign, sign)) for sign in b"eE"]
"""One pattern for each sign of an exponent, because patterns that begin with fixed characters are searched fast."""
_MAX_TINY_NUMBERS = 20_000
"""Maximum number of numbers close to the smallest possible one. msgspec takes 7 µs for each, a hundred times as long as usual."""


def _check_counts(
    text: Any,
    sizes: Mapping[str, int],
    memory: int,
    refusal: Callable[[str], PageTooComplex] = too_much_memory,
) -> None:
    is_text = isinstance(text, str)
    needed = sum(text.count(sign if is_text else sign.encode()) * size for sign, size in sizes.items())
    if needed > memory:
        raise refusal(f"the parsed page would take about {needed:,} bytes")


_JSON_SIZES = {"[": 64, "{": 232, ",": 40}
"""Memory of an empty list, of a dict with one key, and of a value with its entry in a container, in bytes."""
_XML_SIZES = {"<": 310, "</": -140, "=": 290}
"""Memory in libxml2 in bytes: an element with a text node, the part of it that an end tag does not need, an attribute."""


class _Nesting:
    """The estimated shape of a tree."""

    def __init__(self) -> None:
        self.tags = self.depth = self.deepest = self.open = self.most_open = self.roots = 0

    def add(self, name: str, *, closing: bool) -> None:
        """Add a tag."""
        self.tags += 1
        if name in _FORMATTING:
            self.open = max(0, self.open - 1) if closing else self.open + 1
            self.most_open = max(self.most_open, self.open)
        elif name in _ROOTS:
            self.roots += 1
        if name not in _UNNESTED:
            self.depth = max(0, self.depth - 1) if closing else self.depth + 1
            self.deepest = max(self.deepest, self.depth)

    def check(self, text: str, meter: MemoryMeter) -> None:
        """Raise :class:`~skitter.errors.PageTooComplex` if the tree takes too much time or memory."""
        if max(self.tags * self.deepest, self.roots * len(text)) > _MAX_STEPS:
            raise too_complex(f"the page nests {self.deepest} elements")
        nodes = self.tags * self.most_open if self.most_open > _USUAL_OPEN else self.tags
        if nodes * _NODE_SIZE > meter.limit:
            raise meter.refusal(f"the tree of the page has up to {nodes:,} elements")


def check_nesting(text: str, meter: MemoryMeter) -> None:
    """Raise :class:`~skitter.errors.PageTooComplex` for a page for which Lexbor would need too much memory or time.

    Its time grows with the depth times the number of tags, and its memory with the number of formatting elements that
    are never closed times the number of tags.
    """
    check_attributes(text)
    nesting = _Nesting()
    for number, found in enumerate(_TAG.finditer(text)):
        nesting.add(found[2].lower(), closing=bool(found[1]))
        if number % _CHECK_INTERVAL == 0:
            nesting.check(text, meter)
    nesting.check(text, meter)


_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_ROOTS = frozenset({"html", "body"})
_FORMATTING = frozenset(
    {"b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"}
)
_UNNESTED = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
    | {"dd", "dt", "li", "option", "p", "td", "th", "tr", "tbody", "thead", "tfoot"}
)
"""Elements without content, and elements whose end tags are optional."""
_MAX_STEPS = 100_000_000
"""Maximum product of tags and depth. Lexbor takes 1.5 ns for each unit."""
_NODE_SIZE = 120
_CHECK_INTERVAL = 1_000
"""Number of tags between two checks."""
_USUAL_OPEN = 50
