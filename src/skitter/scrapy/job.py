"""The specification of the job of a Scrapy project, from the settings of the project."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SettingsError, UsageError
from skitter.run.job import HOME, JobSpec
from skitter.secrets import is_secret_name
from skitter.settings import FrontierSettings
from skitter.spider import Spider
from skitter.store.outputs import CSV_CELLS
from skitter.store.selection import ITEM_CLASSES, is_class_name

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

log = logging.getLogger("skitter.scrapy")

_OF_OTHER_SEEDS = {"changes", "seed_keys", "seed_format", "seed_list_end", "wait_for_seeds"}
"""Settings of the frontier that need a skitter spider."""
_ALLOWED = {
    *FrontierSettings.__struct_fields__, "monitors", "notify", "rates", "retry_failed_at_end", "slot", "time_limit",
} - _OF_OTHER_SEEDS  # fmt: skip
_OWN = {
    "SKITTER_FRESH",
    "SKITTER_FRONTIER",
    "SKITTER_HOME",
    "SKITTER_JOB",
    "SKITTER_OUTPUTS",
    "SKITTER_SETTINGS",
}
_FORMATS = {
    "json": ("json",), "jsonlines": ("jsonl", "jl", "ndjson"), "jsonl": ("jsonl",), "jl": ("jl",), "csv": ("csv",),
}  # fmt: skip
"""Suffixes of the files that skitter writes, by the format of a Scrapy feed."""
_FEED_OPTIONS = {"format", "fields", "overwrite", "store_empty", "encoding", "indent", ITEM_CLASSES}
"""Options of a feed that have the same meaning in skitter, or none."""
_SETTINGS = {"--fresh": "SKITTER_FRESH=1", "--job": "SKITTER_JOB", "--frontier": "SKITTER_FRONTIER"}
_UNNAMED = re.compile(r"[^A-Za-z0-9._-]")
"""Characters that the name of a job cannot contain."""
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_OF_FEEDS = {"time", "batch_id", "batch_time"}
"""Placeholders in the URIs of feeds that Scrapy replaces by a time or a number."""
_OF_SPIDERS = 30
"""Priority of the settings in ``custom_settings`` of a spider."""
UNLIMITED = 10_000
"""Value for a limit that Scrapy does not have: high enough never to take effect."""


class ScrapyJob(Spider):
    """Represents a Scrapy spider in the specification of its job, so that skitter's commands can open the job."""

    name = "scrapy"

    def __init__(self, scrapy_spider: str = "", **_arguments: object) -> None:
        """``scrapy_spider``: the name of the Scrapy spider. Its arguments have no meaning here."""
        super().__init__()
        self.scrapy_spider = scrapy_spider

    def on_start(self, worker: object) -> None:  # noqa: ARG002 - a hook
        """Refuse to run the job, because only Scrapy can."""
        raise UsageError(
            f"the job belongs to the Scrapy spider {self.scrapy_spider!r}",
            remedy=f"continue it with `scrapy crawl {self.scrapy_spider}` in the folder of its project",
        )


class RunningScrapyJob(Spider):
    """The spider of the job in a process of Scrapy, which runs it."""

    name = "scrapy"

    def __init__(self, **_arguments: object) -> None:
        super().__init__()


class Limits(msgspec.Struct, frozen=True):
    """Scrapy's settings that limit the speed of a crawl."""

    concurrency: int
    """``CONCURRENT_REQUESTS``, per process."""
    per_slot: int
    """``CONCURRENT_REQUESTS_PER_DOMAIN`` or ``CONCURRENT_REQUESTS_PER_IP``, per host, for all processes together."""
    delay: float | None
    """Seconds between two requests to a host; ``None``: the delay adapts to the latency."""
    jitter: float
    slots: dict[str, dict[str, Any]]
    """``DOWNLOAD_SLOTS``."""

    def to_settings(self) -> dict[str, Any]:
        """Return the limits as settings of skitter."""
        rules = [_rule(host, options, self.jitter) for host, options in self.slots.items()]
        # Scrapy draws each delay from an interval around DOWNLOAD_DELAY. Skitter adds a random part to a minimum.
        shortest = None if self.delay is None else self.delay * max(0.0, 1 - self.jitter)
        longest = 0.0 if self.delay is None else self.delay * (1 + self.jitter)
        return {
            "concurrency": self.concurrency,
            "concurrency_per_slot": self.per_slot,
            "delay": shortest,
            "jitter": longest - (shortest or 0.0),
            "limit_rules": rules,
        }


def _rule(host: str, options: Mapping[str, Any], jitter: float) -> dict[str, Any]:
    jitter = float(options.get("jitter", jitter if options.get("randomize_delay", True) else 0.0))
    rule: dict[str, Any] = {"domain_regexp": re.escape(host)}
    if "concurrency" in options:
        rule["concurrency_per_slot"] = int(options["concurrency"])
    if "delay" in options:
        delay = float(options["delay"])
        rule["delay"] = delay * max(0.0, 1 - jitter)
        rule["jitter"] = delay * (1 + jitter) - rule["delay"]
    return rule


