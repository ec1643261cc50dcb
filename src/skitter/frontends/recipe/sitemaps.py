"""Sitemaps: the URLs they list (sitemaps.org protocol), the sitemaps an index names, those of a robots.txt."""

from __future__ import annotations

import zlib

import msgspec
from lxml import etree

from skitter.frontends.recipe.context import PageError
from skitter.response import Response

_LARGEST = 64 * 1024 * 1024
"""Bytes of an unpacked sitemap; the protocol allows 50 MB."""


class Sitemap(msgspec.Struct):
    """What a sitemap leads to."""

    pages: list[str] = []
    sitemaps: list[str] = []


def read_sitemap(response: Response) -> Sitemap:
    """Read a sitemap, an index, either of them packed, a text list, or a robots.txt.

    Raises :class:`~skitter.frontends.recipe.context.PageError` for anything else.
    """
    body = _unpacked(response)
    if response.url.partition("?")[0].endswith("/robots.txt"):
        return _of_robots(body)
    if not body.lstrip().startswith(b"<"):
        lines = body.decode("utf-8", "replace").split()
        return Sitemap(pages=[line for line in lines if line.startswith(("http://", "https://"))])
    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True, huge_tree=False)
    root = etree.fromstring(body, parser)
    kind = "" if root is None else etree.QName(root).localname
    if kind not in {"urlset", "sitemapindex"}:
        raise PageError(f"{response.url} is no sitemap", remedy="name a sitemap, or its robots.txt")
    found = [
        loc.text.strip()
        for entry in root
        for loc in entry
        if isinstance(loc.tag, str) and etree.QName(loc).localname == "loc" and loc.text
    ]
    return Sitemap(sitemaps=found) if kind == "sitemapindex" else Sitemap(pages=found)


def _unpacked(response: Response) -> bytes:
    body = response.body
    if not body.startswith(b"\x1f\x8b"):
        return body
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(body, _LARGEST)
    except zlib.error as error:
        raise PageError(f"{response.url} cannot be unpacked: {error}", remedy="look at the file") from None
    if unpacker.unconsumed_tail:
        raise PageError(
            f"{response.url} unpacks to more than {_LARGEST} bytes", remedy="it breaks the protocol"
        )
    return unpacked


def _of_robots(body: bytes) -> Sitemap:
    pairs = [line.partition(":") for line in body.decode("utf-8", "replace").splitlines()]
    return Sitemap(sitemaps=[url.strip() for name, _, url in pairs if name.strip().lower() == "sitemap"])
