"""Origins: an unavailable origin delays only its own requests, which fail for its own reason."""

import pytest

from skitter.fetch.contract import ConnectError, TlsError, UnresolvedHost
from skitter.frontier.records import Resolution
from skitter.request import Request
from skitter.settings import Settings
from skitter.worker import origins as module
from skitter.worker.origins import CONTACT_GRACE, Origins, OriginState

DEAD, GOOD = "http://h.test:81", "http://h.test"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def attempt(origins, clock, error=None, origin=DEAD, lasting=0.0, **fields):
    """Contact an origin without success, as soon as it may be contacted."""
    request = Request(f"{origin}/x", **fields)
    while (refusal := origins.refusal(origin, request)) is not None:
        if refusal[1].resolution is Resolution.FAILED:
            return refusal[1]
        clock.now += refusal[1].after
    began = clock.now
    clock.now += lasting
    return origins.failed(origin, request, error or ConnectError("refused"), began)


def attempts_until_given_up(origins, clock, **fields):
    attempts = 1
    while (decision := attempt(origins, clock, **fields)).resolution is Resolution.RETRY:
        attempts += 1
    return attempts, decision


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_an_origin_that_never_answered_is_retried_as_often_as_a_page(clock, retries):
    begin = clock.now
    attempts, decision = attempts_until_given_up(Origins(Settings(max_retries=retries)), clock)
    assert (attempts, decision.error) == (retries + 1, "connect: refused")
    assert clock.now - begin <= 15


@pytest.mark.parametrize("lasting", [4.0, 7.0, 10.0])
def test_an_origin_that_is_silent_is_given_up_within_the_time_limit(clock, lasting):
    begin = clock.now
    attempts_until_given_up(Origins(Settings()), clock, lasting=lasting)
    assert clock.now - begin <= 15


def test_workers_wait_for_an_origin_that_answered_before(clock):
    origins, begin = Origins(Settings()), clock.now
    origins.responded(DEAD)
    _, decision = attempts_until_given_up(origins, clock)
    assert 110 < clock.now - begin <= 150
    assert decision.error == "connect: refused"


def test_an_answer_ends_an_outage_and_its_count(clock):
    origins = Origins(Settings(max_retries=2))
    for _ in range(2):
        attempt(origins, clock)
    origins.responded(DEAD)
    assert origins.refusal(DEAD, Request(f"{DEAD}/x")) is None
    clock.now += 1000
    assert attempt(origins, clock).resolution is Resolution.RETRY


def test_attempts_during_an_outage_of_an_origin_that_answered_do_not_count(clock):
    origins = Origins(Settings())
    assert not attempt(origins, clock).free
    origins.responded(DEAD)
    assert attempt(origins, clock).free


def test_concurrent_failures_count_once(clock):
    origins, request, began = Origins(Settings()), Request(f"{DEAD}/x"), clock.now
    clock.now += 0.1
    decisions = [origins.failed(DEAD, request, ConnectError("refused"), began) for _ in range(10)]
    assert {decision.resolution for decision in decisions} == {Resolution.RETRY}


def test_a_request_that_may_not_be_retried_fails_at_once(clock):
    for known in (False, True):
        origins = Origins(Settings())
        if known:
            origins.responded(DEAD)
        assert attempt(origins, clock, max_retries=0).resolution is Resolution.FAILED


def test_a_certificate_is_not_retried_and_its_requests_fail_without_an_attempt(clock):
    origins = Origins(Settings())
    assert attempt(origins, clock, TlsError("expired")).error == "tls: expired"
    error, decision = origins.refusal(DEAD, Request(f"{DEAD}/y"))
    assert (type(error), decision.resolution) == (TlsError, Resolution.FAILED)


def unknown_name():
    error = UnresolvedHost("no such name")
    error.retryable = False
    return error


def test_a_name_that_does_not_exist_is_not_retried_unless_it_was_resolved_before(clock):
    origins = Origins(Settings())
    assert attempt(origins, clock, unknown_name()).resolution is Resolution.FAILED
    origins = Origins(Settings())
    origins.responded(DEAD)
    assert attempt(origins, clock, unknown_name()).resolution is Resolution.RETRY


def test_an_origin_that_was_given_up_is_tried_again_after_a_minute(clock):
    origins = Origins(Settings())
    attempts_until_given_up(origins, clock)
    request = Request(f"{DEAD}/x")
    assert origins.refusal(DEAD, request)[1].resolution is Resolution.FAILED
    clock.now += 60
    assert origins.refusal(DEAD, request) is None


def test_an_outage_does_not_affect_other_origins_of_the_host(clock):
    origins = Origins(Settings())
    attempt(origins, clock, UnresolvedHost("no such name"))
    assert origins.refusal(GOOD, Request(f"{GOOD}/x")) is None
    assert origins.is_alone(DEAD)
    origins.responded(GOOD)
    assert not origins.is_alone(DEAD)
    assert origins.is_alone("http://other.test")
    attempt(origins, clock, origin=GOOD)
    assert origins.is_alone(DEAD)


def test_requests_join_the_first_one_to_a_new_host_until_it_is_late(clock):
    origins = Origins(Settings())
    assert origins.begin_contact(DEAD) is OriginState.FIRST
    assert origins.begin_contact(DEAD) is OriginState.FOLLOWS
    assert origins.begin_contact(GOOD) is OriginState.FIRST
    clock.now += CONTACT_GRACE
    assert origins.begin_contact(DEAD) is OriginState.REFUSED
    assert origins.begin_contact("http://other.test") is OriginState.FIRST
    for origin in (DEAD, DEAD, GOOD):
        origins.end_contact(origin)
    assert origins.begin_contact(DEAD) is OriginState.FIRST


def test_one_request_at_a_time_waits_for_a_host_of_which_another_origin_answers(clock):
    origins = Origins(Settings())
    origins.responded(GOOD)
    assert origins.begin_contact(DEAD) is OriginState.FIRST
    assert origins.begin_contact(DEAD) is OriginState.REFUSED
    assert origins.begin_contact("https://h.test") is OriginState.REFUSED
    origins.end_contact(DEAD)
    assert origins.begin_contact("https://h.test") is OriginState.FIRST


def test_the_number_of_remembered_origins_is_bounded(clock, monkeypatch):
    monkeypatch.setattr(module, "_MAX_KNOWN", 2)
    origins = Origins(Settings())
    for number in range(4):
        origins.responded(f"http://h{number}.test")
        attempt(origins, clock, origin=f"http://d{number}.test")
    assert [origins.has_responded(f"http://h{number}.test") for number in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    known = [origins.refusal(f"http://d{number}.test", Request("http://x.test/")) for number in range(4)]
    assert [refusal is not None for refusal in known] == [False, False, True, True]