def read_limits(settings: BaseSettings, spider: object) -> Limits:
    """Read the limits of a project.

    ``spider``: its attributes ``download_delay`` and ``max_concurrent_requests``, which Scrapy deprecates, take precedence
    over the settings of the project, as in Scrapy 2.19.
    """
    delay = float(_own(settings, spider, "download_delay", "DOWNLOAD_DELAY"))
    per_domain = int(_own(settings, spider, "max_concurrent_requests", "CONCURRENT_REQUESTS_PER_DOMAIN"))
    adapts = settings.getbool("AUTOTHROTTLE_ENABLED") and not delay
    return Limits(
        settings.getint("CONCURRENT_REQUESTS") or UNLIMITED,
        settings.getint("CONCURRENT_REQUESTS_PER_IP") or per_domain,
        None if adapts else delay,
        _jitter(settings),
        settings.getdict("DOWNLOAD_SLOTS"),
    )


def _own(settings: BaseSettings, spider: object, attribute: str, name: str) -> Any:
    """Return a setting, or the attribute of the spider, unless the spider or the command line sets the setting too."""
    is_set = (settings.getpriority(name) or 0) >= _OF_SPIDERS
    return settings[name] if is_set else getattr(spider, attribute, settings[name])


def _jitter(settings: BaseSettings) -> float:
    """Return the share by which a delay varies, from ``DOWNLOAD_DELAY_JITTER`` or the older ``RANDOMIZE_DOWNLOAD_DELAY``."""
    newer, older = (
        settings.getpriority(name) for name in ("DOWNLOAD_DELAY_JITTER", "RANDOMIZE_DOWNLOAD_DELAY")
    )
    if newer is None or (older or 0) > newer:
        return 0.5 if settings.getbool("RANDOMIZE_DOWNLOAD_DELAY") else 0.0
    return settings.getfloat("DOWNLOAD_DELAY_JITTER")


class Feeds(msgspec.Struct, frozen=True):
    """The feeds of a project."""

    outputs: list[str] = []
    """The feeds that skitter writes, as names of outputs."""
    replaced: list[str] = []
    """The outputs that replace an existing file (``-O`` or ``overwrite``)."""
    others: dict[str, Any] = {}
    """The feeds that Scrapy has to write, with their options."""


def take_feeds(settings: BaseSettings, spider: object) -> Feeds:
    """Divide the feeds of a project between skitter and Scrapy. ``spider``: its attributes replace placeholders."""
    feeds = Feeds([], [], {})
    named = settings.getdict("FEEDS")
    if settings.get("FEED_URI"):  # the older setting for a single feed
        named.setdefault(str(settings["FEED_URI"]), {"format": settings.get("FEED_FORMAT")})
    for uri, options in named.items():
        output = _output_of(_named(str(uri), settings, spider), options, settings)
        if output is None:
            feeds.others[uri] = options
        else:
            feeds.outputs.append(output)
            if options.get("overwrite"):
                feeds.replaced.append(output)
    return feeds


def _named(uri: str, settings: BaseSettings, spider: object) -> str:
    """Return the URI of a feed with the attributes of the spider in place of placeholders, unless Scrapy has to replace them."""
    if settings.get("FEED_URI_PARAMS"):
        return uri

    def value(found: re.Match[str]) -> str:
        return found[0] if found[1] in _OF_FEEDS else str(getattr(spider, found[1], found[0]))

    return _PLACEHOLDER.sub(value, uri)


def _output_of(uri: str, options: Mapping[str, Any], settings: BaseSettings) -> str | None:
    feed_format = str(options.get("format", ""))
    path = uri.removeprefix("file://")
    suffixes = _FORMATS.get(feed_format, ())
    named = options.get("fields") or settings.getdictorlist("FEED_EXPORT_FIELDS") or None
    encoding = options.get("encoding") or settings.get("FEED_EXPORT_ENCODING") or "utf-8"
    is_simple = (
        options.keys() <= _FEED_OPTIONS
        and Path(path).suffix.removeprefix(".") in suffixes
        and "://" not in path
        and not set("%?").intersection(path)
        and (named is None or isinstance(named, list))
        and not (feed_format == "json" and options.get("indent", settings.getint("FEED_EXPORT_INDENT")))
        and _is_default(settings, "FEED_EXPORTERS", feed_format)
        and all(_is_default(settings, "FEED_STORAGES", scheme) for scheme in ("", "file"))
        and str(encoding).lower() in {"utf-8", "utf8"}
    )
    classes = _class_paths_of(options)
    if not is_simple or classes is None:
        return None
    chosen = {"fields": named, ITEM_CLASSES: classes}
    words = [f"{name}={','.join(values)}" for name, values in chosen.items() if values]
    if feed_format == "csv":
        words.append(f"{CSV_CELLS}=scrapy")
    return f"{path}?{'&'.join(words)}" if words else path


