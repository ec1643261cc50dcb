"""Testing: loopback sites and fixtures for the tests of those who write spiders."""

from skitter.testing.answer import Answer, PageTruth, Site, Visit, WireAnswer
from skitter.testing.generated import GeneratedSite
from skitter.testing.log import Hit, RequestLog
from skitter.testing.process import SiteProcess
from skitter.testing.server import PortTaken, SiteServer
from skitter.testing.static import StaticSite
from skitter.testing.walk import Walked, walk

__all__ = [
    "Answer",
    "GeneratedSite",
    "Hit",
    "PageTruth",
    "PortTaken",
    "RequestLog",
    "Site",
    "SiteProcess",
    "SiteServer",
    "StaticSite",
    "Visit",
    "Walked",
    "WireAnswer",
    "walk",
]
