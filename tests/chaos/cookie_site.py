"""A site whose pages need the cookie that its front page sets. Without it, they return 404."""

from skitter.testing import Answer

PAGES = 240


class CookieSite:
    def __call__(self, visit):
        if visit.path == "/":
            return _page("Front", [0], {"Set-Cookie": "pass=let-me-in; Path=/"})
        if "pass=let-me-in" not in visit.headers.get("cookie", ""):
            return Answer(b"<title>Not for you</title>", status=404)
        number = int(visit.path.rpartition("/")[2])
        links = [link for link in (2 * number + 1, 2 * number + 2) if link < PAGES]
        return _page(f"Page {number}", links, {"Set-Cookie": f"seen{number % 20}={number}; Path=/"})


def _page(title, links, headers):
    body = "".join(f'<a href="/p/{link}">{link}</a>' for link in links)
    return Answer(f"<title>{title}</title>{body}".encode(), headers=headers)


def urls(site):
    """Return all pages of the site."""
    return {site.url, *(f"{site.url}p/{number}" for number in range(PAGES))}
