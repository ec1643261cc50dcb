"""Href memory: raw links met before, so that they need no second look.

Four links in five lead to a page that is known already, and most are spelled as they were spelled before. Such
a link is recognised by its raw text, before it is joined, parsed, scoped or fingerprinted. Only what the
frontier holds for certain, or what the scope refuses wherever it stands, is remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

_REMEMBERED = 200_000
"""Hrefs over all folders, about 30 MB; then everything is forgotten and learnt anew."""
DUPLICATE = "duplicate"


class HrefMemory:
    """Hrefs met on the pages of one folder whose URLs are in the frontier or refused wherever they stand.

    Absolute and root-relative hrefs mean the same on every page of the host and are shared by its folders.
    """

    __slots__ = ("_here", "_host")

    def __init__(self, host: HostMemory) -> None:
        self._here: set[str] = set()
        self._host = host

    def __len__(self) -> int:
        return len(self._here)

    def sort_out(self, hrefs: Sequence[str], counts: Counter[str]) -> list[str]:
        """Count the hrefs that need no second look, by what becomes of them; return the others, each once.

        The known ones, nearly all, are taken out by two set operations for the whole page.
        """
        strange = set(hrefs).difference(self._host.known)
        if strange:
            strange = strange.difference(self._here)
        counts[DUPLICATE] += len(hrefs) - len(strange)
        if not strange:
            return []
        left = []
        refused = self._host.refused
        for href in hrefs if len(strange) > 1 else [*strange]:
            if href in strange:
                strange.discard(href)
                if (reason := refused.get(href)) is not None:
                    counts[reason] += 1
                else:
                    left.append(href)
        return left

    def note_known(self, hrefs: Iterable[str]) -> None:
        """Remember hrefs whose URLs are in the frontier."""
        for href in hrefs:
            if href.startswith(_HOST_WIDE):
                self._host.known.add(href)
            elif href[:1] > " " and href[0] not in "?#":
                self._here.add(href)

    def note_refused(self, href: str, reason: str) -> None:
        """Remember an absolute href that the scope refuses."""
        if href.startswith(_ABSOLUTE):
            self._host.refused[href] = reason


class HostMemory:
    """What means the same on every page of a host."""

    __slots__ = ("known", "refused")

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.refused: dict[str, str] = {}


_ABSOLUTE = ("http://", "https://", "mailto:", "javascript:", "tel:", "data:")
_HOST_WIDE = ("/", "http://", "https://")
"""How hrefs begin that mean the same on all pages of a host: ``http.html`` and ``http:x`` are relative. Those
that begin with ``?``, ``#``, white space or a control character (which parsers skip) may mean something else
on each page, and are not remembered."""


class _NoMemory(HrefMemory):
    """Remembers nothing: for jobs in which a visited page may be visited again."""

    __slots__ = ()

    def note_known(self, hrefs: Iterable[str]) -> None:
        """Do nothing."""


class HrefMemories:
    """The href memories of all folders, bounded together."""

    def __init__(self, *, known_for_ever: bool) -> None:
        self._kind = HrefMemory if known_for_ever else _NoMemory
        self._folders: dict[str, HrefMemory] = {}
        self._hosts: dict[str, HostMemory] = {}
        self._lookups = 0

    def of(self, page_url: str) -> HrefMemory:
        """Return the memory of the folder in which a page is."""
        folder = page_url.partition("?")[0].rpartition("/")[0]
        memory = self._folders.get(folder)
        if memory is None:
            origin = page_url[: page_url.find("/", 8)]
            memory = self._folders[folder] = self._kind(self._hosts.setdefault(origin, HostMemory()))
        self._lookups += 1
        if self._lookups % 256 == 0 and self._size() > _REMEMBERED:
            self._folders.clear()
            self._hosts.clear()
        return memory

    def _size(self) -> int:
        hosts = sum(len(host.known) + len(host.refused) for host in self._hosts.values())
        return hosts + sum(map(len, self._folders.values()))
