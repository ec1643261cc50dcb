"""Loopback websites and fixtures for testing spiders."""

from skitter.testing.answer import Answer, ExpectedPage, Site, SiteOfOrigins, Visit, WireAnswer
from skitter.testing.generated import GeneratedSite
from skitter.testing.log import Hit, RequestLog
from skitter.testing.process import SiteProcess
from skitter.testing.reference_crawl import ReferencePage, reference_crawl
from skitter.testing.server import PortTaken, SiteServer
from skitter.testing.static import StaticSite

__all__ = [
    "Answer",
    "ExpectedPage",
    "GeneratedSite",
    "Hit",
    "PortTaken",
    "ReferencePage",
    "RequestLog",
    "Site",
    "SiteOfOrigins",
    "SiteProcess",
    "SiteServer",
    "StaticSite",
    "Visit",
    "WireAnswer",
    "reference_crawl",
]
