"""Extensions: small behaviors to add to a collector before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SettingsError

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector
    from skitter.frontends.collector.request import CollectorRequest


def referer(collector: Collector) -> None:
    """Send the URL of the linking page as ``Referer``, as browsers do within a site."""

    @collector.on_request
    def set_referer(request: CollectorRequest) -> None:
        if request.referer:
            request.headers.setdefault("Referer", request.referer)


def random_user_agent(collector: Collector) -> None:
    """Send each request of the job with the headers of a random desktop browser. Requires the extra ``agents``."""
    _set(collector, {"user_agents": "random"})


def random_mobile_user_agent(collector: Collector) -> None:
    """Send each request of the job with the headers of a random mobile browser. Requires the extra ``agents``."""
    _set(collector, {"user_agents": "random:device=mobile"})


def url_length_filter(collector: Collector, length: int) -> None:
    """Refuse URLs longer than ``length`` characters before they are queued, counted as ``refused/length``.

    Raises :class:`~skitter.errors.SettingsError` for a length below 1.
    """
    if length < 1:
        raise SettingsError(
            f"length must be at least 1 (got {length})", remedy="give a larger number", field="length"
        )
    _set(collector, {"max_url_length": length})


def _set(collector: Collector, settings: dict[str, Any]) -> None:
    """Change settings of the job of a collector and its clones."""
    root = collector.group.root
    root.options = msgspec.structs.replace(root.options, settings={**root.options.settings, **settings})
