"""Life cycle: a crawl as an object that is initialized, started, watched, stopped and started again, made of modules."""

from skitter.lifecycle.analyzer import Analyzer
from skitter.lifecycle.arguments import CrawlArguments
from skitter.lifecycle.balance import least_in_hand, lowest_score, seed_score
from skitter.lifecycle.component import Component, ModuleError
from skitter.lifecycle.crawl import ManagedCrawl
from skitter.lifecycle.domains import primary_domain
from skitter.lifecycle.downloader import Downloader
from skitter.lifecycle.feed import CrawlError, ErrorReader
from skitter.lifecycle.module import Counts, Module
from skitter.lifecycle.monitor import Level, Monitor
from skitter.lifecycle.pipeline import Pipeline
from skitter.lifecycle.status import LEGAL, IllegalTransition, Status
from skitter.lifecycle.summary import CrawlSummary

__all__ = [
    "LEGAL",
    "Analyzer",
    "Component",
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
    "Monitor",
    "Pipeline",
    "Status",
    "least_in_hand",
    "lowest_score",
    "primary_domain",
    "seed_score",
]
