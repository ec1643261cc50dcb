"""Names are looked up again shortly before their answers expire, and not earlier."""

import asyncio

import pytest

from servers.name_server import SILENT, NameServer
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


async def test_an_answer_is_replaced_after_dns_cache_ttl(port):
    with NameServer({"a.test": ("127.0.0.1", "127.0.0.2")}, ttl=3600) as names:
        fetcher = await fetcher_of(names, dns_cache_ttl=1)
        request = Request(f"http://a.test:{port}/")
        assert (await fetcher.fetch(request)).ip == "127.0.0.1"
        async with asyncio.timeout(60):
            while (await fetcher.fetch(request)).ip == "127.0.0.1":
                await asyncio.sleep(0.05)
        await fetcher.close()


async def test_fetches_at_the_same_time_share_one_lookup(port):
    with NameServer({"a.test": "127.0.0.1"}) as names:
        fetcher = await fetcher_of(names)
        names.may_answer.clear()
        urls = [f"http://a.test:{port}/?{number}" for number in range(20)]
        fetches = [asyncio.create_task(fetcher.fetch(Request(url))) for url in urls]
        await asyncio.sleep(0)  # all fetches have started, and none has an answer
        names.may_answer.set()
        assert ({(await fetch).ip for fetch in fetches}, names.asked["a.test"]) == ({"127.0.0.1"}, 1)
        await fetcher.close()


async def test_a_cancelled_fetch_leaves_the_lookup_to_the_others(port):
    with NameServer({"a.test": "127.0.0.1"}) as names:
        fetcher = await fetcher_of(names)
        first, second = (
            asyncio.create_task(fetcher.fetch(Request(f"http://a.test:{port}/"))) for _ in range(2)
        )
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).ip == "127.0.0.1"
        assert (first.cancelled(), names.asked["a.test"]) == (True, 1)
        await fetcher.close()


async def test_no_fetch_waits_while_a_name_is_looked_up_again(port, monkeypatch):
    """The answer is still valid, and the name server does not answer any more."""
    monkeypatch.setattr(resolver, "_FRESH_SHARE", 0.0)
    with NameServer({"a.test": ("127.0.0.1", SILENT)}, ttl=300) as names:
        fetcher = await fetcher_of(names)
        request = Request(f"http://a.test:{port}/")
        async with asyncio.timeout(30):  # half of connect_timeout
            found = [(await fetcher.fetch(request)).ip for _ in range(3)]
            while names.asked["a.test"] < 2:
                await asyncio.sleep(0.01)
        assert found == ["127.0.0.1"] * 3
        await fetcher.close()


async def test_a_name_is_looked_up_again_before_its_answer_expires(port, monkeypatch):
    monkeypatch.setattr(resolver, "_FRESH_SHARE", 0.0)
    with NameServer({"a.test": ("127.0.0.1", "127.0.0.2")}, ttl=3600) as names:
        fetcher = await fetcher_of(names, dns_cache_ttl=3600)
        request = Request(f"http://a.test:{port}/")
        assert (await fetcher.fetch(request)).ip == "127.0.0.1"
        async with asyncio.timeout(60):
            while (await fetcher.fetch(request)).ip == "127.0.0.1":
                await asyncio.sleep(0.01)
        await fetcher.close()


async def test_a_name_that_cannot_be_looked_up_again_keeps_its_answer(port, monkeypatch):
    """It is not looked up for each fetch, either."""
    monkeypatch.setattr(resolver, "_FRESH_SHARE", 0.0)
    with NameServer({"a.test": ("127.0.0.1", None)}, ttl=3600) as names:
        fetcher = await fetcher_of(names, dns_cache_ttl=3600)
        request = Request(f"http://a.test:{port}/")
        await fetcher.fetch(request)
        await fetcher.fetch(request)
        async with asyncio.timeout(60):
            while names.asked["a.test"] < 2 or fetcher._resolver._lookups:
                await asyncio.sleep(0.01)
        asked = names.asked["a.test"]
        assert [(await fetcher.fetch(request)).ip for _ in range(3)] == ["127.0.0.1"] * 3
        assert names.asked["a.test"] == asked
        await fetcher.close()


async def test_libcurl_forgets_an_origin_on_request(port, monkeypatch):
    """Otherwise it would continue with the old address."""
    monkeypatch.setattr(resolver, "_MAX_KNOWN", 1)
    with NameServer({"a.test": "127.0.0.1", "b.test": "127.0.0.1"}) as names:
        fetcher = await fetcher_of(names)
        assert (await fetcher.fetch(Request(f"http://a.test:{port}/"))).ip == "127.0.0.1"
        assert (await fetcher.fetch(Request(f"http://b.test:{port}/"))).ip == "127.0.0.1"
        monkeypatch.setattr(fetcher._resolver, "is_fresh", lambda _: True)
        names.names.clear()
        with pytest.raises(FetchError, match=r"ould not resolve"):
            await fetcher.fetch(Request(f"http://a.test:{port}/"))
        assert (await fetcher.fetch(Request(f"http://b.test:{port}/"))).ip == "127.0.0.1"
        await fetcher.close()
