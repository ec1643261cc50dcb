"""Ten small sites, each built differently. Each recipe in this folder crawls one of them.

Serve them with ``python -m skitter.testing ten_sites:Sites --port 8000``.
"""

import json
from collections.abc import Callable
from urllib.parse import parse_qs, parse_qsl, urlsplit

from skitter.testing import Answer, Visit

BOOKS = [("Dune", "9.99", 412), ("Emma", "7.50", 474), ("Ulysses", "1,012.00", 730), ("Walden", "6.00", None),
         ("Ivanhoe", "5.25", 466), ("Candide", "4.10", 129), ("Faust", "8.80", 208)]  # fmt: skip
POSTS = [{"id": number, "author": f"user{number % 3}", "likes": number * 7} for number in range(1, 24)]
STATIONS = [("Berlin", "52,52", "3 755 251", "ja"), ("Hamburg", "53,55", "1 892 122", "nein"),
            ("Jena", "50,93", "110 731", "ja")]  # fmt: skip
REPOSITORIES = {"ada": ["engine", "notes"], "bob": ["tools"], "eve": []}
PRODUCTS = {number: f"Lamp {number}" for number in range(1, 7)}
WORDS = ["apple", "apricot", "avocado", "banana", "blueberry", "cherry"]
NEWS = [("Rain", "Mon, 02 Nov 2026 08:00:00 GMT", "<p>It <b>rains</b>.</p>"),
        ("Snow", "Tue, 03 Nov 2026 09:30:00 +0100", "<p>It <em>snows</em>.</p>")]  # fmt: skip
ARTICLES = {"en": [("Spring", "March 5, 2026"), ("Summer", "June 21, 2026")],
            "fr": [("Printemps", "5 mars 2026"), ("Été", "21 juin 2026")]}  # fmt: skip
LETTERS = ["alpha", "beta", "gamma"]


class Sites:
    """The first part of a path selects the site."""

    def __call__(self, visit: Visit) -> Answer:
        """Answer a request."""
        site, _, rest = visit.path.removeprefix("/").partition("/")
        handler = _SITES.get(site)
        return _MISSING if handler is None else handler(visit, rest)


def page(title: str, body: str) -> Answer:
    return Answer(f"<!doctype html><title>{title}</title><h1>{title}</h1>{body}".encode())


def data(value: object) -> Answer:
    return Answer(json.dumps(value).encode(), content_type="application/json")


def xml(text: str, kind: str = "application/xml") -> Answer:
    return Answer(f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode(), content_type=kind)


def query(visit: Visit) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(visit.target).query))


def home(visit: Visit) -> str:
    return f"http://{visit.host}:{visit.port}"


# --- a paginated list, and a page for each detail ------------------------------------------------------------


def shop(_visit: Visit, rest: str) -> Answer:
    if rest.startswith("book/"):
        title, price, pages = BOOKS[int(rest.removeprefix("book/"))]
        length = "" if pages is None else f"<tr><th>Pages</th><td>{pages}</td></tr>"
        return page(
            title,
            f"""<p class="price">£{price}</p><span class="stars" data-stars="{len(title)}"></span>
            <table>{length}<tr><th>Tags</th><td>classic; {title.lower()}</td></tr></table>
            <div class="text"><p>About <b>{title}</b>.</p><ul><li>one</li></ul></div><img src="../{title}.jpg">""",
        )
    number = int(rest.removeprefix("page/") or 1)
    start = (number - 1) * 3
    cards = "".join(
        f'<article><h3><a href="/shop/book/{start + place}">{title}</a></h3><i>{place + 1}</i></article>'
        for place, (title, _, _) in enumerate(BOOKS[start : start + 3])
    )
    following = (
        f'<li class="next"><a href="/shop/page/{number + 1}">more</a></li>' if start + 3 < len(BOOKS) else ""
    )
    return page("Books", cards + following)


# --- a page that a script fills from an API with a cursor ----------------------------------------------------


def wall(visit: Visit, rest: str) -> Answer:
    if rest != "api":
        return page("Wall", '<div id="wall"></div><script src="wall.js"></script>')
    query = json.loads(visit.body or b"{}")
    start = int((query.get("after") or "c0").removeprefix("c"))
    part = POSTS[start : start + 10]
    cursor = f"c{start + 10}" if start + 10 < len(POSTS) else None
    return data({"data": {"posts": part}, "paging": {"cursor": cursor}})


# --- a table ------------------------------------------------------------------------------------------------


