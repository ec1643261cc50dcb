"""A generated site with dead links, and with pages that can be slow or wait until a test has killed a process."""

from contextlib import suppress
from pathlib import Path

from sites.gated import gated
from skitter.testing import Answer, GeneratedSite

STALL = 60.0


class DeadLinkSite(GeneratedSite):
    """Every ``every``-th page returns 410; its links also appear on other pages.

    The first ``stalls`` visits, except of the front page, are answered after a minute. While the file ``bound`` exists,
    no more visits are answered than the number that it contains.
    """

    def __init__(self, every=0, stalls=0, bound=None, **options):
        super().__init__(**options)
        self._every = every
        self._stalls = stalls
        self._bound = bound and Path(bound)
        self._visits = 0

    def __call__(self, visit):
        self._visits += 1
        answer, place = self._answer(visit), self._visits
        return answer if self._may_answer(place) else gated(answer, lambda: self._may_answer(place))

    def _may_answer(self, place):
        if self._bound is not None:
            with suppress(FileNotFoundError):
                return place <= int(self._bound.read_text())
        return True

    def _answer(self, visit):
        number = self._number_of(visit)
        if number is not None and self.is_gone(number):
            return Answer(b"<title>Gone</title>", status=410)
        answer = super().__call__(visit)
        if number and self._stalls:
            self._stalls -= 1
            return Answer(answer.body, answer.status, delay=STALL)
        return answer

    def urls(self, origins):
        """Return the URLs of the available pages, and those of the dead links."""
        urls = {number: self.url(number, origins) for number in range(self.pages)}
        gone = {url for number, url in urls.items() if self.is_gone(number)}
        return set(urls.values()) - gone, gone

    def is_gone(self, number):
        return self._every > 0 and number % self._every == self._every - 1
