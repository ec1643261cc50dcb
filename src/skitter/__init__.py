"""skitter: a distributed web crawler that loses nothing and knows when it is done."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skitter.errors import SkitterError
    from skitter.frontends.collector import Collector
    from skitter.frontends.sitemap_spider import SitemapSpider
    from skitter.frontends.tasks.spider import TaskSpider
    from skitter.frontends.tasks.task import Task
    from skitter.link_extractor import Link, LinkExtractor, Rule
    from skitter.links import Links, SkippedLinks
    from skitter.monitors import MonitorRule
    from skitter.observe.progress import ProgressLine
    from skitter.politeness import HostLimits, LimitRule
    from skitter.request import Request
    from skitter.response import Response
    from skitter.run.crawl import Crawl, RunResult
    from skitter.run.job import JobSpec
    from skitter.run.streaming import iter_items, stream
    from skitter.settings import Settings
    from skitter.spider import Spider
    from skitter.worker.hooks import HookAction, Hooks

__all__ = [
    "Collector",
    "Crawl",
    "HookAction",
    "Hooks",
    "HostLimits",
    "JobSpec",
    "LimitRule",
    "Link",
    "LinkExtractor",
    "Links",
    "MonitorRule",
    "ProgressLine",
    "Request",
    "Response",
    "Rule",
    "RunResult",
    "Settings",
    "SitemapSpider",
    "SkippedLinks",
    "SkitterError",
    "Spider",
    "Task",
    "TaskSpider",
    "iter_items",
    "stream",
]

_HOMES = {
    "Collector": "frontends.collector",
    "Crawl": "run.crawl",
    "Hooks": "worker.hooks",
    "HostLimits": "politeness",
    "JobSpec": "run.job",
    "LimitRule": "politeness",
    "Link": "link_extractor",
    "LinkExtractor": "link_extractor",
    "Links": "links",
    "MonitorRule": "monitors",
    "ProgressLine": "observe.progress",
    "SitemapSpider": "frontends.sitemap_spider",
    "SkippedLinks": "links",
    "Request": "request",
    "Response": "response",
    "Rule": "link_extractor",
    "RunResult": "run.crawl",
    "Settings": "settings",
    "HookAction": "worker.hooks",
    "SkitterError": "errors",
    "Spider": "spider",
    "Task": "frontends.tasks.task",
    "TaskSpider": "frontends.tasks.spider",
    "iter_items": "run.streaming",
    "stream": "run.streaming",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: a command that needs no fetcher does not pay for one."""
    if name in _HOMES:
        return getattr(import_module(f"skitter.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skitter' has no attribute {name!r}")
