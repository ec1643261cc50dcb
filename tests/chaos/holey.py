"""A generated web with dead links in it, and pages that can be slow at first."""

from skitter.testing import Answer, GeneratedSite

STALL = 60.0


class HoleySite(GeneratedSite):
    """Every ``every``-th page is gone; what it would lead to is linked from elsewhere too.

    The first ``stalls`` visits, front page excepted, are answered after a minute.
    """

    def __init__(self, every=0, stalls=0, **options):
        super().__init__(**options)
        self._every = every
        self._stalls = stalls

    def __call__(self, visit):
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
