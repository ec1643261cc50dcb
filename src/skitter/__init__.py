"""skitter: a distributed web crawler that loses nothing and knows when it is done."""

from skitter.engine.crawl import Crawl, RunResult
from skitter.engine.hooks import Hooks, Signal
from skitter.engine.job import JobSpec
from skitter.errors import SkitterError
from skitter.links import Links
from skitter.politeness import LimitRule, Rate
from skitter.request import Request
from skitter.response import Response
from skitter.settings import Settings
from skitter.spider import Spider

__all__ = [
    "Crawl",
    "Hooks",
    "JobSpec",
    "LimitRule",
    "Links",
    "Rate",
    "Request",
    "Response",
    "RunResult",
    "Settings",
    "Signal",
    "SkitterError",
    "Spider",
]
