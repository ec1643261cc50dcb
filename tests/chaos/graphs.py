"""A ring of pages, with a page that fails at first, one that always fails, and a redirect."""

from skitter.testing import Answer


class RingSite:
    """``/`` redirects to ``/0``; each page links to the next, to ``/never`` and back to ``/``."""

    def __init__(self, pages):
        self._pages = pages
        self._failing = {f"/{number}" for number in range(0, pages, 5)}

    def __call__(self, visit):
        if visit.path in self._failing:
            self._failing.discard(visit.path)
            return Answer(b"", status=500)
        if visit.path == "/":
            return Answer(b"", status=301, headers={"Location": "/0"})
        if visit.path == "/never":
            return Answer(b"", status=500)
        number = int(visit.path[1:])
        hrefs = (f"/{(number + 1) % self._pages}", "/never", "/")
        return Answer("".join(f'<a href="{href}">x</a>' for href in hrefs).encode())
