"""Backoff: delays grow up to a maximum, a success resets them, and an outage is reported once."""

import asyncio

import pytest

from skitter._utils.backoff import Backoff, Unavailable
from skitter.errors import StoreError


def failing(times, result="done"):
    """Return a call that is unavailable a number of times, and the list of its calls."""
    calls = []

    async def attempt():
        calls.append(len(calls))
        if len(calls) <= times:
            raise Unavailable("connection refused")
        return result

    return attempt, calls


def test_delays_grow_by_the_multiplier_up_to_the_maximum_and_start_again_after_a_reset():
    backoff = Backoff(first=0.5, maximum=10.0, multiplier=3.0, jitter=0.0)
    assert [backoff.next_delay() for _ in range(5)] == [0.5, 1.5, 4.5, 10.0, 10.0]
    backoff.reset()
    assert backoff.next_delay() == 0.5


def test_a_first_delay_above_the_maximum_is_cut():
    assert Backoff(first=7.0, maximum=2.0, jitter=0.0).next_delay() == 2.0


def test_jitter_takes_a_random_share_of_each_delay():
    backoff = Backoff(first=1.0, maximum=1.0, jitter=0.25)
    delays = [backoff.next_delay() for _ in range(200)]
    assert all(0.75 <= delay <= 1.0 for delay in delays)
    assert max(delays) - min(delays) > 0.1


async def test_wait_sleeps_for_the_next_delay_but_no_longer_than_allowed(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    backoff = Backoff(first=1.0, maximum=60.0, jitter=0.0)
    for at_most in (60.0, 60.0, 0.5, -1.0):
        await backoff.wait(at_most)
    assert slept == [1.0, 2.0, 0.5, 0.0]


async def test_a_call_is_repeated_until_it_succeeds_and_the_outage_is_reported_once(caplog):
    backoff = Backoff("the server", 60.0, first=0.001, maximum=0.001, logger="skitter.test")
    attempt, calls = failing(5)
    with caplog.at_level("WARNING", "skitter.test"):
        assert await backoff.call(attempt) == "done"
        assert await backoff.call(failing(0)[0]) == "done"
    assert len(calls) == 6
    assert [record.name for record in caplog.records] == ["skitter.test"] * 2
    assert "connection refused" in caplog.records[0].getMessage()


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 1), (0.02, 50)])
async def test_a_call_gives_up_when_the_outage_lasts_too_long(seconds, most):
    attempt, calls = failing(10**9)
    with pytest.raises(StoreError) as caught:
        await Backoff("the server", seconds, first=0.001, maximum=0.001).call(attempt)
    assert isinstance(caught.value.__cause__, Unavailable)
    assert caught.value.remedy
    assert 1 <= len(calls) <= most


async def test_other_errors_pass_through_at_once():
    async def attempt():
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        await Backoff("the server", 60.0).call(attempt)
