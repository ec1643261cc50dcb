"""A site that holds its answers back, so that a test acts in the middle of a crawl however fast or slow the machine is."""

import threading

from skitter.testing import WireAnswer

_LOOK_EVERY = 0.01


class HeldSite:
    """Answers so many requests as another site does, and all others no sooner than the test says ``go_on.set()``.

    ``reached`` is set by the first that is held back.
    """

    def __init__(self, site, answers):
        self._site = site
        self._left = answers
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, visit):
        answer = self._site(visit)
        self._left -= 1
        if self._left >= 0 or self.go_on.is_set():
            return answer
        self.reached.set()
        return held(answer, self.go_on.is_set)


def held(answer, may_go):
    """Return an answer that is given when ``may_go()`` says so."""
    return WireAnswer(_when(answer, may_go), end="keep", status=answer.status)


def _when(answer, may_go):
    while not may_go():
        yield _LOOK_EVERY
    lines = [f"HTTP/1.1 {answer.status} Held", f"Content-Length: {len(answer.body)}"]
    if answer.content_type is not None:
        lines.append(f"Content-Type: {answer.content_type}")
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    yield "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body
