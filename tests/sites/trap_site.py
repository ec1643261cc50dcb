"""A site of real pages among endless URL spaces, and an ordinary site with the same kinds of URLs. All pages are generated
on demand.
"""

import itertools
import random
from urllib.parse import parse_qsl, urlencode

from skitter.testing import Answer

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")
_FACETS = {
    "color": ("red", "green", "blue", "black", "white"),
    "size": ("small", "medium", "large", "huge"),
    "brand": ("acme", "globex", "initech", "umbrella"),
    "stock": ("yes", "no"),
    "sort": ("price", "name", "rating", "newest"),
    "view": ("grid", "list"),
    "ship": ("air", "sea", "road"),
}
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
NEWS_PAGES = 10


def words(seed, count):
    rng = random.Random(seed)
    return ["".join(rng.choices(_SYLLABLES, k=3)) for _ in range(count)]


def page(title, text, hrefs):
    links = "".join(f'<li><a href="{href}">{href.rpartition("/")[2] or "home"}</a></li>' for href in hrefs)
    body = f"<html><head><title>{title}</title></head><body><h1>{title}</h1><p>{text}</p><ul>{links}</ul></body></html>"
    return Answer(body.encode())


class RealPages:
    """``count`` pages: a tree of articles with names, products by id, and threads with pages."""

    def __init__(self, count):
        self.products = count // 4
        self.threads = count // 20
        self.articles = count - self.products - 3 * self.threads - 1

    def article(self, number):
        return "/guide/" + "-".join(words(f"slug {number}", 2)) + f"-{'abcdefghij'[number % 10]}{number:x}"

    def targets(self):
        yield "/"
        yield from map(self.article, range(1, self.articles + 1))
        yield from (f"/product?id={number}" for number in range(self.products))
        for number in range(self.threads):
            yield f"/thread/{number}"
            yield f"/thread/{number}?page=2"
            yield f"/thread/{number}?page=3"

    def answer(self, target):
        """Return title, text and links of a real page."""
        path, _, query = target.partition("?")
        fields = dict(parse_qsl(query))
        text = " ".join(words(target, 30))
        if path == "/product":
            number = int(fields["id"])
            return "Product", text, [f"/product?id={(number + step) % self.products}" for step in (1, 7)]
        if path.startswith("/thread/"):
            number = int(fields.get("page", 1))
            return "Thread", text, [f"{path}?page={number + 1}"] if number < 3 else ["/"]
        number = 0 if target == "/" else self._numbers[target]
        children = range(4 * number + 1, min(4 * number + 5, self.articles + 1))
        links = ["/", *map(self.article, children)]
        links += [f"/product?id={one}" for one in range(number, self.products, self.articles + 1)]
        links += [f"/product?id={2 * number % self.products}", f"/thread/{number % self.threads}"]
        return "Guide", text, links

    @property
    def _numbers(self):
        if not hasattr(self, "_known"):
            self._known = {self.article(number): number for number in range(1, self.articles + 1)}
        return self._known


class OrdinarySite:
    """Only the real pages, with a shop that has few filters."""

    def __init__(self, count):
        self.real = RealPages(count)
        self.truth = set(self.real.targets())
        self.fetched = []

    def __call__(self, visit):
        if visit.target == "/robots.txt":
            return Answer(b"", status=404)
        self.fetched.append(visit.target)
        return self.answer(visit.target)

    def answer(self, target):
        if target not in self.truth:
            return Answer(b"<title>Not found</title>", status=404)
        return page(*self.real.answer(target))


class TrapSite(OrdinarySite):
    """The real pages with links to a calendar, filters, session ids, repeated folders and an endless pager."""

    def __init__(self, count):
        super().__init__(count)
        self._sessions = itertools.count(1)

    def answer(self, target):
        if target in self.truth:
            title, text, links = self.real.answer(target)
            traps = [
                "/calendar/2024/5",
                "/shop/list",
                "/help/",
                "/news?page=1",
                "/members/",
                "/rooms/3/agenda?from=2024-05-01",
            ]
            return page(title, text, links + traps)
        path, _, query = target.partition("?")
        maker = getattr(self, "_" + path.split("/")[1].partition(";")[0], None)
        return (
            Answer(b"<title>Not found</title>", status=404)
            if maker is None
            else maker(path, dict(parse_qsl(query)))
        )

    def _calendar(self, path, _fields):
        year, month, *day = (int(part) for part in path.split("/")[2:])
        if day:
            text = f"Nothing happens on {day[0]} {_MONTHS[month - 1]} {year}"
            return page(
                "Day", text, [f"/calendar/{year}/{month}", f"/calendar/{year}/{month}/{day[0] % 28 + 1}"]
            )
        links = [f"/calendar/{year}/{month}/{number}" for number in range(1, 29)]
        later, earlier = divmod(12 * year + month, 12), divmod(12 * year + month - 2, 12)
        links += [f"/calendar/{y}/{m + 1}" for y, m in (later, earlier)] + [f"/calendar/{year + 1}/{month}"]
        return page(f"{_MONTHS[month - 1]} {year}", "Monday Tuesday Wednesday", links)

    def _rooms(self, path, fields):
        year, month, day = map(int, fields["from"].split("-"))
        links = [f"{path}?from={year + step:04}-{month:02}-{day % 28 + 1:02}" for step in (0, 1)]
        links += [f"/rooms/{int(path.split('/')[2]) + 1}/agenda?from={fields['from']}"]
        return page("Agenda", f"No meeting on {fields['from']}", links)

    def _shop(self, path, fields):
        rng = random.Random(urlencode(sorted(fields.items())))
        links = [f"/product?id={rng.randrange(self.real.products)}" for _ in range(5)]
        for name, values in _FACETS.items():
            links += [f"{path}?{urlencode({**fields, name: value})}" for value in values]
        chosen = " ".join(f"{name} {value}" for name, value in fields.items())
        return page("Shop", f"Filter by {chosen}", links)

    def _help(self, path, _fields):
        return page(
            "Help",
            "Questions and answers",
            ["more/info/", "faq/", "/"] if path.endswith("/") else ["more/info/"],
        )

    def _news(self, path, fields):
        number = int(fields.get("page", 1))
        text = " ".join(words(f"news {number}", 20)) if number <= NEWS_PAGES else "No news"
        return page(f"News, page {number}", text, [f"{path}?page={number + step}" for step in (1, 2, 10)])

    def _members(self, path, fields):
        session = f"{next(self._sessions):032x}"
        name = fields.get("name", "all")
        others = [f"/members/list?name={one}&PHPSESSID={session}" for one in words("members", 20)]
        others += [f"/members/;jsessionid={session}", f"/members/?sid={session}"]
        return page(f"Member {name}", f"This is {name}", others)
