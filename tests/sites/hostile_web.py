"""Small hostile and unusual servers, and the expected outcome of a crawl with the test's settings.

``CASES`` has one entry for each server, each with its own address. Pages that fill memory are in :mod:`sites.hostile`,
TLS servers in :mod:`servers.tls`.

"""

import gzip
import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import brotli
import zstandard

from skitter.testing import Answer, Visit, WireAnswer

Reply = bytes | Answer | WireAnswer | Callable[[Visit, int], bytes | Answer | WireAnswer]
MB = 1_000_000


class Case(NamedTuple):
    """``pages``: replies by path, or the reply of ``/``. Bytes are sent unchanged, then the connection is closed.

    ``outcome``: the title of the item of each path, or :func:`dead`. A string is the outcome of ``/``. A path that is not
    listed must have no outcome. ``refused``: reasons for which requests are counted as refused.
    """

    pages: Reply | Mapping[str, Reply]
    outcome: str | Mapping[str, str] = "ok"
    refused: Mapping[str, int] = {}

    def replies(self):
        return self.pages if isinstance(self.pages, Mapping) else {"/": self.pages}

    def outcomes(self):
        return {"/": self.outcome} if isinstance(self.outcome, str) else dict(self.outcome)


def dead(kind):
    return f"dead letter: {kind}"


def document(body="", title="ok"):
    return f"<!DOCTYPE html><title>{title}</title><p>{body}".encode()


PAGE = document()
LINKED = document("<a href=/leaf>")
BOTH = {"/": "ok", "/leaf": "ok"}
PROTOCOL, DISCONNECTED, ENCODING = dead("protocol"), dead("disconnected"), dead("encoding")
CONNECT, TIMEOUT, TOO_LARGE = dead("connect"), dead("timeout"), dead("too_large")


def raw(*lines, body=PAGE, status=b"HTTP/1.1 200 OK", end=b"\r\n"):
    """Return a response with exactly these header lines."""
    head = [status, *(line if isinstance(line, bytes) else line.encode() for line in lines)]
    return end.join(head) + end * 2 + body


def sized(*lines, body=PAGE, status="200 OK"):
    return raw(*lines, f"Content-Length: {len(body)}", body=body, status=f"HTTP/1.1 {status}".encode())


def chunked(*parts, lines=()):
    return raw("Transfer-Encoding: chunked", *lines, body=b"".join(parts))


def chunk(data=PAGE):
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def wire(*steps, end="close"):
    return WireAnswer(list(steps), end)


def endless(head, unit):
    """Return an endless reply, which is produced as fast as it is read."""
    return lambda _visit, _count: WireAnswer(itertools.chain([head], itertools.repeat(unit)))


def drip(head, unit):
    """Return a reply that never ends and never pauses for long."""
    return lambda _visit, _count: WireAnswer(
        itertools.chain([head], itertools.chain.from_iterable((unit, 0.2) for _ in itertools.count()))
    )


def then(*replies):
    """Return a sequence of replies. The last one is repeated."""
    return lambda _visit, count: replies[min(count, len(replies)) - 1]


def coded(coding, body):
    return Answer(body, headers={"Content-Encoding": coding})


def page(content_type, body):
    return Answer(body, content_type=content_type)


def robots(text, **more):
    body = text if isinstance(text, bytes) else text.encode()
    return {"/robots.txt": page("text/plain", body), **more}


def moved(location, status=302, **headers):
    return Answer(b"", status, headers={"Location": location, **headers})


def echo(visit, _count):
    """Return a page whose title is the received cookie."""
    return Answer(document(title=visit.headers.get("cookie", "no cookie")))


def cookies(*values):
    return {"/": sized(*(f"Set-Cookie: {value}" for value in values), body=LINKED), "/leaf": echo}


def jar(sent):
    return {"/": "ok", "/leaf": sent}


def deflated(data, wbits):
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


@cache
def packed_zeros(pack):
    return pack(bytes(40 * MB))


