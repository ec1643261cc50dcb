"""A generated site with dead links, and with pages that can be slow or wait until a test has killed a process."""

from bounded_site import Bound

from skitter.testing import Answer, GeneratedSite

STALL = 60.0


class DeadLinkSite(GeneratedSite):
    """Every ``every``-th page returns 410; its links also appear on other pages.

    The first ``stalls`` visits, except of the front page, are answered after a minute. While the file ``bound`` exists,
    it contains the maximum number of answered visits.
    """

    def __init__(self, every=0, stalls=0, bound=None, **options):
        super().__init__(**options)
        self._every = every
        self._stalls = stalls
        self._bound = Bound(bound)

    def __call__(self, visit):
        return self._bound.hold(self._answer(visit))

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
