"""A site with features that Scrapy projects use: retries, redirects, forms, cookies, lists and a sitemap."""

from collections import Counter

from skitter.testing import Answer

LISTS, ENTRIES = 4, 30
TARGETS = {"/moved": "/target", "/moved-known": "/plain"}
"""Targets of the redirects."""


class ScrapySite:
    def __init__(self):
        self.visits = Counter()

    def __call__(self, visit):
        self.visits[visit.path] += 1
        kind, _, name = visit.path[1:].partition("/")
        answer = {"list": self._list, "login": self._login, "welcome": self._welcome, "form": self._form}.get(
            kind
        )
        if answer is not None:
            return answer(visit, name)
        return self._fixed(visit)

    def _fixed(self, visit):
        path = visit.path
        if path == "/robots.txt":
            text = f"User-agent: *\nDisallow: /forbidden\nSitemap: {_url(visit, '/sitemap.xml')}\n"
            return Answer(text.encode(), content_type="text/plain")
        if path == "/sitemap.xml":
            return self._sitemap(visit)
        if path == "/always-busy" or (path == "/retried" and self.visits[path] == 1):
            return Answer(b"busy", status=503)
        if path in {"/gone", "/handled"}:
            return Answer(b"gone", status=404)
        if path in TARGETS:
            return Answer(status=302, headers={"Location": TARGETS[path]})
        return Answer(f"<title>{path}</title>".encode())

    def _sitemap(self, visit):
        urls = [*(f"/entry/{n}" for n in range(10)), *(f"/list/{n}" for n in range(LISTS))]
        inner = "".join(f"<url><loc>{_url(visit, url)}</loc></url>" for url in urls)
        body = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{inner}</urlset>'
        return Answer(body.encode(), content_type="application/xml")

    def _list(self, visit, name):
        number = int(name)
        entries = "".join(
            f'<a href="/entry/{n}">entry {n}</a>' for n in range(number * 7, number * 7 + 9) if n < ENTRIES
        )
        lists = "".join(f'<a href="/list/{n}">list {n}</a>' for n in range(LISTS))
        return Answer(f"<title>{visit.path}</title>{lists}{entries}".encode())

    def _form(self, visit, _name):
        return Answer(b"received " + visit.body, content_type="text/plain")

    def _login(self, visit, _name):
        user = visit.target.rpartition("=")[2]
        form = '<form action="/welcome" method="post"><input type="hidden" name="token" value="t1"></form>'
        return Answer(form.encode(), headers={"Set-Cookie": f"user={user}; Path=/"})

    def _welcome(self, visit, _name):
        return Answer(
            f"{visit.headers.get('cookie')} {visit.body.decode()}".encode(), content_type="text/plain"
        )


def _url(visit, path):
    return f"http://{visit.host}:{visit.port}{path}"
