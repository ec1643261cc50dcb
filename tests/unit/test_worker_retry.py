"""Verdict: which requests are retried, how often and after how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_harness import CrawlHarness, Scripted, page
from skitter import Request, Spider
from skitter.frontier.records import Resolution
from skitter.settings import Settings
from skitter.testing import Answer
from skitter.worker.retry import backoff, decide_after_failure, decide_after_status

REQUEST = Request("http://h.test/")


@given(
    attempt=st.integers(0, 10_000),
    first=st.floats(0, 100, allow_nan=False),
    cap=st.floats(0, 1000, allow_nan=False),
)
def test_the_wait_doubles_up_to_a_cap_and_half_of_it_is_chance(attempt, first, cap):
    longest = min(first * 2.0 ** min(attempt, 32), cap)
    wait = backoff(Settings(retry_delay=first, retry_delay_cap=cap), attempt)
    assert longest * 0.5 <= wait <= longest


def test_transient_failures_are_retried_up_to_the_limit_of_the_settings():
    settings = Settings(max_retries=2)
    verdicts = [
        decide_after_failure(settings, REQUEST, n, "timeout: x", retryable=True).resolution for n in range(4)
    ]
    assert verdicts == [Resolution.RETRY, Resolution.RETRY, Resolution.FAILED, Resolution.FAILED]


def test_permanent_failures_are_given_up_at_once():
    verdict = decide_after_failure(Settings(), REQUEST, 0, "tls: x", retryable=False)
    assert (verdict.resolution, verdict.error) == (Resolution.FAILED, "tls: x")


@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_request_may_have_its_own_number_of_retries(status):
    verdict = decide_after_status(Settings(), REQUEST.replace(max_retries=0), 0, status, None)
    assert verdict.resolution is Resolution.FAILED


@pytest.mark.parametrize("status", [408, 425, 500, 502, 504, 520, 524])
def test_statuses_that_may_pass_are_retried(status):
    assert decide_after_status(Settings(), REQUEST, 0, status, None).resolution is Resolution.RETRY


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 501, 505, 304, 999])
def test_statuses_that_stay_are_given_up(status):
    verdict = decide_after_status(Settings(), REQUEST, 0, status, None)
    assert (verdict.resolution, verdict.error) == (
        Resolution.FAILED,
        f"status/{status}: the server responded with {status}",
    )


@pytest.mark.parametrize("status", [429, 503])
def test_a_throttling_server_gets_a_longer_delay_and_its_retry_after(status):
    settings = Settings(max_retries=0, max_throttled=2, retry_delay=1)
    first = decide_after_status(settings, REQUEST, 0, status, 30.0)
    assert (first.resolution, first.after) == (Resolution.RETRY, 30.0)
    assert decide_after_status(settings, REQUEST, 1, status, 0.0).after >= 1.0
    assert decide_after_status(settings, REQUEST, 2, status, None).resolution is Resolution.FAILED


def test_a_wait_beyond_the_cap_ends_the_request():
    settings = Settings(retry_after_cap=100)
    assert decide_after_status(settings, REQUEST, 0, 503, 100.0).after == 100.0
    verdict = decide_after_status(settings, REQUEST, 0, 503, 101.0)
    assert verdict.resolution is Resolution.FAILED
    assert verdict.error.startswith("status/503: ")
    assert "retry_after_cap" in verdict.error


def test_another_session_waits_for_the_cap_at_most():
    verdict = decide_after_status(Settings(retry_after_cap=100), REQUEST, 0, 429, 86_400.0, blocked=True)
    assert (verdict.resolution, verdict.after) == (Resolution.RETRY, 100.0)


class Plain(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"status": response.status}


@pytest.fixture
def run(serve, tmp_path):
    async def run_it(answers, **settings):
        site = Scripted({"/": answers})
        ran = await CrawlHarness(Plain(url=serve(site).url), tmp_path, **settings).run()
        ran.tries = site.counts["/"]
        return ran

    return run_it


async def test_a_page_that_fails_twice_is_obtained_by_the_third_attempt(run):
    ran = await run((Answer(status=500), Answer(status=504), page()))
    assert (ran.items, ran.tries, ran.letters) == ([{"status": 200}], 3, {})
    assert (ran.counters["retried/status/500"], ran.counters["retried/status/504"]) == (1, 1)


async def test_a_page_that_always_fails_becomes_a_dead_letter_with_its_last_error(run):
    ran = await run(Answer(status=502), max_retries=2)
    assert (ran.tries, ran.letters) == (3, {"/": "status/502: the server responded with 502"})
    assert (ran.counters["failed/status/502"], ran.counters["retried/status/502"]) == (1, 2)
    assert "pages" not in ran.counters


async def test_a_status_can_be_accepted_like_a_page(run):
    ran = await run(Answer(status=404), allowed_statuses=[404])
    assert (ran.items, ran.letters) == ([{"status": 404}], {})


@pytest.mark.parametrize("status", [200, 201, 204, 206])
async def test_every_2xx_is_a_page(run, status):
    ran = await run(Answer(status=status))
    assert ran.items == [{"status": status}]


class Several(Spider):
    async def start(self):
        for path in ("a", "b", "c"):
            yield Request(f"{self.url}{path}")

    def parse(self, response):
        yield {"path": response.url[-1]}


@pytest.mark.parametrize("wish", ["86400", "9" * 400, "Thu, 01 Jan 2099 00:00:00 GMT"])
async def test_an_origin_that_asks_for_a_long_wait_is_given_up_and_not_contacted_again(serve, tmp_path, wish):
    site = Scripted({path: Answer(status=503, headers={"Retry-After": wish}) for path in ("/a", "/b", "/c")})
    ran = await CrawlHarness(Several(url=serve(site).url), tmp_path, concurrency=1).run()
    assert sum(site.counts.values()) == 1
    assert sorted(ran.letters) == ["/a", "/b", "/c"]
    assert all(error.startswith("status/503: ") for error in ran.letters.values())


async def test_a_date_in_retry_after_is_compared_with_the_clock_of_the_server(serve, tmp_path):
    times = {"Retry-After": "Thu, 01 Jan 2015 01:00:00 GMT", "Date": "Thu, 01 Jan 2015 00:00:00 GMT"}
    site = Scripted({path: Answer(status=503, headers=times) for path in ("/a", "/b", "/c")})
    ran = await CrawlHarness(Several(url=serve(site).url), tmp_path, concurrency=1, max_throttled=0).run()
    assert sum(site.counts.values()) == 1
    assert sorted(ran.letters) == ["/a", "/b", "/c"]


async def test_a_status_that_the_spider_accepts_closes_no_origin(serve, tmp_path):
    long = Answer(status=503, headers={"Retry-After": "1000"})
    site = Scripted({"/a": long, "/b": long, "/c": long})
    settings = {"allowed_statuses": [503], "retry_after_cap": 0.1}
    ran = await CrawlHarness(Several(url=serve(site).url), tmp_path, concurrency=1, **settings).run()
    assert sorted(item["path"] for item in ran.items) == ["a", "b", "c"]


async def test_a_robots_txt_that_asks_for_a_long_wait_fails_the_pages_of_its_origin(serve, tmp_path):
    site = Scripted({"/robots.txt": Answer(status=503, headers={"Retry-After": "86400"})})
    ran = await CrawlHarness(Several(url=serve(site).url), tmp_path).run()
    assert site.counts == {"/robots.txt": 1}
    assert sorted(ran.letters) == ["/a", "/b", "/c"]
    assert all(error.startswith("robots: ") and "retry_after_cap" in error for error in ran.letters.values())
