"""Worker: undecodable records, robots.txt, and the return of leases that start too late."""

import asyncio

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import Entry, JobState, SeedProgress
from skitter.testing import Answer
from skitter.worker.links import LinkCollector


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"path": "/" + response.url.rpartition("/")[2]}
        yield response.follow_all("a")


@pytest.fixture
def make_crawl(serve, tmp_path):
    def make(pages, **settings):
        site = Scripted(pages)
        made = CrawlHarness(Follower(url=serve(site).url), tmp_path, **settings)
        made.site = site
        return made

    return make


def paths(ran):
    return sorted(item["path"] for item in ran.items)


@pytest.mark.parametrize("record", [b"", b"\xff", b"\x01\xff\xff", b"\x01\x81\xa8priority\xa1x"])
async def test_a_record_that_cannot_be_read_is_a_dead_letter_and_does_not_affect_others(make_crawl, record):
    crawl = make_crawl({"/": []})
    context = crawl.frontier_context()
    crawl.frontier = EmbeddedFrontier(context.politeness, context.options)
    await crawl.frontier.add([Entry(b"x" * 16, "127.0.0.1", f"{crawl.spider.url}odd", record)])
    ran = await crawl.run()
    assert (paths(ran), ran.state) == (["/"], JobState.FINISHED)
    assert ran.letters["/odd"].startswith("record: " if record else "seed: a rejected seed")
    assert crawl.site.counts["/odd"] == 0


async def test_urls_that_robots_txt_forbids_are_done_without_a_fetch_and_counted(make_crawl):
    rules = Answer(b"User-agent: *\nDisallow: /no", content_type="text/plain")
    crawl = make_crawl({"/": ["/no", "/yes"], "/no": [], "/yes": [], "/robots.txt": rules}, robots=True)
    ran = await crawl.run()
    assert crawl.site.counts == {"/robots.txt": 1, "/": 1, "/yes": 1}
    assert (paths(ran), ran.counters["refused/robots"], ran.status.done) == (["/", "/yes"], 1, 3)
    assert ran.counters["pages"] == 2


async def test_workers_share_a_robots_txt_through_the_frontier(make_crawl):
    rules = Answer(b"User-agent: *\nDisallow: /no", content_type="text/plain")
    crawl = make_crawl({"/": [], "/more": ["/no"], "/robots.txt": rules}, robots=True)
    await crawl.run()
    info = await crawl.frontier.open()
    gatherer = LinkCollector(crawl.scope, crawl.settings.politeness(), info.fingerprint_seed)
    await crawl.frontier.add([gatherer.entry(Request(f"{crawl.spider.url}more"))])
    ran = await crawl.run()  # by a worker that has never met the host
    assert (paths(ran), ran.counters["refused/robots"]) == (["/", "/more"], 1)
    assert crawl.site.counts == {"/robots.txt": 1, "/": 1, "/more": 1}


async def test_a_robots_txt_that_fails_costs_its_pages_no_attempt(make_crawl):
    crawl = make_crawl({"/": [], "/robots.txt": Answer(status=503)}, robots=True)
    running = asyncio.create_task(crawl.run())
    while not (crawl.frontier and (await crawl.frontier.status()).delayed):
        await asyncio.sleep(0.01)
    status = await crawl.frontier.status()
    assert status.busiest == []
    assert not [name for name in status.counters if name.startswith(("retried/", "failed/", "pages"))]
    await crawl.frontier.control.set_state(JobState.STOPPING)
    ran = await running
    assert (ran.letters, ran.status.delayed, crawl.site.counts["/"]) == ({}, 1, 0)


async def test_a_fetch_that_cannot_begin_in_time_hands_its_lease_back(make_crawl):
    """A slow hook makes each start late at first: the delay is kept, and the page is still fetched."""

    class SlowHook(Follower):
        late = 2

        async def before_request(self, request):
            if self.late:
                self.late -= 1
                await asyncio.sleep(0.2)

    crawl = make_crawl({"/": []}, delay=0.1)
    crawl.spider = SlowHook(url=crawl.spider.url)
    ran = await crawl.run()
    assert (paths(ran), crawl.site.counts["/"]) == (["/"], 1)
    assert "leases/lost" not in ran.counters


async def test_a_job_that_is_finished_needs_no_work(make_crawl):
    crawl = make_crawl({"/": []})
    await crawl.run()
    again = await crawl.run()
    assert (again.state, crawl.site.counts["/"]) == (JobState.FINISHED, 1)


async def test_a_replayed_dead_letter_is_crawled_again(make_crawl):
    crawl = make_crawl({"/": (Answer(status=404), [])})
    first = await crawl.run()
    assert list(first.letters) == ["/"]
    assert await crawl.frontier.dead_letters.replay() == 1
    again = await crawl.run()
    assert (paths(again), again.letters, again.state) == (["/"], {}, JobState.FINISHED)


async def test_delayed_requests_are_fetched_when_their_time_has_come(make_crawl):
    crawl = make_crawl({"/": [], "/later": []})
    begun = asyncio.get_running_loop().time()

    class Later(Follower):
        def parse(self, response):
            yield {"path": "/" + response.url.rpartition("/")[2], "at": asyncio.get_running_loop().time()}
            if response.url == self.url:
                yield response.follow("/later", delay=0.3)

    crawl.spider = Later(url=crawl.spider.url)
    ran = await crawl.run()
    assert paths(ran) == ["/", "/later"]
    assert max(item["at"] for item in ran.items) - begun >= 0.3


async def test_a_keyed_store_keeps_the_items_of_each_request_that_passes_the_duplicate_filter(make_crawl):
    crawl = make_crawl({"/": [], "/poll": (Answer(status=500), [])})

    class Polling(Follower):
        def parse(self, response):
            for number in range(3):
                yield response.follow("/poll", "poll", cb_kwargs={"number": number}, dont_filter=True)

        def poll(self, response, number):
            yield {"path": f"/poll/{number}"}
            if number == 2:
                yield response.follow("/poll", "again", dont_filter=True)

        def again(self, response):
            yield {"path": f"/again/{response.request.depth}"}
            if response.request.depth < 4:
                yield response.follow("/poll", "again", dont_filter=True)

    crawl.spider = Polling(url=crawl.spider.url)
    ran = await crawl.run()
    assert ran.counters["retried/status/500"] == 1
    assert paths(ran) == ["/again/2", "/again/3", "/again/4", "/poll/0", "/poll/1", "/poll/2"]
    assert ran.counters["items"] == 6


async def test_the_crawl_waits_for_seeds_that_another_worker_is_loading(make_crawl):
    crawl = make_crawl({"/": [], "/late": []})
    context = crawl.frontier_context()
    crawl.frontier = EmbeddedFrontier(context.politeness, context.options)
    claim = await crawl.frontier.claim_seeds("somebody else")
    running = asyncio.create_task(crawl.run())
    await asyncio.sleep(0.3)
    assert not running.done()
    await crawl.frontier.add([], SeedProgress(claim.token, 0, done=True))
    ran = await running
    assert (ran.state, ran.items) == (JobState.FINISHED, [])
