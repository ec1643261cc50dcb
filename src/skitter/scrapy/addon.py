"""The Scrapy add-on that makes skitter's frontier the scheduler of a project."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from skitter.errors import SkitterError, UsageError
from skitter.scrapy.job import Feeds, Limits, job_spec, read_limits, take_feeds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from skitter.run.job import JobSpec

log = logging.getLogger("skitter.scrapy")

SCHEDULER = "skitter.scrapy.scheduler.Scheduler"
_COOKIES = "scrapy.downloadermiddlewares.cookies.CookiesMiddleware"
_OUTERMOST = -1_000_000
"""Order of the middleware that sees the output of a callback as the engine receives it."""
_INNERMOST = 1_000_000
_ABOVE_ALL = 1_000
"""Priority of the settings that skitter changes: higher than the command line."""
_KNOWN_FILTERS = ("scrapy.dupefilters.RFPDupeFilter", "scrapy.dupefilters.BaseDupeFilter")
"""Scrapy's default filter, and the filter that filters nothing. The frontier can do the same as both."""
_SINGLE_PAGE_COMMANDS = {"bench", "check", "fetch", "parse", "shell", "view"}
"""Scrapy commands that try out single pages. They must not touch the job."""


class Addon:
    """Makes skitter schedule the requests and store the items of a Scrapy project.

    ``ADDONS = {"skitter.scrapy.Addon": 0}`` in the settings of the project enables it. It reads the settings
    ``SKITTER_JOB`` (name of the job; default: name of the spider), ``SKITTER_OUTPUTS`` (list of outputs),
    ``SKITTER_FRONTIER`` (URL; default ``sqlite:``), ``SKITTER_HOME`` (folder of the jobs; default ``.skitter``),
    ``SKITTER_FRESH`` (start the job again) and ``SKITTER_SETTINGS`` (further settings of skitter).

    Scrapy commands that try out a page, such as ``scrapy shell``, do not use the add-on.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.spec: JobSpec | None = None
        """The job of the project. ``None``: the command does not crawl."""
        self.fresh = False
        """Whether to start the job again."""
        self.files: list[Path] = []
        """Feeds that skitter writes."""
        self.replaced: list[Path] = []
        """Files that a new job replaces."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Addon:
        """Create the add-on of a crawler."""
        return cls(crawler)

    def update_settings(self, settings: BaseSettings) -> None:
        """Install the scheduler. Raises :class:`~skitter.errors.UsageError` for settings that it cannot work with."""
        if _command() in _SINGLE_PAGE_COMMANDS:
            return
        try:
            self._update(settings)
        except SkitterError as error:
            log.error("%s; %s", error, error.remedy)  # noqa: TRY400 - Scrapy logs the traceback
            raise

    def _update(self, settings: BaseSettings) -> None:
        _refuse_other_scheduler(settings)
        spider = self._crawler.spider
        assert spider is not None, "Scrapy creates the spider before it applies add-ons"
        _warn_about_start_requests(type(spider))
        _check_start_middlewares(settings)
        limits = read_limits(settings, spider)
        feeds = take_feeds(settings, spider)
        self.spec = job_spec(settings, spider, limits, feeds, _arguments())
        self.fresh = settings.getbool("SKITTER_FRESH")
        self.files, self.replaced = map(_files_of, (feeds.outputs, feeds.replaced))
        for file in self.files:
            with contextlib.suppress(OSError):  # skitter reports it when it opens the output
                file.parent.mkdir(parents=True, exist_ok=True)  # as Scrapy does
        _install(settings)
        _hand_over(settings, limits, feeds)


def _files_of(feeds: Iterable[str]) -> list[Path]:
    return [Path(feed.partition("?")[0]) for feed in feeds]


def _command() -> str:
    """Return the running Scrapy command, such as ``crawl``; empty if a script runs Scrapy."""
    words = sys.orig_argv  # Scrapy removes its command from sys.argv
    for place, word in enumerate(words):
        if word.rpartition("/")[2] in {"scrapy", "scrapy.exe"}:
            return next((later for later in words[place + 1 :] if not later.startswith("-")), "")
    return ""


def _arguments() -> dict[str, str]:
    """Return the arguments of the spider from the command line. The arguments that a script passes cannot be listed.

    Names with an underscore are left out: ``_job`` of Scrapyd differs in each run.
    """
    words = sys.orig_argv
    pairs = [following for word, following in itertools.pairwise(words) if word == "-a"]
    pairs += [word[2:] for word in words if word.startswith("-a") and "=" in word]
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {name: value for name, value in found.items() if not name.startswith("_")}


