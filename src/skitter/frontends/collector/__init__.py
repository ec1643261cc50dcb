"""Collector: for users who prefer callbacks registered on an object (as in Colly) to a spider class."""

from skitter.forms import FormFile
from skitter.frontends.collector.collector import Collector
from skitter.frontends.collector.debug import Debugger, Event, LogDebugger
from skitter.frontends.collector.element import Css, Element, UnmarshalError, XmlElement, XPath
from skitter.frontends.collector.request import CollectorRequest
from skitter.frontends.collector.response import CollectorResponse
from skitter.frontends.collector.storage import Storage

__all__ = [
    "Collector",
    "CollectorRequest",
    "CollectorResponse",
    "Css",
    "Debugger",
    "Element",
    "Event",
    "FormFile",
    "LogDebugger",
    "Storage",
    "UnmarshalError",
    "XPath",
    "XmlElement",
]
