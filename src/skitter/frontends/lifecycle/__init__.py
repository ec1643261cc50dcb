"""Managed crawls: for programs that control a crawl as an object and assemble it from modules.

A :class:`ManagedCrawl` is initialized, started, watched, stopped and started again.
"""

from skitter.frontends.lifecycle.arguments import CrawlArguments, primary_domain
from skitter.frontends.lifecycle.crawl import ManagedCrawl
from skitter.frontends.lifecycle.errors import CrawlError, ErrorReader
from skitter.frontends.lifecycle.modules import (
    Analyzer,
    Counts,
    Downloader,
    Module,
    ModuleError,
    ModuleKind,
    Pipeline,
    least_busy,
    lowest_score,
    seed_score,
)
from skitter.frontends.lifecycle.monitor import Level, Monitor
from skitter.frontends.lifecycle.status import LEGAL, CrawlSummary, IllegalTransition, Status

__all__ = [
    "LEGAL",
    "Analyzer",
    "Counts",
    "CrawlArguments",
    "CrawlError",
    "CrawlSummary",
    "Downloader",
    "ErrorReader",
    "IllegalTransition",
    "Level",
    "ManagedCrawl",
    "Module",
    "ModuleError",
    "ModuleKind",
    "Monitor",
    "Pipeline",
    "Status",
    "least_busy",
    "lowest_score",
    "primary_domain",
    "seed_score",
]
