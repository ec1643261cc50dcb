"""Declares the settings of a job: type, unit, bounds, default, help, command-line option, and who may change them when.

A setting is declared here and nowhere else. Validation, the options of ``skitter run`` and ``skitter crawl``, the settings
that API users may set, those that ``skitter config`` changes during a run, and the reference page are derived from it.

Values come from the defaults, the spider's ``custom_settings`` and the command line. Later sources override earlier ones.
"""

# Annotations are not strings here, because msgspec would have to parse the string of each setting at every start.
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import force_setattr

from skitter._utils.patterns import compile_pattern
from skitter._version import VERSION
from skitter.browsing import WaitUntil
from skitter.errors import SettingsError, close_names
from skitter.foreign_names import CRAWLEE_SETTINGS, SCRAPY_REDIS_SETTINGS, SETTINGS
from skitter.html.limits import DEFAULT_MEMORY
from skitter.politeness import HostLimits, LimitRule, Politeness, SlotUnit
from skitter.queues import NAME_RULE, is_queue_name
from skitter.secrets import SETTINGS_OF_SECRETS

QueueOrder = Literal["priority", "fifo", "lifo", "random"]


class Setting(msgspec.Struct, frozen=True):
    """The declaration of a setting, in addition to its name, type and default."""

    help: str
    """Meaning of the setting: a phrase for the command line and the reference page, in Markdown."""
    section: str = ""
    """Heading of the reference page for this setting and the following ones. Empty: that of the setting before it."""
    unit: str = ""
    """``s`` (seconds), ``bytes``, ``pages`` ... Empty for a plain number or a value of another kind."""
    min: float | None = None
    """Smallest allowed number."""
    above: float | None = None
    """The number must be larger than this."""
    max: float | None = None
    """Largest allowed number."""
    cli: str = ""
    """Option of ``skitter run`` and ``skitter crawl``, with the name of its value: ``--delay SECONDS``. Most settings have
    none: ``--setting NAME=VALUE`` sets any."""
    live: bool = False
    """Whether the setting can change during a run."""
    api: bool = False
    """Whether API users may set it. Never true for names of files, code, proxies or keys on servers: only the
    operator of the nodes may set these."""
    api_max: int | None = None
    """Largest number that API users may set, because more could exhaust the memory of a node."""


class Declaration(msgspec.Struct, frozen=True):
    """A setting as declared: its name, type, default and :class:`Setting`."""

    name: str
    type: Any
    default: Any
    setting: Setting

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return get_origin(self.type) is tuple

    @property
    def is_optional(self) -> bool:
        """Whether the value may be ``None``."""
        return self.type is Any or NoneType in _alternatives(self.type)

    def check(self, value: Any) -> None:
        """Raise :class:`~skitter.errors.SettingsError` for a number outside the bounds, and for an integer of more than 64 bits."""
        rule = self.setting
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        if isinstance(value, int) and value > _MAX_INTEGER:
            self._refuse(value, f"give {_MAX_INTEGER} or less")
        if (rule.min, rule.above, rule.max) == (None, None, None):
            return
        if rule.above is not None and value <= rule.above:
            self._refuse(value, f"give a number above {rule.above:g}")
        if rule.min is not None and value < rule.min:
            self._refuse(value, f"give {rule.min:g} or more")
        if rule.max is not None and value > rule.max:
            self._refuse(value, f"give {rule.max:g} or less")
        if not math.isfinite(value):
            self._refuse(
                value, "give a finite number" + (", or none for no limit" if self.is_optional else "")
            )

    def _refuse(self, value: Any, remedy: str) -> None:
        raise SettingsError(f"setting {self.name} is {value}", remedy=remedy, field=self.name)

    def convert(self, value: Any) -> Any:
        """Return a value, or its text from a command line, as the declared type.

        Raises :class:`~skitter.errors.SettingsError` for a value of another type. Bounds are not checked.
        """
        if isinstance(value, str):
            value = self._from_text(value)
        try:
            return msgspec.convert(value, self.type, strict=False)
        except msgspec.ValidationError as error:
            wanted = _in_words(self.type)
            reason = "" if wanted else f": {error}"
            raise SettingsError(
                f"setting {self.name} cannot be {self._shown(value)}{reason}",
                remedy=f"give {_EXAMPLES.get(self.name) or wanted}",
                field=self.name,
            ) from error

    def _shown(self, value: Any) -> str:
        return "***" if self.name in SETTINGS_OF_SECRETS else repr(value)

    def _from_text(self, text: str) -> Any:
        kind, word = self.type, text.strip().lower()
        if word in {"none", "null"} and NoneType in _alternatives(kind):
            return None
        may_be_json = kind is Any or get_origin(kind) in {tuple, dict}
        if may_be_json and text.strip()[:1] in {"[", "{"}:
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                remedy = "check its quotes, commas and brackets"
                if self.is_list and self.name not in SETTINGS_OF_SECRETS:
                    as_list = msgspec.json.encode([text]).decode()
                    remedy += f"; a single text that begins with a bracket is written {self.name}={as_list}"
                raise SettingsError(
                    f"setting {self.name}: invalid JSON {self._shown(text)}: {error}",
                    remedy=remedy,
                    field=self.name,
                ) from error
        if self.is_list:
            return [part.strip() for part in text.split(",") if part.strip()]
        if kind == bool | float and word in _WORDS:
            return _WORDS[word]
        if kind is bool:
            return _WORDS.get(word, word)
        return text


_MAX_INTEGER = 2**63 - 1
"""Largest integer that databases and MessagePack can store."""
_EXAMPLES = {
    "allowed_statuses": "a list of integers, such as [404, 410]",
    "browser_context": 'an object in JSON, such as {"locale": "de-DE"}',
    "fetcher_rules": 'a list of objects in JSON, such as [{"domain_glob": "*.example.org", "fetcher": "browser"}]',
    "files_fields": 'an object in JSON, such as {"image_urls": "images"}',
    "headers": 'an object in JSON, such as {"Accept-Language": "de"}',
    "image_thumbnails": 'an object in JSON, such as {"small": [100, 100]}',
    "initial_cookies": 'an object in JSON, such as {"https://example.com/": ["id=7; Path=/"]}',
    "limit_rules": 'a list of objects in JSON, such as [{"domain_glob": "*.example.org", "delay": 5}]',
    "log_levels": 'an object in JSON, such as {"my_shop": "debug"}',
    "monitors": 'a list of rules, such as ["items >= 100"]',
    "queues": 'an object in JSON, such as {"slow": {"concurrency": 1}}',
}
"""Values of the settings whose type is not descriptive enough, or has no description in words."""
_WORDS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


