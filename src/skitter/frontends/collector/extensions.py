"""Extensions: small habits that a collector can be given, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SettingsError

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector
    from skitter.frontends.collector.request import CollectorRequest


def referer(collector: Collector) -> None:
    """Send with each request the page that it was found on, as browsers do within a site."""

    @collector.on_request
    def set_referer(request: CollectorRequest) -> None:
        if request.referer:
            request.headers.setdefault("Referer", request.referer)


def random_user_agent(collector: Collector) -> None:
    """Send each request of the job with the headers of some desktop browser; needs the extra ``agents``."""
    _set(collector, {"user_agents": "random"})


def random_mobile_user_agent(collector: Collector) -> None:
    """Send each request of the job with the headers of some browser on a phone; needs the extra ``agents``."""
    _set(collector, {"user_agents": "random:device=mobile"})


def url_length_filter(collector: Collector, length: int) -> None:
    """Refuse URLs of more than so many characters before they are queued, counted as ``refused/length``.

    Raises :class:`~skitter.errors.SettingsError` for a length below 1.
    """
    if length < 1:
        raise SettingsError(f"a URL length of {length} would refuse all", remedy="give one or more")
    _set(collector, {"max_url_length": length})


def _set(collector: Collector, settings: dict[str, Any]) -> None:
    """Have the job of a collector, and so all clones of it, run with some settings."""
    root = collector.group.root
    root.options = msgspec.structs.replace(root.options, settings={**root.options.settings, **settings})
