"""RobotsCache: one fetch for all who ask, shared with the fleet."""

import asyncio
import time

import pytest

from skitter.fetch.contract import ConnectError, FetcherCapabilities
from skitter.fetch.robots import (
    Deferred,
    RobotsRecord,
    RobotsSettings,
    RobotsState,
    decode_record,
    encode_record,
)
from skitter.fetch.robots_cache import RobotsCache
from skitter.response import Response

URL = "http://site.test/private/x"
RULES = b"User-agent: *\nDisallow: /private/"


class GatedFetcher:
    """Counts fetches; each waits until the gate is open."""

    def __init__(self, answer=RULES, status=200):
        self.answer = answer
        self.status = status
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Event()

    async def open(self): ...

    async def close(self): ...

    capabilities = FetcherCapabilities()

    async def fetch(self, request, *, permit, on_headers=None):
        self.asked.append(request.url)
        self.begun.set()
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return Response(request.url, self.status, body=self.answer, request=request)


class Notes(dict):
    """The shared notes of a frontier."""

    looks = 0

    async def get(self, key):
        self.looks += 1
        return super().get(key, (None, 0))[0]

    async def put(self, key, value, ttl):
        self[key] = value, ttl


def desk(fetcher, notes=None, **settings):
    shared = {} if notes is None else {"notes": notes}
    return RobotsCache(fetcher, "skitter/1", RobotsSettings(**settings), **shared)


async def test_a_verdict_is_fetched_once_and_then_cached():
    fetcher = GatedFetcher()
    robots = desk(fetcher)
    assert robots.known(URL) is None
    policy = await robots.policy(URL)
    assert not policy.allowed(URL)
    assert robots.known("http://site.test/other") is policy
    assert await robots.policy(URL) is policy
    assert fetcher.asked == ["http://site.test/robots.txt"]


async def test_each_scheme_host_and_port_has_a_file_of_its_own():
    fetcher = GatedFetcher()
    robots = desk(fetcher)
    for origin in ("http://site.test", "https://site.test", "http://site.test:81", "http://www.site.test"):
        await robots.policy(f"{origin}/x")
    assert len(set(fetcher.asked)) == 4


async def test_concurrent_callers_share_one_fetch_and_one_policy():
    fetcher = GatedFetcher()
    robots = desk(fetcher)
    policies = await asyncio.gather(*(robots.policy(URL) for _ in range(10)))
    assert len(fetcher.asked) == 1
    assert len({id(policy) for policy in policies}) == 1


async def test_a_cancelled_caller_does_not_cancel_the_shared_fetch():
    fetcher = GatedFetcher()
    fetcher.gate.clear()
    robots = desk(fetcher)
    first, second = asyncio.create_task(robots.policy(URL)), asyncio.create_task(robots.policy(URL))
    await fetcher.begun.wait()
    first.cancel()
    fetcher.gate.set()
    assert not (await second).allowed(URL)
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_workers_share_what_one_of_them_fetched():
    notes, fetcher, other = Notes(), GatedFetcher(), GatedFetcher()
    await desk(fetcher, notes).policy(URL)
    policy = await desk(other, notes).policy(URL)
    assert not policy.allowed(URL)
    assert other.asked == []
    ((value, ttl),) = notes.values()
    # Shared for longer than it holds, so that its rules outlive an outage.
    assert ttl > decode_record(value).ttl


async def test_failures_are_counted_over_all_workers_and_over_expiry():
    notes, fetcher = Notes(), GatedFetcher(status=500)
    for failures in (1, 2, 3):
        robots = desk(fetcher, notes, first_deferral=0.000001, max_failures=3)
        verdict = await robots.policy(URL)
        assert isinstance(verdict, Deferred)
        assert verdict.exhausted is (failures == 3)
        assert verdict.error == "robots.txt returned 500"
    assert len(fetcher.asked) == 3


async def test_an_unresponsive_origin_is_an_error_for_all_waiting_requests_and_is_not_shared():
    notes, fetcher = Notes(), GatedFetcher(ConnectError("refused"))
    robots = desk(fetcher, notes)
    errors = await asyncio.gather(robots.policy(URL), robots.policy(URL), return_exceptions=True)
    assert errors == [fetcher.answer] * 2
    assert len(fetcher.asked) == 1
    assert (robots.known(URL), notes) == (None, {})


async def test_the_notes_are_asked_once_for_soon_repeated_attempts_to_reach_an_origin():
    notes, fetcher = Notes(), GatedFetcher(ConnectError("refused"))
    robots = desk(fetcher, notes)
    for _ in range(3):
        with pytest.raises(ConnectError):
            await robots.policy(URL)
    assert (len(fetcher.asked), notes.looks) == (3, 1)
    fetcher.answer = RULES
    await robots.policy(URL)
    assert len(notes) == 1


async def test_while_a_host_is_deferred_it_is_not_asked_and_the_rest_of_the_pause_is_returned():
    notes, fetcher = Notes(), GatedFetcher()
    record = RobotsRecord(RobotsState.UNREACHABLE, time.time() - 400, 1000, failures=1, error="x")
    await notes.put("robots:http://site.test", encode_record(record), 2000)
    robots = desk(fetcher, notes)
    for verdict in (await robots.policy(URL), await robots.policy(URL), robots.known(URL)):
        assert 500 < verdict.seconds <= 600
    assert fetcher.asked == []


async def test_a_file_that_ran_out_is_fetched_again():
    notes, fetcher = Notes(), GatedFetcher()
    old = RobotsRecord(RobotsState.RULES, time.time() - 100, 50, b"User-agent: *\nDisallow:")
    await notes.put("robots:http://site.test", encode_record(old), 1000)
    assert not (await desk(fetcher, notes).policy(URL)).allowed(URL)
    assert len(fetcher.asked) == 1


async def test_the_number_of_files_kept_is_bounded():
    fetcher = GatedFetcher()
    robots = desk(fetcher, max_cached=2)
    for host in ("a", "b", "c"):
        await robots.policy(f"http://{host}.test/")
    assert robots.known("http://a.test/") is None
    assert robots.known("http://c.test/") is not None


async def test_closing_cancels_running_fetches():
    fetcher = GatedFetcher()
    fetcher.gate.clear()
    robots = desk(fetcher)
    waiting = asyncio.create_task(robots.policy(URL))
    await fetcher.begun.wait()
    await robots.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