@lru_cache
def declarations(kind: type["FrontierSettings"]) -> dict[str, Declaration]:
    """Return the settings that a class declares, by name, in the order of their declaration."""
    found = {}
    for field in msgspec.structs.fields(kind):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        annotation: Any = field.type
        found[field.name] = Declaration(
            field.name, annotation.__origin__, default, annotation.__metadata__[0]
        )
    return found


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or any other type alone."""
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


def choices_of(kind: Any) -> list[str] | None:
    """Return the strings that a type allows, without ``None``; ``None`` if it is not a choice of strings."""
    kinds = [part for part in _alternatives(kind) if part is not NoneType]
    if len(kinds) != 1 or get_origin(kinds[0]) is not Literal:
        return None
    return [str(value) for value in get_args(kinds[0])]


_TYPES = {
    bool: "yes or no",
    int: "an integer",
    float: "a number",
    str: "text",
    NoneType: "none",
    tuple[int, ...]: "a list of integers",
    tuple[str, ...]: "a list of texts",
    dict[str, str]: "an object in JSON whose values are texts",
    dict[str, list[str]]: "an object in JSON whose values are lists of texts",
}


def _in_words(kind: Any) -> str:
    """Return the values of a common type in words; empty for any other type."""
    choices = choices_of(kind)
    if choices is not None:
        return f"one of {', '.join(choices)}"
    parts = _alternatives(kind)
    if not all(part in _TYPES for part in parts):
        return ""
    return " or ".join(_TYPES[part] for part in parts)


def type_name(kind: Any) -> str:
    """Return a type as users write it."""
    if get_origin(kind) is Literal:
        return " | ".join(map(repr, get_args(kind)))
    if len(parts := _alternatives(kind)) > 1:
        return " | ".join(map(type_name, parts))
    if kind is NoneType:
        return "None"
    return (
        kind.__name__
        if isinstance(kind, type) and get_origin(kind) is None
        else str(kind).replace("typing.", "")
    )


# A declaration takes one or two lines. The formatter would put each argument on a separate line.
# fmt: off


class FrontierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a frontier obeys. A shared frontier stores them for processes that join without the spider."""

    max_pages: Annotated[int | None, Setting(
        "Stop after exactly this number of pages: responses that were passed to a callback. On a Redis Cluster, several workers may"
        " exceed it by their requests in progress.",
        section="When to stop", unit="pages", above=0, cli="--limit PAGES", live=True, api=True,
    )] = None
    max_items: Annotated[int | None, Setting(
        "Stop after this number of items. Pages in progress are finished: usually at most four times `concurrency` in each worker.",
        above=0, live=True, api=True,
    )] = None
    max_errors: Annotated[int | None, Setting(
        "Stop after this number of dead letters. Pages in progress are finished, as with `max_items`.",
        above=0, live=True, api=True,
    )] = None
    max_bytes: Annotated[int | None, Setting(
        "Stop after this amount of fetched body data. Pages in progress are finished, as with `max_items`.",
        unit="bytes", above=0, live=True, api=True,
    )] = None

    max_pages_per_slot: Annotated[int | None, Setting(
        "Maximum number of pages of a slot (host), over all workers, exactly. Its other requests are then refused as"
        " `refused/slot_pages`.",
        section="Budgets of a host", unit="pages", above=0, cli="--max-pages-per-host PAGES", api=True,
    )] = None
    max_bytes_per_slot: Annotated[int | None, Setting(
        "Amount of body data after which the waiting requests of a slot (host) are refused as `refused/slot_bytes`. Fetches"
        " in flight are finished.",
        unit="bytes", above=0, cli="--max-bytes-per-host BYTES", api=True,
    )] = None
    max_queued_per_slot: Annotated[int | None, Setting(
        "Maximum number of queued, delayed and leased requests of a slot (host). Further links are refused as"
        " `refused/slot_queued`, but not remembered: a later link may queue them. Seeds are always queued.",
        above=0, cli="--max-queued-per-host N", api=True,
    )] = None

    queue_order: Annotated[QueueOrder, Setting(
        "Order of requests within a slot: `priority` (highest first, then first come), `fifo`, `lifo` or `random`.",
        section="Frontier", api=True,
    )] = "priority"
    visited_ttl: Annotated[float | None, Setting(
        "Time after which a link to a visited page queues it again. `None`: never; `0`: always. A request that is queued,"
        " delayed or leased is known whatever its age.",
        unit="s", min=0, api=True,
    )] = None
    changes: Annotated[Literal["all", "changed", "new"] | None, Setting(
        "Remember the pages, so that `--recrawl` fetches only what has changed, and deliver the items of `all` pages,"
        " `changed` ones or `new` ones. Fixed for the life of a job. Excludes `visited_ttl` and the"
        " budgets of a host.",
        cli="--changes", api=True,
    )] = None
    revisit_share: Annotated[float, Setting(
        "Share of the remembered pages that a pass of a job with `changes` fetches again, above 0 and at most 1. skitter"
        " chooses the pages whose copies benefit most, by how often they have changed. Seeds and new pages are always fetched.",
        above=0, max=1, api=True,
    )] = 1.0
    use_lastmod: Annotated[bool, Setting(
        "Let the `lastmod` of a sitemap decide whether a pass of a job with `changes` fetches a remembered page again: it does so"
        " if `lastmod` is later than the last fetch. Pages without a usable `lastmod` are fetched as usual.",
        api=True,
    )] = False
    refetch_failed: Annotated[bool, Setting(
        "Queue a failed request again when another link to it is found.", api=True,
    )] = False
    lease_seconds: Annotated[float, Setting(
        "Time after which a lease that its worker does not renew returns to the queue.", unit="s", above=0, api=True,
    )] = 60.0
    max_worker_crashes: Annotated[int, Setting(
        "Number of workers that may crash while they hold a request. One more crash makes it a dead letter.", min=0, api=True,
    )] = 5
    durability: Annotated[Literal["process", "machine"], Setting(
        "What committed data survives: `process` survives SIGKILL, `machine` also survives power loss.",
    )] = "process"
    seen_memory_limit: Annotated[int, Setting(
        "Number of known URLs kept in memory (35 MB per million) before they move to the frontier file.", min=0,
    )] = 10_000_000
    max_queued: Annotated[int | None, Setting(
        "Maximum number of queued requests. Beyond it, workers keep new links on their local disks.",
        above=0, cli="--max-queued N", api=True,
    )] = None
    seen_filter: Annotated[Literal["exact", "compact"], Setting(
        "How a Redis frontier stores known URLs. `compact` takes half the memory, but mistakes a new URL for a known one,"
        " and loses it, with the probability `seen_error_rate`. `compact` excludes `visited_ttl`.",
    )] = "exact"
    seen_error_rate: Annotated[float, Setting(
        "Probability that a `compact` filter loses a new URL.", above=0, max=0.1,
    )] = 1e-6

    wait_for_seeds: Annotated[bool | float, Setting(
        "Wait for more seeds (`skitter add`, `Crawl.add`, `seed_keys`) instead of finishing."
        " A number, as in `-s wait_for_seeds=60`: finish after this idle time.",
        section="Seeds and statistics", unit="s", min=0, cli="--wait-for-seeds", live=True, api=True,
    )] = False
    seed_keys: Annotated[tuple[str, ...], Setting(
        "Key on the Redis server of the frontier from which seeds are taken: a list, a set or a sorted set.",
        cli="--seed-key KEY",
    )] = ()
    seed_format: Annotated[Literal["skitter", "scrapy-redis"], Setting(
        "Format of the seeds in `seed_keys`. `scrapy-redis`: unknown fields of a JSON object become form data, and every seed is"
        " crawled, even if its URL is known.",
    )] = "skitter"
    seed_list_end: Annotated[Literal["right", "left"], Setting(
        "End of a list from which seeds are taken. `right` suits producers that use `LPUSH`, `left` those that use `RPUSH`, as for"
        " Scrapy-Redis.",
    )] = "right"
    group_counter_prefix: Annotated[str | None, Setting(
        "Prefix of the plain Redis keys in which the items of each group are counted too.",
    )] = None
    group_counter_ttl: Annotated[float | None, Setting(
        "Lifetime of a key of `group_counter_prefix` after its last change. `None`: unlimited.", unit="s", above=0,
    )] = None
    stats_max_keys: Annotated[int, Setting(
        "Maximum number of workers, of hosts and of groups that are counted separately. If there are more, the smallest ones are"
        " counted together.",
        above=0,
    )] = 10_000

    # fmt: on

    def __post_init__(self) -> None:
        for declaration in declarations(type(self)).values():
            declaration.check(getattr(self, declaration.name))
        if self.changes is not None and self.visited_ttl is not None:
            raise SettingsError(
                "changes cannot be combined with visited_ttl",
                remedy="leave out visited_ttl, and start each pass with --recrawl",
                field="changes",
            )
        for name in ("max_pages_per_slot", "max_bytes_per_slot", "max_queued_per_slot"):
            if self.changes is not None and getattr(self, name) is not None:
                raise SettingsError(
                    f"{name} cannot be combined with changes: pages that a budget refuses would count as gone",
                    remedy=f"leave out {name}, or changes",
                    field=name,
                )
        for name, is_set in (("revisit_share", self.revisit_share < 1), ("use_lastmod", self.use_lastmod)):
            if is_set and self.changes is None:
                raise SettingsError(
                    f"{name} needs changes",
                    remedy="set changes to all, changed or new, so that the job remembers its pages",
                    field=name,
                )
        if self.seen_filter == "compact" and self.visited_ttl is not None:
            raise SettingsError(
                "seen_filter=compact cannot be combined with visited_ttl",
                remedy="leave out visited_ttl, or use seen_filter=exact",
                field="seen_filter",
            )

    def seconds_to_wait(self) -> float:
        """Return the time an idle job waits for seeds: 0 for not at all, infinity for no limit."""
        wait = self.wait_for_seeds
        return (math.inf if wait else 0.0) if isinstance(wait, bool) else wait


