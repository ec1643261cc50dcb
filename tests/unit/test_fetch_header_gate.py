"""HeaderGate: hooks see the headers before the body is read, and an unwanted body is not read."""

import asyncio

import pytest

from crawl_harness import CrawlHarness, Scripted
from servers.fetch_raw import RawServer, page
from skitter import HookAction, Request, Spider
from skitter.fetch.contract import Aborted, Disconnected, FetcherCapabilities
from skitter.fetch.http import HttpFetcher
from skitter.frontier.records import JobState
from skitter.testing import Answer

BODY = b"x" * 3_000_000


@pytest.fixture
async def fetcher():
    opened = HttpFetcher()
    await opened.open()
    yield opened
    await opened.close()


def hook(answer, seen, pause=0.0):
    async def on_headers(response):
        await asyncio.sleep(pause)
        seen.append((response.status, response.header("x-kind"), response.body))
        return answer

    return on_headers


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_an_accepted_body_is_complete_even_after_a_slow_decision(fetcher, pause):
    seen = []
    async with RawServer({"/": page(BODY, "X-Kind: big")}) as server:
        response = await fetcher.fetch(Request(server.url()), on_headers=hook(True, seen, pause))
    assert (seen, response.body == BODY, response.status) == ([(200, "big", b"")], True, 200)


@pytest.mark.parametrize("digits", ["200", "2000", "200" + "0" * 5_000])
async def test_a_status_has_three_digits(fetcher, digits):
    """libcurl accepts other statuses, and Python refuses to read a number of 5,000 digits."""
    seen = []

    async def answer(wire):
        await wire.send(f"HTTP/1.1 {digits} OK\r\nContent-Length: 2\r\n\r\nok".encode())

    async with RawServer({"/": answer}) as server:
        response = await fetcher.fetch(Request(server.url()), on_headers=hook(True, seen))
    assert (seen[0][0], response.status, response.body) == (200, 200, b"ok")


async def test_a_body_that_is_not_wanted_is_not_read(fetcher):
    """The server cannot send all of it: its connection is closed first."""
    sent = asyncio.get_running_loop().create_future()

    async def endless(wire):
        try:
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n")
            for _ in range(300):
                await wire.send(b"x" * 100_000)
            sent.set_result("all")
        except OSError:
            sent.set_result("broken off")

    async with RawServer({"/": endless}) as server:
        with pytest.raises(Aborted):
            await fetcher.fetch(Request(server.url()), on_headers=hook(False, []))
        assert await asyncio.wait_for(sent, 60) == "broken off"


async def test_an_interim_answer_is_not_shown(fetcher):
    seen = []
    hint = b"HTTP/1.1 103 Early Hints\r\nX-Kind: hint\r\n\r\n"
    async with RawServer({"/": hint + page(b"hi", "X-Kind: real")}) as server:
        response = await fetcher.fetch(Request(server.url()), on_headers=hook(True, seen))
    assert (seen, response.body) == ([(200, "real", b"")], b"hi")


async def test_a_response_without_a_body_waits_for_the_decision(fetcher):
    async with RawServer({"/": page()}) as server:
        seen = []
        await fetcher.fetch(Request(server.url(), method="HEAD"), on_headers=hook(True, seen, 0.02))
        with pytest.raises(Aborted):
            await fetcher.fetch(Request(server.url()), on_headers=hook(False, seen, 0.02))
    assert len(seen) == 2


async def test_an_error_of_the_hook_is_raised_and_the_next_fetch_works(fetcher):
    async def fail(response):
        raise ValueError("no")

    async with RawServer({"/": page(b"hi")}) as server:
        with pytest.raises(ValueError, match="no"):
            await fetcher.fetch(Request(server.url()), on_headers=fail)
        assert (await fetcher.fetch(Request(server.url()))).body == b"hi"


async def test_a_handle_that_was_watched_serves_plain_requests_again(fetcher):
    seen = []
    async with RawServer({"/": page(b"hi", "X-Kind: a")}) as server:
        await fetcher.fetch(Request(server.url()), on_headers=hook(True, seen))
        assert (await fetcher.fetch(Request(server.url()))).body == b"hi"
    assert len(seen) == 1


async def test_a_broken_connection_ends_a_hook_that_is_still_deciding(fetcher):
    ended = []

    async def decide(response):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    broken = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    async with RawServer({"/": broken}, closing=["/"]) as server:
        with pytest.raises(Disconnected):
            await fetcher.fetch(Request(server.url()), on_headers=decide)
    assert ended == [True]


