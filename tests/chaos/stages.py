"""A site of two stages: list pages in a chain, and the pages that they link to."""

from skitter.testing import Answer


class StagesSite:
    """``/list/0`` is the first of ``lists`` list pages. Each links to ``details`` detail pages, each of these to one more."""

    def __init__(self, lists=6, details=5):
        self._lists = lists
        self._details = details

    def __call__(self, visit):
        stage, _, name = visit.path.strip("/").partition("/")
        links = {"list": self._of_list, "detail": self._of_detail}.get(stage)
        if links is None:
            return Answer(b"", status=404)
        return Answer(
            "".join(f'<a class="{kind}" href="{href}">x</a>' for kind, href in links(name)).encode()
        )

    def _of_list(self, name):
        number = int(name)
        if number + 1 < self._lists:
            yield "next", f"/list/{number + 1}"
        for place in range(self._details):
            yield "detail", f"/detail/{number}-{place}"

    @staticmethod
    def _of_detail(name):
        if not name.endswith("more"):
            yield "more", f"/detail/{name}-more"


def urls_of(site, lists=6, details=5):
    """Return the URLs of all pages."""
    names = [f"{number}-{place}" for number in range(lists) for place in range(details)]
    paths = [f"list/{number}" for number in range(lists)]
    paths += [f"detail/{name}{more}" for name in names for more in ("", "-more")]
    return {f"{site.url}{path}" for path in paths}