class QueueLimits(HostLimits, frozen=True, kw_only=True):
    """Limits of the hosts of a queue, and the concurrency of the queue itself."""

    concurrency: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Number of concurrent fetches of the queue in each worker process. ``None``: that of the job."""


DEFAULT_USER_AGENT = f"skitter/{VERSION}"
_CONTACT = r"https?://[^\s()<>]+|[^\s()<>@]+@[^\s()<>@]+"  # compiled at its first use


class Settings(FrontierSettings, frozen=True, kw_only=True):
    """The settings of a job. Times are seconds, sizes are bytes.

    Raises :class:`~skitter.errors.SettingsError` for a value outside its bounds.
    """

    # fmt: off
    time_limit: Annotated[float | None, Setting(
        "Stop this run after this time. Unlike other limits it applies to one run, not to the job.",
        section="When to stop", unit="s", above=0, cli="--time-limit SECONDS", api=True,
    )] = None
    concurrency: Annotated[int, Setting(
        "Number of concurrent fetches in each worker process. Requests to hosts that have not responded for a second do not"
        " count.",
        section="Concurrency and politeness", above=0, cli="--concurrency N", live=True, api=True, api_max=1_000,
    )] = 32
    callback_threads: Annotated[int, Setting(
        "Number of threads in each worker process that run callbacks, except coroutines and async generators. Use it for"
        " callbacks that block. `0`: callbacks run on the event loop, one at a time.",
        min=0, max=256, cli="--callback-threads N", api=True,
    )] = 0
    concurrency_per_slot: Annotated[int, Setting(
        "Number of concurrent fetches per slot (host), over all workers.",
        above=0, cli="--concurrency-per-slot N", live=True, api=True,
    )] = 4
    delay: Annotated[float | None, Setting(
        "Minimum time between the starts of two fetches of a slot. `None`: adapt to the server's latency.",
        unit="s", min=0, cli="--delay SECONDS", live=True, api=True,
    )] = None
    jitter: Annotated[float, Setting(
        "Maximum random extra delay per fetch (uniform distribution).", unit="s", min=0, live=True, api=True,
    )] = 0.0
    rates: Annotated[tuple[str, ...], Setting(
        "Rate limits of a slot, such as `1/2s,20/60s`. A fetch must satisfy all of them.", live=True, api=True,
    )] = ()
    slot: Annotated[SlotUnit, Setting(
        "Unit of politeness: `host`, or `domain` for the registered domain.", api=True,
    )] = "host"
    limit_rules: Annotated[tuple[dict[str, Any], ...], Setting(
        "Limits for the hosts that a pattern matches; see `skitter.LimitRule`. The first match wins.", api=True,
    )] = ()
    queues: Annotated[dict[str, dict[str, Any]], Setting(
        "Limits of named queues: for each name any of `concurrency`, `concurrency_per_slot`, `delay`, `jitter`, `rates`.",
        api=True,
    )] = {}
    robots: Annotated[bool, Setting(
        "Obey robots.txt (RFC 9309), including Crawl-delay.", cli="--robots/--no-robots", api=True,
    )] = True
    robots_ttl: Annotated[float, Setting(
        "Time for which a robots.txt is cached. RFC 9309 allows a day.", unit="s", min=0, api=True,
    )] = 86_400.0
    crawl_delay_cap: Annotated[float, Setting(
        "Maximum Crawl-delay that is obeyed. A longer one is shortened to this.", unit="s", min=0, api=True,
    )] = 300.0

    user_agent: Annotated[str, Setting(
        "`User-Agent` of every request. Its product token selects the group in robots.txt.", section="Requests", api=True,
    )] = DEFAULT_USER_AGENT
    contact: Annotated[str, Setting(
        "URL or email address at which site owners can reach you. The default `User-Agent` ends with it. Without a contact, a crawl of"
        " public sites logs a warning.", cli="--contact ADDRESS", api=True,
    )] = ""
    headers: Annotated[dict[str, str], Setting(
        "Headers of every request, in this order; a secret value as `env:NAME` or `file:PATH`. Headers of the request itself override"
        " them.", api=True,
    )] = {}
    credentials: Annotated[dict[str, str], Setting(
        'Credentials by origin, such as `{"https://example.com": "env:NAME"}`: `user:password`, `Digest user:password` or `Bearer TOKEN`, or a'
        " reference to such a value (`env:NAME`, `file:PATH`). Sent as `Authorization` to this origin only.",
    )] = {}
    connect_timeout: Annotated[float, Setting(
        "Time limit for name resolution, TCP and TLS together.", unit="s", above=0, api=True,
    )] = 10.0
    read_timeout: Annotated[float, Setting(
        "Maximum time without a single byte in either direction.", unit="s", above=0, api=True,
    )] = 30.0
    timeout: Annotated[float, Setting(
        "Time limit for the whole transfer. `Request.timeout` overrides it.", unit="s", above=0, api=True,
    )] = 120.0
    max_body: Annotated[int, Setting(
        "Maximum size of a body, both compressed and decompressed. A larger response fails.", unit="bytes", above=0,
        api=True, api_max=256 * 1024 * 1024,
    )] = 32 * 1024 * 1024
    truncate_body: Annotated[bool, Setting(
        "Cut a body that is larger than `max_body` after that many bytes, and set `response.is_truncated`, instead of failing."
        " `Request.truncate_body` overrides it.", api=True,
    )] = False
    http_trace: Annotated[bool, Setting(
        'Store the times of each transfer by HTTP in `response.meta["http_trace"]`: a dict of `dns`, `connect`, `tls`, `first_byte`'
        " and `total` in seconds, and `reused`, whether the connection was open already.", api=True,
    )] = False
    max_page_memory: Annotated[int, Setting(
        "Maximum memory of a parsed page: its text and its trees. JSON may take twice as much. A larger page fails when its"
        " callback selects from it.",
        unit="bytes", above=0, api=True, api_max=512 * 1024 * 1024,
    )] = DEFAULT_MEMORY
    reuse_connections: Annotated[bool, Setting(
        "Reuse connections. `False`: open a new connection for each request.", api=True,
    )] = True
    max_connections: Annotated[int | None, Setting(
        "Maximum number of open connections of a worker, busy and idle. `None`: 1,000 (at most half of the limit of open"
        " files) or twice `concurrency`, plus those to hosts that have not responded yet. An idle TLS connection takes 80 KB.",
        above=0,
    )] = None
    idle_timeout: Annotated[float, Setting(
        "Time after which an unused connection is not reused.", unit="s", above=0,
    )] = 60.0
    http2: Annotated[bool, Setting("Offer HTTP/2 to https hosts.", api=True)] = True
    verify_tls: Annotated[bool, Setting("Verify certificates and host names.")] = True
    ca_file: Annotated[str, Setting(
        "PEM file of trusted certificate authorities. Empty: the bundle of `certifi`.",
    )] = ""
    proxy: Annotated[str | None, Setting(
        "Proxy URL (`http://`, `https://`, `socks5://`, `socks5h://`) for requests that do not name a proxy, or a reference to it"
        " (`env:NAME`, `file:PATH`). `None`: the variables of the environment apply (`https_proxy`, `no_proxy`). Empty: no proxy.",
    )] = None
    allow_networks: Annotated[tuple[str, ...], Setting(
        "Networks (CIDR) outside the public internet to which pages may lead, such as `10.0.0.0/8`. `0.0.0.0/0,::/0`: all.",
        cli="--allow-network CIDR",
    )] = ()
    seeds_open_networks: Annotated[bool, Setting(
        "Whether a seed in a private or loopback network opens this network to the job.",
    )] = True
    client_cert: Annotated[str, Setting(
        "PEM file of the client certificate, shown to each https server that asks for one. It may contain the key.",
    )] = ""
    client_key: Annotated[str, Setting("PEM file of the key of `client_cert`, without a passphrase.")] = ""
    client_certs: Annotated[dict[str, str], Setting(
        'Client certificates by host: a name, or a pattern such as `{"*.example.com": "me.pem"}`, with a PEM file of the certificate and'
        " its key. The first match takes precedence over `client_cert`.",
    )] = {}
    ca_files: Annotated[dict[str, str], Setting(
        "PEM files of trusted certificate authorities by host, as in `client_certs`. The first match takes the place of `ca_file`.",
    )] = {}
    unverified_hosts: Annotated[tuple[str, ...], Setting(
        "Hosts whose certificates are not verified: names, or patterns such as `*.example.com`.",
    )] = ()
    dns_servers: Annotated[tuple[str, ...], Setting(
        "Name servers: addresses, with a port if it is not 53, such as `127.0.0.1:5353`. Empty: those of the system.",
    )] = ()
    dns_cache_ttl: Annotated[float, Setting(
        "Maximum time for which a resolved name is cached. A shorter TTL in the DNS response takes precedence.", unit="s", min=0,
    )] = 60.0
    fetcher: Annotated[Any, Setting(
        "Fetcher: `http`, `browser`, `adaptive`, `warc:FILE` (an archive in place of the network), `package.module:Name`,"
        " or an object. See `skitter.fetch.contract`.",
    )] = "http"
    fetcher_rules: Annotated[tuple[dict[str, Any], ...], Setting(
        "Fetchers by domain or URL: each rule has `domain_glob`, `domain_regexp` or `url_regexp`, and a `fetcher` or"
        " `browsing`. The first match wins; `Request.fetcher` overrides it.", api=True,
    )] = ()
    cache_dir: Annotated[str | None, Setting(
        "Folder of a cache of responses, for development. Only GET requests are cached, whatever the server says about"
        " freshness. The folder may be deleted at any time. `None`: no cache.",
    )] = None
    cache_ttl: Annotated[float | None, Setting(
        "Time for which a response is cached. `None`: unlimited.", unit="s", above=0,
    )] = None

    signing_key: Annotated[str, Setting(
        "Ed25519 private key that signs each request, as `file:PATH` or `env:NAME`. Create one with `skitter signing-key FILE`.",
        section="Identity",
    )] = ""
    signature_agent: Annotated[str, Setting(
        "Address of the HTTPS host that publishes the public key of `signing_key`, such as `https://bot.example.com`.",
    )] = ""
    user_agents: Annotated[Any, Setting(
        "Source of browser headers: `random`, `random:os=windows`, `file:PATH`, a list of texts and header sets, or a plugin.",
    )] = None
    proxies: Annotated[Any, Setting("Proxies: a list of URLs, `env:NAME`, `file:PATH`, `url:URL`, or a plugin.")] = None
    proxy_rotation: Annotated[Literal["round-robin", "random", "session", "host"], Setting(
        "How a proxy is chosen: `round-robin`, `random`, `session` (one per session) or `host` (one per host).",
    )] = "round-robin"
    proxy_refresh: Annotated[float, Setting(
        "Interval at which a file or URL of proxies is read again.", unit="s", above=0,
    )] = 300.0
    proxy_cooldown: Annotated[float, Setting(
        "Time for which a failed proxy is not used. Doubles with each consecutive failure.", unit="s", above=0,
    )] = 30.0
    sessions: Annotated[Any, Setting(
        "Sessions that bind a user agent, a proxy and cookies: their number in each worker, or an object of options.",
    )] = None
    cookies: Annotated[Any, Setting(
        "Scope of cookies: `session` (a jar for each `Request.session` in each worker), `proxy` (a jar for each session and proxy),"
        " `shared` (over all workers), `auto` (`shared` if the job has several workers, else `session`, stored for the next run), `none`, or a"
        " plugin.",
    )] = "auto"
    initial_cookies: Annotated[dict[str, list[str]], Setting(
        'Cookies with which every session starts: values of `Set-Cookie` by URL, such as `{"https://example.com/": ["id=7; Path=/"]}`.'
        " They are not stored with the job.",
    )] = {}
    cookie_file: Annotated[str | None, Setting(
        "File of initial cookies for every session: a `cookies.txt`, or the cookie database of a browser.",
    )] = None

    browser_executable: Annotated[str, Setting(
        "Browser: a program name or a path. Empty: `chromium-headless-shell`, `chromium` or Chrome, whichever is found first.",
        section="Browser",
    )] = ""
    browser_url: Annotated[str | None, Setting(
        "DevTools URL of a running browser (`http://` or `ws://`). `None`: each worker starts its own.",
    )] = None
    browser_sandbox: Annotated[bool, Setting("Run the browser in its sandbox. Chromium refuses it for the root user.")] = True
    browser_pages: Annotated[int, Setting(
        "Number of pages that the browser of a worker loads at the same time.", above=0, api=True, api_max=32,
    )] = 4
    browser_max_pages: Annotated[int, Setting(
        "Number of pages after which a worker replaces its browser.", unit="pages", above=0,
    )] = 250
    browser_memory: Annotated[int, Setting(
        "Memory of the browser's processes above which a worker replaces it.", unit="bytes", above=0,
    )] = 2 * 1024**3
    browser_context: Annotated[dict[str, Any], Setting(
        "Environment that the browser reports to pages, as options of Playwright's `new_context`: `viewport`, `screen`, `locale`,"
        " `timezone_id`, `geolocation`, `permissions`, `color_scheme`, `reduced_motion`, `device_scale_factor`, `is_mobile`,"
        " `has_touch` and `java_script_enabled`.",
    )] = {}
    wait_until: Annotated[WaitUntil, Setting(
        "Event after which a page in the browser counts as loaded: `commit`, `domcontentloaded`, `load` or `networkidle`.",
        api=True,
    )] = "load"
    blocked_resources: Annotated[tuple[str, ...], Setting(
        "Kinds of resources that the browser does not load: `image`, `font`, `media`, `stylesheet`, `script`, `xhr`, `fetch`"
        " and others of the DevTools protocol.", api=True,
    )] = ("image", "font", "media")
    blocked_urls: Annotated[tuple[str, ...], Setting(
        "Regular expression. The browser does not load sub-requests whose URL matches it, such as those for advertisements. It"
        " never applies to the page itself.", api=True,
    )] = ()
    page_timeout: Annotated[float, Setting(
        "Time limit for a page in the browser, with its actions. `Request.timeout` overrides it.",
        unit="s", above=0, api=True,
    )] = 60.0
    page_max_requests: Annotated[int, Setting(
        "Maximum number of sub-requests of a page. A page that sends more fails.", above=0, api=True,
    )] = 500
    page_max_bytes: Annotated[int, Setting(
        "Maximum amount of data that a page receives, with all its sub-requests. A page that receives more fails.",
        unit="bytes", above=0, api=True, api_max=256 * 1024 * 1024,
    )] = 64 * 1024 * 1024
    page_memory: Annotated[int, Setting(
        "Maximum memory of the process of a page. A page that needs more fails.", unit="bytes", above=0,
        api=True, api_max=2 * 1024**3,
    )] = 1024**3
    capture_dir: Annotated[str | None, Setting(
        "Folder for screenshots and PDFs. Callbacks then receive file names. `None`: callbacks receive bytes.",
    )] = None
    required_selectors: Annotated[tuple[str, ...], Setting(
        "CSS selectors that find something in every complete page. `fetcher=adaptive` fetches other pages in the browser.",
        api=True,
    )] = ()

    max_redirects: Annotated[int, Setting(
        "Maximum number of redirects in a chain.", section="Responses and retries", min=0, api=True,
    )] = 20
    refresh_delay_cap: Annotated[float | None, Setting(
        "Maximum delay of a `Refresh` header or a `<meta http-equiv=refresh>` that is followed like a link."
        " `None`: none is followed. `skitter crawl` sets `10`.", unit="s", min=0, api=True,
    )] = None
    allowed_statuses: Annotated[tuple[int, ...], Setting(
        "Statuses outside 2xx whose responses are passed to the callback.", api=True,
    )] = ()
    max_retries: Annotated[int, Setting(
        "Maximum number of retries after a temporary failure (5xx, timeout, broken connection).", min=0, api=True,
    )] = 3
    unreachable_timeout: Annotated[float, Setting(
        "Time after which requests to a host that has never responded in this job fail, because its name does not resolve or it"
        " accepts no connection.",
        unit="s", min=0, api=True,
    )] = 15.0
    outage_timeout: Annotated[float, Setting(
        "Time for which requests wait for a host that has responded before but cannot be reached now.",
        unit="s", min=0, api=True,
    )] = 150.0
    max_throttled: Annotated[int, Setting("Maximum number of retries after 429 and 503.", min=0, api=True)] = 10
    retry_delay: Annotated[float, Setting(
        "Delay before the first retry. Doubles with each retry; jitter is added.", unit="s", min=0, api=True,
    )] = 1.0
    retry_delay_cap: Annotated[float, Setting("Maximum delay before a retry.", unit="s", min=0, api=True)] = 300.0
    retry_after_cap: Annotated[float, Setting(
        "Longest `Retry-After` to wait for. If an origin asks for more, its requests fail without an attempt until that time"
        " has passed.", unit="s", min=0, api=True,
    )] = 900.0
    retry_failed_at_end: Annotated[bool, Setting(
        "Queue the dead letters again, once per run, when everything else is done. Machines that run a job together do this once.",
        api=True,
    )] = False

    depth_limit: Annotated[int | None, Setting(
        "Maximum number of links followed from a start URL. `0`: start URLs only.",
        section="Scope and items", min=0, cli="--depth N", api=True,
    )] = None
    scope: Annotated[Literal["any", "host", "domain", "prefix"], Setting(
        "Follow links only within the `host`, registered `domain` or URL `prefix` of the start URLs. `skitter crawl` uses"
        " `host` by default.",
        cli="--scope", api=True,
    )] = "any"
    allow: Annotated[tuple[str, ...], Setting(
        "Regular expression. Follow only URLs that match at least one.", cli="--allow PATTERN", api=True,
    )] = ()
    deny: Annotated[tuple[str, ...], Setting(
        "Regular expression. Do not follow URLs that match it.", cli="--deny PATTERN", api=True,
    )] = ()
    max_url_length: Annotated[int, Setting("Maximum length of a URL.", above=0, api=True)] = 4096
    max_links: Annotated[int, Setting(
        "Maximum number of links followed from one page. The others are counted as `refused/page_links`.", above=0,
        api=True, api_max=500_000,
    )] = 50_000
    fingerprint_keys: Annotated[tuple[str, ...], Setting(
        "Keys of `meta` whose values are part of the identity of every request.", api=True,
    )] = ()
    item_meta_fields: Annotated[tuple[str, ...], Setting(
        "Keys of `meta` and `cb_kwargs` that are copied to items that lack such a field. `*`: all.", api=True,
    )] = ()
    item_schema: Annotated[Any, Setting(
        "What items have to match: a dataclass, attrs, msgspec, TypedDict or pydantic class, its dotted path"
        " (`package.module:Name`), or a JSON Schema.",
    )] = None
    invalid_items: Annotated[Literal["keep", "drop", "fail"], Setting(
        "What to do with an item that violates `item_schema`: `keep` or `drop` it, or `fail` its page. It is counted in any"
        " case; a dropped one also as `dropped_items/invalid`.", api=True,
    )] = "keep"
    group_key: Annotated[str | None, Setting(
        "Key of `meta` by whose values pages and items are counted. Requests from a page inherit its value.", api=True,
    )] = None
    obey_nofollow: Annotated[bool, Setting(
        "Skip the links of pages with `nofollow` (`X-Robots-Tag`, `<meta name=robots>`), and links with `rel=nofollow`, as"
        " `refused/nofollow`.", section="Page directives", api=True,
    )] = False
    obey_noindex: Annotated[bool, Setting(
        "Drop the items of pages with `noindex`, `none` or an `unavailable_after` that has passed, as"
        " `dropped_items/noindex`.", api=True,
    )] = False
    obey_tdm: Annotated[bool, Setting(
        "Drop the items of pages with `tdm-reservation: 1` (header, `<meta>` or tdmrep.json), `noai`, or `Content-Signal: ai-train=no` in"
        " robots.txt, as `dropped_items/tdm`.", api=True,
    )] = False
    follow_canonical: Annotated[bool, Setting("Follow the canonical URL of each page.", api=True)] = False
    follow_hreflang: Annotated[bool, Setting(
        "Follow the translations of each page (`<link rel=alternate hreflang>`).", api=True,
    )] = False
    directives_field: Annotated[str | None, Setting(
        "Field of each item that receives the directives of its page, such as `noai` and `tdm_policy`.", api=True,
    )] = None
    trap_detection: Annotated[bool, Setting(
        "Detect endless URL spaces among the links of pages. Off: the settings of this section have no effect.",
        section="Traps", api=True,
    )] = True
    max_path_repeats: Annotated[int | None, Setting(
        "Number of times that one segment may occur in the path of a link. More: `refused/trap_path_repeats`.",
        min=3, api=True,
    )] = 3
    max_path_segments: Annotated[int | None, Setting(
        "Maximum number of segments in the path of a link. More: `refused/trap_path_segments`.", min=4, api=True,
    )] = 25
    max_query_parameters: Annotated[int | None, Setting(
        "Maximum number of query parameters of a link. More: `refused/trap_parameters`.", above=0, api=True,
    )] = 20
    strip_session_ids: Annotated[bool, Setting(
        "Remove session ids from links: `;jsessionid=`, `PHPSESSID`, `ASPSESSIONID...`, `CFID` and `CFTOKEN`, and `sid`,"
        " `session` and similar parameters whose value has at least 16 characters.", api=True,
    )] = True
    stripped_parameters: Annotated[tuple[str, ...], Setting(
        "Query parameter that is removed from links; `*` at the end stands for any characters.", api=True,
    )] = ("utm_*", "gclid", "fbclid", "msclkid")
    max_urls_per_pattern: Annotated[int | None, Setting(
        "Maximum number of links of one URL pattern that a worker follows: the same path except numbers, the same parameter"
        " names. A link counts each time until its page is committed. More: `refused/trap_pattern_urls`.", above=0, api=True,
    )] = None
    trap_patience: Annotated[int, Setting(
        "Number of consecutive pages without new content after which a URL pattern is refused as `refused/trap_pattern`, if it"
        " also grows like a trap.", above=0, api=True,
    )] = 50
    duplicate_content: Annotated[Literal["follow", "deprioritize", "skip"], Setting(
        "What to do with the links of a page whose body another page of its host has: `follow` them, follow them last"
        " (`deprioritize`), or `skip` them as `refused/duplicate_content`.", api=True,
    )] = "deprioritize"
    monitors: Annotated[tuple[str | dict[str, Any], ...], Setting(
        "Rule that each pass of the job has to satisfy, such as `failed / pages <= 0.02`, or an object with the fields of"
        " `skitter.MonitorRule`.",
        section="Monitors and notifications", cli="--monitor RULE", api=True,
    )] = ()
    notify: Annotated[tuple[str, ...], Setting(
        "Where violated monitors are reported: URLs of webhooks (`https:`), and email addresses (`mailto:`).",
        cli="--notify URL",
    )] = ()
    smtp_url: Annotated[str, Setting(
        "Mail server: `smtp://[USER:PASSWORD@]HOST[:PORT]` (STARTTLS if offered) or `smtps://`, or a reference to"
        " this URL (`env:NAME`, `file:PATH`). A login needs TLS, except on loopback.",
    )] = "smtp://localhost"
    mail_from: Annotated[str, Setting("Sender address of the emails that report violated monitors.")] = "skitter@localhost"

    files_store: Annotated[str | None, Setting(
        "Folder of downloaded files, or a URL such as `s3://bucket/prefix`. `None`: the URLs of files in items are not"
        " downloaded.",
        section="Files and images", cli="--files-store PLACE",
    )] = None
    files_fields: Annotated[dict[str, str], Setting(
        "Fields of items with URLs of files (a URL or a list), and the fields for the results.", api=True,
    )] = msgspec.field(default_factory=lambda: {"file_urls": "files", "image_urls": "images"})
    files_max_size: Annotated[int, Setting("Maximum size of a file.", unit="bytes", above=0, api=True)] = 1024**3
    files_timeout: Annotated[float, Setting(
        "Time limit for the download of a file. `read_timeout` applies as well.", unit="s", above=0, api=True,
    )] = 3600.0
    files_ttl: Annotated[float, Setting(
        "Time after which a file is requested again when an item needs it, and downloaded if it changed.", unit="s", min=0, api=True,
    )] = 90 * 86_400.0
    files_required: Annotated[bool, Setting(
        "Turn the items of a page into a dead letter if one of their files cannot be downloaded. `False`: write the items,"
        " with the error in place of the file.", api=True,
    )] = False
    image_thumbnails: Annotated[dict[str, tuple[int, int]], Setting(
        'Thumbnails of images: largest width and height by name, such as `{"small": [100, 100]}`.', api=True,
    )] = {}

    tracing: Annotated[float, Setting(
        "Share of requests, from 0 to 1, whose traces are sent to an OpenTelemetry collector. `OTEL_EXPORTER_OTLP_ENDPOINT`"
        " names the collector; default: `http://localhost:4318`.",
        section="Traces", min=0, max=1, cli="--tracing RATIO", api=True,
    )] = 0.0

    log_levels: Annotated[dict[str, Literal["debug", "info", "warning", "error"]], Setting(
        'Minimum severity of the messages of single loggers, such as `{"my_shop": "debug"}`. `--log-level` applies to all others.',
        section="Logging", api=True,
    )] = {}
    log_file: Annotated[str | None, Setting(
        "File to which the log is appended, in addition to standard error.", cli="--log-file FILE",
    )] = None
    log_file_size: Annotated[int, Setting(
        "Size from which the log file is renamed to `FILE.1`, and a new one begins.", unit="bytes", above=0,
    )] = 10 * 1024 * 1024
    log_file_backups: Annotated[int, Setting("Number of renamed log files that are kept.", min=0)] = 5

    # fmt: on

    if not TYPE_CHECKING:  # a type checker finds such names by itself

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError for an unknown setting, with the name to use in place of one of Scrapy."""
            remedy = SETTINGS.get(name, "settings are attributes in lower case, such as self.settings.delay")
            raise AttributeError(f"there is no setting {name!r}; {remedy}")

    def __post_init__(self) -> None:
        FrontierSettings.__post_init__(self)
        for pattern in self.blocked_urls:
            _check_blocked_url(pattern)
        for server in self.dns_servers:
            _check_name_server(server)
        _check_files(self.files_fields, self.image_thumbnails)
        if self.dns_servers and not self.dns_cache_ttl:
            raise SettingsError(
                "dns_servers cannot be combined with dns_cache_ttl=0: the name servers of the system would be asked",
                remedy="set dns_cache_ttl=1, or leave out dns_servers",
                field="dns_servers",
            )
        if not self.contact:
            return
        if not re.fullmatch(_CONTACT, self.contact):
            raise SettingsError(
                f"invalid contact: {self.contact!r:.200}",
                remedy="give a URL or an email address, such as https://example.com/bot",
                field="contact",
            )
        if self.user_agent == DEFAULT_USER_AGENT:
            force_setattr(self, "user_agent", f"{DEFAULT_USER_AGENT} (+{self.contact})")

    def max_first_contacts(self) -> int:
        """Return how many requests to origins that have not responded yet may run in addition to ``concurrency`` others."""
        wanted = max(64, 4 * self.concurrency)
        return wanted if self.max_connections is None else max(0, min(wanted, self.max_connections - self.concurrency))

    def politeness(self) -> Politeness:
        """Return the politeness rules. Raises :class:`~skitter.errors.SettingsError`."""
        default = HostLimits(
            delay=self.delay, jitter=self.jitter, concurrency_per_slot=self.concurrency_per_slot, rates=self.rates
        )
        queues = {name: limits.over(HostLimits()) for name, limits in self._queue_limits().items()}
        return Politeness(default, [limit_rule(rule) for rule in self.limit_rules], self.slot, queues)

    def queue_sizes(self) -> dict[str, int]:
        """Return the concurrency of each queue that sets its own. Raises :class:`~skitter.errors.SettingsError`."""
        queues = self._queue_limits()
        return {name: limits.concurrency for name, limits in queues.items() if limits.concurrency is not None}

    def _queue_limits(self) -> dict[str, QueueLimits]:
        for name in self.queues:
            if not is_queue_name(name):
                raise SettingsError(f"invalid queue name {name!r:.80}", remedy=NAME_RULE, field="queues")
        return {
            name: _struct(f"queue {name}", fields, QueueLimits, "queues") for name, fields in self.queues.items()
        }