def table(_visit: Visit, _rest: str) -> Answer:
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in STATIONS)
    head = "<tr><th>Stadt</th><th>Breite</th><th>Einwohner</th><th>Fluss</th></tr>"
    return page("Orte", f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>")


# --- nested comments -----------------------------------------------------------------------------------------


def forum(_visit: Visit, _rest: str) -> Answer:
    def comment(author: str, text: str, *replies: str) -> str:
        inner = f'<ul class="replies">{"".join(replies)}</ul>' if replies else ""
        return f'<li class="comment"><b class="author">{author}</b><p>{text}</p>{inner}</li>'

    deepest = comment("cy", "third")
    thread = comment("ann", "first", comment("bo", "second", deepest), comment("di", "fourth"))
    return page("Thread", f'<ul class="thread">{thread}{comment("ed", "fifth")}</ul>')


# --- a JSON API: a list by offset, details by id ---------------------------------------------------------------


def api(visit: Visit, rest: str) -> Answer:
    if rest.startswith("users/"):
        name = rest.removeprefix("users/").removesuffix("/repos")
        return data([{"name": repo, "size": len(repo)} for repo in REPOSITORIES[name]])
    offset = int(query(visit).get("offset", 0))
    names = sorted(REPOSITORIES)
    return data(
        {
            "total": len(names),
            "users": [{"login": name, "admin": name == "ada"} for name in names[offset : offset + 2]],
        }
    )


# --- a sitemap -------------------------------------------------------------------------------------------------


def catalogue(visit: Visit, rest: str) -> Answer:
    site = f"{home(visit)}/catalogue"
    if rest == "sitemap.xml":
        parts = "".join(f"<sitemap><loc>{site}/products-{part}.xml</loc></sitemap>" for part in (1, 2))
        return xml(
            f'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{parts}</sitemapindex>'
        )
    if rest.startswith("products-"):
        odd = rest == "products-1.xml"
        locs = [f"{site}/product/{number}" for number in PRODUCTS if number % 2 == odd] + [f"{site}/about"]
        body = "".join(f"<url><loc>{loc}</loc></url>" for loc in locs)
        return xml(f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{body}</urlset>')
    number = int(rest.removeprefix("product/"))
    described = json.dumps({"@type": "Product", "name": PRODUCTS[number], "offers": {"price": number * 10.5}})
    return page(PRODUCTS[number], f'<script type="application/ld+json">{described}</script>')


# --- a search form with a hidden field ----------------------------------------------------------------------------


def search(visit: Visit, rest: str) -> Answer:
    form = """<form id="search" action="/search/results" method="post"><input type="hidden" name="token" value="t0k">
        <input name="q"><select name="order"><option value="up" selected>up<option value="down">down</select>
        <button name="go" value="1">Go</button></form>"""
    if rest != "results":
        return page("Search", f'<form action="/other"><input name="q"></form>{form}')
    sent = {name: values[0] for name, values in parse_qs(visit.body.decode()).items()}
    if (sent.get("token"), sent.get("go")) != ("t0k", "1"):
        return Answer(status=403)
    hits = sorted(
        (word for word in WORDS if word.startswith(sent.get("q", ""))), reverse=sent.get("order") == "down"
    )
    return page("Results", "".join(f'<p class="hit">{hit}</p>' for hit in hits))


# --- a feed ---------------------------------------------------------------------------------------------------


def news(visit: Visit, rest: str) -> Answer:
    if rest.startswith("story/"):
        return page(rest.removeprefix("story/"), '<p class="words">1 234 words</p>')
    entries = "".join(
        f"<item><title>{title}</title><link>{home(visit)}/news/story/{title}</link><pubDate>{day}</pubDate>"
        f"<category>weather</category><description><![CDATA[{text}]]></description></item>"
        for title, day, text in NEWS
    )
    return xml(
        f'<rss version="2.0"><channel><title>News</title>{entries}</channel></rss>', "application/rss+xml"
    )


# --- one address, several languages --------------------------------------------------------------------------


def magazine(visit: Visit, rest: str) -> Answer:
    language = visit.headers.get("accept-language", "en")
    articles = ARTICLES.get(language)
    if articles is None:
        return Answer(status=406)
    if rest:
        title, day = articles[int(rest)]
        return page(title, f"<time>{day}</time>")
    return page(
        "Magazine",
        "".join(f'<a href="/magazine/{place}">{title}</a>' for place, (title, _) in enumerate(articles)),
    )


# --- pages behind a login -------------------------------------------------------------------------------------


def club(visit: Visit, rest: str) -> Answer:
    cookies = dict(part.strip().partition("=")[::2] for part in visit.headers.get("cookie", "").split(";"))
    if rest == "login" and visit.method == "POST":
        sent = dict(parse_qsl(visit.body.decode()))
        if (sent.get("user"), sent.get("password")) == ("ann", "wonder") and sent.get("csrf") == cookies.get(
            "visitor"
        ):
            headers = {"Location": "/club/", "Set-Cookie": "member=yes; Path=/; HttpOnly"}
            return Answer(status=303, headers=headers)
    if rest == "login":
        form = """<form method="post"><input type="hidden" name="csrf" value="v7"><input name="user">
            <input type="password" name="password"><input type="submit" value="Enter"></form>"""
        return Answer(page("Enter", form).body, headers={"Set-Cookie": "visitor=v7; Path=/"})
    if cookies.get("member") != "yes":
        return Answer(status=303, headers={"Location": "/club/login"})
    if rest:
        return page(rest, f"<p>Letter {rest}</p>")
    links = "".join(f'<a class="letter" href="/club/{letter}">{letter}</a>' for letter in LETTERS)
    return page("Club", f'{links}<a href="/club/logout" id="logout">leave</a>')


_SITES: dict[str, Callable[[Visit, str], Answer]] = {
    "shop": shop, "wall": wall, "table": table, "forum": forum, "api": api, "catalogue": catalogue,
    "search": search, "news": news, "magazine": magazine, "club": club,
}  # fmt: skip
_MISSING = Answer(b"<title>404 Not Found</title>", status=404)
