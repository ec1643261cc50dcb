"""Link memory: links met before, so that they need no second look.

Four links in five lead to a page that is known already. Such a link is recognised by its raw text, before it is
joined and parsed, or else by its URL, before it is scoped and fingerprinted. Only what the frontier holds for
certain, or what the scope refuses wherever it stands, is remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_REMEMBERED = 200_000
"""URLs and hrefs together, about 30 MB; then everything is forgotten and learnt anew."""
DUPLICATE = "duplicate"
_ABSOLUTE = ("http://", "https://", "mailto:", "javascript:", "tel:", "data:")
_HOST_WIDE = ("/", "http://", "https://")
"""How hrefs begin that mean the same on all pages of a host; ``http.html`` and ``http:x`` are relative."""


class LinkMemory:
    """What one worker remembers of the links it met.

    ``known_for_ever``: a URL that is in the frontier stays known. Otherwise nothing is remembered.
    """

    def __init__(self, *, known_for_ever: bool) -> None:
        self._known_for_ever = known_for_ever
        self.urls: set[str] = set()
        """Normalised URLs that are in the frontier."""
        self._folders: dict[str, FolderMemory] = {}
        self._hosts: dict[str, HostMemory] = {}
        self._lookups = 0

    def of(self, page_url: str) -> FolderMemory:
        """Return the memory of the folder in which a page is."""
        folder = page_url.partition("?")[0].rpartition("/")[0]
        memory = self._folders.get(folder)
        if memory is None:
            host = self._hosts.setdefault(page_url[: page_url.find("/", 8)], HostMemory())
            memory = self._folders[folder] = FolderMemory(host)
        self._lookups += 1
        if self._lookups % 256 == 0 and self._size() > _REMEMBERED:
            self.forget()
        return memory

    def forget(self) -> None:
        """Forget everything."""
        self._folders.clear()
        self._hosts.clear()
        self.urls.clear()

    def _size(self) -> int:
        hosts = sum(len(host.known) + len(host.refused) for host in self._hosts.values())
        return hosts + len(self.urls) + sum(len(folder.known) for folder in self._folders.values())

    def learn(self, urls: Sequence[str]) -> None:
        """Remember URLs that the frontier has taken."""
        if self._known_for_ever:
            self.urls.update(urls)


class HostMemory:
    """Hrefs that mean the same on every page of a host."""

    __slots__ = ("known", "refused")

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.refused: dict[str, str] = {}


class FolderMemory:
    """Hrefs that mean the same on every page of a folder, beside those of its host."""

    __slots__ = ("_host", "known")

    def __init__(self, host: HostMemory) -> None:
        self._host = host
        self.known: set[str] = set()

    def sort_out(self, hrefs: Sequence[str], counts: Counter[str]) -> list[str]:
        """Count the hrefs that need no second look, by what becomes of them; return the others, each once.

        The known ones, nearly all, are taken out by two set operations for the whole page.
        """
        strange = set(hrefs).difference(self._host.known)
        if strange:
            strange = strange.difference(self.known)
        if len(strange) < len(hrefs):
            counts[DUPLICATE] += len(hrefs) - len(strange)
        if not strange:
            return []
        left = []
        refused = self._host.refused
        for href in hrefs if len(strange) > 1 else list(strange):
            if href in strange:
                strange.discard(href)
                if (reason := refused.get(href)) is not None:
                    counts[reason] += 1
                else:
                    left.append(href)
        return left

    def note_known(self, href: str) -> None:
        """Remember an href whose URL is in the frontier, unless it may mean something else on another page.

        It may if it begins with ``?`` or ``#``, or with white space or a control character, which parsers skip.
        """
        if href.startswith(_HOST_WIDE):
            self._host.known.add(href)
        elif href[:1] > " " and href[0] not in "?#":
            self.known.add(href)

    def note_refused(self, href: str, reason: str) -> None:
        """Remember an absolute href that the scope refuses."""
        if href.startswith(_ABSOLUTE):
            self._host.refused[href] = reason
