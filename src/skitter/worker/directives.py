"""DirectiveRules: obeys page directives such as ``nofollow`` and ``noindex``, if the settings say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from skitter.directives import Directives
from skitter.item import is_item, item_fields
from skitter.links import Links, SkippedLinks
from skitter.response import Response
from skitter.settings import Settings

NOFOLLOW = "nofollow"


class DirectiveRules:
    """Applies the settings of the section "Page directives" to the results of callbacks."""

    def __init__(self, settings: Settings, product_token: str) -> None:
        self._settings = settings
        self._token = product_token
        self.are_set = (
            settings.obey_nofollow
            or settings.obey_noindex
            or settings.obey_tdm
            or settings.follow_canonical
            or settings.follow_hreflang
            or settings.directives_field is not None
        )

    def apply(
        self,
        results: Sequence[Any],
        response: Response,
        count: Callable[[str, int], None],
        site: Directives,
    ) -> list[Any]:
        """Return the results of a callback without those that the page forbids, and with the links that the page adds.

        ``count`` counts dropped items. ``site``: the directives of the site's robots.txt and tdmrep.json.
        """
        settings, found = self._settings, response.directives(self._token).over(site)
        kept = list(results)
        if settings.obey_nofollow:
            kept = _without_nofollow(kept, response, found)
        dropped = self._drops_items(found)
        if dropped:
            items = sum(map(is_item, kept))
            kept = [result for result in kept if not is_item(result)]
            if items:
                count(f"dropped_items/{dropped}", items)
        elif settings.directives_field is not None:
            kept = [
                {**item_fields(result), settings.directives_field: found.to_dict()}
                if is_item(result)
                else result
                for result in kept
            ]
        named = [found.canonical] if settings.follow_canonical and found.canonical else []
        named += found.alternates.values() if settings.follow_hreflang else []
        callback = None if response.request is None else response.request.callback
        return [*kept, Links(response.url, named, {"callback": callback})] if named else kept

    def _drops_items(self, found: Directives) -> str:
        """Return the directive that drops the items of a page; empty if none does."""
        if self._settings.obey_noindex and not found.is_indexable():
            return "noindex"
        return "tdm" if self._settings.obey_tdm and found.reserves_mining else ""


def _without_nofollow(results: list[Any], response: Response, found: Directives) -> list[Any]:
    """Remove links with ``nofollow``: all links if the page has it, otherwise links whose elements all have it."""
    refused: set[str] = set()
    if not found.nofollow and response.is_html:
        marked = Counter(
            element.attrib.get("href", "")
            for element in response.css("a[rel], area[rel]")
            if NOFOLLOW in element.attrib["rel"].lower().split()
        )
        if not marked:
            return results
        all_hrefs = Counter(response.encode_queries(response.hrefs("a, area")))
        refused = {href for href, times in marked.items() if all_hrefs[href] <= times}
    kept: list[Any] = []
    for result in results:
        if result.__class__ is not Links:
            kept.append(result)
            continue
        hrefs = [] if found.nofollow else [href for href in result.hrefs if href not in refused]
        if hrefs:
            kept.append(Links(result.base_url, hrefs, result.fields))
        if len(hrefs) < len(result.hrefs):
            kept.append(SkippedLinks(NOFOLLOW, len(result.hrefs) - len(hrefs)))
    return kept
