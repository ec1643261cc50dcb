"""Seeds: streamed, resumable, loaded by one worker, and with clear errors."""

import asyncio

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.errors import FrontierError, SpiderError
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import JobState
from skitter.politeness import Politeness
from skitter.scope import Scope
from skitter.testing import Answer
from skitter.worker.links import LinkCollector
from skitter.worker.seeds import SeedLoader


class Starting(Spider):
    def parse(self, response):
        yield {"path": "/" + response.url.rpartition("/")[2]}


@pytest.fixture
def run(serve, tmp_path):
    async def run_it(spider_class, pages=None, workers=1, **settings):
        site = Scripted(pages if pages is not None else {f"/{number}": [] for number in range(20)})
        spider = spider_class(url=serve(site).url)
        bench = CrawlHarness(spider, tmp_path, **settings)
        ran = await bench.run(workers)
        ran.paths, ran.site, ran.url = sorted(item["path"] for item in ran.items), site, spider.url
        ran.bench = bench
        return ran

    return run_it


async def test_slow_seeds_neither_end_nor_delay_the_crawl(run):
    fetched_before_next = []

    class Slow(Starting):
        async def start(self):
            for number in range(4):
                yield f"{self.url}{number}"
                while len(self.parsed) <= number:
                    await self.progress.wait()
                    self.progress.clear()
                fetched_before_next.append(number)

        def parse(self, response):
            self.parsed.append(response.url)
            self.progress.set()
            yield from super().parse(response)

        parsed, progress = [], asyncio.Event()

    ran = await run(Slow)
    assert (ran.paths, ran.state) == (["/0", "/1", "/2", "/3"], JobState.FINISHED)
    assert fetched_before_next == [0, 1, 2, 3], "each page was fetched while the next seed was not yet known"


@pytest.mark.parametrize("workers", [1, 3])
async def test_several_workers_load_each_seed_once(run, workers):
    class Some(Starting):
        async def start(self):
            for number in range(20):
                yield Request(f"{self.url}{number}")

    ran = await run(Some, workers=workers, frontier="socket")
    assert len(ran.paths) == len(set(ran.paths)) == 20
    assert "refused/duplicate" not in ran.counters


async def test_no_seeds_at_all_are_a_finished_crawl(run):
    class Empty(Starting):
        async def start(self):
            for url in ():
                yield url

    ran = await run(Empty, workers=2)
    assert (ran.state, ran.status.added) == (JobState.FINISHED, 0)


async def test_seeds_that_all_fail_are_dead_letters_of_a_finished_crawl(run):
    class Gone(Starting):
        async def start(self):
            for number in range(3):
                yield f"{self.url}gone{number}"

    ran = await run(Gone)
    assert (ran.state, sorted(ran.letters)) == (JobState.FINISHED, ["/gone0", "/gone1", "/gone2"])


async def test_a_seed_out_of_scope_fails_the_crawl_with_a_remedy(run):
    class Outside(Starting):
        allowed_domains = ("elsewhere.test",)

        async def start(self):
            yield self.url

    ran = await run(Outside)
    assert ran.failure.field == "start"
    assert ran.url in str(ran.failure)
    assert str(ran.failure).endswith("(host: it is outside allowed_domains or the scope)")
    assert "within the scope" in ran.failure.remedy
    assert ran.site.visits == []
    assert ran.state is JobState.RUNNING


@pytest.mark.parametrize("seed", ["no url", "ftp://h.test/", "/relative", 7, None, {"url": "x"}])
async def test_a_seed_that_cannot_be_fetched_fails_the_crawl(run, seed):
    class Wrong(Starting):
        async def start(self):
            yield seed

    ran = await run(Wrong)
    assert ran.failure.field == "start"
    assert ran.failure.remedy


async def test_an_error_in_start_fails_the_crawl_and_names_its_place(run):
    class Broken(Starting):
        async def start(self):
            yield self.url
            raise LookupError("no list of seeds")

    ran = await run(Broken)
    assert "LookupError: no list of seeds (line " in str(ran.failure)


async def test_a_spider_without_start_urls_is_an_error(run):
    ran = await run(Starting)
    assert "has no start requests" in str(ran.failure)
    assert "set start_urls" in ran.failure.remedy


async def test_a_spider_without_start_urls_waits_where_seeds_may_come_from_outside(run):
    ran = await run(Starting, wait_for_seeds=0.3)
    assert (ran.failure, ran.state) == (None, JobState.FINISHED)


async def test_start_may_be_a_plain_generator_or_return_a_list(run):
    class Plain(Starting):
        def start(self):
            yield f"{self.url}1"

    class Listed(Starting):
        def start(self):
            return [f"{self.url}2"]

    class Fetched(Starting):
        async def start(self):
            await asyncio.sleep(0)
            return [f"{self.url}3"]

    assert (await run(Plain)).paths == ["/1"]
    assert (await run(Listed)).paths == ["/2"]
    assert (await run(Fetched)).paths == ["/3"]


async def test_a_set_of_start_urls_has_the_same_order_in_each_process():
    urls = [f"http://h.test/{number:03}" for number in range(200)]
    spider = Spider()
    spider.start_urls = set(urls)
    assert [request.url async for request in spider.start()] == urls


async def test_start_requests_of_scrapy_replace_the_start_urls(run):
    class Older(Starting):
        @property
        def start_urls(self):
            return [f"{self.url}1"]

        start = Spider.start

        def start_requests(self):
            yield Request(f"{self.url}2")
            yield Request(f"{self.url}3")

    assert (await run(Older)).paths == ["/2", "/3"]