def _refuse_other_scheduler(settings: BaseSettings) -> None:
    if (settings.getpriority("SCHEDULER") or 0) > 0 and settings["SCHEDULER"] != SCHEDULER:
        raise UsageError(
            f"the project already has a scheduler: {settings['SCHEDULER']}",
            remedy="remove the setting SCHEDULER, or skitter.scrapy.Addon from ADDONS",
            field="SCHEDULER",
        )


def _warn_about_start_requests(spider_class: type[Spider]) -> None:
    """Warn about a method that newer versions of Scrapy ignore in silence: the job would be finished without a page."""
    import scrapy  # noqa: PLC0415 - as in _install

    if "start_requests" in vars(scrapy.Spider):
        return
    for owner in spider_class.__mro__:
        if "start" in vars(owner):
            return
        if "start_requests" in vars(owner):
            log.warning(
                "Scrapy %s does not call start_requests of spider %s: define async def start(self)",
                scrapy.__version__,
                spider_class.name,
            )
            return


def _check_start_middlewares(settings: BaseSettings) -> None:
    """Refuse or warn about spider middlewares that see start requests only in the form of older versions of Scrapy."""
    import scrapy  # noqa: PLC0415 - as in _install
    from scrapy.utils.misc import load_object  # noqa: PLC0415 - as in _install

    enabled = [name for name, order in settings.getdict("SPIDER_MIDDLEWARES").items() if order is not None]
    for kind in map(load_object, enabled):
        methods = set(dir(kind))
        if "process_start_requests" not in methods or "process_start" in methods:
            continue
        if "start_requests" not in vars(scrapy.Spider):
            log.warning(
                "Scrapy %s does not call process_start_requests of %s: define process_start",
                scrapy.__version__,
                kind.__qualname__,
            )
        else:  # Scrapy would refuse it, without the name of the middleware
            raise UsageError(
                f"spider middleware {kind.__module__}.{kind.__qualname__} only defines process_start_requests",
                remedy="remove the method if it only passes requests on; otherwise define async def process_start(self, start)",
                field="SPIDER_MIDDLEWARES",
            )


def _install(settings: BaseSettings) -> None:
    from skitter.scrapy.observers import observed  # noqa: PLC0415 - requires Scrapy

    settings.set("SCHEDULER", SCHEDULER, _ABOVE_ALL)
    settings.set("DOWNLOADER", observed(settings["DOWNLOADER"]), _ABOVE_ALL)
    observers = "skitter.scrapy.observers."
    settings["SPIDER_MIDDLEWARES"].set(f"{observers}OutputMiddleware", _OUTERMOST, _ABOVE_ALL)
    settings["SPIDER_MIDDLEWARES"].set(f"{observers}CallbackMiddleware", _INNERMOST, _ABOVE_ALL)
    middlewares = settings["DOWNLOADER_MIDDLEWARES"]
    order = middlewares.get(_COOKIES, settings["DOWNLOADER_MIDDLEWARES_BASE"].get(_COOKIES))
    if order is not None:  # otherwise, the project has disabled or replaced the middleware
        middlewares.set(_COOKIES, None, _ABOVE_ALL)
        middlewares.set("skitter.scrapy.cookies.SharedCookiesMiddleware", order, _ABOVE_ALL)


def _hand_over(settings: BaseSettings, limits: Limits, feeds: Feeds) -> None:
    """Leave to Scrapy what skitter does not do. Warn about settings that are ignored or have another meaning."""
    if settings.getbool("AUTOTHROTTLE_ENABLED"):
        settings.set("AUTOTHROTTLE_ENABLED", value=False, priority=_ABOVE_ALL)
    if settings.getint("CONCURRENT_REQUESTS_PER_IP"):
        log.warning("CONCURRENT_REQUESTS_PER_IP=%d now limits each host, not each address", limits.per_slot)
    if settings["DUPEFILTER_CLASS"] not in _KNOWN_FILTERS:
        log.warning(
            "DUPEFILTER_CLASS=%s is not used: the fingerprinter in REQUEST_FINGERPRINTER_CLASS decides which requests are the "
            "same",
            settings["DUPEFILTER_CLASS"],
        )
    if settings.get("JOBDIR"):
        log.warning("JOBDIR=%s is not needed: every job can be resumed", settings["JOBDIR"])
    for uri in feeds.others:
        log.warning(
            "feed %s is written by Scrapy: a kill truncates it. To have each item in it once, name a .jsonl, .json or .csv "
            "file with no options other than fields and item_classes, without an exporter of your own or FEED_EXPORT_INDENT, "
            "or an output of skitter in SKITTER_OUTPUTS",
            uri,
        )
    settings.set("FEEDS", feeds.others, _ABOVE_ALL)
    settings.set("FEED_URI", None, _ABOVE_ALL)
