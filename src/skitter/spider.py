"""Spider: the base class of spiders, which define start requests and callbacks for pages."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from skitter.errors import NoSeeds
from skitter.request import Request
from skitter.stats import Stats

if TYPE_CHECKING:
    from skitter.link_extractor import Rule
    from skitter.settings import Settings

RULES = "rules:"
"""Start of the stored name of a callback after which the rules of the spider apply to the page."""


class Spider:
    """Base of a spider. Names follow Scrapy where Scrapy has an equivalent.

    A subclass sets ``start_urls`` or overrides :meth:`start`. It defines ``parse`` and further callbacks as coroutines,
    async generators, generators or plain functions. A callback takes a :class:`~skitter.response.Response` and returns or
    yields items, requests and batches of links.

    Keyword arguments become attributes. Those of the command line (``-a NAME=VALUE``) are strings, as in Scrapy.
    """

    name: str = ""
    """Name of the job, unless ``--job`` sets one. Default: the class name in lower case."""
    start_urls: Sequence[str] = ()
    """URLs of the first requests, unless the spider overrides :meth:`start`."""
    allowed_domains: Sequence[str] = ()
    """Domains, with their subdomains, within which links are followed. Empty: all domains."""
    outputs: Sequence[str] = ()
    """Default outputs of the items. The option ``-o`` replaces them."""
    custom_settings: ClassVar[dict[str, Any]] = {}
    """Settings of the spider; see :class:`~skitter.settings.Settings`."""
    rules: Sequence[Rule] = ()
    """Rules that follow links of each page; see :class:`~skitter.link_extractor.Rule`. They apply to the pages of ``parse``,
    or to all start pages of a spider without ``parse``, and to the pages of rules that follow."""
    settings: Settings
    """Settings of the job, as in ``self.settings.delay``. Set after ``__init__``, before any other method is called."""
    logger: logging.Logger
    """Logger of the spider."""
    monitors: Sequence[str | Mapping[str, Any]] = ()
    """Rules that every pass has to satisfy, such as ``"items >= 100"``. The setting of the same name replaces them."""
    item_schema: Any = None
    """Class or JSON Schema that items have to match. The setting of the same name replaces it."""
    stats: Stats
    """Counters of the job that callbacks may increase, as in ``self.stats.inc_value("sold_out")``."""
    streaming_callbacks: Sequence[str] = ()
    """Names of generator callbacks whose batches of links (``follow_all``) enter the queue while the callback runs, so that
    they need not be in memory together. If such a callback raises an exception, the links that it yielded before are still
    followed. Passes always fetch the pages of these callbacks, even with ``revisit_share``
    or ``use_lastmod``, because they list other pages."""
    unscoped_callbacks: Sequence[str] = ()
    """Names of callbacks whose requests (not links of ``follow_all``) may lead to any host and path, because neither
    ``allowed_domains`` nor the settings ``scope``, ``allow`` and ``deny`` apply to them. They suit documents that list pages,
    such as sitemaps."""
    own_meta: bool = False
    """Whether all keys of ``meta`` are the spider's own. By default, a run warns about keys that only Scrapy would use or
    set, and a request with ``meta["proxy"]`` fails, because it would be sent from your own address."""
    hooks: Sequence[object] = ()
    """Hook collections: objects whose methods have the names of hook points."""

    def __init__(self, name: str | None = None, **arguments: Any) -> None:
        for argument, value in arguments.items():
            setattr(self, argument, value)
        if name or not self.name:
            self.name = name or type(self).__name__.lower()
        self.stats = Stats()
        self.logger = logging.getLogger(f"skitter.spider.{self.name}")

    def log(self, message: object, level: int = logging.DEBUG, **options: Any) -> None:
        """Log a message with :attr:`logger`. The older way of Scrapy; the level is one of :mod:`logging`."""
        self.logger.log(level, message, **options)

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the first requests or URLs. They are streamed to the frontier, so their number is not limited.

        After an interruption, the generator runs again, and the requests that are already stored are skipped. So it must
        yield the same requests in the same order each time. By default, it yields the requests of ``start_requests``, the older
        way of Scrapy, if the spider defines it, and otherwise the ``start_urls``. Raises :class:`~skitter.errors.SpiderError`
        without either.
        """
        older: Callable[[], Iterable[Request | str]] | None = getattr(self, "start_requests", None)
        if older is not None:
            for request in older():
                yield request
            return
        if not self.start_urls:
            raise NoSeeds(
                f"spider {self.name!r} has no start requests",
                remedy="set start_urls, or define async def start(self)",
            )
        # The order of a set of strings differs in each process, but the next run skips the first seeds by their number.
        urls = sorted(self.start_urls) if isinstance(self.start_urls, (set, frozenset)) else self.start_urls
        for url in urls:
            yield Request(url)