async def test_start_without_an_iterable_result_is_rejected(run):
    class Odd(Starting):
        async def start(self):
            return 7

    ran = await run(Odd)
    assert (ran.failure.field, "int" in str(ran.failure)) == ("start", True)


async def test_seeds_named_twice_are_fetched_once(run):
    class Twice(Starting):
        async def start(self):
            yield f"{self.url}1"
            yield f"{self.url}1#again"

    ran = await run(Twice)
    assert (ran.paths, ran.counters["refused/duplicate"]) == (["/1"], 1)


class Numbered(Spider):
    """Counts how many of its seeds were taken."""

    def __init__(self, count):
        super().__init__()
        self.count, self.taken = count, 0

    async def start(self):
        for number in range(self.count):
            self.taken = number + 1
            yield f"http://h.test/{number}"


class Breaking(EmbeddedFrontier):
    """Fails at the second batch of seeds."""

    adds = 0

    async def add(self, entries, seeds=None):
        self.adds += 1
        if self.adds == 2:
            raise FrontierError("cut")
        return await super().add(entries, seeds)


def loader(frontier, spider, worker):
    return SeedLoader(spider, frontier, LinkCollector(Scope(), Politeness(), 1), worker)


async def test_another_worker_continues_where_an_interrupted_loader_was():
    frontier = Breaking()
    with pytest.raises(FrontierError, match="cut"):
        await loader(frontier, Numbered(1200), "first").run()
    assert (await frontier.status()).added == 500
    assert not await loader(frontier, Numbered(1200), "second").run(), (
        "the claim still belongs to the first one"
    )
    await frontier.abandon("first")
    assert await loader(frontier, Numbered(1200), "second").run()
    status = await frontier.status()
    assert (status.added, status.seeds_loading) == (1200, False)
    assert "refused/duplicate" not in status.counters


class Pausing(Spider):
    """Yields a seed, and ends while the incomplete batch is being added."""

    async def start(self):
        yield "http://h.test/1"
        await asyncio.sleep(0.3)


async def test_seeds_that_are_being_added_when_start_ends_are_not_lost():
    class Slow(EmbeddedFrontier):
        async def add(self, entries, seeds=None):
            await asyncio.sleep(0.2)
            return await super().add(entries, seeds)

    frontier = Slow()
    assert await loader(frontier, Pausing(), "w").run()
    status = await frontier.status()
    assert (status.added, status.seeds_loading) == (1, False)


async def test_an_error_at_an_incomplete_batch_ends_the_loading():
    class Refusing(EmbeddedFrontier):
        async def add(self, entries, seeds=None):
            if entries:
                raise FrontierError("refused")
            return await super().add(entries, seeds)

    frontier = Refusing()
    with pytest.raises(FrontierError, match="refused"):
        await loader(frontier, Pausing(), "w").run()
    assert (await frontier.status()).seeds_loading


async def test_a_spider_without_seeds_of_its_own_has_loaded_them_where_they_come_from_outside():
    frontier = EmbeddedFrontier()
    with pytest.raises(SpiderError, match="no start requests"):
        await loader(frontier, Spider(), "w").run()
    await frontier.abandon("w")
    from_outside = SeedLoader(
        Spider(), frontier, LinkCollector(Scope(), Politeness(), 1), "w", accepts_external=True
    )
    assert await from_outside.run()
    assert not (await frontier.status()).seeds_loading


async def test_a_million_seeds_would_not_be_in_memory():
    """No more seeds are taken than a few batches ahead of what the frontier has."""
    ahead = []
    spider = Numbered(3000)

    class Watching(EmbeddedFrontier):
        async def add(self, entries, seeds=None):
            await asyncio.sleep(0)
            result = await super().add(entries, seeds)
            ahead.append(spider.taken - (await self.status()).added)
            return result

    await loader(Watching(), spider, "w").run()
    assert max(ahead) <= 500


async def test_refused_seeds_are_counted_by_reason_and_the_first_are_named(run, caplog):
    class Mixed(Starting):
        async def start(self):
            for number in range(30):
                yield f"ftp://h{number}.test/"
            yield self.url
            yield "http://[::1"

    ran = await run(Mixed, {"/": []})
    assert (ran.state, ran.paths) == (JobState.FINISHED, ["/"])
    assert (ran.counters["refused/scheme"], ran.counters["refused/unparsable"]) == (30, 1)
    named = [record.getMessage() for record in caplog.records if "seed" in record.getMessage()]
    assert sum("ftp://h" in line for line in named) == 20
    assert any("11 more" in line for line in named)


async def test_refused_seeds_are_counted_once_if_another_worker_continues_with_the_loading(run):
    class Dying(Starting):
        runs = 0

        async def start(self):
            yield "ftp://h.test/"
            yield self.url
            self.runs += 1
            if self.runs == 1:
                await asyncio.sleep(0.5)  # until both are stored
                raise LookupError("gone")
            yield "ftp://h2.test/"

    ran = await run(Dying, {"/": []})
    assert ran.failure is not None
    await ran.bench.frontier.abandon("w0")
    ran = await ran.bench.run()
    assert (ran.state, ran.counters["refused/scheme"]) == (JobState.FINISHED, 2)


async def test_retried_seeds_do_not_end_the_crawl_early(run):
    class One(Starting):
        async def start(self):
            yield f"{self.url}slow"

    pages = {"/slow": (Answer(status=500), Answer(status=500), [])}
    ran = await run(One, pages, workers=3, retry_delay=0.1)
    assert (ran.paths, ran.state) == (["/slow"], JobState.FINISHED)
