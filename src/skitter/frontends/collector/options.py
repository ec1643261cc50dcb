"""CollectorOptions: the options of a collector, from code and from environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skitter.errors import SettingsError
from skitter.scope import EXACT, Scope
from skitter.web.encoding import codec_of
from skitter.web.headers import REDIRECTS
from skitter.web.urls import ascii_domain

ENVIRONMENT_PREFIX = "SKITTER_"
"""Prefix of the environment variables that override options."""
ENVIRONMENT_VARIABLES = {
    name: {"ignore_robots_txt": "IGNORE_ROBOTSTXT"}.get(name, name.upper())
    for name in (
        "allowed_domains", "cache_dir", "disable_cookies", "disallowed_domains", "follow_redirects",
        "http_trace", "ignore_robots_txt", "max_body_size", "depth_limit", "max_requests", "parse_http_error_response", "truncate_body", "user_agent",
    )
}  # fmt: skip
"""Options that environment variables can set, with the names of the variables after the prefix."""
CLONE_OPTIONS = frozenset({
    "user_agent", "headers", "depth_limit", "allowed_domains", "disallowed_domains", "url_filters",
    "disallowed_url_filters", "allow_url_revisit", "timeout", "proxy", "encoding",
})  # fmt: skip
"""Options that a clone can replace. The others belong to the job."""
_SETTINGS = (
    "user_agent", "max_url_length", "cache_dir", "cache_ttl", "timeout", "proxy", "concurrency", "callback_threads",
)  # fmt: skip
"""Options that have the name and the meaning of a setting of the job."""

Pattern = str | re.Pattern[str]


class CollectorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a collector. The settings of the job apply where an option is omitted."""

    user_agent: str | None = None
    headers: dict[str, str] = {}
    """Headers of every request."""
    depth_limit: int | None = None
    """Maximum number of links followed from a start URL. 0: start URLs only; ``None``: no limit."""
    max_requests: int = 0
    """Maximum number of pages. 0: no limit."""
    allowed_domains: tuple[str, ...] = ()
    """Domains, with their subdomains, that can be visited; ``=example.com``: this host only. Empty: all."""
    disallowed_domains: tuple[str, ...] = ()
    """Domains, with their subdomains, that are not visited; ``=example.com``: this host only."""
    url_filters: tuple[str, ...] = ()
    """Regular expressions. A URL must match at least one of them. Empty: all URLs pass."""
    disallowed_url_filters: tuple[str, ...] = ()
    """Regular expressions. A URL must not match any of them."""
    max_url_length: int | None = None
    """Maximum length of a URL in characters. Longer URLs are refused."""
    allow_url_revisit: bool = False
    """Fetch a URL as often as it is visited. Links in a circle then need ``depth_limit``."""
    max_body_size: int | None = None
    """Maximum size of a body in bytes. A larger body is an error, or is cut with ``truncate_body``."""
    truncate_body: bool = False
    """Cut a body after ``max_body_size`` bytes. Then ``response.is_truncated`` is true."""
    http_trace: bool = False
    """Measure each transfer by HTTP; see ``response.trace``."""
    ignore_robots_txt: bool = False
    disable_cookies: bool = False
    cache_dir: str | None = None
    """Folder of the response cache."""
    cache_ttl: float | None = None
    """Seconds after which cached responses expire. ``None``: never."""
    parse_http_error_response: bool = False
    """Pass responses of every status to ``on_response`` and the later callbacks, without retries."""
    follow_redirects: bool = True
    """``False``: a redirect is passed to ``on_response`` like a page."""
    timeout: float | None = None
    """Total timeout of a request in seconds."""
    proxy: str | None = None
    encoding: str | None = None
    """Character encoding of all pages, such as ``gbk``, regardless of what they declare. ``None``: as each page declares."""
    callback_threads: int | None = None
    """Number of threads that run callbacks, so that blocking callbacks run concurrently."""
    concurrency: int | None = None
    """Number of concurrent fetches in one worker process."""
    settings: dict[str, Any] = {}
    """Settings of the job. They override the options."""

    def scope_settings(self) -> dict[str, Any]:
        """Return the settings that limit the scope of the crawl."""
        settings: dict[str, Any] = {
            "allow": self.url_filters,
            "deny": (*self.disallowed_url_filters, *map(_domain_pattern, self.disallowed_domains)),
            "depth_limit": self.depth_limit,
        }
        return {name: value for name, value in settings.items() if value not in {(), None}}

    def scope(self) -> Scope:
        """Return the scope of one collector."""
        values = {**self.scope_settings(), "max_url_length": self.max_url_length, **self.settings}
        bounds = {
            name: values[name]
            for name in ("allow", "deny", "depth_limit", "max_url_length")
            if values.get(name) is not None
        }
        return Scope(allowed_domains=self.allowed_domains, **bounds)

    def job_settings(self) -> dict[str, Any]:
        """Return the settings of the job, except for its scope."""
        accepted = tuple(
            status
            for status in range(300, 600)
            if (status in REDIRECTS and not self.follow_redirects)
            or (status not in REDIRECTS and self.parse_http_error_response)
        )
        settings: dict[str, Any] = {name: getattr(self, name) for name in _SETTINGS} | {
            "headers": self.headers or None,
            "max_pages": self.max_requests or None,
            "max_body": self.max_body_size,
            "truncate_body": self.truncate_body or None,
            "http_trace": self.http_trace or None,
            "robots": False if self.ignore_robots_txt else None,
            "cookies": "none" if self.disable_cookies else None,
            "allowed_statuses": accepted or None,
        }
        return {name: value for name, value in settings.items() if value is not None}


