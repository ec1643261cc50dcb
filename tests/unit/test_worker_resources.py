"""Whatever a worker has opened or started ends with it, also if something else fails."""

import asyncio
from types import SimpleNamespace

import pytest

from crawl_harness import CrawlHarness, MemoryStore, Scripted
from skitter import Request, Spider
from skitter.errors import CrawlFailed, SettingsError, StoreError
from skitter.fetch.contract import FetcherCapabilities
from skitter.fetch.identity.contract import IdentitySources
from skitter.fetch.identity.fetcher import IdentityFetcher, IdentityRouter
from skitter.fetch.routing import FetcherRule, RoutingFetcher
from skitter.response import Response
from skitter.store.contract import StoreContext
from skitter.worker import routing
from skitter.worker.hooks import Hooks
from skitter.worker.routing import ItemWriter, RoutedStores


class OnePage(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url}


class Tracked(MemoryStore):
    """A store that records whether it is open. ``fails_to_open`` and ``fails_to_close``: raise an error each time."""

    def __init__(self, *, fails_to_open=False, fails_to_close=False):
        super().__init__({})
        self.openings = self.closings = 0
        self.is_open = False
        self.fails_to_open = fails_to_open
        self.fails_to_close = fails_to_close

    async def open(self, context):
        if self.fails_to_open:
            raise StoreError("the server does not respond")
        self.openings += 1
        self.is_open = True

    async def close(self):
        self.closings += 1
        self.is_open = False
        if self.fails_to_close:
            raise StoreError("the disk is full")


class TrackedFetcher:
    """A fetcher that records whether it is open, as :class:`Tracked` does."""

    def __init__(self, *, fails_to_open=False, fails_to_close=False):
        self.capabilities = FetcherCapabilities()
        self.is_open = False
        self.fails_to_open = fails_to_open
        self.fails_to_close = fails_to_close

    async def open(self):
        if self.fails_to_open:
            raise SettingsError("no browser is installed")
        self.is_open = True

    async def fetch(self, request, *, permit, on_headers=None):
        return Response(request.url, request=request)

    async def close(self):
        assert self.is_open
        self.is_open = False
        if self.fails_to_close:
            raise OSError("the browser hangs")


class Target:
    """An output with one store."""

    def __init__(self, store):
        self.stream = str(id(store))
        self.holds_responses = False
        self.store = lambda: store


@pytest.fixture
def make_crawl(serve, tmp_path):
    def make(spider=OnePage, **settings):
        return CrawlHarness(spider(url=serve(Scripted({"/": []})).url), tmp_path, **settings)

    return make


async def test_all_stores_are_closed_if_one_of_them_cannot_be_opened(make_crawl):
    crawl = make_crawl()
    stores = [Tracked(), Tracked(fails_to_open=True)]
    with pytest.raises(StoreError, match="does not respond"):
        await crawl._opened("w0", stores)
    assert (stores[0].openings, stores[0].is_open) == (1, False)
    assert [store.closings for store in stores] == [1, 1]  # the other one may have connected


async def test_archives_are_closed_if_a_store_cannot_be_opened(make_crawl):
    crawl, archive = make_crawl(), Tracked()

    async def open_archives(worker):
        return await crawl._opened(worker, [archive])

    async def open_stores(worker):
        return await crawl._opened(worker, [Tracked(fails_to_open=True)])

    crawl.open_archives, crawl.open_stores = open_archives, open_stores
    with pytest.raises(StoreError, match="does not respond"):
        await crawl.run()
    assert (archive.openings, archive.is_open) == (1, False)


async def test_stores_are_closed_if_the_fetcher_cannot_be_opened(make_crawl):
    crawl, store = make_crawl(fetcher=TrackedFetcher(fails_to_open=True)), Tracked()

    async def open_stores(worker):
        return await crawl._opened(worker, [store])

    crawl.open_stores = open_stores
    with pytest.raises(SettingsError, match="no browser"):
        await crawl.run()
    assert (store.openings, store.is_open) == (1, False)


async def test_all_stores_are_closed_if_one_of_them_fails_to_close():
    stores = [Tracked(fails_to_close=True), Tracked()]
    for store in stores:
        await store.open(None)
    with pytest.raises(StoreError, match="the disk is full"):
        await ItemWriter(stores, Hooks()).close()
    assert not stores[1].is_open


