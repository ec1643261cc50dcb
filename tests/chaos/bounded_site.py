"""A site in a separate process whose number of answers a test limits, so that a crawl cannot end before its kills."""

from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path

from sites.gated import gated
from skitter.testing import WireAnswer


class Bound:
    """While its file exists, it contains the maximum number of visits to which the site responds."""

    def __init__(self, path):
        self._path = path and Path(path)
        self._visits = 0

    def hold(self, answer):
        """Return the answer to the next visit. It is held back until the limit allows it."""
        self._visits += 1
        place = self._visits
        if self._may_answer(place):
            return answer
        if isinstance(answer, WireAnswer):
            return WireAnswer(chain(self._wait(place), answer.steps), answer.end, answer.status)
        return gated(answer, lambda: self._may_answer(place))

    def _may_answer(self, place):
        if self._path is not None:
            with suppress(FileNotFoundError):
                return place <= int(self._path.read_text())
        return True

    def _wait(self, place):
        while not self._may_answer(place):
            yield 0.01


class BoundedSite:
    """Responds like another site, up to a limit. ``factory``: ``module:name`` of the other site."""

    def __init__(self, factory, arguments, bound):
        module, _, name = factory.partition(":")
        self._site = getattr(import_module(module), name)(**arguments)
        self._bound = Bound(bound)

    def __call__(self, visit):
        return self._bound.hold(self._site(visit))
