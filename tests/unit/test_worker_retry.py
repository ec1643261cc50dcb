"""Verdict: what is tried again, how often and after how long."""

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


def test_what_may_pass_is_retried_as_often_as_the_settings_say():
    settings = Settings(max_retries=2)
    verdicts = [
        decide_after_failure(settings, REQUEST, n, "timeout: x", retryable=True).resolution for n in range(4)
    ]
    assert verdicts == [Resolution.RETRY, Resolution.RETRY, Resolution.FAILED, Resolution.FAILED]


def test_what_will_not_pass_is_given_up_at_once():
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
        f"status/{status}: the server answered {status}",
    )


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_less_is_given_more_patience_and_its_wish(status):
    settings = Settings(max_retries=0, max_throttled=2, retry_delay=1)
    first = decide_after_status(settings, REQUEST, 0, status, 30.0)
    assert (first.resolution, first.after) == (Resolution.RETRY, 30.0)
    assert decide_after_status(settings, REQUEST, 1, status, 0.0).after >= 1.0
    assert decide_after_status(settings, REQUEST, 2, status, None).resolution is Resolution.FAILED


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
    assert (ran.tries, ran.letters) == (3, {"/": "status/502: the server answered 502"})
    assert (ran.counters["failed/status/502"], ran.counters["retried/status/502"]) == (1, 2)
    assert "pages" not in ran.counters


async def test_a_status_can_be_accepted_like_a_page(run):
    ran = await run(Answer(status=404), allowed_statuses=[404])
    assert (ran.items, ran.letters) == ([{"status": 404}], {})


@pytest.mark.parametrize("status", [200, 201, 204, 206])
async def test_every_2xx_is_a_page(run, status):
    ran = await run(Answer(status=status))
    assert ran.items == [{"status": status}]
