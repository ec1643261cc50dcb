"""A site that delays its responses until a test releases them, so that the test can act in the middle of a crawl."""

import threading

from skitter.testing import WireAnswer

_POLL_INTERVAL = 0.01


class GatedSite:
    """Responds like another site to a number of requests, and to all others only after ``released.set()``.

    ``reached`` is set by the first request that is delayed.
    """

    def __init__(self, site, answers):
        self._site = site
        self._left = answers
        self.reached = threading.Event()
        self.released = threading.Event()

    def __call__(self, visit):
        answer = self._site(visit)
        self._left -= 1
        if self._left >= 0 or self.released.is_set():
            return answer
        self.reached.set()
        return gated(answer, self.released.is_set)


def gated(answer, may_go):
    """Return a response that is sent when ``may_go()`` returns true."""
    return WireAnswer(_when(answer, may_go), end="keep", status=answer.status)


def _when(answer, may_go):
    while not may_go():
        yield _POLL_INTERVAL
    lines = [f"HTTP/1.1 {answer.status} Held", f"Content-Length: {len(answer.body)}"]
    if answer.content_type is not None:
        lines.append(f"Content-Type: {answer.content_type}")
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    yield "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body
