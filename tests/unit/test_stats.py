"""Counters of user code: committed with their page, exact, and bounded in number."""

import asyncio

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.errors import RetryRequest, SpiderError
from skitter.stats import Stats
from skitter.testing import Answer
from skitter.worker.bounded_counters import MAX_USER, MAX_VALUES

PAGES = {f"/{number}": [] for number in range(60)} | {"/gone": Answer(status=404)}


class Counter(Spider):
    """Counts in callbacks of all kinds, in hooks and in an errback; every third page is retried once."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.seen = set()

    async def start(self):
        for number in range(60):
            yield Request(f"{self.url}{number}", callback=("plain", "later")[number % 2])
        yield Request(f"{self.url}gone", errback="failed")

    def before_request(self, request):
        self.stats.inc_value("asked")
        return request

    def plain(self, response):
        yield {"url": response.url}
        self.count(response)

    async def later(self, response):
        await asyncio.sleep(0.001)
        self.count(response)

    def count(self, response):
        self.stats.inc_value("parsed")
        self.stats.inc_value("bytes seen", 10)
        number = int(response.url.rpartition("/")[2])
        if number % 3 == 0 and number not in self.seen:
            self.seen.add(number)
            raise RetryRequest("once more")

    def after_save(self, response, items):
        self.stats.inc_value("saved", len(items))

    def failed(self, request, error):
        self.stats.inc_value("given up")


@pytest.mark.parametrize("frontier", ["memory", "socket"])
async def test_counts_are_committed_with_their_page(serve, tmp_path, frontier):
    spider = Counter(url=serve(Scripted(PAGES)).url)
    ran = await CrawlHarness(spider, tmp_path, frontier=frontier).run(2)
    found = {name: count for name, count in ran.counters.items() if name.startswith("user/")}
    assert found == {
        "user/asked": 61, "user/parsed": 60, "user/bytes seen": 600, "user/saved": 30, "user/given up": 1
    }  # fmt: skip
    assert ran.counters["retried/callback"] == 20


class Many(Spider):
    """Counts under a name for each page, and yields a value for each page."""

    monitors = ("new_values(category) == 0",)

    async def start(self):
        for number in range(60):
            yield Request(f"{self.url}{number}")

    def parse(self, response):
        number = response.url.rpartition("/")[2]
        for digit in range(4):
            self.stats.inc_value(f"{number}-{digit}")
        for digit in range(30):
            yield {"category": f"{number}-{digit}"}


async def test_the_number_of_names_is_bounded_over_all_workers_and_no_count_is_lost(serve, tmp_path):
    spider = Many(url=serve(Scripted(PAGES)).url)
    ran = await CrawlHarness(spider, tmp_path, frontier="socket").run(3)
    names = [name for name in ran.counters if name.startswith("user/")]
    assert len(names) == MAX_USER + 1
    assert sum(ran.counters[name] for name in names) == 240
    values = [name for name in ran.counters if name.startswith("values/")]
    assert len(values) == MAX_VALUES + 1
    assert sum(ran.counters[name] for name in values) == 1800


@pytest.mark.parametrize(
    ("key", "count", "field"),
    [("", 1, "key"), ("x" * 101, 1, "key"), ("a\n", 1, "key"), (7, 1, "key"), ("a", -1, "count"), ("a", 1.5, "count"),
     ("a", True, "count"), ("a", 1, "stats")],
)  # fmt: skip
async def test_a_count_that_cannot_be_committed_is_refused(key, count, field):
    with pytest.raises(SpiderError) as refused:
        Stats().inc_value(key, count)
    assert refused.value.field == field


async def test_tasks_and_threads_of_a_callback_count_for_its_page(serve, tmp_path):
    class Parallel(Counter):
        async def later(self, response):
            async def part():
                self.stats.inc_value("parts")

            await asyncio.gather(part(), part())

    spider = Parallel(url=serve(Scripted(PAGES)).url)
    ran = await CrawlHarness(spider, tmp_path, callback_threads=2).run()
    assert (ran.counters["user/parts"], ran.counters["user/parsed"]) == (60, 30)


async def test_a_task_that_outlives_its_page_cannot_count(serve, tmp_path):
    late = []

    class Late(Counter):
        async def start(self):
            yield Request(f"{self.url}1", callback="later")

        async def later(self, response):
            async def part():
                await asyncio.sleep(0.05)
                with pytest.raises(SpiderError) as refused:
                    self.stats.inc_value("parts")
                late.append(refused.value.field)

            self.task = asyncio.get_running_loop().create_task(part())

    spider = Late(url=serve(Scripted(PAGES)).url)
    ran = await CrawlHarness(spider, tmp_path).run()
    await spider.task
    assert late == ["stats"]
    assert "user/parts" not in ran.counters
