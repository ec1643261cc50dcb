"""RobotsPolicy: reads a robots.txt, and decides which URLs it forbids to one crawler (RFC 9309, 2.2).

Where the RFC leaves a choice, rules are read as in Google's published matcher, with its tolerance for typing errors.
Where that matcher deviates from the RFC, the stricter reading applies.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import NamedTuple

_MAX_LINE = 8 * 2083 - 1
"""Number of bytes of a line that are read, as in Google's matcher."""
_MARK = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
_LINE_END = re.compile(r"\r\n|\r|\n")
_COMMENT = re.compile(r"[#\0]")
_SPACE = " \t\v\f\r\n"
_NO_BREAK_SPACE = "\xc2\xa0"
_NAME = re.compile(
    r"(user[- ]?agent|allow|disallow|dissallow|dissalow|disalow|diasllow|disallaw|crawl[- ]delay|site-?map|content-signal)[^\s:]*",
    re.IGNORECASE,
).match
_NEVER_IN_URLS = re.compile(r"[\0- \"<>\\^`{|}]").search
_TOKEN = re.compile(r"[A-Za-z_-]*")


_MANY_WILDCARDS = 1_000
"""Number of rules with wildcards from which a file slows down its own host."""
_SECONDS_PER_WILDCARD = 1e-4
"""Ten times the CPU time for which a rule with wildcards can be compared with a URL."""
_COMPATIBLE = re.compile(r"\(compatible;\s*([A-Za-z_-]+)")


def product_token(user_agent: str) -> str:
    """Return the name of a crawler in robots.txt files (RFC 9309, 2.2.1).

    For example, ``skitter/1.0 (+https://...)`` returns ``skitter``, and so does a browser-like
    ``Mozilla/5.0 (compatible; skitter/1.0)``.
    """
    compatible = _COMPATIBLE.search(user_agent)
    if compatible:
        return compatible[1]
    leading = _TOKEN.match(user_agent)
    return leading[0] if leading else ""


class _Addressee(Enum):
    """Whom a group addresses."""

    SELF = "this crawler"
    ALL = "all crawlers"


