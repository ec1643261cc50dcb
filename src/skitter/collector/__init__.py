"""Collector: the callback face of user code, on the same engine as the spider class."""

from skitter.collector.collector import Collector
from skitter.collector.debug import Debugger, Event, LogDebugger
from skitter.collector.element import Element, XmlElement
from skitter.collector.fields import Css, UnmarshalError, XPath
from skitter.collector.forms import FormFile
from skitter.collector.request import CollectorRequest
from skitter.collector.response import CollectorResponse

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
    "UnmarshalError",
    "XPath",
    "XmlElement",
]
