"""Names are resolved again when their answers expire, and not earlier."""

import asyncio

import pytest

from servers.name_server import NameServer
from skitter.errors import FetchError
from skitter.fetch import resolver
from skitter.fetch.http import HttpFetcher
from skitter.request import Request
from skitter.settings import Settings
from skitter.testing import GeneratedSite


@pytest.fixture
def port(serve):
    return serve(GeneratedSite(pages=2), hosts=2).port


async def fetcher_of(names, **settings):
    # A query is sent again after a quarter of the limit, even if the name server has no time to answer.
    limits = {"connect_timeout": 60, **settings}
    fetcher = HttpFetcher(Settings(dns_servers=[names.address], reuse_connections=False, **limits))
    await fetcher.open()
    return fetcher


async def test_an_answer_is_used_for_its_ttl(port):
    with NameServer({"a.test": ("127.0.0.1", "127.0.0.2")}, ttl=300) as names:
        fetcher = await fetcher_of(names)
        request = Request(f"http://a.test:{port}/")
        found = [(await fetcher.fetch(request)).ip for _ in range(3)]
        assert (found, names.asked["a.test"]) == (["127.0.0.1"] * 3, 1)
        await fetcher.close()


async def test_an_answer_is_replaced_after_its_ttl(port):
    with NameServer({"a.test": ("127.0.0.1", "127.0.0.2")}, ttl=2) as names:
        fetcher = await fetcher_of(names)
        request = Request(f"http://a.test:{port}/")
        assert (await fetcher.fetch(request)).ip == "127.0.0.1"
        async with asyncio.timeout(60):
            while (await fetcher.fetch(request)).ip == "127.0.0.1":
                await asyncio.sleep(0.05)
        assert (await fetcher.fetch(request)).ip == "127.0.0.2"
        await fetcher.close()


async def test_libcurl_forgets_an_origin_on_request(port, monkeypatch):
    """Otherwise it would continue with the old address."""
    monkeypatch.setattr(resolver, "_MAX_KNOWN", 1)
    with NameServer({"a.test": "127.0.0.1", "b.test": "127.0.0.1"}) as names:
        fetcher = await fetcher_of(names)
        assert (await fetcher.fetch(Request(f"http://a.test:{port}/"))).ip == "127.0.0.1"
        assert (await fetcher.fetch(Request(f"http://b.test:{port}/"))).ip == "127.0.0.1"
        monkeypatch.setattr(fetcher._resolver, "knows", lambda _: True)
        names.names.clear()
        with pytest.raises(FetchError, match=r"ould not resolve"):
            await fetcher.fetch(Request(f"http://a.test:{port}/"))
        assert (await fetcher.fetch(Request(f"http://b.test:{port}/"))).ip == "127.0.0.1"
        await fetcher.close()
