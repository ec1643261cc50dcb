"""Network and server faults, each as a page with that fault."""

import gzip
import itertools
import zlib
from functools import cache

import brotli
import zstandard

from sites.cases import Case, Reason, http_head, reason
from skitter.testing import Answer, WireAnswer

GONE_AGAIN = reason("disconnected", "protocol")
BIG = 30_000_000
BOMB = 200_000_000


def good(_visit, _count, page):
    return Answer(page.encode())


def fails(status, times, **headers):
    """Return an error status for the first ``times`` visits."""

    def answer(visit, count, page):
        return good(visit, count, page) if count > times else Answer(b"<p>no", status, headers=headers)

    return answer


def first(broken, times=1):
    """Behave like ``broken`` for the first visits, then correctly."""

    def answer(visit, count, page):
        return good(visit, count, page) if count > times else broken(visit, count, page)

    return answer


def reset(_visit, _count, _page):
    return WireAnswer([], end="reset")


def reset_in_body(_visit, _count, page):
    return WireAnswer([http_head("Content-Length: 9999"), page.encode(), 0.05], end="reset")


def stall(_visit, _count, _page):
    return WireAnswer([], end="stall")


def stall_in_body(_visit, _count, page):
    return WireAnswer([http_head("Content-Length: 9999"), page.encode()], end="stall")


def short(_visit, _count, page):
    body = page.encode()
    return WireAnswer([http_head(f"Content-Length: {len(body) + 500}"), body])


def _chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def chunked(_visit, _count, page):
    """Send small chunks, one with an extension, and a trailer."""
    body = page.encode()
    pieces = [_chunk(body[i : i + 7]) for i in range(0, len(body), 7)]
    pieces[0] = pieces[0].replace(b"\r\n", b';name="value"\r\n', 1)
    wire = [http_head("Transfer-Encoding: chunked"), b"".join(pieces), b"0\r\nX-Trailer: yes\r\n\r\n"]
    return WireAnswer(wire, end="keep")


def chunks_cut(_visit, _count, page):
    return WireAnswer([http_head("Transfer-Encoding: chunked"), _chunk(page.encode())])


def chunks_garbled(_visit, _count, page):
    wire = [http_head("Transfer-Encoding: chunked"), _chunk(page.encode()), b"zz\r\nwhat?\r\n0\r\n\r\n"]
    return WireAnswer(wire)


def trickle(_visit, _count, page):
    """Send slowly, with short pauses only; the response takes about two seconds."""
    body = page.encode()
    step = len(body) // 20 + 1
    pieces = [body[i : i + step] for i in range(0, len(body), step)]
    wire = itertools.chain.from_iterable((piece, 0.1) for piece in pieces)
    return WireAnswer([http_head(f"Content-Length: {len(body)}"), *wire], end="keep")


def trickle_endless(_visit, _count, page):
    wire = itertools.chain.from_iterable((b" ", 0.1) for _ in itertools.count())
    return WireAnswer(itertools.chain([http_head(), page.encode()], wire))


def endless(_visit, _count, page):
    return WireAnswer(itertools.chain([http_head(), page.encode()], itertools.repeat(b"<p>more" * 9000)))


def big(_visit, _count, page):
    """Send the links after 30 MB of text."""
    top, body_tag, rest = page.partition("<body>")
    return Answer(f"{top}{body_tag}{'<p>much text'.ljust(1000) * (BIG // 1000)}{rest}".encode())


def until_close(_visit, _count, page):
    return WireAnswer([http_head().replace(b"HTTP/1.1", b"HTTP/1.0"), page.encode()])


def early_hints(_visit, _count, page):
    body = page.encode()
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
    return WireAnswer([hints, 0.01, http_head(f"Content-Length: {len(body)}"), body], end="keep")


def no_http(_visit, _count, _page):
    return WireAnswer([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])


