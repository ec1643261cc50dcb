"""A generated site with dead links, pages that are busy at their first visit, and pages that have moved."""

from collections import Counter

from dead_link_site import DeadLinkSite

from skitter.testing import Answer
from skitter.testing.generated import target_of

_THERE = ("?at=there", "&at=there")
"""Last parts of the URLs to which pages have moved. Relative links in a page are still valid there."""


def _there(url):
    return url + _THERE["?" in url]


class MovingSite(DeadLinkSite):
    """Every ``busy``-th page answers 503 at its first visit. Every ``moved``-th page redirects to another URL, which may be
    busy.
    """

    def __init__(self, busy, moved, **options):
        super().__init__(**options)
        self._busy, self._moved = busy, moved
        self._numbers = {target_of(number): number for number in range(self.pages)}
        self._asked = Counter()

    def _answer(self, visit):
        target = visit.target.removesuffix(_THERE[0]).removesuffix(_THERE[1])
        number = self._numbers.get(target)
        if number is None or visit.origin_index != number % self.hosts or self.is_gone(number):
            return super()._answer(visit)
        if self.has_moved(number) and target == visit.target:
            return Answer(status=302, headers={"Location": _there(target)})
        self._asked[number] += 1
        if self.is_busy(number) and self._asked[number] == 1:
            return Answer(b"<title>Busy</title>", status=503)
        return Answer(self.body(number, visit.origins))

    def is_busy(self, number):
        return number % self._busy == self._busy - 2

    def has_moved(self, number):
        return number % self._moved == self._moved - 2

    def url(self, number, origins):
        """Return the final URL of a page."""
        url = super().url(number, origins)
        return _there(url) if self.has_moved(number) and not self.is_gone(number) else url
