"""CrawlArguments: the arguments of a managed crawl, which are checked as a whole before any of them is applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.frontends.lifecycle.modules import (
    Analyzer,
    Downloader,
    LoadBalancing,
    Module,
    Pipeline,
    least_busy,
)
from skitter.queues import NAME_RULE, is_queue_name
from skitter.run.job import HOME, JobFolder, JobSpec
from skitter.spider import Spider
from skitter.web.urls import host_of, is_public_suffix, normalize, registered_domain

_NO_FILE = "-"


class CrawlArguments(msgspec.Struct, frozen=True, kw_only=True):
    """A spider or analyzers; downloaders and pipelines can be added to both."""

    job: str
    spider: str | type[Spider] = ""
    """``FILE.py:Class``, ``package.module:Class``, or the class itself (only with one worker)."""
    analyzers: Sequence[Analyzer] = ()
    downloaders: Sequence[Downloader] = ()
    """Empty: the fetcher from the settings."""
    pipelines: Sequence[Pipeline] = ()
    """Empty: items are stored unchanged."""
    allowed_domains: Sequence[str] | None = ()
    """URLs or hosts whose primary domains (see :func:`primary_domain`) are allowed, in addition to the domains of the
    first requests. ``None``: all domains."""
    depth_limit: int | None = None
    """Maximum number of links between a first request and a page. ``None``: no limit."""
    balance: LoadBalancing = least_busy
    """Chooses the module of a kind that gets the next piece of work; see :mod:`skitter.frontends.lifecycle.modules`."""
    error_capacity: int = 1000
    """Number of errors kept for readers of ``errors()``."""
    arguments: Mapping[str, Any] = {}
    """Keyword arguments of the spider."""
    settings: Mapping[str, Any] = {}
    outputs: Sequence[str] = ()
    frontier: str = "memory:"
    """Frontier of the job. After a stop, the next run continues, unless the frontier is in memory."""
    workers: int = 1
    """Number of processes. Modules and individual errors exist only in this process, so they require 1."""
    queues: Mapping[str, int] = {}
    """Queues to serve, each with its number of own processes. 0: the ``workers`` serve the queue, together with all other
    such queues. Empty: the ``workers`` serve all queues."""
    home: str = HOME

    def check(self) -> None:
        """Raise :class:`~skitter.errors.UsageError` for invalid arguments. Opens nothing."""
        JobFolder(self.job, self.home)  # checks the name of the job
        if bool(self.spider) == bool(self.analyzers):
            raise UsageError(
                "a crawl needs either a spider or analyzers",
                remedy="pass spider=, or analyzers=[...]",
                field="analyzers" if self.spider else "spider",
            )
        for name, kind in (("analyzers", Analyzer), ("downloaders", Downloader), ("pipelines", Pipeline)):
            for module in getattr(self, name):
                if not isinstance(module, kind):
                    raise UsageError(
                        f"{name} must contain {kind.__name__} objects (got {module!r:.60})",
                        remedy=f"pass {kind.__name__} objects",
                        field=name,
                    )
        if self.depth_limit is not None and self.depth_limit < 0:
            raise UsageError(
                f"depth_limit must not be negative (got {self.depth_limit})",
                remedy="give 0 or more, or None for no limit",
                field="depth_limit",
            )
        self._check_processes()
        self.domains()

    def _check_processes(self) -> None:
        if self.workers < 1:
            raise UsageError(
                f"workers must be at least 1 (got {self.workers})",
                remedy="give a larger number",
                field="workers",
            )
        for queue, processes in self.queues.items():
            if not is_queue_name(queue):
                raise UsageError(f"invalid name of a queue: {queue!r:.80}", remedy=NAME_RULE, field="queues")
            if not isinstance(processes, int) or processes < 0:
                raise UsageError(
                    f"invalid number of processes for queue {queue}: {processes!r:.80}",
                    remedy="give 0 or more",
                    field="queues",
                )
        if self.processes > 1 and (
            self.modules() or self.allowed_domains or not isinstance(self.spider, str)
        ):
            raise UsageError(
                "modules, spider classes and allowed_domains require a single process",
                remedy="use one process, or only a spider by name; several processes with equal modules can share a Redis"
                " frontier",
                field="workers",
            )

    @property
    def processes(self) -> int:
        """Number of processes. A single one is this process."""
        return len(self.spec().queues_per_worker())

    def modules(self) -> list[Module]:
        """Return all modules."""
        return [*self.downloaders, *self.analyzers, *self.pipelines]

    def domains(self, first: Iterable[str] = ()) -> list[str]:
        """Return the allowed primary domains, including those of first URLs. Empty: all domains."""
        if self.allowed_domains is None or (self.spider and not self.allowed_domains):
            return []  # a spider has its own scope
        return sorted({primary_domain(text) for text in (*self.allowed_domains, *first)})

    def spec(self) -> JobSpec:
        """Return the specification of the job."""
        depth = {} if self.depth_limit is None else {"depth_limit": self.depth_limit}
        if isinstance(self.spider, str):
            spider = self.spider or f"{_NO_FILE}:Analyzers"
        else:
            spider = f"{_NO_FILE}:{self.spider.__name__}"
        return JobSpec(
            job=self.job,
            spider=spider,
            arguments=dict(self.arguments),
            settings={**self.settings, **depth},
            outputs=list(self.outputs),
            frontier=self.frontier,
            workers=self.workers,
            queues=dict(self.queues),
            home=self.home,
        )


def primary_domain(text: str) -> str:
    """Return the primary domain of a URL or a host (with or without port), by the Public Suffix List.

    For example, ``https://news.bbc.co.uk:8080/x`` returns ``bbc.co.uk``. An IP address (also ``[::1]``) and a name without
    dots are returned unchanged. Names are normalized as in URLs (WHATWG).

    Raises :class:`~skitter.errors.UsageError` for a text that is not a URL with a host, and for a public suffix such as
    ``co.uk``, which would allow unrelated sites.
    """
    url = normalize(text if "://" in text else f"http://{text}/")
    if url is None or not (host := host_of(url)):
        raise UsageError(
            f"{text!r:.200} is not a valid host or URL",
            remedy="write example.com, or an absolute URL such as https://example.com/",
            field="allowed_domains",
        )
    domain = registered_domain(host)
    if is_public_suffix(domain):
        raise UsageError(
            f"{domain!r} is a public suffix, which contains unrelated sites",
            remedy="name a domain below it",
            field="allowed_domains",
        )
    return domain
