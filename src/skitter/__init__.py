"""skitter: a distributed web crawler that loses nothing and knows when it is done."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skitter.errors import SkitterError
    from skitter.frontends.collector import Collector
    from skitter.frontends.sitemap_spider import SitemapSpider
    from skitter.frontends.tasks.spider import TaskSpider
    from skitter.frontends.tasks.task import Task
    from skitter.html.selector import Selector
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
    "Selector",
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

_MODULES = {
    "errors": ["SkitterError"],
    "frontends.collector": ["Collector"],
    "frontends.sitemap_spider": ["SitemapSpider"],
    "frontends.tasks.spider": ["TaskSpider"],
    "frontends.tasks.task": ["Task"],
    "html.selector": ["Selector"],
    "link_extractor": ["Link", "LinkExtractor", "Rule"],
    "links": ["Links", "SkippedLinks"],
    "monitors": ["MonitorRule"],
    "observe.progress": ["ProgressLine"],
    "politeness": ["HostLimits", "LimitRule"],
    "request": ["Request"],
    "response": ["Response"],
    "run.crawl": ["Crawl", "RunResult"],
    "run.job": ["JobSpec"],
    "run.streaming": ["iter_items", "stream"],
    "settings": ["Settings"],
    "spider": ["Spider"],
    "worker.hooks": ["HookAction", "Hooks"],
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that for example a command without a fetcher does not import one."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"skitter.{module}"), name)
    raise AttributeError(f"module 'skitter' has no attribute {name!r}")
