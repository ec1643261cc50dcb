"""CollectorOptions: what a collector is told of its crawl, in code and by the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skitter.errors import SettingsError
from skitter.scope import Scope

ENVIRONMENT_PREFIX = "SKITTER_"
"""How the environment variables begin that override options."""
ENVIRONMENT_VARIABLES = {
    name: {"ignore_robots_txt": "IGNORE_ROBOTSTXT"}.get(name, name.upper())
    for name in (
        "allowed_domains", "cache_dir", "disable_cookies", "disallowed_domains", "follow_redirects",
        "ignore_robots_txt", "max_body_size", "max_depth", "max_requests", "parse_http_error_response", "user_agent",
    )
}  # fmt: skip
"""Which options they can set, and what stands for each after the prefix."""
CLONE_OPTIONS = frozenset({
    "user_agent", "headers", "max_depth", "allowed_domains", "disallowed_domains", "url_filters",
    "disallowed_url_filters", "allow_url_revisit", "timeout", "proxy",
})  # fmt: skip
"""CollectorOptions that a clone may have for itself; the others belong to the job."""
_REDIRECTS = (301, 302, 303, 307, 308)

Pattern = str | re.Pattern[str]


class CollectorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """CollectorOptions of a collector. What is left out is as the settings of the job have it."""

    user_agent: str | None = None
    headers: dict[str, str] = {}
    """Sent with every request."""
    max_depth: int = 0
    """Depth of the last pages that are fetched; the first pages have 1. 0: no limit."""
    max_requests: int = 0
    """Stop after so many pages. 0: no limit."""
    allowed_domains: tuple[str, ...] = ()
    """Domains, each with its subdomains, that may be visited. Empty: all."""
    disallowed_domains: tuple[str, ...] = ()
    """Domains, each with its subdomains, that may not."""
    url_filters: tuple[str, ...] = ()
    """Regular expressions; one of them has to be found in a URL. Empty: all pass."""
    disallowed_url_filters: tuple[str, ...] = ()
    """Regular expressions; none of them may be."""
    max_url_length: int | None = None
    """Longer URLs are refused."""
    allow_url_revisit: bool = False
    """Fetch a URL as often as it is visited. Links in a circle then need ``max_depth``."""
    max_body_size: int | None = None
    """Bytes; a larger body is an error, never cut."""
    ignore_robots_txt: bool = False
    disable_cookies: bool = False
    cache_dir: str | None = None
    """Folder in which answers are kept and found again."""
    cache_expiration: float | None = None
    """Seconds for which they are kept. ``None``: for ever."""
    parse_http_error_response: bool = False
    """Give answers of every status to ``on_response`` and the callbacks after it, without retries."""
    follow_redirects: bool = True
    """``False``: a redirect goes to ``on_response`` like a page."""
    timeout: float | None = None
    """Seconds for the whole transfer."""
    proxy: str | None = None
    concurrency: int | None = None
    """Fetches in flight in one worker process."""
    settings: dict[str, Any] = {}
    """Any settings of the job; they win over the options."""

    def scope_settings(self) -> dict[str, Any]:
        """Return the settings that bound the crawl."""
        wanted: dict[str, Any] = {
            "allow": self.url_filters,
            "deny": (*self.disallowed_url_filters, *map(_domain_pattern, self.disallowed_domains)),
            "depth_limit": self.max_depth - 1 if self.max_depth else None,
        }
        return {name: value for name, value in wanted.items() if value not in {(), None}}

    def scope(self) -> Scope:
        """Return the bounds of one collector."""
        return Scope(allowed_domains=self.allowed_domains, **self.scope_settings())

    def job_settings(self) -> dict[str, Any]:
        """Return the settings of the job, without those that bound it."""
        accepted = tuple(
            status
            for status in range(300, 600)
            if (status in _REDIRECTS and not self.follow_redirects)
            or (status not in _REDIRECTS and self.parse_http_error_response)
        )
        wanted: dict[str, Any] = {
            "user_agent": self.user_agent,
            "headers": self.headers or None,
            "max_pages": self.max_requests or None,
            "max_body": self.max_body_size,
            "max_url_length": self.max_url_length,
            "robots": False if self.ignore_robots_txt else None,
            "cache_dir": self.cache_dir,
            "cache_ttl": self.cache_expiration,
            "cookies": "none" if self.disable_cookies else None,
            "allowed_statuses": accepted or None,
            "timeout": self.timeout,
            "proxy": self.proxy,
            "concurrency": self.concurrency,
        }
        return {name: value for name, value in wanted.items() if value is not None}


_TYPES = {field.name: field.type for field in msgspec.structs.fields(CollectorOptions)}


def read_options(given: Mapping[str, Any], environment: Mapping[str, str]) -> CollectorOptions:
    """Return options from keyword arguments, and from ``SKITTER_...`` variables, which win.

    Raises :class:`~skitter.errors.SettingsError` for an unknown name, and for a value that does not fit, also one
    of the environment.
    """
    values = {name: _checked(name, value, f"collector option {name}") for name, value in given.items()}
    for name, variable in ENVIRONMENT_VARIABLES.items():
        text = environment.get(ENVIRONMENT_PREFIX + variable, "")
        if text:
            values[name] = _checked(
                name, _from_text(name, text), f"environment variable {ENVIRONMENT_PREFIX}{variable}"
            )
    return CollectorOptions(**values)


def _checked(name: str, value: Any, what: str) -> Any:
    if name not in _TYPES:
        raise SettingsError(
            f"a collector has no option {name!r}", remedy=f"its options are {', '.join(sorted(_TYPES))}"
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = [_source(one) for one in value]
    try:
        checked = msgspec.convert(value, _TYPES[name], strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"{what} cannot be {value!r}: {error}", remedy="see the manual for its type"
        ) from None
    if isinstance(checked, (int, float)) and checked < 0:
        raise SettingsError(f"{what} is {value!r}", remedy="give zero or more")
    return checked


def _source(pattern: Any) -> Any:
    """Return the text of a compiled pattern, with its flags in it."""
    if not isinstance(pattern, re.Pattern):
        return pattern
    letters = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{letters}:{pattern.pattern})" if letters else pattern.pattern


_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


def _from_text(name: str, text: str) -> Any:
    if "tuple" in str(_TYPES[name]):
        return [part.strip() for part in text.split(",") if part.strip()]
    if _TYPES[name] is bool:
        return {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text.lower())
    return text


def _domain_pattern(domain: str) -> str:
    name = domain.strip().lower().lstrip("*").lstrip(".")
    if not name or "/" in name:
        raise SettingsError(
            f"disallowed domain {domain!r} is not a domain",
            remedy="write it like example.com, without a scheme",
        )
    return rf"^https?://(?:[^/?#@]*@)?(?:[^/?#@:]+\.)?{re.escape(name)}(?::\d+)?(?:[/?#]|$)"
