"""A generated web with dead links in it, and pages that can be slow at first."""

from collections import Counter

from skitter.testing import Answer, GeneratedSite
from skitter.testing.generated import target_of

STALL = 60.0


class HoleySite(GeneratedSite):
    """Every ``every``-th page is gone; what it would lead to is linked from elsewhere too.

    From page number ``stalls_from`` on, the first visit of each page is answered after a minute.
    """

    def __init__(self, every=0, stalls_from=10**9, **options):
        super().__init__(**options)
        self._every = every
        self._stalling = {target_of(number) for number in range(stalls_from, self.pages)}
        self._visits = Counter()

    def __call__(self, visit):
        number = self._number_of(visit)
        if number is not None and self.is_gone(number):
            return Answer(b"<title>Gone</title>", status=410)
        answer = super().__call__(visit)
        self._visits[visit.target] += 1
        if visit.target in self._stalling and self._visits[visit.target] == 1:
            return Answer(answer.body, answer.status, delay=STALL)
        return answer

    def is_gone(self, number):
        return self._every > 0 and number % self._every == self._every - 1
