"""Spider: the class face of user code: where to start, what to take from a page, what to follow."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from skitter.errors import NoSeeds
from skitter.request import Request


class Spider:
    """Base of a spider. Names follow Scrapy where Scrapy has one.

    A subclass sets ``start_urls`` or overrides :meth:`start`, and defines ``parse`` (and further
    callbacks) as a coroutine, an async generator, a generator or a plain function. A callback gets a
    :class:`~skitter.response.Response` and gives items, requests and whole batches of links.

    Keyword arguments (``-a NAME=VALUE`` on the command line) become attributes.
    """

    name: str = ""
    """Name of the job unless another is given; default: the class name in lower case."""
    start_urls: Sequence[str] = ()
    allowed_domains: Sequence[str] = ()
    """Domains, each with its subdomains, outside which no link is followed. Empty: no bound."""
    outputs: Sequence[str] = ()
    """Where items go unless the command line says; see ``-o``."""
    custom_settings: ClassVar[dict[str, Any]] = {}
    """Settings of this spider; see :class:`~skitter.settings.Settings`."""
    hooks: Sequence[object] = ()
    """Hook collections: objects with methods that are named like a hook point."""

    def __init__(self, **arguments: Any) -> None:
        for name, value in arguments.items():
            setattr(self, name, value)
        if not self.name:
            self.name = type(self).__name__.lower()
        self.logger = logging.getLogger(f"skitter.spider.{self.name}")

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the first requests (or URLs), as many as there are: they are streamed to the frontier.

        After an interruption the generator is run again and as many requests are skipped as had
        been stored, so the order has to be the same each time. Raises
        :class:`~skitter.errors.SpiderError` without ``start_urls``.
        """
        if not self.start_urls:
            raise NoSeeds(
                f"spider {self.name!r} has nothing to start from",
                remedy="set start_urls, or define async def start(self)",
            )
        for url in self.start_urls:
            yield Request(url)