def header_flood(_visit, _count, page):
    line = b"X-Flood: " + b"y" * 8000 + b"\r\n"
    return WireAnswer([b"HTTP/1.1 200 OK\r\n", *[line] * 500, b"\r\n", page.encode()])


def packed(coding, pack):
    """Send a compressed body to a client that accepts it."""

    def answer(visit, _count, page):
        if coding not in visit.headers.get("accept-encoding", ""):
            return Answer(page.encode())
        return Answer(pack(page.encode()), headers={"Content-Encoding": coding})

    return answer


def mislabelled(coding, spoil):
    """Declare a coding that does not match the body."""

    def answer(_visit, _count, page):
        return Answer(spoil(page.encode()), headers={"Content-Encoding": coding})

    return answer


def _raw_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def _damaged_gzip(data):
    packed = bytearray(gzip.compress(data, mtime=0))
    packed[len(packed) // 2 :] = bytes(255 - byte for byte in packed[len(packed) // 2 :])
    return bytes(packed)


def _cut_gzip(data):
    packed = gzip.compress(data, mtime=0)
    return packed[: len(packed) * 2 // 3]


@cache
def _bomb():
    packer = zlib.compressobj(level=1, wbits=31)
    block = bytes(1_000_000)
    return b"".join(packer.compress(block) for _ in range(BOMB // len(block))) + packer.flush()


def bomb(_visit, _count, _page):
    return Answer(_bomb(), headers={"Content-Encoding": "gzip"})


FAULTS = {
    "error once": Case(fails(500, 1), pages=6),
    "error twice": Case(fails(500, 2), pages=4),
    "error always": Case(fails(500, 10**9), Reason(status=500), pages=4),
    "bad gateway once": Case(fails(502, 1)),
    "unavailable once": Case(fails(503, 1)),
    "too many requests once": Case(fails(429, 1, **{"Retry-After": "1"}), pages=3),
    "not found": Case(fails(404, 10**9), Reason(status=404)),
    "gone": Case(fails(410, 10**9), Reason(status=410), pages=1),
    "reset once": Case(first(reset), pages=4),
    "reset always": Case(reset, reason("connect", "disconnected")),
    "reset in the body once": Case(first(reset_in_body)),
    "reset in the body": Case(reset_in_body, reason("disconnected")),
    "stall once": Case(first(stall)),
    "stall always": Case(stall, reason("timeout")),
    "stall in the body": Case(stall_in_body, reason("timeout")),
    "short once": Case(first(short), pages=4),
    "short always": Case(short, GONE_AGAIN),
    "chunked": Case(chunked, pages=4),
    "chunks cut once": Case(first(chunks_cut)),
    "chunks cut": Case(chunks_cut, GONE_AGAIN),
    "chunks garbled": Case(chunks_garbled, GONE_AGAIN),
    "trickle": Case(trickle, pages=3),
    "trickle without end": Case(trickle_endless, reason("timeout")),
    "endless body": Case(endless, reason("too_large"), pages=1),
    "30 MB": Case(big, pages=1),
    "body until close": Case(until_close),
    "early hints": Case(early_hints),
    "no HTTP": Case(no_http, GONE_AGAIN, pages=1),
    "header flood": Case(header_flood, reason("disconnected", "protocol", "too_large"), pages=1),
    "gzip": Case(packed("gzip", gzip.compress), pages=4),
    "deflate": Case(packed("deflate", zlib.compress)),
    "raw deflate": Case(packed("deflate", _raw_deflate)),
    "brotli": Case(packed("br", brotli.compress)),
    "zstandard": Case(packed("zstd", zstandard.compress)),
    "damaged gzip": Case(mislabelled("gzip", _damaged_gzip), reason("encoding")),
    "cut gzip": Case(mislabelled("gzip", _cut_gzip), reason("encoding")),
    "no gzip at all": Case(mislabelled("gzip", bytes), reason("encoding"), pages=1),
    "gzip bomb": Case(bomb, reason("too_large"), pages=1),
}
