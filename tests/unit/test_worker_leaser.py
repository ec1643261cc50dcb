"""Leaser: leases as many requests as the worker has places for, waits without polling, drains and returns leases."""

import asyncio
import threading

import pytest

from crawl_harness import CrawlHarness, Scripted
from sites.gated import gated
from skitter import Request, Spider
from skitter.errors import CrawlFailed, FrontierError
from skitter.fetch.http import HttpFetcher
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import FetchReport, JobState, Lease
from skitter.testing import Answer, WireAnswer
from skitter.worker import inflight
from skitter.worker.committer import Committer
from skitter.worker.pipeline import RequestPipeline
from skitter.worker.retry import DONE


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")


class Watched(EmbeddedFrontier):
    """Records its calls."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.asked = []
        """Limit and returned state of each call of ``lease``."""
        self.most_leased = 0
        self.reported, self.unannounced = set(), []

    async def lease(self, worker, limit, reports=()):
        self.reported.update(report.lease_id for report in reports)
        result = await super().lease(worker, limit, reports)
        self.asked.append((limit, result.state))
        self.most_leased = max(self.most_leased, (await self.status()).leased)
        return result

    async def commit(self, outcomes):
        self.unannounced += [one.lease_id for one in outcomes if one.lease_id not in self.reported]
        return await super().commit(outcomes)


@pytest.fixture
def make_crawl(serve, tmp_path):
    def make(pages, **settings):
        site = Scripted(pages)
        made = CrawlHarness(Follower(url=serve(site).url), tmp_path, **{"delay": 0, **settings})
        context = made.frontier_context()
        made.frontier = Watched(context.politeness, context.options)
        made.site = site
        return made

    return make


def wide(count, answer):
    return {
        "/": [f"/{number}" for number in range(count)],
        **{f"/{number}": answer for number in range(count)},
    }


async def test_a_worker_that_is_busy_does_not_keep_asking(make_crawl):
    crawl = make_crawl(wide(12, Answer(delay=0.5)), concurrency=4, concurrency_per_slot=8)
    ran = await crawl.run()
    assert len(ran.items) == 13
    assert len(crawl.frontier.asked) < 100


async def test_a_paused_job_is_not_polled_and_continues_when_it_is_resumed(make_crawl):
    paused = threading.Event()
    crawl = make_crawl(wide(8, lambda _: gated(Answer(), paused.is_set)), concurrency=2)
    running = asyncio.create_task(crawl.run())
    while not crawl.site.counts["/0"]:
        await asyncio.sleep(0.005)
    await crawl.frontier.control.set_state(JobState.PAUSED)
    paused.set()
    before = len(crawl.frontier.asked)
    await asyncio.sleep(1.0)
    fetched = sum(crawl.site.counts.values())
    assert fetched < 9
    assert len(crawl.frontier.asked) - before < 40
    await crawl.frontier.control.set_state(JobState.RUNNING)
    ran = await running
    assert (len(ran.items), ran.state) == (9, JobState.FINISHED)


async def test_a_crawl_at_its_limit_does_not_keep_asking(make_crawl):
    crawl = make_crawl(wide(12, Answer(delay=0.5)), concurrency=8, concurrency_per_slot=8, max_pages=3)
    ran = await crawl.run()
    assert len(ran.items) == 3
    assert len(crawl.frontier.asked) < 60


async def test_at_most_four_times_the_concurrency_is_in_progress(make_crawl):
    crawl = make_crawl(wide(60, []), concurrency=4, concurrency_per_slot=100)
    await crawl.run()
    assert 4 <= crawl.frontier.most_leased <= 16


async def test_the_frontier_receives_the_fetch_report_before_the_commit(make_crawl):
    """Otherwise a refusal or a latency would be lost: a commit ends the lease."""
    pages = wide(20, (Answer(status=429, headers={"Retry-After": "0"}), []))
    crawl = make_crawl(pages, max_throttled=3, concurrency_per_slot=32, retry_delay=0.01)
    ran = await crawl.run()
    assert ran.state is JobState.FINISHED
    assert crawl.frontier.unannounced == []


async def test_a_drained_worker_finishes_what_is_in_flight_and_hands_back_the_rest(make_crawl):
    drained = threading.Event()
    crawl = make_crawl(wide(10, lambda _: gated(Answer(), drained.is_set)), concurrency=2)
    running = asyncio.create_task(crawl.run())
    while sum(crawl.site.counts.values()) < 3:  # the front page and two that wait for their answers
        await asyncio.sleep(0.005)
    crawl.drain()
    drained.set()
    ran = await running
    assert ran.status.done == sum(crawl.site.counts.values()) == 3
    assert (ran.status.leased, ran.status.queued, "leases/lost" in ran.counters) == (0, 8, False)


async def test_a_fetch_that_takes_too_long_is_cancelled_when_the_crawl_is_stopped(make_crawl, monkeypatch):
    monkeypatch.setattr(inflight, "DRAIN_SECONDS", 0.3)
    crawl = make_crawl(wide(4, WireAnswer([], end="stall")), timeout=60)
    running = asyncio.create_task(crawl.run())
    while not crawl.site.counts["/0"]:
        await asyncio.sleep(0.005)
    await crawl.frontier.control.set_state(JobState.STOPPING)
    ran = await running
    assert (ran.state, ran.status.leased, ran.status.queued) == (JobState.STOPPING, 0, 4)
    assert "leases/lost" not in ran.counters
    letters_and_attempts = (ran.letters, [name for name in ran.counters if name.startswith("retried/")])
    assert letters_and_attempts == ({}, [])


async def test_nothing_is_sent_for_a_lease_whose_fetch_has_ended():
    held = inflight.Inflight(1)
    granted = Lease(1, bytes(16), "h.test", "http://h.test/", b"", 0, 0, 0.0, start_within=60.0)
    turn = inflight.InflightRequest(held, granted, asyncio.get_running_loop().time())
    turn.report_connecting(0.5)
    assert turn.may_send()
    turn.finish_fetch()
    turn.report_connecting(0.75)
    assert not turn.may_send()
    assert [report.connecting for report in held.take_reports()] == [0.5]


async def test_a_commit_does_not_wait_for_reports_after_the_last_call_for_leases():
    held = inflight.Inflight(4)
    request = inflight.InflightRequest(held, Lease(1, b"f" * 16, "host", "http://host/", b"", 0, 0, 9e9), 0.0)
    held.add(request.lease, asyncio.create_task(asyncio.sleep(0)))
    request.finish_fetch(0.1)
    waiting = asyncio.create_task(held.wait_reported())
    await asyncio.sleep(0)
    assert not waiting.done()
    held.end_leasing()
    async with asyncio.timeout(60):
        await waiting
        await held.wait_reported()


@pytest.mark.parametrize(
    ("adds_requests", "ends_last", "asks"), [(True, False, True), (False, True, True), (False, False, False)]
)
async def test_a_commit_is_a_reason_to_ask_again_if_it_may_have_changed_the_queue(
    adds_requests, ends_last, asks
):
    held = inflight.Inflight(4)
    for lease_id in (1, 2):
        lease = Lease(lease_id, b"f" * 16, "host", "http://host/", b"", 0, 0, 9e9)
        held.add(lease, asyncio.create_task(asyncio.sleep(0)))
    held.close([1, 2] if ends_last else [1], adds_requests=adds_requests)
    assert held.lease_wakeup.is_set() is asks


async def test_a_commit_is_a_reason_to_ask_again_if_waiting_pages_took_the_place_of_fetches():
    held = inflight.Inflight(1)
    for lease_id in range(5):  # one more than the fetch in progress and the three pages that may wait
        lease = Lease(lease_id, b"f" * 16, "host", "http://host/", b"", 0, 0, 9e9)
        held.add(lease, asyncio.create_task(asyncio.sleep(0)))
        if lease_id:
            held.finish_fetch("host", FetchReport(lease_id), was_aside=False)
    held.lease_wakeup.clear()
    assert held.free() == 0
    held.close([1, 2], adds_requests=False)
    assert held.lease_wakeup.is_set()


def make_error_handling_fail(monkeypatch, error):
    """Make the handling of fetch errors itself raise an error, as a bug in skitter would."""

    async def fail(self, page, _):
        raise error

    monkeypatch.setattr(RequestPipeline, "_fetch_failed", fail)


async def test_a_fault_of_skitter_at_a_page_makes_it_a_dead_letter_and_the_crawl_ends(
    make_crawl, monkeypatch
):
    make_error_handling_fail(monkeypatch, RuntimeError("planted"))
    crawl = make_crawl(
        {"/": ["/bad", "/good"], "/bad": WireAnswer([b"not HTTP\r\n\r\n"]), "/good": []}, robots=False
    )
    ran = await crawl.run()
    assert (ran.state, ran.failure, len(ran.items)) == (JobState.FINISHED, None, 2)
    assert crawl.site.counts["/bad"] == 1
    assert list(ran.letters) == ["/bad"] and ran.letters["/bad"].startswith("internal: RuntimeError")
    (letter,) = await crawl.frontier.dead_letters.list()
    assert "planted" in letter.traceback
    assert (ran.counters["failed/internal"], ran.status.leased) == (1, 0)


async def test_a_fault_of_skitter_when_a_page_is_passed_on_makes_it_a_dead_letter(make_crawl, monkeypatch):
    take = Committer.put

    def fail_at_bad(self, page):
        if page.lease.url.endswith("/bad") and page.decision is DONE:
            raise RuntimeError("planted")
        take(self, page)

    monkeypatch.setattr(Committer, "put", fail_at_bad)
    crawl = make_crawl({"/": ["/bad", "/good"], "/bad": [], "/good": []}, robots=False)
    async with asyncio.timeout(30):
        ran = await crawl.run()
    assert (ran.state, ran.failure, len(ran.items)) == (JobState.FINISHED, None, 2)
    assert list(ran.letters) == ["/bad"] and ran.letters["/bad"].startswith("internal: RuntimeError")
    assert ran.status.leased == 0


async def test_a_fault_of_skitter_in_its_books_ends_the_worker_and_releases_its_leases(
    make_crawl, monkeypatch
):
    def fail(*_arguments, **_fields):
        raise RuntimeError("planted")

    monkeypatch.setattr(inflight.Inflight, "end_processing", fail)
    crawl = make_crawl({"/": ["/page"], "/page": []}, robots=False)
    async with asyncio.timeout(30):
        ran = await crawl.run()
    assert isinstance(ran.failure, CrawlFailed)
    assert isinstance(ran.failure.__cause__, RuntimeError)
    assert ran.status.leased == 0


async def test_an_error_of_the_frontier_during_a_fetch_is_not_one_of_the_page(
    make_crawl, monkeypatch, caplog
):
    """The cookies of a job are in the frontier, for example."""

    async def fail(self, request, **options):
        raise FrontierError("the disk is full", remedy="free some disk space")

    monkeypatch.setattr(HttpFetcher, "fetch", fail)
    crawl = make_crawl({"/": []}, robots=False)
    with pytest.raises(FrontierError, match="the disk is full"):
        await crawl.run()
    assert "the disk is full" not in caplog.text
    status = await crawl.frontier.status()
    assert (status.done, status.queued, status.leased, status.failed) == (0, 1, 0, 0)


async def test_an_error_of_the_frontier_at_a_page_ends_the_worker_and_loses_nothing(make_crawl, monkeypatch):
    make_error_handling_fail(monkeypatch, FrontierError("planted"))
    crawl = make_crawl({"/": ["/bad"], "/bad": WireAnswer([b"not HTTP\r\n\r\n"])}, robots=False)
    with pytest.raises(FrontierError):
        await crawl.run()
    status = await crawl.frontier.status()
    assert (status.done, status.queued, status.leased, status.failed) == (1, 1, 0, 0)


async def test_no_page_is_leased_while_large_bodies_wait_for_their_callbacks(monkeypatch):
    monkeypatch.setattr(inflight, "_MAX_WAITING_BYTES", 100)
    held, turns = inflight.Inflight(4), []
    waiting = []
    for size in (60, 40, 1):
        turns.append(held.loop.create_future())
        waiting.append(held.loop.create_task(held.wait_for_turn(turns[-1], size)))
    await asyncio.sleep(0)
    assert (held.free(), held.lease_wakeup.is_set()) == (0, False)
    waiting[2].cancel()
    await asyncio.wait([waiting[2]])
    assert (held.free(), held.lease_wakeup.is_set()) == (4, True)
    for turn in turns[:2]:
        turn.set_result(None)
    await asyncio.gather(*waiting[:2])
    assert held.free() == 4
