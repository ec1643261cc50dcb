"""A site with robots.txt files, failures of them, and throttling."""

from skitter.testing import Answer


class PoliteSite:
    """``/`` of the first host links to ``pages`` pages of every host.

    ``robots``
        Text of each robots.txt. If it is empty, there is no such file. ``robots_down``: hosts whose file answers 503.
    ``throttled``
        Path that answers the first request with 429 and ``Retry-After: 1``.

    """

    def __init__(self, pages=10, robots=None, robots_down=(), throttled=None):
        self._pages = pages
        self._robots = robots
        self._robots_down = robots_down
        self._throttled = throttled

    def __call__(self, visit):
        if visit.path == "/robots.txt":
            return self._robots_txt(visit.origin_index)
        if visit.path == self._throttled:
            self._throttled = None
            return Answer(b"slowly!", status=429, headers={"Retry-After": "1"})
        paths = [*(f"/p{number}" for number in range(self._pages)), "/private/1", "/private/2"]
        hrefs = (
            [f"http://{origin}{path}" for path in paths for origin in visit.origins]
            if visit.path == "/"
            else []
        )
        return Answer("".join(f'<a href="{href}">x</a>' for href in hrefs).encode())

    def _robots_txt(self, place):
        if place in self._robots_down:
            return Answer(b"", status=503)
        if self._robots is None:
            return Answer(b"", status=404)
        return Answer(self._robots.encode(), content_type="text/plain")
