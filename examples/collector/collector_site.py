"""The site for these examples: ``python -m skitter.testing collector_site:Site --port 8000``."""

import json
from urllib.parse import parse_qs

from skitter.testing import Answer

BOOKS = [
    {
        "title": f"Book {number}",
        "price": 5 + number,
        "author": f"Author {number % 3}",
        "tags": ["new"] * (number % 2),
    }
    for number in range(12)
]
A_PAGE = 4


class Site:
    """Shelves of books, a members' area, and an upload form."""

    def __call__(self, visit):
        first, _, rest = visit.path.strip("/").partition("/")
        answer = getattr(self, f"answer_{first or 'home'}", None)
        return Answer(status=404) if answer is None else answer(visit, rest)

    def answer_home(self, _visit, _rest):
        return html(
            "Home", '<a href="/shelf/0">Books</a> <a href="/members/">Members</a> <a href="/gone">Gone</a>'
        )

    def answer_shelf(self, _visit, rest):
        start = int(rest)
        rows = "".join(
            f'<li class="book"><a href="/book/{number}">{BOOKS[number]["title"]}</a></li>'
            for number in range(start, start + A_PAGE)
        )
        after = start + A_PAGE
        following = f'<a class="next" href="/shelf/{after}">More</a>' if after < len(BOOKS) else ""
        return html(f"Shelf {start}", f"<ul>{rows}</ul>{following}")

    def answer_book(self, _visit, rest):
        book = BOOKS[int(rest)]
        tags = "".join(f'<span class="tag">{tag}</span>' for tag in book["tags"])
        price = f'<p class="price">EUR {book["price"]:.2f}</p>'
        return html(
            book["title"], f'<h1>{book["title"]}</h1>{price}<p class="author">{book["author"]}</p>{tags}'
        )

    def answer_login(self, visit, _rest):
        if parse_qs(visit.body.decode()) != {"user": ["ann"], "password": ["wonder"]}:
            return Answer(b"who are you?", status=403)
        return html("Welcome", "", headers={"Set-Cookie": "sid=let-me-in; Path=/"})

    def answer_members(self, visit, rest):
        if "sid=let-me-in" not in visit.headers.get("cookie", ""):
            return Answer(status=401)
        return html(
            f"Members {rest}".strip(), "" if rest else '<a href="/members/1">1</a><a href="/members/2">2</a>'
        )

    def answer_upload(self, visit, _rest):
        got = {"type": visit.headers["content-type"].partition(";")[0], "bytes": len(visit.body)}
        return Answer(json.dumps(got).encode(), content_type="application/json")

    def answer_agent(self, visit, _rest):
        return Answer(visit.headers["user-agent"].encode(), content_type="text/plain")


def html(title, body, headers=None):
    page = f"<!DOCTYPE html><title>{title}</title><body>{body}</body>"
    return Answer(page.encode(), headers=headers or {})
