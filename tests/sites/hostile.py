"""A site whose pages try to exhaust the memory or the time of a crawler."""

import gzip
import itertools
import string
import zlib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from sites.cases import http_head
from skitter.testing import Answer, WireAnswer

MB = 1_000_000
LINKS = 200_000


class Hostile(NamedTuple):
    """One page. ``dead`` is the kind of its dead letter, or ``None`` if its callback is called."""

    answer: Callable[[], Answer | WireAnswer]
    dead: str | None = None


def _html(unit, size, before="", after=""):
    return Answer((before + unit * (size // len(unit)) + after).encode())


def _numbered(pattern, size, before=""):
    amount = size // len(pattern.format(0))
    return Answer((before + "".join(map(pattern.format, range(amount)))).encode())


def _names(amount):
    letters = string.ascii_lowercase
    return ["".join(name) for name in itertools.islice(itertools.product(letters, repeat=3), amount)]


def _reopened(size, amount=490):
    """Return formatting elements that the parser opens again in each paragraph (WHATWG HTML, 13.2.4.3)."""
    return _html("<p>x", size, "<p>" + "".join(f"<b {name}>" for name in _names(amount)))


def _attributes(size):
    return Answer(b"<a " + " ".join(f"a{number}" for number in range(size // 8)).encode() + b">x</a>")


def _coded(coding, body):
    return Answer(body, headers={"Content-Encoding": coding})


def _members(size):
    member = gzip.compress(b"")
    return _coded("gzip", member * (size // len(member)))


def _frames(size):
    # A zstd frame with an empty raw block (RFC 8878, 3.1.1).
    frame = b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00"
    return _coded("zstd", frame * (size // len(frame)))


@cache
def _bomb():
    packer = zlib.compressobj(9, wbits=31)
    block = b"<p>x" * 250_000
    return b"".join(packer.compress(block) for _ in range(400)) + packer.flush()


def _bytewise(size):
    block = b"1\r\nx\r\n" * 10_000
    steps = itertools.chain(
        [http_head("Transfer-Encoding: chunked")], itertools.repeat(block, size // 10_000), [b"0\r\n\r\n"]
    )
    return WireAnswer(steps)


def _headers(amount):
    return WireAnswer([http_head(*(f"X-{number}: y" for number in range(amount)), "Content-Length: 0"), b""])


def _endless_headers():
    lines = itertools.repeat(b"X-Filler: " + b"y" * 1000 + b"\r\n")
    return WireAnswer(itertools.chain([b"HTTP/1.1 200 OK\r\n"], lines))


def _informational():
    return WireAnswer(itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n" * 100))


def _links(amount, pattern='<a href="/hub/{0}">x</a>'):
    return Answer("".join(map(pattern.format, range(amount))).encode())


def _json(unit, size):
    return Answer(
        ("[" + (unit + ",") * (size // (len(unit) + 1)) + "0]").encode(), content_type="application/json"
    )


PAGES: dict[str, Hostile] = {
    "nested-html": Hostile(lambda: _html("<html>", 300_000)),
    "nested-body": Hostile(lambda: _html("<body>", 2 * MB)),
    "html-attributes": Hostile(lambda: _numbered("<html a{0}>", 300_000), "too_complex"),
    "body-attributes": Hostile(lambda: _numbered("<body a{0}>", 300_000), "too_complex"),
    "nested-div": Hostile(lambda: _html("<div>", 30 * MB), "too_complex"),
    "nested-span": Hostile(lambda: _html("<span>", 3 * MB)),
    "nested-a": Hostile(lambda: _html("<a>", 30 * MB), "too_complex"),
    "nested-table": Hostile(lambda: _html("<table><tr><td>", 30 * MB), "too_complex"),
    "nested-template": Hostile(lambda: _html("<template>", 3 * MB)),
    "nested-svg": Hostile(lambda: _html("<svg>", 3 * MB)),
    "reopened-small": Hostile(lambda: _reopened(6_000)),
    "reopened-moderate": Hostile(lambda: _reopened(16_000), "too_complex"),
    "reopened": Hostile(lambda: _reopened(60_000), "too_complex"),
    "reopened-large": Hostile(lambda: _reopened(3 * MB), "too_complex"),
    "formatting": Hostile(lambda: _numbered("<font a={0}><p>", 300_000), "too_complex"),
    "paragraphs": Hostile(lambda: _html("<p>", 30 * MB), "too_complex"),
    "end-tags": Hostile(lambda: _html("</p>", 30 * MB)),
    "one-tag": Hostile(lambda: _attributes(1 * MB)),
    "one-tag-open": Hostile(lambda: _html(" a", 30 * MB, "<div"), "too_complex"),
    "less-than": Hostile(lambda: _html("<", 30 * MB), "too_complex"),
    "zeros": Hostile(lambda: _html("\0", 30 * MB), "too_complex"),
    "text": Hostile(lambda: _html("hello ", 30 * MB), "too_complex"),
    "comments": Hostile(lambda: _html("<!---->", 30 * MB), "too_complex"),
    "open-comment": Hostile(lambda: _html("<!--", 3 * MB)),
    "no-charset": Hostile(
        lambda: Answer(b"<p>hello world</p>" * (30 * MB // 18) + "\U0001f600".encode(), content_type="text/html"),
        "too_complex",
    ),
    "wrong-charset": Hostile(
        lambda: Answer(b"<p>" + b"\x81" * (20 * MB), content_type="text/html; charset=windows-1252"), "too_complex"
    ),
    "links": Hostile(lambda: _links(LINKS)),
    "million-links": Hostile(lambda: _links(1_000_000), "too_complex"),
    "link-hosts": Hostile(lambda: _links(100_000, '<a href="http://h{0}.invalid/">x</a>')),
    "long-link": Hostile(lambda: Answer(b'<a href="/' + b"a" * (20 * MB) + b'">x</a>'), "too_complex"),
    "long-base": Hostile(
        lambda: Answer(
            f'<base href="/{"a" * 400_000}/">'.encode() + b"".join(b"<a href=hub/%d>x</a>" % n for n in range(45_000))
        )
    ),
    "bases-in-svg": Hostile(lambda: _html("<base href=/x/ />", 2 * MB, "<svg>" + "<g>" * 450)),
    "members": Hostile(lambda: _members(8 * MB), "encoding"),
    "frames": Hostile(lambda: _frames(8 * MB), "encoding"),
    "bomb": Hostile(lambda: _coded("gzip", _bomb()), "too_large"),
    "double-bomb": Hostile(lambda: _coded("gzip, gzip", gzip.compress(_bomb())), "too_large"),
    "bytewise": Hostile(lambda: _bytewise(20 * MB), "protocol"),
    "many-headers": Hostile(lambda: _headers(20_000), "protocol"),
    "endless-headers": Hostile(_endless_headers, "protocol"),
    "endless-hints": Hostile(_informational, "protocol"),
    "json-lists": Hostile(lambda: _json("[]", 30 * MB), "too_complex"),
    "json-tiny": Hostile(lambda: _json("1.5e-300", 8 * MB), "too_complex"),
    "json-deep": Hostile(lambda: Answer(b"[" * MB, content_type="application/json"), "callback"),
    "xml-elements": Hostile(lambda: Answer(b"<r>" + b"<a/>" * (7 * MB) + b"</r>", content_type="text/xml"), "too_complex"),
    "xml-entities": Hostile(
        lambda: Answer(
            b'<!DOCTYPE r [<!ENTITY a "'
            + b"x" * 1000
            + b'">'
            + b"".join(b'<!ENTITY %c "&%c;&%c;&%c;&%c;&%c;&%c;&%c;&%c;">' % (c + 1, *[c] * 8) for c in range(97, 110))
            + b"]><r>&n;</r>",
            content_type="text/xml",
        )
    ),
}  # fmt: skip
XPATH = ("reopened", "paragraphs", "one-tag", "nested-a", "nested-div", "end-tags", "nested-span", "links")
"""Pages that are also queried by XPath, at ``/xpath/NAME``."""


def hostile_site(visit):
    """Serve a page at ``/css/NAME`` and ``/xpath/NAME``. Any other path is an ordinary page."""
    name = visit.path.rpartition("/")[2]
    if visit.path.startswith(("/css/", "/xpath/")) and name in PAGES:
        return PAGES[name].answer()
    return Answer(f"<title>{visit.path}</title>".encode())


def make_site():
    return hostile_site
