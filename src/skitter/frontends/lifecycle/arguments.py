"""CrawlArguments: what a managed crawl is made of, checked as a whole before anything is replaced by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.frontends.lifecycle.analyzer import Analyzer
from skitter.frontends.lifecycle.downloader import Downloader
from skitter.frontends.lifecycle.modules import LoadBalancing, Module, least_busy
from skitter.frontends.lifecycle.pipeline import Pipeline
from skitter.queues import NAME_RULE, is_queue_name
from skitter.run.job import HOME, JobFolder, JobSpec
from skitter.spider import Spider
from skitter.web.urls import host_of, is_public_suffix, normalize, registered_domain

_NO_FILE = "-"


class CrawlArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Either a spider, or analyzers that read the pages; downloaders and pipelines go with both."""

    job: str
    spider: str | type[Spider] = ""
    """``FILE.py:Class``, ``package.module:Class``, or the class itself (then with one worker)."""
    analyzers: Sequence[Analyzer] = ()
    downloaders: Sequence[Downloader] = ()
    """None: the fetcher that the settings name."""
    pipelines: Sequence[Pipeline] = ()
    """None: items are stored as they are given."""
    allowed_domains: Sequence[str] | None = ()
    """URLs or hosts whose primary domains (by the Public Suffix List, see :mod:`skitter.frontends.lifecycle.arguments`) are
    crawled, besides those of the first requests. ``None``: any domain."""
    max_depth: int | None = None
    """Links followed from a first request at most; ``None``: no bound."""
    balance: LoadBalancing = least_busy
    """How work is shared among modules of a kind; see :mod:`skitter.frontends.lifecycle.modules`."""
    error_capacity: int = 1000
    """Errors that are kept for readers of ``errors()``."""
    arguments: Mapping[str, Any] = {}
    """Keyword arguments of the spider."""
    settings: Mapping[str, Any] = {}
    outputs: Sequence[str] = ()
    frontier: str = "memory:"
    """In memory a run that is started again begins anew; elsewhere it goes on."""
    workers: int = 1
    """Processes. Modules and errors one by one are this process's, so more than one go with neither."""
    queues: Mapping[str, int] = {}
    """Queues that are served, each with the number of processes that it has for itself; 0: ``workers`` serve it, with
    all other such queues. Empty: ``workers`` serve all queues."""
    home: str = HOME

    def check(self) -> None:
        """Raise :class:`~skitter.errors.UsageError` for what does not fit, by name. Opens nothing."""
        JobFolder(self.job, self.home)  # knows what a job may be called
        if bool(self.spider) == bool(self.analyzers):
            raise UsageError(
                "a crawl needs a spider or analyzers, and not both", remedy="give spider=, or analyzers=[...]"
            )
        for name, kind in (("analyzers", Analyzer), ("downloaders", Downloader), ("pipelines", Pipeline)):
            for module in getattr(self, name):
                if not isinstance(module, kind):
                    raise UsageError(
                        f"{name} has {module!r:.60}, which is none", remedy=f"give {kind.__name__} objects"
                    )
        if self.max_depth is not None and self.max_depth < 0:
            raise UsageError(f"max_depth is {self.max_depth}", remedy="give 0 or more, or None for no bound")
        self._check_processes()
        self.domains()

    def _check_processes(self) -> None:
        if self.workers < 1:
            raise UsageError(f"workers is {self.workers}", remedy="give 1 or more")
        for queue, processes in self.queues.items():
            if not is_queue_name(queue):
                raise UsageError(f"queues has {queue!r:.80}, which is no name of a queue", remedy=NAME_RULE)
            if not isinstance(processes, int) or processes < 0:
                raise UsageError(
                    f"queues has {processes!r:.80} processes for {queue}",
                    remedy="give a number, or 0 for none of its own",
                )
        if self.processes > 1 and (
            self.modules() or self.allowed_domains or not isinstance(self.spider, str)
        ):
            raise UsageError(
                "modules, classes and accepted domains are of this process, and other workers cannot have them",
                remedy="give one process, or a spider by its name and nothing of these; several processes with equal"
                " modules may share a Redis frontier",
            )

    @property
    def processes(self) -> int:
        """How many work on it; the only one is this process."""
        return len(self.spec().teams())

    def modules(self) -> list[Module]:
        """Return all modules."""
        return [*self.downloaders, *self.analyzers, *self.pipelines]

    def domains(self, first: Iterable[str] = ()) -> list[str]:
        """Return the primary domains that are accepted, those of some first URLs among them; empty: any."""
        if self.allowed_domains is None or (self.spider and not self.allowed_domains):
            return []  # a spider says itself what it may crawl
        return sorted({primary_domain(text) for text in (*self.allowed_domains, *first)})

    def spec(self) -> JobSpec:
        """Return the job."""
        depth = {} if self.max_depth is None else {"depth_limit": self.max_depth}
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
    """Return the primary domain of a URL, a host or a host with a port.

    ``https://news.bbc.co.uk:8080/x`` gives ``bbc.co.uk``; an IP address, ``[::1]`` too, and a name without dots
    stay what they are; capitals and other scripts are normalised as URLs are (WHATWG).

    Raises :class:`~skitter.errors.UsageError` for what is no host, and for a public suffix such as ``co.uk``,
    which would accept the hosts of everybody.
    """
    url = normalize(text if "://" in text else f"http://{text}/")
    host = "" if url is None else host_of(url)
    if not host:
        raise UsageError(f"{text!r} has no host", remedy="write example.com, or a URL")
    domain = registered_domain(host)
    if is_public_suffix(domain):
        raise UsageError(
            f"{domain!r} is a public suffix, under which everybody may register",
            remedy="name the domain below it that you mean",
        )
    return domain