async def test_cancelling_ends_transfer_and_hook(fetcher):
    begun = asyncio.Event()

    async def decide(response):
        begun.set()
        await asyncio.sleep(60)

    async with RawServer({"/": page(BODY)}) as server:
        fetching = asyncio.create_task(fetcher.fetch(Request(server.url()), on_headers=decide))
        await begun.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
    assert len(asyncio.all_tasks()) == 1


class Looking(Spider):
    signal = HookAction.DROP

    async def start(self):
        yield Request(self.url)

    def before_send(self, request):
        return request.replace(headers={"X-Late": "1"})

    def on_headers(self, response):
        if response.content_type == "image/png":
            return self.signal
        return None

    def parse(self, response):
        yield {"path": "/" + response.url.rpartition("/")[2]}
        yield response.follow_all("a")


@pytest.fixture
def site():
    return Scripted({"/": ["/a.png", "/b"], "/b": [], "/a.png": Answer(b"png", content_type="image/png")})


async def test_a_hook_drops_an_answer_by_its_headers(serve, tmp_path, site):
    ran = await CrawlHarness(Looking(url=serve(site).url), tmp_path).run()
    assert sorted(item["path"] for item in ran.items) == ["/", "/b"]
    assert (ran.counters["refused/hook"], ran.counters["bytes"], ran.letters) == (1, 40, {})
    assert {visit.headers.get("x-late") for visit in site.visits} == {"1"}


async def test_a_retry_by_the_headers_counts_as_an_attempt(serve, tmp_path, site):
    spider = Looking(url=serve(site).url, signal=HookAction.RETRY)
    ran = await CrawlHarness(spider, tmp_path, max_retries=2).run()
    assert site.counts["/a.png"] == 3
    assert ran.letters == {"/a.png": "hook/on_headers: asked for a retry"}


async def test_a_hook_that_fails_the_crawl_by_the_headers_hands_the_page_back(serve, tmp_path, site):
    ran = await CrawlHarness(Looking(url=serve(site).url, signal=HookAction.FAIL), tmp_path).run()
    assert "on_headers" in str(ran.failure)
    assert ran.status.failed == 0


async def test_a_dropped_request_is_not_sent(serve, tmp_path, site):
    class Refusing(Looking):
        def before_send(self, request):
            return HookAction.DROP if request.url.endswith("/b") else None

    ran = await CrawlHarness(Refusing(url=serve(site).url), tmp_path).run()
    assert (site.counts["/b"], ran.state) == (0, JobState.FINISHED)


async def test_before_send_comes_after_robots_txt(serve, tmp_path):
    rules = Answer(b"User-agent: *\nDisallow: /b", content_type="text/plain")
    site = Scripted({"/": ["/b"], "/b": [], "/robots.txt": rules})
    asked = []

    class Noting(Looking):
        def before_send(self, request):
            asked.append(request.url)

    await CrawlHarness(Noting(url=serve(site).url), tmp_path, robots=True).run()
    assert [url.rpartition("/")[2] for url in asked] == [""]


async def test_the_headers_of_a_fetcher_that_cannot_stop_early_are_checked_after_the_fetch(
    serve, tmp_path, site
):
    class Whole:
        """Hides the other methods of the fetcher."""

        def __init__(self, fetcher):
            self.open, self.fetch, self.close = fetcher.open, fetcher.fetch, fetcher.close
            self.capabilities = FetcherCapabilities(keeps_cookies=True)

    class Plain(CrawlHarness):
        def fetcher(self, *arguments):
            return Whole(super().fetcher(*arguments))

    ran = await Plain(Looking(url=serve(site).url), tmp_path).run()
    assert sorted(item["path"] for item in ran.items) == ["/", "/b"]
    assert ran.counters["refused/hook"] == 1


async def test_a_callback_that_asks_for_a_retry_runs_again_and_its_first_results_are_dropped(serve, tmp_path):
    from skitter.errors import RetryRequest

    class Again(Looking):
        tries = 0

        def parse(self, response):
            yield {"try": self.tries}
            self.tries += 1
            if self.tries < 3:
                raise RetryRequest("not yet")

    site = Scripted({"/": []})
    ran = await CrawlHarness(Again(url=serve(site).url), tmp_path).run()
    assert (ran.items, site.counts["/"], ran.counters["retried/callback"]) == ([{"try": 2}], 3, 2)
    ran = await CrawlHarness(
        Again(url=serve(site, ports=1).url, tries=-9), tmp_path / "2", max_retries=1
    ).run()
    assert ran.letters == {"/": "callback: not yet"}
