"""Extensions: small habits that a collector can be given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skitter.collector.collector import Collector
    from skitter.collector.request import CollectorRequest


def referer(collector: Collector) -> None:
    """Send with each request the page that it was found on, as browsers do within a site."""

    @collector.on_request
    def set_referer(request: CollectorRequest) -> None:
        if request.referer:
            request.headers.setdefault("Referer", request.referer)