def _check_blocked_url(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except re.error as error:
        raise SettingsError(
            f"setting blocked_urls: invalid regular expression {pattern!r:.200}: {error}",
            remedy="correct it; a literal . * ? + ( ) [ ] needs a backslash in front of it",
            field="blocked_urls",
        ) from error


def _check_name_server(server: str) -> None:
    found = re.fullmatch(r"\[(?P<v6>.+)\](?::(?P<port6>\d{1,5}))?(?:%\w+)?|(?P<v4>[^:]+):(?P<port4>\d{1,5})", server)
    address = (found["v6"] or found["v4"]) if found else server
    port = int((found["port6"] or found["port4"] or 53) if found else 53)
    try:
        ip_address(address)
    except ValueError:
        is_valid = False
    else:
        is_valid = 0 < port <= 65_535
    if not is_valid:
        raise SettingsError(
            f"invalid name server in dns_servers: {server!r:.200}",
            remedy="write its address, as in 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353",
            field="dns_servers",
        )


def _check_files(fields: Mapping[str, str], thumbnails: Mapping[str, tuple[int, int]]) -> None:
    if len(set(fields.values())) < len(fields):
        raise SettingsError(
            "files_fields names one field for the results of two fields",
            remedy="name another field for the results of each, or their entries would replace each other",
            field="files_fields",
        )
    for name, size in thumbnails.items():
        # The name becomes a folder of the store, and callers of a service may choose it.
        if not re.fullmatch(r"[\w-]{1,64}", name):
            raise SettingsError(
                f"invalid name in image_thumbnails: {name!r:.80}",
                remedy="use at most 64 letters, digits, dashes and underscores",
                field="image_thumbnails",
            )
        if min(size) < 1:
            raise SettingsError(
                f"invalid size of the thumbnail {name}: {list(size)}",
                remedy="give a width and a height of at least 1 pixel",
                field="image_thumbnails",
            )


def build_settings(*layers: Mapping[str, Any]) -> Settings:
    """Build settings from layers. Later layers override earlier ones.

    A value may be text, as on a command line. A list is text with commas or a JSON array. Raises
    :class:`~skitter.errors.SettingsError` for unknown names (the remedy is the closest known one) or an invalid value.
    """
    known = declarations(Settings)
    unknown = list(dict.fromkeys(name for layer in layers for name in layer if name not in known))
    if len(unknown) > 1:
        raise SettingsError(
            f"unknown settings {', '.join(map(repr, unknown))}",
            remedy="; ".join(f"{name}: {_remedy_for_unknown(name)}" for name in unknown),
            field=unknown[0],
        )
    return Settings(**{name: convert(name, value) for layer in layers for name, value in layer.items()})


def convert(name: str, value: Any) -> Any:
    """Return the value of a setting as its type. Raises :class:`~skitter.errors.SettingsError`."""
    declared = declarations(Settings).get(name)
    if declared is None:
        raise SettingsError(f"unknown setting {name!r}", remedy=_remedy_for_unknown(name), field=name)
    return declared.convert(value)


def _remedy_for_unknown(name: str) -> str:
    if remedy := SETTINGS.get(name) or SCRAPY_REDIS_SETTINGS.get(name) or CRAWLEE_SETTINGS.get(name):
        return remedy
    if near := close_names(name.lower(), declarations(Settings), cutoff=0.9 if name.isupper() else 0.6):
        return f"did you mean {near[0]}?"
    if name.isupper():  # of a Scrapy project, or of one of its plugins
        return "remove it, or keep a value of your own in an attribute of the spider"
    return "see the settings in the manual"


def frontier_settings(settings: Settings) -> FrontierSettings:
    """Return the settings of a job that its frontier obeys, without the others: they may hold secrets."""
    names = FrontierSettings.__struct_fields__
    return FrontierSettings(**{name: getattr(settings, name) for name in names})


def live_settings() -> list[str]:
    """Return the names of the settings that can change during a run."""
    return [name for name, declared in declarations(Settings).items() if declared.setting.live]


def api_settings() -> dict[str, int | None]:
    """Return the settings that API users may set, by name, with the largest number that they may set."""
    return {
        name: declared.setting.api_max
        for name, declared in declarations(Settings).items()
        if declared.setting.api
    }


def limit_rule(fields: Mapping[str, Any]) -> LimitRule:
    """Return the limit rule with these fields. Raises :class:`~skitter.errors.SettingsError` for an unknown or invalid one."""
    rule: LimitRule = _struct(f"limit rule {dict(fields)}", fields, LimitRule, "limit_rules")
    return rule


def _struct(described: str, fields: Mapping[str, Any], kind: Any, setting: str) -> Any:
    known = kind.__struct_fields__
    if unknown := set(fields) - set(known):
        raise SettingsError(
            f"{described} has no field {min(unknown)!r}", remedy=f"use one of {', '.join(known)}", field=setting
        )
    values = dict(fields)
    if isinstance(values.get("rates"), str):
        values["rates"] = [values["rates"]]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{described}: {error}", remedy="correct the field", field=setting) from error
