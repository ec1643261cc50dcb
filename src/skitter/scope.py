"""Scope: decides which URLs belong to a crawl, and gives a reason for every refusal."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from skitter._utils.patterns import LimitedPattern, SlowPattern, compile_pattern
from skitter.errors import SettingsError
from skitter.web.urls import ascii_domain, host_of, normalize, registered_domain, without_port

log = logging.getLogger("skitter.crawl")

_SCHEMES = ("http://", "https://")

# The reasons. Counters are named "refused/" + reason.
SCHEME = "scheme"
LENGTH = "length"
DEPTH = "depth"
SLOW_PATTERN = "slow-pattern"
"""An ``allow`` or ``deny`` pattern takes too long for the URL."""
HOST = "host"
PATTERN = "pattern"
UNPARSABLE = "unparsable"

EXACT = "="
"""Prefix of an allowed domain that does not include its subdomains."""


class Scope:
    """Decides whether normalized URLs are in scope. Decisions about hosts are cached, because many links have the same host.

    ``allowed_domains`` allows domains with all their subdomains (empty: all); ``=example.com`` allows this host only.
    ``scope`` limits links to the ``host``, the registered ``domain`` or the URL ``prefix`` (up to the last slash) of the
    ``seeds``. ``allow`` and ``deny`` are regular expressions that are searched in the URL. ``depth_limit`` is the maximum
    number of links from a seed (``None``: unlimited), ``max_url_length`` the maximum number of characters of a URL.
    """

    def __init__(
        self,
        *,
        allowed_domains: Sequence[str] = (),
        scope: Literal["any", "host", "domain", "prefix"] = "any",
        seeds: Sequence[str] = (),
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        depth_limit: int | None = None,
        max_url_length: int = 4096,
    ) -> None:
        self.depth_limit = depth_limit
        self._max_length = max_url_length
        self._allow = [_pattern(text) for text in allow]
        self._deny = [_pattern(text) for text in deny]
        domains = [normalize_domain(text) for text in allowed_domains]
        self._exact_hosts = frozenset(text[1:] for text in domains if text.startswith(EXACT))
        self._domains = tuple(text for text in domains if not text.startswith(EXACT))
        urls = [url for seed in seeds if (url := normalize(seed)) is not None and url.startswith(_SCHEMES)]
        self._hosts = frozenset(host_of(url) for url in urls) if scope == "host" else frozenset()
        self._registered = (
            frozenset(registered_domain(host_of(url)) for url in urls) if scope == "domain" else frozenset()
        )
        self._prefixes = tuple(_prefix(url) for url in urls) if scope == "prefix" else ()
        self.admits_host = lru_cache(maxsize=65_536)(self._admits_host)
        """Return whether a host (``name`` or ``name:port``) is in scope."""
        self._plain = not (self._allow or self._deny or self._prefixes)

    def _admits_host(self, host: str) -> bool:
        if self._hosts and host not in self._hosts:
            return False
        if self._registered and registered_domain(host) not in self._registered:
            return False
        if not self._domains and not self._exact_hosts:
            return True
        name = without_port(host)
        if name in self._exact_hosts or host in self._exact_hosts:
            return True
        return any(
            candidate == domain or candidate.endswith("." + domain)
            for domain in self._domains
            for candidate in (name, host)
        )

    def refuse(self, url: str, host: str) -> str | None:
        """Return the reason to refuse a URL, or ``None`` if it is in scope. The depth is checked separately, once per page."""
        if not url.startswith(_SCHEMES):
            return SCHEME
        return self.refuse_path(url) if self.admits_host(host) else HOST

    def refusal(self, url: str, depth: int) -> str | None:
        """Return the reason to refuse any absolute URL at a depth, or ``None`` if it is in scope."""
        normal = normalize(url)
        if normal is None:
            return UNPARSABLE
        return DEPTH if self.too_deep(depth) else self.refuse(normal, host_of(normal))

    def refuse_path(self, url: str) -> str | None:
        """Check the parts of a URL other than its scheme and host; see :meth:`refuse`."""
        return self.refuse_length(url) or (None if self._plain else self._refuse_by_pattern(url))

    def refuse_length(self, url: str) -> str | None:
        """Check only the length of a URL."""
        return LENGTH if len(url) > self._max_length else None

    def admits_paths(self, urls: Sequence[str], characters: int) -> bool:
        """Return ``True`` if :meth:`refuse_path` would not refuse any of these URLs. ``characters``: at least their total length."""
        return self._plain and (characters <= self._max_length or max(map(len, urls)) <= self._max_length)

    def _refuse_by_pattern(self, url: str) -> str | None:
        if self._prefixes and not url.startswith(self._prefixes):
            return PATTERN
        try:
            if self._allow and not any(pattern.search(url) for pattern in self._allow):
                return PATTERN
            if any(pattern.search(url) for pattern in self._deny):
                return PATTERN
        except SlowPattern as error:
            log.warning("refused %r: %s", url[:200], error)
            return SLOW_PATTERN
        return None

    def too_deep(self, depth: int) -> bool:
        """Return whether a depth exceeds the limit."""
        return self.depth_limit is not None and depth > self.depth_limit


def _pattern(text: str) -> re.Pattern[str] | LimitedPattern:
    try:
        return compile_pattern(text)
    except re.error as error:
        is_glob = "**" in text or text.startswith("*")
        raise SettingsError(
            f"invalid regular expression {text!r}: {error}",
            remedy="this is a glob: write .* in place of * and **, and a backslash before a dot"
            if is_glob
            else "correct it, or escape it with backslashes",
        ) from error


def normalize_domain(text: str) -> str:
    """Return an allowed domain as hosts spell it: in lower case, in ASCII, and without ``*.``; :data:`EXACT` is kept.

    Raises :class:`~skitter.errors.SettingsError` for text that is not a domain.
    """
    text = text.strip().lower()
    is_exact = text.startswith(EXACT)
    domain = ascii_domain(text.removeprefix(EXACT) if is_exact else text.lstrip("*").lstrip("."))
    if domain.lstrip(EXACT)[:1] in {"", "*", "."} or re.search(r"[/,\s]", domain):
        raise SettingsError(
            f"invalid allowed domain: {text!r}",
            remedy="write it like example.com, without a scheme, or like =example.com for this host only;"
            " several domains are a list",
            field="allowed_domains",
        )
    return f"{EXACT}{domain}" if is_exact else domain


def _prefix(url: str) -> str:
    bare = url.partition("?")[0]
    return bare[: bare.rindex("/") + 1]
