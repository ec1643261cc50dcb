"""A site whose sitemaps state when its pages were last modified."""

from __future__ import annotations

import gzip
import time
from datetime import UTC, datetime

from skitter.testing.answer import Answer


def before_now(seconds, form="%Y-%m-%dT%H:%M:%SZ"):
    return datetime.fromtimestamp(time.time() - seconds, UTC).strftime(form)


class NewsSite:
    """A site with an index, a sitemap for each section, and articles that link to their comments.

    ``lastmod`` and ``texts``: by path. A page without a text returns 404. ``POST`` to a path edits all pages whose paths
    start with it.
    """

    def __init__(self, lastmod, sections=1):
        self.lastmod = dict(lastmod)
        self.texts = dict.fromkeys(lastmod, "first")
        self.requested = []
        self.alternates = {}
        self.links = {}
        self.has_etags = False
        self._sections = sections

    def __call__(self, visit):
        if visit.target == "/robots.txt":
            return Answer(status=404)
        if visit.method == "POST":
            self.edit(visit.target)
            return Answer(b"")
        self.requested.append(visit.target)
        answer = self._answer(visit.target, f"http://{visit.host}:{visit.port}")
        if not self.has_etags or answer.status != 200:
            return answer
        etag = f'"{hash(answer.body)}"'
        if visit.headers.get("if-none-match") == etag:
            return Answer(status=304)
        return Answer(answer.body, headers={"ETag": etag}, content_type=answer.content_type)

    def _answer(self, path, origin):
        if path == "/index.xml":
            places = (f"<sitemap><loc>{origin}/map{n}.xml.gz</loc></sitemap>" for n in range(self._sections))
            return self._xml("sitemapindex", places)
        if path.startswith("/map"):
            listed = list(self.lastmod)[int(path[4:].partition(".")[0]) :: self._sections]
            answer = self._xml("urlset", (self._entry(origin, page) for page in listed))
            return Answer(gzip.compress(answer.body, mtime=0), content_type="application/gzip")
        if path in self.texts:
            links = "".join(f'<a href="{link}">x</a>' for link in self.links.get(path, ()))
            return Answer(f"<p>{self.texts[path]}</p>{links}".encode())
        return Answer(status=404)

    def edit(self, start):
        """Edit the pages whose paths start with ``start``, and set their lastmod to the current time."""
        edited = [path for path in self.lastmod if path.startswith(start)]
        self.lastmod |= dict.fromkeys(edited, before_now(0))
        self.texts |= dict.fromkeys(edited, "second")

    def _entry(self, origin, path):
        lastmod = self.lastmod[path]
        others = "".join(
            f'<link rel="alternate" hreflang="de" href="{origin}{other}"/>'
            for other in self.alternates.get(path, ())
        )
        return f"<url><loc>{origin}{path}</loc>{f'<lastmod>{lastmod}</lastmod>' if lastmod else ''}{others}</url>"

    def _xml(self, root, entries):
        return Answer(f"<{root}>{''.join(entries)}</{root}>".encode(), content_type="application/xml")

    def taken(self):
        """Return the paths that were requested since the last call, in alphabetical order."""
        taken, self.requested = sorted(self.requested), []
        return taken
