"""The faulty site: a patient client gets exactly the expected results."""

import asyncio
import zlib

import aiohttp
import pytest

from sites.charsets import CHARSETS
from sites.faults import FAULTS
from sites.faulty import RETRIES, FaultySite
from sites.redirects import ASTRAY, HOPS

LIMIT = 32_000_000
PATIENCE = aiohttp.ClientTimeout(total=100.0)
STALLS = {
    "stall once": 1,
    "stall always": RETRIES + 1,
    "stall in the body": RETRIES + 1,
    "trickle without end": 1,
}
"""Attempts that end only when the client gives up. All others end by themselves, however slow the machine is."""
GIVES_UP = aiohttp.ClientTimeout(total=12.0, sock_read=4.0)


class Lost(Exception):
    pass


def unpack(body, coding):
    if coding is None:
        return body
    raw = coding == "deflate" and body[:1] != b"\x78"
    unpacker = zlib.decompressobj(wbits={"gzip": 31, "deflate": -15 if raw else 15}[coding])
    try:
        body = unpacker.decompress(body, LIMIT)
    except zlib.error as error:
        raise Lost("damaged") from error
    if not unpacker.eof:
        raise Lost("cut, or too large")
    return body


async def obtain(session, url, attempts, stalls=0):
    """Return status and body, or raise the last error. The first attempts may stall."""
    for attempt in range(attempts):
        patience = GIVES_UP if attempt < stalls else PATIENCE
        try:
            async with session.get(url, allow_redirects=False, timeout=patience) as response:
                body = bytearray()
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > LIMIT:
                        raise Lost("too large")
                body = unpack(bytes(body), response.headers.get("Content-Encoding"))
            if response.status < 429 or attempt == attempts - 1:
                return response.status, body
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if attempt == attempts - 1:
                raise Lost(repr(error)) from error
    raise Lost("no attempt")


@pytest.fixture
def site():
    return FaultySite(plain_pages=5)


async def test_each_available_page_is_fetched_in_three_attempts_and_the_others_are_not(serve, site):
    server = serve(site, hosts=2)
    truth = site.expected_pages(server.origins)
    connector = aiohttp.TCPConnector(limit=64)
    async with aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        headers={"Accept-Encoding": "gzip, deflate"},
    ) as session:

        async def is_fetched(url):
            fault = truth.faults.get(url)
            attempts = 1 if fault == "trickle without end" else RETRIES + 1
            try:
                status, _body = await obtain(session, url, attempts, STALLS.get(fault, 0))
            except Lost:
                return False
            return status == 200

        urls = [*truth.pages, *truth.dead]
        had = dict(zip(urls, await asyncio.gather(*map(is_fetched, urls)), strict=True))
    wrong = {url: truth.faults.get(url) for url in urls if had[url] != (url in truth.pages)}
    assert wrong == {}


def test_every_fault_and_charset_occurs(site):
    assert set(site.expected_pages(["a", "b"]).faults.values()) == {*FAULTS, *CHARSETS, "none"}


def test_pages_and_dead_letters_exclude_each_other(site):
    truth = site.expected_pages(["a", "b"])
    assert not truth.pages.keys() & truth.dead.keys()
    assert all(fault.kinds or fault.status for fault in truth.dead.values())


def test_a_small_body_limit_makes_the_big_page_a_dead_letter(site):
    truth = site.expected_pages(["a", "b"], body_limit=10_000_000)
    (big,) = (url for url, name in truth.faults.items() if name == "30 MB")
    assert truth.dead[big].kinds == {"too_large"}
    assert big not in truth.pages
    assert f"http://a/leaf{big.removeprefix('http://a')}" not in truth.pages


@pytest.mark.parametrize("name", CHARSETS)
def test_the_title_is_there_in_the_bytes_of_its_charset(serve, site, name):
    server = serve(site, hosts=2)
    truth = site.expected_pages(server.origins)
    url = next(url for url, fault in truth.faults.items() if fault == name)

    async def fetch():
        async with aiohttp.ClientSession() as session:
            return await obtain(session, url, 1)

    _status, body = asyncio.run(fetch())
    encodings = ("utf-8", "utf-16-le", "utf-16-be", "windows-1251", "koi8-r", "shift_jis", "latin-1")
    assert any(f"<title>{truth.pages[url]}<".encode(coding, "replace") in body for coding in encodings)


async def test_redirects_go_where_the_table_says(serve, site):
    server = serve(site, hosts=2)
    async with aiohttp.ClientSession() as session:

        async def location(path):
            async with session.get(server.url_of(path), allow_redirects=False) as response:
                return response.status, response.headers["Location"]

        assert await location("/r/308") == (308, "/target/308.html")
        assert await location("/r/loop/a") == (302, "/r/loop/b")
        assert await location("/r/loop/b") == (302, "/r/loop/a")
        assert await location("/r/chain") == (302, "/r/chain/1")
        assert await location(f"/r/hop/{HOPS - 1}") == (302, f"/r/hop/{HOPS}")
        assert (await location("/r/other-host"))[1] == server.url_of("/target/other-host.html", 1)
    assert sum(len(group) for group in ASTRAY) == HOPS + 6
