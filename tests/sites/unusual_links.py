"""Unusual spellings of links. Some lead to a page, others are not links."""

ODD_LINKS = {
    "/odd/with space.html": "/odd/with%20space.html",
    "/odd/ünïcödé.html": "/odd/%C3%BCn%C3%AFc%C3%B6d%C3%A9.html",
    "  /odd/padded.html \n": "/odd/padded.html",
    "/odd/new\nline\t.html": "/odd/newline.html",
    "/odd/down/../dots.html": "/odd/dots.html",
    "\\odd\\backslash.html": "/odd/backslash.html",
    "/odd/query.html?b=1&amp;c=%20x": "/odd/query.html?b=1&c=%20x",
    "/odd/entity&#46;html": "/odd/entity.html",
    "HTTP://{origin}/odd/capitals.html": "/odd/capitals.html",
    "http:odd/no-slashes.html": "/odd/no-slashes.html",
    "//{origin}/odd/no-scheme.html": "/odd/no-scheme.html",
    "/odd/colon:in:path.html": "/odd/colon:in:path.html",
}
"""``href`` as written in the page ``/``, and the URL that a browser requests (WHATWG URL)."""

UNPARSABLE = [
    "http://[::1",
    "http://exa mple/",
    "http://host.invalid:99999/",
    "http://host.invalid:port/",
    "http://%zz/",
    "http://a<b>.invalid/",
    "https://",
    "http://1.2.3.4.5/",
    "http://:80/",
]

NOT_FOR_CRAWLERS = [
    "mailto:someone@outside.invalid",
    "tel:+4912345",
    "javascript:history.back()",
    "data:text/html,<a href=/decoy/data.html>x</a>",
    "ftp://outside.invalid/file",
    "file:///etc/passwd",
    "blob:null/1234",
    "about:blank",
]

TOO_LONG = "/decoy/" + "long/" * 5000

BINARIES = {
    "/binary/picture.png": "image/png",
    "/binary/paper.pdf": "application/pdf",
    "/binary/program": "application/octet-stream",
    "/binary/sound.ogg": "audio/ogg",
}
BINARY_BODY = bytes(range(256)) * 20 + b'<title>no page</title><a href="/decoy/binary.html">x</a>' + bytes(99)
