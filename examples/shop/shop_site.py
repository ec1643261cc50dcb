"""The shop for ``shop.py``: ``python -m skitter.testing shop_site:Shop --port 8000``."""

from urllib.parse import parse_qs, urlsplit

from skitter.testing import Answer

DEPARTMENTS = {"books": range(100, 130), "games": range(200, 218)}
A_PAGE = 12
SOLD_OUT = {113, 207}
MOODY = {105, 211}
"""The first request for each of these is answered with status 500."""
WANTED = {"country": ["de"], "currency": ["EUR"], "view": ["full"]}


class Shop:
    """Departments in lists of twelve. A product is available only at its full address, and only to browsers."""

    def __init__(self):
        self.moods = set(MOODY)

    def __call__(self, visit):
        """Answer one request."""
        if visit.path == "/robots.txt":
            return Answer(b"User-agent: *\nDisallow: /p/\n", content_type="text/plain")
        if not visit.headers.get("user-agent", "").startswith("Mozilla/5.0 "):
            return Answer(status=403)
        query = parse_qs(urlsplit(visit.target).query)
        if visit.path.startswith("/list/"):
            return self.listing(visit.path.rpartition("/")[2], int(query.get("page", ["1"])[0]))
        if visit.path == "/catalogue/product":
            number = int(query.pop("id", ["0"])[0])
            return self.product(number) if query == WANTED else Answer(status=400)
        return Answer(status=404)

    @staticmethod
    def listing(department, page):
        """Return a page of product numbers."""
        numbers = DEPARTMENTS.get(department)
        if numbers is None:
            return Answer(status=404)
        shown = numbers[(page - 1) * A_PAGE : page * A_PAGE]
        rows = "".join(f'<li data-product="{number}">Product {number}</li>' for number in shown)
        more = f'<a rel="next" href="?page={page + 1}">more</a>' if page * A_PAGE < len(numbers) else ""
        return html(f"<ul>{rows}</ul>{more}")

    def product(self, number):
        """Return one product."""
        if number in self.moods:
            self.moods.remove(number)
            return Answer(status=500)
        if number in SOLD_OUT or not any(number in numbers for numbers in DEPARTMENTS.values()):
            return Answer(status=404)
        return html(f"<h1>Product {number}</h1><b class=price>{number / 10:.2f}</b>")


def html(body):
    """Return a page."""
    return Answer(f"<!DOCTYPE html><title>Shop</title><body>{body}</body>".encode())