def zstd_window(log):
    """Return a zstd frame that demands a window of 2 ** log bytes (RFC 8878, 3.1.1.1.2)."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(log - 10) << 3]) + b"\x01\x00\x00"


def _brotli(data):
    return brotli.compress(data, quality=4)  # the default takes two seconds


GZIP = gzip.compress(PAGE, mtime=0)
POISON = sized(body=document(title="poisoned"))

HEADERS = {
    "lines end at LF": Case(raw(end=b"\n")),
    "folded line": Case(sized("X-A: a", " b")),
    "space before the colon": Case(sized("X-A : a")),
    "line without a colon": Case(sized("garbage"), PROTOCOL),
    "empty name": Case(sized(": a")),
    "NUL in a value": Case(sized(b"X-A: a\0b"), PROTOCOL),
    "NEL in a value": Case(sized(b"X-A: a\x85Content-Length: 1")),
    "bytes that are no UTF-8": Case(sized(b"X-\xff: \xfe\xff")),
    "CR within a value": Case(sized(b"X-A: a\rContent-Length: 1"), PROTOCOL),
    "line of 90 KB": Case(sized("X-A: " + "a" * 90_000)),
    "line of 200 KB": Case(sized("X-A: " + "a" * 200_000), PROTOCOL),
    "400 KB in lines of 1 KB": Case(sized(*["X-A: " + "a" * 1000] * 400), PROTOCOL),
    "two content types": Case(sized("Content-Type: text/html", "Content-Type: text/plain")),
    "no content type": Case(Answer(PAGE, content_type=None)),
    "content type of punctuation": Case(page(";;;=,", PAGE)),
    "content type with 10 KB of parameters": Case(page("text/html; " + "a=b; " * 2000, PAGE)),
    "contradictory connection": Case(sized("Connection: keep-alive, close", "Connection: upgrade")),
    "keep-alive for ever": Case(sized("Keep-Alive: timeout=99999999999999999999, max=-1")),
    "invalid dates": Case(sized("Date: 99", "Last-Modified: never", "Expires: 0", 'ETag: W/"')),
    "Alt-Svc to elsewhere": Case(sized('Alt-Svc: h2="10.0.0.1:443"; ma=99999')),
    "HSTS over http": Case({"/": sized("Strict-Transport-Security: max-age=9999", body=LINKED)}, BOTH),
    "attachment outside": Case(sized('Content-Disposition: attachment; filename="../../etc/passwd"')),
    "Refresh to elsewhere": Case(sized("Refresh: 0; url=/decoy")),
    "Link to elsewhere": Case(sized('Link: </decoy>; rel="canonical"', "Link: <<<>>>;;;")),
    "status without a reason": Case(raw(status=b"HTTP/1.1 200")),
    "reason of binary": Case(raw(status=b"HTTP/1.1 200 \xff\xfe\x85")),
    "protocol in lower case": Case(raw(status=b"http/1.1 200 OK")),
    "HTTP/0.9": Case(PAGE, PROTOCOL),
    "HTTP/1.0": Case(raw(status=b"HTTP/1.0 200 OK")),
    "HTTP/9.9": Case(raw(status=b"HTTP/9.9 200 OK"), PROTOCOL),
    "status of two digits": Case(raw(status=b"HTTP/1.1 20 OK"), PROTOCOL),
    "status of four digits": Case(raw(status=b"HTTP/1.1 2000 OK")),
    "status of letters": Case(raw(status=b"HTTP/1.1 abc OK"), PROTOCOL),
    "status 000": Case(raw(status=b"HTTP/1.1 000 OK"), PROTOCOL),
    "empty lines before the status": Case(b"\r\n\r\n" + sized(), PROTOCOL),
    "junk before the status": Case(b"junk" + sized(), PROTOCOL),
    "SSH": Case(b"SSH-2.0-OpenSSH_9.2\r\n", PROTOCOL),
    "100 and the page": Case(b"HTTP/1.1 100 Continue\r\n\r\n" + sized()),
    "50 hints and the page": Case(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 50 + sized()),
    "hint and the end": Case(b"HTTP/1.1 103 Early Hints\r\n\r\n", DISCONNECTED),
    "101 unasked": Case(raw("Upgrade: websocket", status=b"HTTP/1.1 101 Switching", body=b""), DISCONNECTED),
    "second response unasked": Case({"/": wire(sized(body=LINKED) + POISON, end="keep")}, BOTH),
    "end within the status": Case(b"HTTP/1.1 2", CONNECT),
    "end within the headers": Case(b"HTTP/1.1 200 OK\r\nX-A: b\r\n", DISCONNECTED),
    "end at once": Case(b"", CONNECT),
    "reset at once": Case(wire(end="reset"), CONNECT),
    "reset within the headers": Case(wire(b"HTTP/1.1 200 OK\r\n", 0.05, end="reset"), DISCONNECTED),
    "silence": Case(wire(end="stall"), TIMEOUT),
    "silence within the headers": Case(wire(b"HTTP/1.1 200 OK\r\n", end="stall"), TIMEOUT),
    "headers without an end, slowly": Case(drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), TIMEOUT),
}

LENGTHS = {
    "length 0": Case(raw("Content-Length: 0", body=b""), "-"),
    "body longer than stated": Case({"/": wire(sized(body=LINKED) + b"excess", end="keep")}, BOTH),
    "body shorter than stated": Case(raw("Content-Length: 9999"), DISCONNECTED),
    "reset within the body": Case(wire(raw("Content-Length: 9999"), 0.05, end="reset"), DISCONNECTED),
    "silence within the body": Case(wire(raw("Content-Length: 9999"), end="stall"), TIMEOUT),
    "body without an end, slowly": Case(drip(raw(), b" "), TIMEOUT),
    "body without an end": Case(endless(raw(), b"<p>more" * 9000), TOO_LARGE),
    "negative length": Case(raw("Content-Length: -5"), PROTOCOL),
    "length in letters": Case(raw("Content-Length: many"), PROTOCOL),
    "length with a plus": Case(raw("Content-Length: +5"), PROTOCOL),
    "length in hex": Case(raw("Content-Length: 0x10"), PROTOCOL),
    "length above 64 bits": Case(raw("Content-Length: " + "9" * 30), TOO_LARGE),
    "length of 10 GB": Case(raw("Content-Length: 10000000000"), TOO_LARGE),
    "length with spaces": Case(raw(f"Content-Length:   {len(PAGE)}   ")),
    "length twice": Case(raw(*[f"Content-Length: {len(PAGE)}"] * 2)),
    "two lengths": Case(raw(f"Content-Length: {len(PAGE)}", "Content-Length: 5"), PROTOCOL),
    "length as a list": Case(raw(f"Content-Length: {len(PAGE)}, {len(PAGE)}")),
    "length and chunks": Case(chunked(chunk(), LAST, lines=["Content-Length: 3"])),
    "until the end": Case(raw()),
    "until the end in HTTP/1.0": Case(raw(status=b"HTTP/1.0 200 OK")),
    "204 with a body": Case({"/": wire(raw(status=b"HTTP/1.1 204 None"), end="close")}, "-"),
    "205 with a body": Case(sized(status="205 Reset Content")),
    "206 unasked": Case(sized("Content-Range: bytes 0-9/99", status="206 Partial")),
    "304 unasked": Case(raw(status=b"HTTP/1.1 304 Not Modified", body=b""), dead("status/304")),
}

CHUNKS = {
    "extensions and trailers": Case(
        chunked(
            b'%x;a="b;c"\r\n' % len(PAGE), PAGE, b"\r\n0\r\nContent-Length: 1\r\nContent-Encoding: br\r\n\r\n"
        )
    ),
    "leading zeros": Case(chunked(b"0000000", chunk(), LAST)),
    "upper case": Case(chunked(b"%X\r\n%s\r\n" % (len(PAGE), PAGE), LAST)),
    "size of 20 digits": Case(chunked(b"F" * 20 + b"\r\n", PAGE), PROTOCOL),
    "size of 16 digits": Case(chunked(b"F" * 16 + b"\r\n", PAGE), PROTOCOL),
    "negative size": Case(chunked(b"-5\r\nhello\r\n", LAST), PROTOCOL),
    "no size": Case(chunked(b"\r\n", PAGE, LAST), PROTOCOL),
    "size with 0x": Case(chunked(b"0x5\r\nhello\r\n", LAST), PROTOCOL),
    "size in letters": Case(chunked(chunk(), b"zz\r\n", LAST), PROTOCOL),
    "size ends at LF": Case(chunked(b"%x\n%s\r\n" % (len(PAGE), PAGE), LAST)),
    "data longer than its size": Case(chunked(b"5\r\nhelloXX\r\n", LAST), PROTOCOL),
    "no last chunk": Case(chunked(chunk()), DISCONNECTED),
    "no line after the last chunk": Case(chunked(chunk(), b"0\r\n"), DISCONNECTED),
    "chunk of 8 GB that ends": Case(chunked(b"200000000\r\n", PAGE), DISCONNECTED),
    "last chunk first": Case({"/": wire(chunked(LAST, chunk(), LAST), end="keep")}, "-"),
    "silence between chunks": Case(wire(chunked(chunk()), end="stall"), TIMEOUT),
    "chunks without an end": Case(endless(chunked(chunk()), chunk(b"<p>more" * 9000)), TOO_LARGE),
    "trailers without an end": Case(
        endless(chunked(chunk(), b"0\r\n"), b"X-A: " + b"y" * 1000 + b"\r\n"), PROTOCOL
    ),
    "extension without an end": Case(drip(chunked(b"5;a="), b"b" * 1000), TIMEOUT),
    "not chunked at all": Case(chunked(PAGE), PROTOCOL),
    "Chunked": Case(raw("Transfer-Encoding: Chunked", body=chunk() + LAST)),
    "chunked in HTTP/1.0": Case(
        raw("Transfer-Encoding: chunked", status=b"HTTP/1.0 200 OK", body=chunk() + LAST)
    ),
    "transfer coding identity": Case(raw("Transfer-Encoding: identity")),
    "transfer coding unknown": Case(raw("Transfer-Encoding: rot13"), PROTOCOL),
    "chunked twice": Case(raw("Transfer-Encoding: chunked, chunked", body=chunk() + LAST)),
    "chunks within chunks": Case(chunked(chunk(chunk() + LAST), LAST)),
}

ENCODINGS = {
    "gzip": Case(coded("gzip", GZIP)),
    "X-GZIP": Case(coded("X-GZIP", GZIP)),
    "br": Case(coded("br", brotli.compress(PAGE))),
    "zstd": Case(coded("zstd", zstandard.compress(PAGE))),
    "deflate": Case(coded("deflate", deflated(PAGE, 15))),
    "raw deflate": Case(coded("deflate", deflated(PAGE, -15))),
    "gzip twice": Case(coded("gzip, gzip", gzip.compress(GZIP))),
    "gzip in two headers": Case(sized(*["Content-Encoding: gzip"] * 2, body=gzip.compress(GZIP))),
    "four codings": Case(coded("gzip, gzip, gzip, gzip", GZIP), ENCODING),
    "500 codings": Case(coded(", ".join(["gzip"] * 500), GZIP), ENCODING),
    "coding utf-8": Case(coded("utf-8", PAGE)),
    "coding without a name": Case(coded("", PAGE)),
    "coding of commas": Case(coded(",,,gzip,,", GZIP)),
    "gzip in two members": Case(coded("gzip", gzip.compress(PAGE) + gzip.compress(b"<p>more"))),
    "gzip with a tail": Case(coded("gzip", GZIP + b"tail")),
    "gzip cut": Case(coded("gzip", GZIP[:-12]), ENCODING),
    "gzip without its sum": Case(coded("gzip", GZIP[:-8]), ENCODING),
    "gzip with a wrong sum": Case(coded("gzip", GZIP[:-8] + b"\0" * 8), ENCODING),
    "gzip with a name without an end": Case(coded("gzip", b"\x1f\x8b\x08\x08" + b"a" * 100_000), ENCODING),
    "plain as gzip": Case(coded("gzip", PAGE), ENCODING),
    "plain as br": Case(coded("br", PAGE), ENCODING),
    "plain as zstd": Case(coded("zstd", PAGE), ENCODING),
    "plain as deflate": Case(coded("deflate", PAGE), ENCODING),
    "br cut": Case(coded("br", brotli.compress(PAGE * 9)[:-3]), ENCODING),
    "zstd cut": Case(coded("zstd", zstandard.compress(PAGE)[:-3]), ENCODING),
    "nothing as gzip": Case(coded("gzip", b""), "-"),
    "zstd with a window of 2 GB": Case(coded("zstd", zstd_window(31)), ENCODING),
    "br bomb": Case(lambda *_: coded("br", packed_zeros(_brotli)), TOO_LARGE),
    "zstd bomb": Case(lambda *_: coded("zstd", packed_zeros(zstandard.compress)), TOO_LARGE),
    "deflate bomb": Case(lambda *_: coded("deflate", packed_zeros(zlib.compress)), TOO_LARGE),
    "bomb in a bomb": Case(lambda *_: coded("gzip, br", _brotli(packed_zeros(gzip.compress))), TOO_LARGE),
}

MARKUP = {
    "nothing": Case(Answer(b""), "-"),
    "one byte": Case(Answer(b"<"), "-"),
    "bytes of a picture": Case(
        page("image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4), dead("callback")
    ),
    "bytes of a picture as HTML": Case(Answer(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4), "-"),
    "title without an end": Case(Answer(b"<title>ok")),
    "NUL in the title": Case(Answer(b"<title>o\0k</title>"), "o\ufffdk"),
    "title in a comment": Case(Answer(b"<!-- <title>no</title> --><title>ok</title>")),
    "title in a script": Case(Answer(b"<script>'<title>no</title>'</script><title>ok</title>")),
    "10,000 nested elements": Case(Answer(b"<title>ok</title>" + b"<div><b>" * 5000)),
    "10,000 nested tables": Case(Answer(b"<title>ok</title>" + b"<table><td>" * 10_000)),
    "10,000 nested forms and selects": Case(
        Answer(b"<title>ok</title>" + b"<form><select><option>" * 10_000)
    ),
    "10,000 nested frame sets": Case(Answer(b"<title>ok</title>" + b"<frameset>" * 10_000)),
    "attribute of 1 MB": Case(Answer(b"<title>ok</title><p a='" + b"x" * MB + b"'>")),
    "entities": Case(
        Answer(b"<title>&#xD800;&#0;&#x110000;&bogus;&amp</title>"), "\ufffd\ufffd\ufffd&bogus;&"
    ),
    "XML with a file": Case(
        page(
            "application/xml",
            b'<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/passwd">]><r><title>ok</title><t>&e;</t></r>',
        )
    ),
    "XML with a DTD elsewhere": Case(
        page("application/xml", b'<!DOCTYPE r SYSTEM "/decoy.dtd"><r><title>ok</title></r>')
    ),
    "XML with parameter entities": Case(
        page("text/xml", b'<!DOCTYPE r [<!ENTITY % p SYSTEM "/decoy">%p;]><r><title>ok</title></r>')
    ),
    "XML cut": Case(page("text/xml", b"<r><title>ok</title><a><b"), "ok"),
    "JSON": Case(page("application/json", b'{"title": "ok"}')),
    "JSON with a byte order mark": Case(page("application/json", b'\xef\xbb\xbf{"title": "ok"}')),
    "JSON with a key twice": Case(page("application/json", b'{"title": "no", "title": "ok"}')),
    "JSON cut": Case(page("application/json", b'{"title": "ok"'), dead("callback")),
    "JSON of NaN": Case(page("application/json", b'{"title": "ok", "a": NaN}')),
    "JSON with a number of 100,000 digits": Case(
        page("application/json", b'{"title": "ok", "a": ' + b"9" * 100_000 + b"}"), dead("callback")
    ),
    "JSON with half a pair": Case(page("application/json", b'{"title": "\\ud800"}'), "\ufffd"),
}


def links(*hrefs, more=""):
    return {"/": Answer(document("".join(f'<a href="{href}">x</a>' for href in hrefs) + more))}


LINKS = {
    "schemes of browsers": Case(
        links("javascript:alert(1)", "data:text/html,x", "mailto:a@b", "tel:1", "blob:x", "about:blank"),
        refused={"scheme": 6},
    ),
    "files": Case(
        links("file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:70/_"), refused={"scheme": 3}
    ),
    "URLs of nobody": Case(
        links(
            "http://[::1/", "http://a b/", "http:///", "http://%00/", "http://a:99999/", "http://1.2.3.4.5/"
        ),
        refused={"unparsable": 6},
    ),
    "URL of 100 KB": Case(links("/decoy" + "a" * 100_000), refused={"length": 1}),
    "addresses of the own network": Case(
        links(
            "http://10.0.0.1/CASE",
            "http://0xa9fea9fe/CASE",
            "http://2852039166/CASE/2",
            "http://[::ffff:10.0.0.1]/CASE",
        ),
        {
            "/": "ok",
            "http://10.0.0.1/CASE": dead("forbidden"),
            "http://169.254.169.254/CASE": dead("forbidden"),
            "http://169.254.169.254/CASE/2": dead("forbidden"),
            "http://[::ffff:a00:1]/CASE": dead("forbidden"),
        },
    ),
    "closed port": Case(links("http://HOST:1/"), {"/": "ok", "http://HOST:1/": CONNECT}),
    "control characters": Case(
        links("/le\taf", "\n/leaf ", "\\leaf", "/%2e%2e/leaf", "/./a/../../leaf"), BOTH
    ),
    "NUL and half a pair": Case(links("/leaf#\0", "/leaf#&#xD800;"), BOTH),
    "user and password": Case(links("http://user:secret@HOST:PORT/leaf"), BOTH),
    "base of another scheme": Case({"/": Answer(b"<base href='javascript:x'>" + LINKED)}, BOTH),
    "base of nobody": Case({"/": Answer(b"<base href='http://[/'>" + LINKED)}, BOTH),
    "two bases": Case({"/": Answer(b"<base href=/><base href=http://10.0.0.1/>" + LINKED)}, BOTH),
    "3,000 links to one page": Case(links(*[f"/leaf#{number}" for number in range(3000)]), BOTH),
    "path that repeats": Case(links("/decoy/a/decoy/a/decoy/a/decoy/a"), refused={"trap_path_repeats": 1}),
    "40 parameters": Case(
        links("/decoy?" + "&amp;".join(f"a{number}=1" for number in range(40))),
        refused={"trap_parameters": 1},
    ),
    "session in the path": Case(
        links("/leaf;jsessionid=1A2B3C4D5E6F7890", "/leaf;jsessionid=99887766554433AA"), BOTH
    ),
}

CHARSETS = {
    name: Case(page(content_type, b"<title>" + title + b"</title>"), expected)
    for name, content_type, title, expected in [
        ("latin-1 as UTF-8", "text/html; charset=utf-8", b"\xe4", "\ufffd"),
        ("latin-1 by its name", "text/html; charset=iso-8859-1", b"\x80\xe4", "€ä"),
        ("UTF-7", "text/html; charset=utf-7", b"+ADw-b+AD4-", "+ADw-b+AD4-"),
        ("charset without an end", 'text/html; charset="utf-8', "ä".encode(), "ä"),
        ("charset of 10 KB", "text/html; charset=" + "x" * 10_000, "ä".encode(), "ä"),
        ("charset twice", "text/html; charset=utf-8; charset=koi8-r", "ä".encode(), "ä"),
        ("overlong UTF-8", "text/html; charset=utf-8", b"\xc0\xbc", "\ufffd\ufffd"),
        ("half a pair in UTF-8", "text/html; charset=utf-8", b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        ("half a character", "text/html; charset=shift_jis", b"a\x81", "a\ufffd"),
        ("UTF-8 with a bad byte", "text/html", "äöü ".encode() * 20 + b"\xff", "äöü " * 20 + "\ufffd"),
        ("declared as UTF-16 in its text", "text/html", b"<meta charset=utf-16>ok", "<meta charset=utf-16>ok"),
        ("EUC-KR", "text/html; charset=ks_c_5601-1987", "한국".encode("euc-kr"), "한국"),
        ("Big5", "text/html; charset=big5", "中文".encode("big5"), "中文"),
        ("GB18030", "text/html; charset=gb2312", "中文".encode("gb18030"), "中文"),
        ("x-user-defined", "text/html; charset=x-user-defined", b"\x80", "\uf780"),
    ]
} | {
    "UTF-16 by its mark": Case(page("text/html; charset=utf-8", "\ufeff<title>ok</title>".encode("utf-16-le"))),
    "UTF-16 without a mark": Case(page("text/html; charset=utf-16", "<title>ok</title>".encode("utf-16-le"))),
    "HZ": Case(page("text/html; charset=hz-gb-2312", PAGE)),
    "meta of UTF-16": Case(page("text/html", b"<meta charset=utf-16><title>ok</title>")),
}  # fmt: skip

STATUSES = {
    f"status {status}": Case(sized(status=f"{status} X"), "ok" if status < 300 else dead(f"status/{status}"))
    for status in (
        201, 203, 226, 299, 300, 305, 306, 400, 401, 402, 403, 404, 405, 407, 408, 410, 416, 418, 421, 425, 429, 451,
        500, 501, 502, 503, 504, 505, 511, 520, 599, 600, 999,
    )
}  # fmt: skip


def busy(value, status=503):
    return then(sized(f"Retry-After: {value}", status=f"{status} X"), Answer(PAGE))


STATUSES |= {
    f"status {status} in broken gzip": Case(
        sized("Content-Encoding: gzip", status=f"{status} X"),
        ENCODING if status == 203 else dead(f"status/{status}"),
    )
    for status in (203, 404, 500)
}

WAITS = {
    "retry after 1": Case(busy(1)),
    "retry after a date in the past": Case(busy("Thu, 01 Jan 1970 00:00:00 GMT")),
    "retry after -5": Case(busy("-5", 429)),
    "retry after soon": Case(busy("soon")),
    "retry after 0.5": Case(busy("0.5", 429)),
    "retry after an impossible date": Case(busy("Xxx, 99 Foo 99999 99:99:99 GMT")),
    "retry after nothing": Case(busy("")),
    "retry after a day": Case(busy(86_400), dead("status/503")),
    "retry after 10^400": Case(busy("1" + "0" * 400, 429), dead("status/429")),
    "retry after a date in 2099": Case(busy("Thu, 01 Jan 2099 00:00:00 GMT"), dead("status/503")),
    "retry after 10^400 with a page": Case({"/": sized("Retry-After: 1" + "0" * 400, body=LINKED)}, BOTH),
    "retry after 10^400 without a page": Case(
        {"/": Answer(LINKED), "/leaf": Answer(b"", 404, headers={"Retry-After": "1" + "0" * 400})},
        {"/": "ok", "/leaf": dead("status/404")},
    ),
    **{
        f"crawl delay {value}": Case(
            robots(f"User-agent: *\nCrawl-delay: {value}", **{"/": Answer(LINKED)}), BOTH
        )
        for value in ("-1", "nan", "inf", "1e400", "1,5", "0x10", "soon", "99999999999999999999", "0")
    },
}

NO = "User-agent: *\nDisallow: /\n"
FORBIDDEN = {"outcome": {}, "refused": {"robots": 1}}


def robots_reply(reply, **more):
    return {"/robots.txt": reply, **more}


ROBOTS = {
    "retry after a day for robots.txt": Case(
        robots_reply(sized("Retry-After: 86400", status="503 X"), **{"/": Answer(PAGE)}), dead("robots")
    ),
    "all forbidden": Case(robots(NO), **FORBIDDEN),
    "all forbidden, with a mark": Case(robots(b"\xef\xbb\xbf" + NO.encode()), **FORBIDDEN),
    "all forbidden, lines end at CR": Case(robots(NO.replace("\n", "\r")), **FORBIDDEN),
    "all forbidden, as a picture": Case(robots_reply(page("image/png", NO.encode())), **FORBIDDEN),
    "all forbidden, with gzip": Case(robots_reply(coded("gzip", gzip.compress(NO.encode()))), **FORBIDDEN),
    "all forbidden, after a redirect": Case(
        {"/robots.txt": moved("/other.txt"), "/other.txt": page("text/plain", NO.encode())}, **FORBIDDEN
    ),
    "all forbidden, in capitals": Case(robots(NO.upper()), **FORBIDDEN),
    "all forbidden, after 1 MB without a line": Case(robots("#" + "x" * MB + "\n" + NO)),
    "all forbidden, after NULs": Case(robots(b"\0\0\0\n" + NO.encode()), **FORBIDDEN),
    "forbidden to another": Case(robots("User-agent: other\nDisallow: /\n")),
    "forbidden by encoded path": Case(
        robots("User-agent: *\nDisallow: /%6ceaf\n", **{"/": Answer(LINKED)}), "ok", {"robots": 1}
    ),
    "rules that backtrack": Case(
        robots(
            "User-agent: *\nDisallow: /" + "*a" * 2000 + "$\n",
            **{"/": Answer(document(f"<a href=/{'a' * 1500}>"))},
        ),
        {"/": "ok", "/" + "a" * 1500: "ok"},
    ),
    "20,000 rules": Case(robots("User-agent: *\n" + "".join(f"Disallow: /x{n}*y\n" for n in range(20_000)))),
    "a page as robots.txt": Case(robots_reply(Answer(b"<html>Disallow: /" * 1000))),
    "robots.txt of random bytes": Case(robots(bytes(range(256)) * 400)),
    "robots.txt in UTF-16": Case(robots(NO.encode("utf-16"))),
    "robots.txt with 401": Case(robots_reply(Answer(NO.encode(), 401))),
    "robots.txt with 403": Case(robots_reply(Answer(NO.encode(), 403))),
    "robots.txt with 204": Case(robots_reply(Answer(b"", 204))),
    "robots.txt with 500, once": Case(robots_reply(then(Answer(b"", 500), Answer(b"")))),
    "robots.txt with 503, once": Case(
        robots_reply(then(Answer(b"", 503), page("text/plain", NO.encode()))), **FORBIDDEN
    ),
    "robots.txt moved for ever": Case(robots_reply(moved("/robots.txt"))),
    "robots.txt moved to nowhere": Case(robots_reply(moved("http://["))),
    "robots.txt moved to a file": Case(robots_reply(moved("file:///etc/passwd"))),
    "robots.txt moved into the own network": Case(
        robots_reply(moved("http://10.0.0.1/robots.txt")), dead("forbidden")
    ),
    "robots.txt without an end": Case(
        robots_reply(endless(raw(body=NO.encode()), b"# more\n" * 9000)), **FORBIDDEN
    ),
    "robots.txt as a bomb": Case(robots_reply(lambda *_: coded("gzip", packed_zeros(gzip.compress)))),
    "robots.txt with 404, in broken gzip": Case(
        robots_reply(Answer(b"no", 404, headers={"Content-Encoding": "gzip"}))
    ),
    "robots.txt in broken gzip": Case(robots_reply(coded("gzip", NO.encode())), ENCODING),
    "robots.txt in broken chunks": Case(robots_reply(chunked(b"zz\r\n")), PROTOCOL),
    "robots.txt is no HTTP": Case(robots_reply(b"SSH-2.0\r\n"), PROTOCOL),
    "robots.txt is silence": Case(robots_reply(wire(end="stall")), TIMEOUT),
    "robots.txt is reset": Case(robots_reply(wire(end="reset")), CONNECT),
}

REDIRECTS = {
    "to itself": Case(moved("/"), dead("redirect/loop")),
    "in a circle": Case({"/": moved("/b"), "/b": moved("/")}, {"/b": dead("redirect/loop")}),
    "on and on": Case(
        {
            path: moved(f"/{number + 1}")
            for number, path in enumerate(["/", *(f"/{n}" for n in range(1, 40))])
        },
        {"/20": dead("redirect/limit")},
    ),
    "no location": Case(Answer(b"", 302), dead("redirect/location")),
    "empty location": Case(moved(""), dead("redirect/location")),
    "unparsable location": Case(moved("http://["), dead("redirect/location")),
    "to a port above 65535": Case(moved("http://127.0.0.1:65536/"), dead("redirect/location")),
    "to ftp": Case(moved("ftp://127.0.0.1/"), dead("redirect/scheme")),
    "to javascript": Case(moved("javascript:alert(1)"), dead("redirect/scheme")),
    "to data": Case(moved("data:text/html,x"), dead("redirect/scheme")),
    "to a file": Case(moved("file:///etc/passwd"), dead("redirect/scheme")),
    "to metadata": Case(
        moved("http://169.254.169.254/CASE"), {"http://169.254.169.254/CASE": dead("forbidden")}
    ),
    "to the own network, octal": Case(
        moved("http://012.0.0.01/CASE"), {"http://10.0.0.1/CASE": dead("forbidden")}
    ),
    "to a closed port": Case(moved("http://HOST:1/"), {"http://HOST:1/": CONNECT}),
    "to the same host without a scheme": Case(moved("//HOST:PORT/leaf"), {"/leaf": "ok"}),
    "with backslashes": Case(moved("\\leaf"), {"/leaf": "ok"}),
    "with a fragment and spaces": Case(moved("  /leaf#a b  "), {"/leaf": "ok"}),
    "in UTF-8": Case(
        {"/": sized("Location: /ä", status="302 X", body=b""), "/%C3%A4": Answer(PAGE)}, {"/%C3%A4": "ok"}
    ),
    "in latin-1": Case(
        {"/": sized(b"Location: /\xe4", status="302 X", body=b""), "/%E4": Answer(PAGE)}, {"/%E4": "ok"}
    ),
    "to a URL of 5,000 characters": Case(moved("/" + "a" * 5000), {}, {"length": 1}),
    "two locations": Case(sized("Location: /leaf", "Location: /decoy", status="302 X"), PROTOCOL),
    "with line breaks encoded": Case(
        {"/": moved("/x%0d%0aX-A:%20b"), "/x%0d%0aX-A:%20b": Answer(PAGE)}, {"/x%0d%0aX-A:%20b": "ok"}
    ),
    "to a user with a password": Case(moved("http://user:secret@HOST:PORT/leaf"), {"/leaf": "ok"}),
    **{
        f"{status} to a page": Case(moved("/leaf", status), {"/leaf": "ok"})
        for status in (301, 303, 307, 308)
    },
    "new cookie each time": Case(
        lambda _visit, count: moved("/", 302, **{"Set-Cookie": f"n={count}"}), dead("redirect/limit")
    ),
    "body that never ends": Case(
        endless(raw("Location: /leaf", status=b"HTTP/1.1 302 X"), b"x" * 60_000), TOO_LARGE
    ),
    "broken body": Case(
        raw("Location: /leaf", "Content-Encoding: gzip", status=b"HTTP/1.1 302 X"), {"/leaf": "ok"}
    ),
}

COOKIES = {
    "plain": Case(cookies("a=b"), jar("a=b")),
    "for another host": Case(cookies("a=b; Domain=example.com"), jar("no cookie")),
    "for a public suffix": Case(cookies("a=b; Domain=.com"), jar("no cookie")),
    "secure over http": Case(cookies("a=b; Secure"), jar("no cookie")),
    "prefix of secure cookies": Case(cookies("__Host-a=b; Path=/"), jar("no cookie")),
    "expired": Case(cookies("a=b", "a=b; Max-Age=0"), jar("no cookie")),
    "invalid date": Case(cookies("a=b; Expires=never"), jar("a=b")),
    "age beyond all bounds": Case(cookies("a=b; Max-Age=" + "9" * 400), jar("a=b")),
    "age in letters": Case(cookies("a=b; Max-Age=long"), jar("a=b")),
    "another path": Case(cookies("a=b; Path=/decoy"), jar("no cookie")),
    "no name": Case(cookies("=b"), jar("b")),
    "control character": Case(cookies("a=b\x01c"), jar("no cookie")),
    "cookie of 5,000 characters": Case(cookies("a=" + "b" * 5000), jar("no cookie")),
    "semicolons": Case(cookies(";;;;", "=;=;="), jar("no cookie")),
    "bytes beyond ASCII": Case({"/": sized(b"Set-Cookie: a=\xe4", body=LINKED), "/leaf": echo}, jar("a=ä")),
}

GROUPS = {
    "headers": HEADERS, "length": LENGTHS, "chunks": CHUNKS, "coding": ENCODINGS, "markup": MARKUP, "links": LINKS,
    "charset": CHARSETS, "status": STATUSES, "wait": WAITS, "robots": ROBOTS, "redirect": REDIRECTS, "cookie": COOKIES,
}  # fmt: skip
CASES: dict[str, Case] = {
    f"{group}: {name}": case for group, cases in GROUPS.items() for name, case in cases.items()
}


class HostileWeb:
    """Serves each case at its address. The last addresses have only ordinary pages."""

    def __init__(self):
        self._replies = [case.replies() for case in CASES.values()]
        self._visits = Counter()

    def __call__(self, visit):
        replies = self._replies[visit.origin_index] if visit.origin_index < len(self._replies) else {}
        reply = replies.get(visit.target)
        if reply is None:
            if visit.path == "/robots.txt":
                return Answer(b"", 404)
            return Answer(PAGE)
        self._visits[visit.host, visit.target] += 1
        if callable(reply):
            reply = reply(visit, self._visits[visit.host, visit.target])
        if isinstance(reply, bytes):
            return WireAnswer([reply])
        if isinstance(reply, Answer) and visit.origin_index < len(self._replies):
            return _placed(reply, visit, visit.origin_index)
        return reply


def placed(text, origin, number):
    """Replace the placeholders of a case with its address and number."""
    host, _, port = origin.partition(":")
    return text.replace("HOST", host).replace("PORT", port).replace("CASE", str(number))


def _placed(answer, visit, number):
    if answer.status == 200 and len(answer.body) > 10_000:
        return answer
    origin = visit.origins[number]
    if location := answer.headers.get("Location"):
        return Answer(
            answer.body,
            answer.status,
            headers={**answer.headers, "Location": placed(location, origin, number)},
        )
    if b"HOST" in answer.body or b"CASE" in answer.body:
        return Answer(
            placed(answer.body.decode(), origin, number).encode(), answer.status, answer.content_type
        )
    return answer
