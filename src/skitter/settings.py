"""Settings: everything about a job that is not its spider, with types, units and defaults.

They come, the later the stronger, from the defaults here, the spider's ``custom_settings``, and the command
line (``-s NAME=VALUE`` and the named options).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from skitter._version import VERSION
from skitter.errors import SettingsError
from skitter.politeness import LimitRule, Politeness, Rate, SlotPolicy, SlotUnit
from skitter.queue_settings import read_limits, read_size


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a job. Times are seconds, sizes bytes."""

    # how much at once, and how gently
    concurrency: int = 32
    """Fetches in flight in one worker process."""
    concurrency_per_slot: int = 4
    """Fetches in flight per slot (host) over all workers."""
    delay: float | None = None
    """Between two fetches of a slot; ``None``: adapt to the server's latency."""
    jitter: float = 0.0
    """Up to so much more at each fetch, uniformly random."""
    rates: tuple[str, ...] = ()
    """Layered limits of a slot, such as ``["1/2s", "20/60s"]``; all must agree."""
    slot: SlotUnit = "host"
    """Unit of politeness: ``host`` or ``domain`` (registered domain)."""
    limit_rules: tuple[dict[str, Any], ...] = ()
    """Other limits for some hosts; see :class:`~skitter.politeness.LimitRule`. First match wins."""
    queues: dict[str, dict[str, Any]] = {}
    """Sizes and limits of named queues: by name, any of ``concurrency``, ``delay``, ``jitter``, ``concurrency_per_slot`` and
    ``rates``, which mean for the queue what they mean for the job."""
    robots: bool = True
    """Obey robots.txt (RFC 9309), Crawl-delay included."""
    robots_ttl: float = 86_400.0
    """How long a robots.txt is believed; RFC 9309 allows a day."""
    crawl_delay_cap: float = 300.0
    """A longer Crawl-delay is cut to this."""

    # the request
    user_agent: str = f"skitter/{VERSION} (+https://pypi.org/project/skitter/)"
    headers: dict[str, str] = {}
    """Sent with every request, besides what a request brings itself."""
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    """Longest wait for the next byte."""
    timeout: float = 120.0
    """Longest whole transfer."""
    max_body: int = 32 * 1024 * 1024
    """A body that passes this, on the wire or unpacked, is given up."""
    keep_alive: bool = True
    """``False``: a fresh connection for each request."""
    http2: bool = True
    verify_tls: bool = True
    proxy: str | None = None
    """Proxy URL for all requests that name none themselves."""
    dns_cache_ttl: float = 60.0
    fetcher: Any = "http"
    """What fetches: a name, ``package.module:Name``, or an object. See :mod:`skitter.fetch.contract`."""

    cache_dir: str | None = None
    """Folder in which answers are kept and found again: to try a spider out. ``None``: no cache."""
    cache_ttl: float | None = None
    """How long they are kept; ``None``: for ever."""

    # as whom (docs/identity.md); each ``Any`` is a name, ``package.module:Name``, values, or an object
    user_agents: Any = None
    """Whose headers are sent: ``random``, ``file:PATH``, or a list of texts and header sets."""
    proxies: Any = None
    """Proxies to go through: URLs, ``file:PATH`` or ``url:URL``."""
    proxy_rotation: Literal["round-robin", "random", "session", "host"] = "round-robin"
    proxy_refresh: float = 300.0
    """Between two readings of a list of proxies that may change."""
    proxy_cooldown: float = 30.0
    """How long a proxy that failed is left alone; doubled at each failure in a row."""
    sessions: Any = None
    """Sessions that bind user agent, proxy and cookies: their number in each worker, or a mapping of options."""
    cookies: Any = "session"
    """Where cookies are kept: ``session``, ``proxy``, ``shared`` or ``none``."""
    cookie_file: str | None = None
    """Cookies that every session begins with: a ``cookies.txt``, or the database of a browser."""

    # what becomes of an answer
    max_redirects: int = 20
    allowed_statuses: tuple[int, ...] = ()
    """Statuses outside 2xx that are given to the callback like a page."""
    max_retries: int = 3
    """Tries again after a failure that may pass (5xx, time-outs, broken connections)."""
    max_throttled: int = 10
    """Tries again after 429 and 503 answers."""
    retry_delay: float = 1.0
    """Wait before the first retry; doubled at each further one, with jitter."""
    retry_delay_cap: float = 300.0
    retry_failed_at_end: bool = False
    """When all else is done, put what was given up back in the queue, once a run."""

    # what belongs to the crawl
    fingerprint_keys: tuple[str, ...] = ()
    """Names of ``meta`` keys that are part of the identity of every request."""
    item_meta_fields: tuple[str, ...] = ()
    """Names in ``meta`` and ``cb_kwargs`` whose values are added to each item that has no such field; ``*``: all."""
    depth_limit: int | None = None
    """Links followed from a seed at most; 0: the seeds only."""
    max_url_length: int = 4096
    allow: tuple[str, ...] = ()
    """Regular expressions; a URL that none of them is found in is refused. Empty: all pass."""
    deny: tuple[str, ...] = ()
    """Regular expressions; a URL that one of them is found in is refused."""
    scope: Literal["any", "host", "domain", "prefix"] = "any"
    """How far to follow links, seen from the seeds: their host, registered domain or URL prefix."""

    # when to stop
    max_pages: int | None = None
    max_items: int | None = None
    max_errors: int | None = None
    """Dead letters."""
    max_bytes: int | None = None
    """Body bytes fetched."""
    time_limit: float | None = None

    # the frontier
    queue_order: Literal["priority", "fifo", "lifo", "random"] = "priority"
    visited_ttl: float | None = None
    """How long a visited page is not visited again; ``None``: never again, 0: no memory of visits."""
    failed_stay_known: bool = True
    lease_seconds: float = 60.0
    max_worker_crashes: int = 5
    durability: Literal["process", "machine"] = "process"
    """What a crash may not take: ``process`` survives SIGKILL, ``machine`` power loss too."""
    seen_memory_limit: int = 20_000_000
    """Known URLs kept in memory (0.1 GB a million) before they move to disk."""
    max_queued: int | None = None
    """Requests waiting or at work from which on workers keep the links of further pages on their own disks."""
    seen_filter: Literal["exact", "compact"] = "exact"
    """``compact``: a Redis frontier keeps half as many bytes of a known URL, and takes a new one for known, which
    loses it, with the probability ``seen_error_rate``. Not with a ``visited_ttl``."""
    seen_error_rate: float = 1e-6

    # seeds from outside, and what is counted
    wait_for_seeds: bool | float = False
    """Do not end, but wait for more seeds (``skitter add``, ``seed_keys``); a number: end after so many seconds
    in which there was nothing to do."""
    seed_keys: tuple[str, ...] = ()
    """Keys on the Redis server of the frontier from which seeds are taken: lists, sets or sorted sets."""
    group_key: str | None = None
    """Key of ``meta`` by whose values pages and items are counted; what follows from a page inherits it."""
    group_counter_prefix: str | None = None
    """Redis frontier: also count the items of each task under this prefix and the task, as a plain number."""
    group_counter_ttl: float | None = None
    """How long such a number lives after it was last raised; ``None``: for ever."""
    stats_max_keys: int = 10_000
    """Workers, hosts and tasks each that are counted one by one; beyond, the smallest are counted together."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise SettingsError(f"setting {name} is {value}", remedy="give a number above zero")
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise SettingsError(f"setting {name} is {value}", remedy="give zero or more")
        for name in _POSITIVE + _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise SettingsError(
                    f"setting {name} is {value}", remedy="give a number, or none for no limit"
                )
        if self.seen_error_rate > _WORST_ERROR_RATE:
            raise SettingsError(
                f"setting seen_error_rate is {self.seen_error_rate}", remedy="0.1 is the most"
            )
        if self.seen_filter == "compact" and self.visited_ttl is not None:
            raise SettingsError(
                "a compact seen_filter cannot tell when a page was visited",
                remedy="set no visited_ttl with it",
            )

    def seconds_to_wait(self) -> float:
        """Return for how long an idle job waits for seeds: 0 not at all, infinity for ever."""
        wait = self.wait_for_seeds
        return (math.inf if wait else 0.0) if isinstance(wait, bool) else wait

    def politeness(self) -> Politeness:
        """Return the politeness rules. Raises :class:`~skitter.errors.SettingsError`."""
        default = SlotPolicy(self.delay, self.jitter, self.concurrency_per_slot, _rates(self.rates))
        queues = {name: read_limits(name, fields) for name, fields in self.queues.items()}
        return Politeness(default, [_rule(rule) for rule in self.limit_rules], self.slot, queues)

    def queue_sizes(self) -> dict[str, int]:
        """Return ``concurrency`` of each queue that has its own. Raises :class:`~skitter.errors.SettingsError`."""
        sizes = {name: read_size(name, fields) for name, fields in self.queues.items()}
        return {name: size for name, size in sizes.items() if size is not None}


_WORST_ERROR_RATE = 0.1
_POSITIVE = (
    "concurrency", "concurrency_per_slot", "connect_timeout", "read_timeout", "timeout", "max_body",
    "max_url_length", "max_pages", "max_items", "max_errors", "max_bytes", "time_limit", "lease_seconds",
    "seen_error_rate", "max_queued", "group_counter_ttl", "stats_max_keys", "proxy_refresh", "proxy_cooldown",
    "cache_ttl",
)  # fmt: skip
_NOT_NEGATIVE = (
    "delay", "jitter", "robots_ttl", "crawl_delay_cap", "dns_cache_ttl", "max_redirects", "max_retries",
    "max_throttled", "retry_delay", "retry_delay_cap", "depth_limit", "visited_ttl", "max_worker_crashes",
    "seen_memory_limit", "wait_for_seeds",
)  # fmt: skip


def _rates(texts: tuple[str, ...]) -> tuple[Rate, ...]:
    return tuple(Rate.parse(text) for text in texts)


def _rule(fields: Mapping[str, Any]) -> LimitRule:
    given = dict(fields)
    rates = given.pop("rates", ())
    try:
        rule = msgspec.convert(given, LimitRule, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"limit rule {given}: {error}", remedy="see LimitRule in the manual") from error
    if unknown := set(given) - set(LimitRule.__struct_fields__):
        raise SettingsError(
            f"limit rule {given} has no field {min(unknown)!r}",
            remedy=f"its fields are {', '.join(LimitRule.__struct_fields__)}",
        )
    return msgspec.structs.replace(rule, rates=_rates(tuple(rates)))


def build_settings(*layers: Mapping[str, Any]) -> Settings:
    """Build settings from layers, the later the stronger.

    Values may be text (from a command line); a list is text separated by commas or a JSON array.
    Raises :class:`~skitter.errors.SettingsError` naming the setting, and the nearest known name for one
    that does not exist.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if name not in _TYPES:
                raise _unknown(name)
            merged[name] = _convert(name, value)
    return Settings(**merged)


_TYPES = {field.name: field.type for field in msgspec.structs.fields(Settings)}


def _convert(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    if isinstance(value, str):
        value = _from_text(kind, value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"setting {name} cannot be {value!r}: {error}", remedy=f"its type is {_type_name(kind)}"
        ) from error


def _from_text(kind: Any, text: str) -> Any:
    name = str(kind)
    if text.strip().lower() in {"none", "null"} and "None" in name:
        return None
    if (kind is Any or "tuple" in name or "dict" in name) and text.strip()[:1] in {"[", "{"}:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise SettingsError(f"{text!r} is no JSON: {error}", remedy='write ["a", "b"]') from error
    if "tuple" in name:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind == bool | float and text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    if kind is bool:
        return {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text.lower())
    return text


_WORDS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def _unknown(name: str) -> SettingsError:
    near = difflib.get_close_matches(name.lower(), _TYPES, n=1)
    remedy = f"did you mean {near[0]}?" if near else "the manual lists all settings"
    return SettingsError(f"there is no setting {name!r}", remedy=remedy)
