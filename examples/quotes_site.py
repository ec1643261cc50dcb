"""The site for the examples: ``python -m skitter.testing quotes_site:Site --port 8000``."""

import json
import struct
import zlib
from urllib.parse import parse_qs

from skitter.testing import Answer

QUOTES = [
    {"author": f"Author {number % 5}", "text": f"Thought number {number}.", "id": number}
    for number in range(24)
]
A_PAGE = 10
SESSION = "sid=let-me-in"


class Site:
    """Quotes in lists of ten, the same quotes in an API, and a members' area."""

    def __call__(self, visit):
        """Answer one request."""
        first, _, rest = visit.path.strip("/").partition("/")
        answer = getattr(self, f"answer_{first}", None)
        return Answer(status=404) if answer is None else answer(visit, rest)

    def answer_quotes(self, _visit, rest):
        """Return a list of quotes with a link to the next list."""
        start = int(rest or 0)
        shown = QUOTES[start : start + A_PAGE]
        rows = [
            f'<li class="quote"><a href="/quote/{quote["id"]}">{quote["text"]}</a></li>' for quote in shown
        ]
        if start + A_PAGE < len(QUOTES):
            rows.append(f'<li class="next"><a href="/quotes/{start + A_PAGE}">Next</a></li>')
        return html("Quotes", f"<ul>{''.join(rows)}</ul>")

    def answer_quote(self, _visit, rest):
        """Return one quote."""
        quote = QUOTES[int(rest)]
        body = f"<blockquote>{quote['text']}</blockquote><small>{quote['author']}</small>"
        return html(f"Quote {rest}", body)

    def answer_api(self, visit, _rest):
        """Return ten quotes and the start of the next ten, for a POST of ``{"after": N}``."""
        if visit.headers.get("x-token") != "secret":
            return Answer(b'{"error": "no token"}', status=401, content_type="application/json")
        start = json.loads(visit.body)["after"]
        end = start + A_PAGE
        page = {"quotes": QUOTES[start:end], "next": end if end < len(QUOTES) else None}
        return Answer(json.dumps(page).encode(), content_type="application/json")

    def answer_login(self, visit, _rest):
        """Return the login form, or process it."""
        if visit.method == "GET":
            form = (
                '<form action="/login" method="post"><input type="hidden" name="csrf" value="c0ffee">'
                '<input name="user"><input type="password" name="password"></form>'
            )
            return html("Log in", form)
        fields = parse_qs(visit.body.decode())
        if fields != {"csrf": ["c0ffee"], "user": ["ann"], "password": ["wonder"]}:
            return Answer(status=403)
        headers = {"Set-Cookie": f"{SESSION}; Path=/", "Location": "/members/"}
        return Answer(status=303, headers=headers)

    def answer_photos(self, _visit, rest):
        """Return six pages with two images each. Some images are on several pages."""
        if not rest:
            return html("Photos", "".join(f'<a class="photo" href="/photos/{n}">{n}</a>' for n in range(6)))
        number = int(rest)
        images = f'<img src="/images/{number}.png"><img src="/images/{(number + 1) % 6}.png">'
        return html(f"Photo {number}", images)

    def answer_images(self, _visit, rest):
        """Return one of three images, each under two names."""
        return Answer(png(10 + int(rest.partition(".")[0]) % 3), content_type="image/png")

    def answer_members(self, visit, rest):
        """Return a page of the members' area to a logged-in user."""
        if SESSION not in visit.headers.get("cookie", ""):
            return Answer(status=302, headers={"Location": "/login"})
        links = "" if rest else "".join(f'<a href="/members/{number}">{number}</a>' for number in range(1, 6))
        return html(f"Members {rest}".strip(), links)


def html(title, body):
    """Return a page."""
    return Answer(f"<!DOCTYPE html><title>{title}</title><body>{body}</body>".encode())


def png(size):
    """Return a white square."""
    rows = zlib.compress((b"\0" + b"\xff" * size) * size)
    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