class PathPattern:
    """A path in a rule of robots.txt: a prefix with ``*`` for any characters and ``$`` for the end (2.2.3)."""

    __slots__ = ("_rule",)

    def __init__(self, pattern: str) -> None:
        octets = pattern if pattern.isascii() else pattern.encode("utf-8", "surrogatepass").decode("latin-1")
        self._rule = _rule(octets, allows=True)

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches a path, as :func:`comparable_path` returns it."""
        return self._rule.matches(path)


class _Rule(NamedTuple):
    """A rule. Rules sort by precedence: the most octets first; of equally long rules, the one that allows (2.2.2)."""

    length: int
    allows: bool
    parts: tuple[str, ...]
    """The pattern, divided at its wildcards."""
    is_anchored: bool
    """Whether the pattern has to match to the end."""

    def matches(self, path: str) -> bool:
        first, *others = self.parts
        if not path.startswith(first):
            return False
        at = len(first)
        if not others:
            return at == len(path) or not self.is_anchored
        *inner, last = others
        for part in inner:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        if self.is_anchored:
            return len(path) - len(last) >= at and path.endswith(last)
        return path.find(last, at) >= 0


class RobotsPolicy:
    """What the robots.txt of an origin means for one crawler.

    ``body``
        The file. Empty: there is none, so that everything is allowed.
    ``token``
        Product token of the crawler. Empty: only the group for all crawlers applies.
    """

    __slots__ = ("_prefixes", "_rules", "_wildcards", "content_signals", "crawl_delay", "sitemaps")

    def __init__(self, body: bytes, token: str) -> None:
        groups = _Groups(body, token)
        addressee = _Addressee.SELF if _Addressee.SELF in groups.rules else _Addressee.ALL
        self.sitemaps = tuple(groups.sitemaps)
        """Absolute URLs, unchanged from the file."""
        self.content_signals = groups.signals.get(None, {}) | groups.signals.get(addressee, {})
        """Uses that the file allows (``True``) or forbids, such as ``search``, ``ai-input`` and ``ai-train``."""
        self._rules = sorted(groups.rules.get(addressee, ()), reverse=True)
        plain = [rule for rule in self._rules if len(rule.parts) == 1]
        self._prefixes = tuple(rule.parts[0] for rule in plain)
        self._wildcards = [rule for rule in self._rules if len(rule.parts) > 1]
        self.crawl_delay = self._own_delay(groups.delays.get(addressee))
        """Seconds between two requests; ``None`` if the file does not set a delay."""

    def _own_delay(self, asked: float | None) -> float | None:
        """Return the seconds between two requests.

        20,000 rules with wildcards take up to 0.2 s of CPU for each URL. Without a delay, a host with such a file would
        slow all others.
        """
        excess = len(self._wildcards) - _MANY_WILDCARDS
        return asked if excess <= 0 else max(asked or 0.0, excess * _SECONDS_PER_WILDCARD)

    def allowed(self, url: str) -> bool:
        """Return whether a URL of this origin may be fetched."""
        if not self._rules:
            return True
        path = comparable_path(url)
        # One compiled call decides whether a URL matches a rule without wildcards. Most URLs match none.
        rules = self._rules if path.startswith(self._prefixes) else self._wildcards
        for rule in rules:
            if rule.matches(path):
                return rule.allows or path == "/robots.txt"
        return True


class _Groups:
    """The groups of a file that address one crawler or all of them, each merged into one (2.2.1)."""

    def __init__(self, body: bytes, token: str) -> None:
        self.rules: dict[_Addressee, list[_Rule]] = {}
        self.delays: dict[_Addressee, float] = {}
        self.sitemaps: list[str] = []
        self.signals: dict[_Addressee | None, dict[str, bool]] = {}
        """Values of ``Content-Signal``; ``None``: in front of all groups."""
        self._token = token.lower()
        self._group: set[_Addressee] = set()
        self._without_delay: set[_Addressee] = set()
        self._in_front: set[_Addressee] = set()
        """User agents in front of the next ``Content-Signal``. They may belong to a longer group."""
        self._has_signals = False
        self._delay: float | None = None
        self._has_agents = self._has_rules = False
        # One character for each byte: rules are compared by their bytes.
        for line in _LINE_END.split(_MARK.sub(b"", body).decode("latin-1")):
            self._read(_COMMENT.split(line[:_MAX_LINE], maxsplit=1)[0])
        self._end_group()

    def _read(self, line: str) -> None:
        if not line.isascii():
            line = line.replace(_NO_BREAK_SPACE, " ")
        line = line.strip(_SPACE)
        found = _NAME(line) if line else None
        if found is None:
            return
        name, rest = found[1].lower(), line[found.end() :].lstrip(_SPACE)
        before, colon, value = rest.partition(":")
        if not colon:
            if len(rest.split()) == 1:
                self._take(name, rest)  # "Disallow /path": the colon was forgotten
        elif before and name.startswith("site"):
            self._take(name, rest)  # "Sitemap https://...": the same mistake
        else:
            self._take(name, value.strip(_SPACE))
            if before and name.startswith("d"):
                self._take(name, rest)  # "Disallow /a:b": the path may contain the colon

    def _take(self, name: str, value: str) -> None:
        if name.startswith("user"):
            self._address(value)
        elif name.startswith("site"):
            if value:
                self.sitemaps.append(value.encode("latin-1").decode("utf-8", "replace"))
        elif name.startswith("crawl"):
            self._set_delay(value)
        elif name.startswith("content"):
            self._signal(value)
        else:
            self._add(value, allows=name == "allow")

    def _address(self, value: str) -> None:
        # Only rules end the list of user agents of a group. All other records MUST NOT interfere (2.2.4).
        if self._has_rules:
            self._end_group()
        if self._has_signals:
            self._in_front, self._has_signals = set(), False
        self._has_agents = True
        if value[:1] == "*" and (len(value) == 1 or value[1] in _SPACE):
            addressee = _Addressee.ALL
        else:
            leading = _TOKEN.match(value)
            if not self._token or leading is None or leading[0].lower() != self._token:
                return
            addressee = _Addressee.SELF
        self.rules.setdefault(addressee, [])
        self._group.add(addressee)
        self._in_front.add(addressee)
        self._without_delay.add(addressee)

    def _end_group(self) -> None:
        if self._delay is not None:
            self.delays.update(dict.fromkeys(self._without_delay, self._delay))
        self._group, self._without_delay, self._in_front, self._delay = set(), set(), set(), None
        self._has_agents = self._has_rules = self._has_signals = False

    def _set_delay(self, value: str) -> None:
        """Give a Crawl-delay to the preceding user agents, and to the user agents of the group that have none."""
        try:
            seconds = float(value)
        except ValueError:
            return
        if not self._has_agents or not math.isfinite(seconds) or seconds < 0:
            return
        self.delays.update(dict.fromkeys(self._without_delay or self._group, seconds))
        self._delay = seconds
        self._without_delay = set()

    def _signal(self, value: str) -> None:
        """Read ``search=yes, ai-train=no`` (contentsignals.org). Other names are kept, other values are not."""
        self._has_signals = True
        for assignment in value.split(","):
            name, _, choice = assignment.partition("=")
            allowed = {"yes": True, "no": False}.get(choice.strip(_SPACE).lower())
            if allowed is None:
                continue
            for addressee in self._in_front if self._has_agents else (None,):
                self.signals.setdefault(addressee, {})[name.strip(_SPACE).lower()] = allowed

    def _add(self, value: str, *, allows: bool) -> None:
        self._has_rules = True
        if not value or not self._group or (allows and _NEVER_IN_URLS(value)):
            return
        rules = [_rule(value, allows=allows)]
        folder, slash, file = value.rpartition("/") if allows else ("", "", "")
        if slash and file.startswith("index.htm"):  # like Google: the rule also applies to the folder itself
            rules.append(_rule(f"{folder}/$", allows=True))
        for addressee in self._group:
            self.rules[addressee] += rules


_PLAIN = re.compile(r"[A-Za-z0-9._~/?&=-]*").fullmatch


def _rule(value: str, *, allows: bool) -> _Rule:
    if _PLAIN(value):
        return _Rule(len(value), allows, (value,), False)
    pattern = value.removesuffix("$")
    length = len(value) if value.isascii() else sum(3 if byte > "\x7f" else 1 for byte in value)
    if "*" not in pattern:
        parts: tuple[str, ...] = (_comparable(pattern),)
    else:
        parts = tuple(map(_comparable, re.sub(r"\*+", "*", pattern).split("*")))
    return _Rule(length, allows, parts, len(pattern) < len(value))


_OTHER = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9._~/?&=+:;,@!'()\[\]%#-]")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _comparable(text: str) -> str:
    """Return a part of a path in the form in which octets are compared (2.2.2).

    Escaped unreserved characters are decoded, and escapes are in upper case. All other characters are escaped, also ``*``
    and ``$``, which have a meaning in patterns (2.2.3).
    """
    return _OTHER.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    text = found[0]
    if len(text) > 1:
        character = chr(int(text[1:], 16))
        return character if character in _UNRESERVED else text.upper()
    return f"%{ord(text):02X}"


_AFTER_ORIGIN = re.compile(r"[^:/?#]+://[^/?#]*([^#]*)").match


def comparable_path(url: str) -> str:
    """Return path and query of a URL in comparable form."""
    found = _AFTER_ORIGIN(url)
    path = found[1] if found is not None else ""
    if not path.isascii():
        path = path.encode("utf-8", "surrogatepass").decode("latin-1")
    path = _comparable(path)
    return path if path.startswith("/") else f"/{path}"
