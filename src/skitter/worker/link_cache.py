"""Link memory: links met before, so that they need no second look.

Four links in five lead to a page that is known already. Such a link is recognised by its raw text, before it is
joined and parsed, or else by its URL, before it is scoped and fingerprinted. Only what the frontier holds for
certain, or what the scope refuses wherever it stands, is remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

_URLS_REMEMBERED = 250_000
"""About 25 MB; then all URLs are forgotten and learnt anew."""
_HREFS_REMEMBERED = 150_000
"""Likewise; several hrefs may lead to one URL, so they are forgotten more often."""
_FOLDER_WEIGHT = 5
"""What the memory of a folder takes by itself, in hrefs."""
_LOOKS_BETWEEN_COUNTS = 1024
DUPLICATE = "duplicate"
_ABSOLUTE = ("http://", "https://", "mailto:", "javascript:", "tel:", "data:")
_HOST_WIDE = ("/", "http://", "https://")
"""How hrefs begin that mean the same on all pages of a host; ``http.html`` and ``http:x`` are relative."""


class LinkCache:
    """What one worker remembers of the links it met.

    ``known_for_ever``: a URL that is in the frontier stays known. Otherwise nothing is remembered.
    """

    def __init__(self, *, known_for_ever: bool) -> None:
        self._known_for_ever = known_for_ever
        self.urls: set[str] = set()
        """Normalised URLs that are in the frontier."""
        self._folders: dict[str, FolderLinkCache] = {}
        self._parents: dict[str, set[str]] = {}
        """By folder, what is known of the hrefs that begin with ``../`` in the folders within it."""
        self._hosts: dict[str, HostLinkCache] = {}
        self._lookups = 0

    def of(self, page_url: str) -> FolderLinkCache:
        """Return the memory of the folder in which a page is."""
        folder = page_url.partition("?")[0].rpartition("/")[0]
        memory = self._folders.get(folder)
        if memory is None:
            host = self._hosts.setdefault(page_url[: page_url.find("/", 8)], HostLinkCache())
            memory = self._folders[folder] = FolderLinkCache(
                host, self._parents.setdefault(_parent_of(folder), set())
            )
        self._lookups += 1
        if self._lookups % _LOOKS_BETWEEN_COUNTS == 0 and self._hrefs() > _HREFS_REMEMBERED:
            self._forget_hrefs()
        return memory

    def forget(self) -> None:
        """Forget everything."""
        self.urls.clear()
        self._forget_hrefs()

    def _forget_hrefs(self) -> None:
        self._folders.clear()
        self._parents.clear()
        self._hosts.clear()

    def _hrefs(self) -> int:
        hosts = sum(len(host.known) + len(host.refused) for host in self._hosts.values())
        folders = sum(len(folder.known) + _FOLDER_WEIGHT for folder in self._folders.values())
        return hosts + folders + sum(map(len, self._parents.values()))

    def learn(self, urls: Sequence[str]) -> None:
        """Remember URLs that the frontier has taken."""
        if self._known_for_ever:
            if len(self.urls) > _URLS_REMEMBERED:
                self.urls.clear()
            self.urls.update(urls)


def _parent_of(folder: str) -> str:
    """Return the folder in which a folder lies; that of a host's root is itself, as ``..`` has it (RFC 3986, 5.2.4)."""
    cut = folder.rfind("/")
    return folder[:cut] if cut > len("https:/") else folder


class HostLinkCache:
    """Hrefs that mean the same on every page of a host."""

    __slots__ = ("known", "refused")

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.refused: dict[str, str] = {}


class FolderLinkCache:
    """Hrefs that mean the same on every page of a folder, beside those of its host and of its neighbours."""

    __slots__ = ("_host", "_parent", "known")

    def __init__(self, host: HostLinkCache, parent: set[str]) -> None:
        self._host = host
        self._parent = parent
        """Known hrefs that begin with ``../``: they mean the same in all folders that lie side by side."""
        self.known: set[str] = set()

    def sort_out(self, hrefs: Sequence[str], counts: defaultdict[str, int]) -> list[str]:
        """Count the hrefs that need no second look, by what becomes of them; return the others, each once."""
        on_host, parent, known = self._host.known, self._parent, self.known
        strange = [href for href in hrefs if href not in on_host]
        if strange:
            strange = [href for href in strange if href not in parent and href not in known]
        if len(strange) > 1:
            strange = list(dict.fromkeys(strange))
        if len(strange) < len(hrefs):
            counts[DUPLICATE] += len(hrefs) - len(strange)
        if not strange or not self._host.refused:
            return strange
        left = []
        refused = self._host.refused
        for href in strange:
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
        elif href.startswith("../"):
            self._parent.add(href)
        elif href[:1] > " " and href[0] not in "?#":
            self.known.add(href)

    def note_refused(self, href: str, reason: str) -> None:
        """Remember an absolute href that the scope refuses."""
        if href.startswith(_ABSOLUTE):
            self._host.refused[href] = reason