def _is_default(settings: BaseSettings, name: str, key: str) -> bool:
    """Return whether the project leaves a format or a scheme of feeds to the class that Scrapy defines for it."""
    from scrapy.utils.misc import load_object  # noqa: PLC0415 - requires Scrapy

    own = settings.getdict(name).get(key)
    return own is None or load_object(own) is load_object(settings.getdict(f"{name}_BASE")[key])


def _class_paths_of(options: Mapping[str, Any]) -> list[str] | None:
    """Return the dotted paths of the item classes of a feed; empty: all classes. ``None`` if a class has no such path.

    Raises Scrapy's error for a class that cannot be loaded.
    """
    from scrapy.utils.misc import load_object  # noqa: PLC0415 - requires Scrapy

    # A feed may name a class by a module that imports it. Items only know the module that defines their class.
    classes = [load_object(named) for named in options.get(ITEM_CLASSES) or ()]
    paths = [f"{kind.__module__}.{kind.__qualname__}" for kind in classes]
    return paths if all(map(is_class_name, paths)) else None


def job_spec(
    settings: BaseSettings, spider: object, limits: Limits, feeds: Feeds, arguments: Mapping[str, str]
) -> JobSpec:
    """Return the specification of the job. ``spider``: the Scrapy spider; ``arguments``: its arguments, as given by ``-a``.

    Raises :class:`~skitter.errors.UsageError` for an invalid value.
    """
    for name in settings:
        if str(name).startswith("SKITTER_") and name not in _OWN:
            raise SettingsError(
                f"unknown setting {name}", remedy=f"use one of {', '.join(sorted(_OWN))}", field=str(name)
            )
    outputs = settings.get("SKITTER_OUTPUTS") or []
    if isinstance(outputs, str):
        outputs = [outputs]
    name = str(getattr(spider, "name", ""))
    return JobSpec(
        job=_job_name(settings, spider, name),
        spider=f"{ScrapyJob.__module__}:{ScrapyJob.__qualname__}",
        spider_title=_title(settings, name),
        arguments={"scrapy_spider": name, **arguments},
        settings={**limits.to_settings(), "robots": False, **_own_settings(settings)},
        outputs=[str(output).replace("%(name)s", name) for output in [*outputs, *feeds.outputs]],
        frontier=settings.get("SKITTER_FRONTIER") or "sqlite:",
        home=str(settings.get("SKITTER_HOME") or HOME),
        reads_references=False,
    )


def public_arguments(spec: JobSpec) -> dict[str, Any]:
    """Return the arguments of the Scrapy spider without secrets, because secrets are not stored."""
    return {
        name: value
        for name, value in spec.arguments.items()
        if name != "scrapy_spider" and not is_secret_name(name)
    }


def in_settings(remedy: str) -> str:
    """Return a remedy that names settings of a project instead of options of ``skitter run``."""
    for option, setting in _SETTINGS.items():
        remedy = remedy.replace(option, setting)
    return remedy


def _job_name(settings: BaseSettings, spider: object, name: str) -> str:
    """Return the name of the job. Attributes of the spider replace placeholders, as in the URIs of Scrapy's feeds."""
    template = settings.get("SKITTER_JOB")
    if not template:
        return _UNNAMED.sub("-", name)

    def value(found: re.Match[str]) -> str:
        attribute = found[1]
        if not hasattr(spider, attribute):
            raise SettingsError(
                f"SKITTER_JOB names an attribute that the spider does not have: {attribute}",
                remedy=f"pass the argument -a {attribute}=..., or give the spider a default: {attribute} = ...",
                field="SKITTER_JOB",
            )
        return _UNNAMED.sub("-", str(getattr(spider, attribute)))

    return _PLACEHOLDER.sub(value, str(template))


def _title(settings: BaseSettings, spider: str) -> str:
    """Return the name of a Scrapy spider and, if it has a project, of the project."""
    has_project = (settings.getpriority("BOT_NAME") or 0) > 0
    return f"{spider} (Scrapy project {settings['BOT_NAME']})" if has_project else f"{spider} (Scrapy)"


def _own_settings(settings: BaseSettings) -> dict[str, Any]:
    given = settings.getdict("SKITTER_SETTINGS")
    for name in given:
        if name not in _ALLOWED:
            raise SettingsError(
                f"setting {name!r} in SKITTER_SETTINGS has no effect on a Scrapy project",
                remedy=f"use Scrapy's own settings, or one of {', '.join(sorted(_ALLOWED))}",
                field="SKITTER_SETTINGS",
            )
    return given
