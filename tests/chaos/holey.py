"""A generated web with dead links in it, and pages that can be slow at first or wait for who kills."""

from contextlib import suppress
from pathlib import Path

from sites.held import held
from skitter.testing import Answer, GeneratedSite

STALL = 60.0


class HoleySite(GeneratedSite):
    """Every ``every``-th page is gone; what it would lead to is linked from elsewhere too.

    The first ``stalls`` visits, front page excepted, are answered after a minute. While there is a file ``bound``, no
    more visits are answered than it says.
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
        return answer if self._may_answer(place) else held(answer, lambda: self._may_answer(place))

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
        """Return the URLs of the pages that can be had, and those of the dead links."""
        urls = {number: self.url(number, origins) for number in range(self.pages)}
        gone = {url for number, url in urls.items() if self.is_gone(number)}
        return set(urls.values()) - gone, gone

    def is_gone(self, number):
        return self._every > 0 and number % self._every == self._every - 1
