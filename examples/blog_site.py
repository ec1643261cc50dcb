"""The site of the small programs: ``python -m skitter.testing blog_site:Site --port 8000``. It has a few faults."""

import gzip
import json
from urllib.parse import parse_qs, urlsplit

from skitter.testing import Answer

POSTS = 30
DOCS = {
    "/docs/": '<h1>Manual</h1><p>Start <a href="install.html">here</a>.</p><a href="usage.html">Usage</a>',
    "/docs/install.html": "<h1>Install</h1><pre><code>pip install thing</code></pre><a href='./'>Up</a>",
    "/docs/usage.html": "<h1>Usage</h1><ul><li>one</li><li>two</li></ul><a href='missing.html'>More</a>",
}


class Site:
    """A blog with feeds, sitemaps, a manual and a search."""

    def __call__(self, visit):  # noqa: PLR0911 - one answer for each kind of page
        """Answer one request."""
        path, site = visit.path, f"http://{visit.headers['host']}"
        if path == "/robots.txt":
            return Answer(f"Sitemap: {site}/sitemap.xml\n".encode(), content_type="text/plain")
        if path == "/":
            links = "".join(f'<a href="/post/{number}">Post {number}</a>' for number in range(POSTS))
            links += '<a href="/docs/">Manual</a><a href="/moved">Moved</a>'
            form = (
                '<form action="/search"><input name="q"><input type="hidden" name="lang" value="en"></form>'
            )
            return html("Blog", links + form)
        if path in DOCS:
            return html("Manual", f"<nav><a href='/'>Home</a></nav><main>{DOCS[path]}</main>")
        if path == "/moved":
            return Answer(status=301, headers={"Location": "/gone"})
        if path == "/sitemap.xml":
            maps = f"<sitemap><loc>{site}/posts.xml.gz</loc></sitemap><sitemap><loc>{site}/lost.xml</loc></sitemap>"
            return xml(f"<sitemapindex>{maps}</sitemapindex>")
        if path == "/posts.xml.gz":
            pages = [f"{site}/post/{number}" for number in range(POSTS + 2)]  # two more than there are
            urls = "".join(f"<url><loc>{url}</loc><lastmod>2026-11-01</lastmod></url>" for url in pages)
            packed = gzip.compress(f"<urlset>{urls}</urlset>".encode())
            return Answer(packed, content_type="application/gzip")
        if path == "/search":
            return self.search(
                {name: values[0] for name, values in parse_qs(urlsplit(visit.target).query).items()}
            )
        if path.startswith("/feed."):
            return self.feed(path.removeprefix("/feed."), site)
        number = path.removeprefix("/post/")
        if number.isdecimal() and int(number) < POSTS:
            robots = '<meta name="robots" content="noindex">' if number == "7" else ""
            return html(f"Post {number}", f"{robots}<p>Text {number}</p><a href='/gone'>Old</a>")
        return Answer(status=404)

    def search(self, query):
        """Return the posts whose number contains the searched text, ten on a page."""
        found = [number for number in range(POSTS) if query["q"] in str(number) and query["lang"] == "en"]
        start = int(query.get("start", 0))
        rows = "".join(
            f'<li><a href="/post/{number}">Post {number}</a></li>' for number in found[start : start + 10]
        )
        more = f'<a rel="next" href="/search?q={query["q"]}&lang=en&start={start + 10}">Next</a>' * (
            len(found) > start + 10
        )
        return html("Results", f"<ol>{rows}</ol>{more}")

    def feed(self, kind, site):
        """Return the last ten posts as RSS, Atom or JSON Feed."""
        numbers = range(POSTS - 10, POSTS)
        if kind == "json":
            items = [
                {"id": str(n), "url": f"{site}/post/{n}", "title": f"Post {n}", "date_published": f"2026-11-{n:02}T08:00:00Z"}
                for n in numbers
            ]  # fmt: skip
            return Answer(
                json.dumps({"version": "https://jsonfeed.org/version/1.1", "items": items}).encode()
            )
        if kind == "atom":
            entry = '<entry><title>Post {n}</title><link href="/post/{n}"/><updated>2026-11-{n:02}T08:00:00Z</updated></entry>'
            entries = "".join(entry.format(n=n) for n in numbers)
            return xml(f'<feed xmlns="http://www.w3.org/2005/Atom">{entries}</feed>')
        item = "<item><title>Post {n}</title><link>/post/{n}</link><pubDate>{n:02} Nov 2026 08:00:00 GMT</pubDate></item>"
        return xml(f"<rss><channel>{''.join(item.format(n=n) for n in numbers)}</channel></rss>")


def html(title, body):
    """Return a page."""
    return Answer(f"<!DOCTYPE html><title>{title}</title><body>{body}</body>".encode())


def xml(text):
    """Return an XML document."""
    return Answer(text.encode(), content_type="application/xml")
