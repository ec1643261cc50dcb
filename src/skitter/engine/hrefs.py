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
    """Hrefs met on the pages of one folder, with what became of them.

    Absolute and root-relative hrefs mean the same on every page of the host and are shared by its folders.
    """

    __slots__ = ("_here", "_host_wide")

    def __init__(self, host_wide: dict[str, str]) -> None:
        self._here: dict[str, str] = {}
        self._host_wide = host_wide

    def __len__(self) -> int:
        return len(self._here)

    def sort_out(self, hrefs: Sequence[str], counts: Counter[str]) -> list[str]:
        """Count the hrefs that are known, by what becomes of them; return the others, each once."""
        here, host_wide = self._here, self._host_wide
        strange = [href for href in hrefs if href not in host_wide and href not in here]
        if len(strange) < len(hrefs):
            for met in (here, host_wide):
                for reason, count in Counter(map(met.get, hrefs)).items():
                    if reason is not None:
                        counts[reason] += count
        if len(strange) < 2:
            return strange
        once = list(dict.fromkeys(strange))
        if len(once) < len(strange):
            counts[DUPLICATE] += len(strange) - len(once)
        return once

    def note(self, hrefs: Iterable[str], reason: str = DUPLICATE) -> None:
        """Remember what becomes of hrefs on any page of this folder."""
        for href in hrefs:
            if href[:1] == "/" or href[:4] == "http":
                self._host_wide[href] = reason
            elif href[:1] not in _PAGE_RELATIVE:
                self._here[href] = reason


_PAGE_RELATIVE = {"", "?", "#", " ", "\t", "\n", "\r", "\f"}
"""How hrefs begin that mean something else on each page, or may."""


class _NoMemory(HrefMemory):
    """Remembers nothing: for jobs in which a visited page may be visited again."""

    __slots__ = ()

    def note(self, hrefs: Iterable[str], reason: str = DUPLICATE) -> None:
        """Do nothing."""


class HrefMemories:
    """The href memories of all folders, bounded together."""

    def __init__(self, *, known_for_ever: bool) -> None:
        self._kind = HrefMemory if known_for_ever else _NoMemory
        self._folders: dict[str, HrefMemory] = {}
        self._hosts: dict[str, dict[str, str]] = {}
        self._lookups = 0

    def of(self, page_url: str) -> HrefMemory:
        """Return the memory of the folder in which a page is."""
        folder = page_url.partition("?")[0].rpartition("/")[0]
        memory = self._folders.get(folder)
        if memory is None:
            origin = page_url[: page_url.find("/", 8)]
            memory = self._folders[folder] = self._kind(self._hosts.setdefault(origin, {}))
        self._lookups += 1
        if self._lookups % 256 == 0 and self._size() > _REMEMBERED:
            self._folders.clear()
            self._hosts.clear()
        return memory

    def _size(self) -> int:
        return sum(map(len, self._folders.values())) + sum(map(len, self._hosts.values()))