_TYPES = {field.name: field.type for field in msgspec.structs.fields(CollectorOptions)}
OPTION_NAMES = frozenset(_TYPES)
OPTIONS_OF_COLLY = {
    "async_": "leave it out: a collector is always asynchronous",
    "cache_expiration": "write cache_ttl, in seconds",
    "check_head": "leave it out, and decide in on_response_headers",
    "detect_charset": "leave it out: the charset is always detected",
    "id": "write name",
    "max_depth": "write depth_limit, and one less: it counts links from 0, as in depth_limit=1 for MaxDepth(2)",
    "trace_http": "write http_trace",
}
"""Remedies for options of Colly that have another name here."""
METHODS_OF_COLLY = {
    "disable_cookies": "write Collector(disable_cookies=True)",
    "has_posted": "write await crawler.has_visited(Request.form(url, data))",
    "request": "call send(method, url, body=..., ctx=..., headers=...)",
    "set_client": "write Collector(settings={'fetcher': ...})",
    "set_cookie_jar": "write Collector(settings={'cookies': ...})",
    "set_debugger": "write Collector(debugger=...)",
    "set_proxy": "write Collector(proxy=...), or call set_proxy_func",
    "set_request_timeout": "write Collector(timeout=...), in seconds",
    "unmarshal_request": "leave it out: the frontier stores requests",
    "with_transport": "write Collector(settings={'fetcher': ...})",
}
"""Remedies for methods of Colly's collector that a collector does not have."""


def read_options(options: Mapping[str, Any], environment: Mapping[str, str]) -> CollectorOptions:
    """Return options from keyword arguments and ``SKITTER_...`` environment variables, which take precedence.

    Raises :class:`~skitter.errors.SettingsError` for an unknown option or an invalid value.
    """
    values = {name: _checked(name, value, f"collector option {name}") for name, value in options.items()}
    for name, variable in ENVIRONMENT_VARIABLES.items():
        text = environment.get(ENVIRONMENT_PREFIX + variable, "")
        if text:
            values[name] = _checked(
                name, _from_text(name, text), f"environment variable {ENVIRONMENT_PREFIX}{variable}"
            )
    return CollectorOptions(**values)


def _checked(name: str, value: Any, described: str) -> Any:
    if name not in _TYPES:
        raise SettingsError(
            f"unknown option of a collector: {name!r}",
            remedy=OPTIONS_OF_COLLY.get(name, f"use one of {', '.join(sorted(_TYPES))}"),
            field=name,
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = [_source(source) for source in value]
    try:
        checked = msgspec.convert(value, _TYPES[name], strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"invalid value for {described}: {value!r} ({error})",
            remedy="give a value of the right type",
            field=name,
        ) from None
    if name == "encoding" and checked is not None and codec_of(checked) is None:
        raise SettingsError(
            f"unknown encoding in {described}: {value!r}",
            remedy="use a name such as utf-8, gbk or windows-1252",
            field=name,
        )
    if isinstance(checked, (int, float)) and checked < 0:
        raise SettingsError(
            f"{described} must not be negative (got {value!r})", remedy="give 0 or more", field=name
        )
    return checked


def _source(pattern: Any) -> Any:
    """Return the source of a compiled pattern, including its flags."""
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
    text = domain.strip().lower()
    name = text.removeprefix(EXACT) if text.startswith(EXACT) else text.lstrip("*").lstrip(".")
    if not name or "/" in name or name.startswith("*"):
        raise SettingsError(
            f"invalid domain in disallowed_domains: {domain!r}",
            remedy="write it like example.com, without a scheme",
            field="disallowed_domains",
        )
    below = "" if text.startswith(EXACT) else r"(?:[^/?#@:]+\.)?"
    return rf"^https?://(?:[^/?#@]*@)?{below}{re.escape(ascii_domain(name))}(?::\d+)?(?:[/?#]|$)"
