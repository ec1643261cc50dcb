"""Life cycle: a crawl as an object that is initialized, started, watched, stopped and started again, made of modules."""

from skitter.frontends.lifecycle.analyzer import Analyzer
from skitter.frontends.lifecycle.arguments import CrawlArguments
from skitter.frontends.lifecycle.balance import least_in_hand, lowest_score, seed_score
from skitter.frontends.lifecycle.component import Component, ModuleError
from skitter.frontends.lifecycle.crawl import ManagedCrawl
from skitter.frontends.lifecycle.domains import primary_domain
from skitter.frontends.lifecycle.downloader import Downloader
from skitter.frontends.lifecycle.feed import CrawlError, ErrorReader
from skitter.frontends.lifecycle.module import Counts, Module
from skitter.frontends.lifecycle.monitor import Level, Monitor
from skitter.frontends.lifecycle.pipeline import Pipeline
from skitter.frontends.lifecycle.status import LEGAL, IllegalTransition, Status
from skitter.frontends.lifecycle.summary import CrawlSummary

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
