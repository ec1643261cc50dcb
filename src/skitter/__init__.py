"""skitter: a distributed web crawler that loses nothing and knows when it is done."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skitter.collector import Collector
    from skitter.engine.crawl import Crawl, RunResult
    from skitter.engine.hooks import Hooks, Signal
    from skitter.engine.job import JobSpec
    from skitter.errors import SkitterError
    from skitter.links import Links, Refused
    from skitter.politeness import LimitRule, Rate
    from skitter.request import Request
    from skitter.response import Response
    from skitter.settings import Settings
    from skitter.spider import Spider
    from skitter.tasks.spider import TaskSpider
    from skitter.tasks.task import Limits, Task

__all__ = [
    "Collector",
    "Crawl",
    "Hooks",
    "JobSpec",
    "LimitRule",
    "Limits",
    "Links",
    "Rate",
    "Refused",
    "Request",
    "Response",
    "RunResult",
    "Settings",
    "Signal",
    "SkitterError",
    "Spider",
    "Task",
    "TaskSpider",
]

_HOMES = {
    "Collector": "collector",
    "Crawl": "engine.crawl",
    "Hooks": "engine.hooks",
    "JobSpec": "engine.job",
    "LimitRule": "politeness",
    "Limits": "tasks.task",
    "Links": "links",
    "Rate": "politeness",
    "Refused": "links",
    "Request": "request",
    "Response": "response",
    "RunResult": "engine.crawl",
    "Settings": "settings",
    "Signal": "engine.hooks",
    "SkitterError": "errors",
    "Spider": "spider",
    "Task": "tasks.task",
    "TaskSpider": "tasks.spider",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: a command that needs no fetcher does not pay for one."""
    if name in _HOMES:
        return getattr(import_module(f"skitter.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skitter' has no attribute {name!r}")