async def test_the_stores_of_a_route_are_opened_once_although_another_one_fails_at_first(monkeypatch):
    stores = {"file": Tracked(), "server": Tracked(fails_to_open=True)}
    monkeypatch.setattr(routing, "open_item_output", lambda target: Target(stores[target]))
    spider = SimpleNamespace(route_of=lambda request: ("file", "server"))
    routed = RoutedStores(spider, StoreContext("job", "w0", ""))
    page = SimpleNamespace(request=None, items=[{}])
    for _ in range(2):
        ((error, _),) = await routed.group([], [page], [0])
        assert str(error) == "the server does not respond"
    stores["server"].fails_to_open = False
    assert await routed.group([], [page], [0]) == [([*stores.values()], [0])]
    assert [store.openings for store in stores.values()] == [1, 1]
    await ItemWriter([], Hooks(), routed).close()
    assert [store.is_open for store in stores.values()] == [False, False]


async def test_all_stores_of_a_route_are_closed_although_another_one_cannot_be_opened(monkeypatch):
    stores = {"file": Tracked(), "server": Tracked(fails_to_open=True)}
    monkeypatch.setattr(routing, "open_item_output", lambda target: Target(stores[target]))
    spider = SimpleNamespace(route_of=lambda request: ("file", "server"))
    routed = RoutedStores(spider, StoreContext("job", "w0", ""))
    await routed.group([], [SimpleNamespace(request=None, items=[])], [0])
    await ItemWriter([], Hooks(), routed).close()
    assert (stores["file"].openings, stores["file"].is_open) == (1, False)
    assert [store.closings for store in stores.values()] == [1, 1]  # the other one may have connected


async def test_the_opened_fetchers_are_closed_if_another_one_cannot_be_opened():
    fetchers = {"first": TrackedFetcher(), "second": TrackedFetcher(fails_to_open=True)}
    rules = [FetcherRule(url_regexp="x", fetcher="second")]
    with pytest.raises(SettingsError, match="no browser"):
        await RoutingFetcher("first", fetchers, fetchers.get, rules).open()
    assert not fetchers["first"].is_open


async def test_all_fetchers_are_closed_if_one_of_them_fails_to_close():
    fetchers = {name: TrackedFetcher(fails_to_close=True) for name in ("first", "second")}
    routing_fetcher = RoutingFetcher(
        "first", fetchers, fetchers.get, [FetcherRule(url_regexp="x", fetcher="second")]
    )
    await routing_fetcher.open()
    with pytest.raises(OSError, match="hangs"):
        await routing_fetcher.close()
    assert not any(fetcher.is_open for fetcher in fetchers.values())


async def test_a_fetcher_is_closed_if_a_source_of_identity_fails_to_close():
    sources = [TrackedFetcher(fails_to_close=True), TrackedFetcher(fails_to_close=True)]
    inner = TrackedFetcher()
    fetcher = IdentityFetcher(inner, user_agents=sources[0], cookies=sources[1])
    await fetcher.open()
    with pytest.raises(OSError, match="hangs"):
        await fetcher.close()
    assert not any(each.is_open for each in (inner, *sources))


async def test_the_fetchers_of_all_identities_are_closed_if_one_of_them_fails_to_close():
    default, own = TrackedFetcher(), TrackedFetcher(fails_to_close=True)
    chooser = SimpleNamespace(identity_of=lambda request: IdentitySources(user_agents="x"))
    router = IdentityRouter(chooser, default, lambda identity: own)
    await router.open()
    await router.fetch(Request("http://a.test/"))
    with pytest.raises(OSError, match="hangs"):
        await router.close()
    assert not default.is_open
    assert not own.is_open


async def test_tasks_of_a_worker_end_if_a_hook_fails_at_the_start(make_crawl):
    class Starting(OnePage):
        def on_start(self, worker):
            self.task = worker.start_task(asyncio.Event().wait())
            raise ValueError("no password")

    crawl = make_crawl(Starting)
    ran = await crawl.run()
    assert isinstance(ran.failure, CrawlFailed)
    assert crawl.spider.task.cancelled()
