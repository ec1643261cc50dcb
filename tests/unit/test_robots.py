"""robots.txt by RFC 9309: what each answer means, and who is addressed."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.fetch.contract import FetcherCapabilities, TimedOut
from skitter.fetch.robots import (
    MAX_PARSED,
    Deferred,
    RobotsPolicy,
    RobotsRecord,
    RobotsSettings,
    RobotsState,
    decode_record,
    encode_record,
    fetch_robots,
    origin_of,
    parse_robots,
    product_token,
)
from skitter.response import Response

ORIGIN = "http://site.test:8080"
SETTINGS = RobotsSettings(first_deferral=30, longest_deferral=100, max_failures=4)


class ScriptedFetcher:
    """Answers URLs from a dictionary: (status, headers, body) or an exception."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    async def open(self): ...

    async def close(self): ...

    capabilities = FetcherCapabilities()

    async def fetch(self, request, *, permit, on_headers=None):
        self.asked.append(request.url)
        answer = self.answers[request.url]
        if isinstance(answer, Exception):
            raise answer
        status, headers, body = answer
        return Response(request.url, status, headers=headers, body=body, request=request)


async def record_of(status, headers=None, body=b"", previous=None):
    fetcher = ScriptedFetcher({f"{ORIGIN}/robots.txt": (status, headers or {}, body)})
    return await fetch_robots(fetcher, ORIGIN, SETTINGS, previous)


def policy(text, token="skitter"):
    body = text if isinstance(text, bytes) else text.encode()
    record = RobotsRecord(RobotsState.RULES, time.time(), 60, body)
    return parse_robots(record, token, SETTINGS, time.time())


def allows(text, path="/private/x", token="skitter"):
    return policy(text, token).allowed(f"{ORIGIN}{path}")


async def test_a_file_rules_its_origin():
    record = await record_of(
        200, body=b"User-agent: *\nDisallow: /private/\nCrawl-delay: 2.5\nSitemap: http://s/1\n"
    )
    verdict = parse_robots(record, "skitter", SETTINGS, time.time())
    assert isinstance(verdict, RobotsPolicy)
    assert not verdict.allowed(f"{ORIGIN}/private/x")
    assert verdict.allowed(f"{ORIGIN}/public")
    assert (verdict.crawl_delay, verdict.sitemaps) == (2.5, ("http://s/1",))


@pytest.mark.parametrize("status", [204, 400, 401, 403, 404, 410, 418, 451, 304, 300])
async def test_where_there_is_no_file_all_is_allowed(status):
    record = await record_of(status, body=b"")
    verdict = parse_robots(record, "skitter", SETTINGS, time.time())
    assert verdict.allowed(f"{ORIGIN}/private/x")
    assert verdict.crawl_delay is None
    assert record.ttl == 86_400


@pytest.mark.parametrize("status", [500, 502, 503, 599, 429, 999, 199])
async def test_a_server_in_trouble_defers_its_host(status):
    record = await record_of(status)
    verdict = parse_robots(record, "skitter", SETTINGS, record.fetched_at)
    assert verdict == Deferred(30, exhausted=False, error=f"http: robots.txt answered {status}")


async def test_a_network_error_defers_its_host_and_keeps_its_kind():
    fetcher = ScriptedFetcher({f"{ORIGIN}/robots.txt": TimedOut("too slow")})
    record = await fetch_robots(fetcher, ORIGIN, SETTINGS)
    assert record.state is RobotsState.UNREACHABLE
    assert record.error == "timeout: too slow"


async def test_deferrals_double_up_to_a_bound_and_run_out():
    record, pauses, exhausted = None, [], []
    for _ in range(5):
        record = await record_of(500, previous=record)
        verdict = parse_robots(record, "skitter", SETTINGS, record.fetched_at)
        pauses.append(verdict.seconds)
        exhausted.append(verdict.exhausted)
    assert pauses == [30, 60, 100, 100, 100]
    assert exhausted == [False, False, False, True, True]
    assert (await record_of(200, previous=record)).failures == 0


async def test_thousands_of_failures_do_not_overflow():
    worn = RobotsRecord(RobotsState.UNREACHABLE, 0, 0, failures=10_000)
    assert (await record_of(500, previous=worn)).ttl == 100


async def test_the_server_may_ask_for_a_longer_pause():
    assert (await record_of(503, {"Retry-After": "400"})).ttl == 400
    assert (await record_of(503, {"Retry-After": "1"})).ttl == 30


async def test_rules_known_before_stay_in_force_while_the_host_is_silent():
    before = RobotsRecord(RobotsState.RULES, 0, 60, b"User-agent: *\nDisallow: /private/")
    record = await record_of(500, previous=before)
    assert (record.state, record.body, record.failures, record.ttl) == (RobotsState.RULES, before.body, 1, 30)
    verdict = parse_robots(record, "skitter", SETTINGS, time.time())
    assert not verdict.allowed(f"{ORIGIN}/private/x")


def redirects(count, last):
    answers = {}
    for hop in range(count):
        here = f"{ORIGIN}/robots.txt" if hop == 0 else f"http://other{hop}.test/r"
        answers[here] = (301, {"Location": f"http://other{hop + 1}.test/r"}, b"")
    answers[f"http://other{count}.test/r"] = last
    return ScriptedFetcher(answers)


async def test_five_redirects_are_followed_also_to_other_hosts():
    fetcher = redirects(5, (200, {}, b"User-agent: *\nDisallow: /private/"))
    record = await fetch_robots(fetcher, ORIGIN, SETTINGS)
    assert record.state is RobotsState.RULES
    assert len(fetcher.asked) == 6


async def test_a_sixth_redirect_is_not_followed_and_counts_as_no_file():
    fetcher = redirects(6, (200, {}, b"User-agent: *\nDisallow: /"))
    record = await fetch_robots(fetcher, ORIGIN, SETTINGS)
    assert record.state is RobotsState.UNAVAILABLE
    assert len(fetcher.asked) == 6


async def test_an_error_at_the_end_of_a_redirect_counts_for_the_origin():
    record = await fetch_robots(redirects(1, (503, {}, b"")), ORIGIN, SETTINGS)
    assert record.state is RobotsState.UNREACHABLE


@pytest.mark.parametrize(
    "headers", [{}, {"Location": ""}, {"Location": "ftp://x/"}, {"Location": "http://[bad"}]
)
async def test_a_redirect_that_leads_nowhere_counts_as_no_file(headers):
    assert (await record_of(302, headers)).state is RobotsState.UNAVAILABLE


async def test_a_relative_redirect_is_resolved():
    rules = (200, {}, b"User-agent: *\nDisallow: /")
    answers = {f"{ORIGIN}/robots.txt": (302, {"Location": "/r2"}, b""), f"{ORIGIN}/r2": rules}
    record = await fetch_robots(ScriptedFetcher(answers), ORIGIN, SETTINGS)
    assert record.state is RobotsState.RULES


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("User-agent: skitter\nDisallow: /private/", False),
        ("User-Agent:SKITTER\nDisallow:/private/", False),
        ("user-agent: skitter/1.0\ndisallow: /private/", False),
        ("User-agent: Skitter Crawler # ours\nDisallow: /private/", False),
        ("User-agent: ski\nDisallow: /private/", True),
        ("User-agent: skitter-images\nDisallow: /private/", True),
        ("User-agent: otherbot\nDisallow: /private/", True),
        ("User-agent: *\nDisallow: /private/", False),
        ("User-agent: *\nDisallow: /private/\n\nUser-agent: skitter\nDisallow: /elsewhere", True),
        ("User-agent: otherbot\nUser-agent: skitter\nDisallow: /private/", False),
        ("User-agent: skitter\nDisallow: /a\n\nUser-agent: skitter\nDisallow: /private/", False),
        ("User-agent: skitter\nDisallow: /a\n\nUser-agent: skitter/2\nDisallow: /private/", False),
        ("User-agent: skitter\nDisallow:", True),
        ("Disallow: /private/", True),
        ("User-agent: *\nDisallow: /private/\nAllow: /private/x", True),
        ("User-agent: *\nAllow: /\nDisallow: /private/", False),
        ("User-agent: *\nDisallow: /*x$", False),
        ("User-agent: *\nDisallow: /*y$", True),
        ("User-agent: *\rDisallow: /private/\r", False),
        ("User agent skitter\nDisallow: /private/", False),
        ("", True),
        ("<html><title>Not found</title></html>", True),
    ],
)
def test_the_group_of_our_product_token_rules_and_else_that_of_all(text, allowed):
    assert allows(text) is allowed


def test_a_crawler_without_a_product_token_obeys_the_group_of_all():
    text = "User-agent: 123\nAllow: /\n\nUser-agent: *\nDisallow: /private/"
    assert not allows(text, token="")


def test_escapes_are_compared_by_what_they_stand_for():
    assert not allows("User-agent: *\nDisallow: /ä/", "/%C3%A4/x")
    assert not allows("User-agent: *\nDisallow: /%7Eme/", "/~me/x")


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfUser-agent: *\nDisallow: /private/", b"\xff\xfe\nUser-agent: *\nDisallow: /private/"])  # fmt: skip
def test_a_byte_order_mark_and_bytes_that_are_no_text_do_no_harm(text):
    assert not allows(text)


async def test_only_500_kib_count():
    lines = b"User-agent: *\nDisallow: /early/\n"
    body = lines + b"#" * (MAX_PARSED - len(lines)) + b"\nDisallow: /late/\n"
    record = await record_of(200, body=body)
    verdict = parse_robots(record, "skitter", SETTINGS, time.time())
    assert len(record.body) == MAX_PARSED
    assert not verdict.allowed(f"{ORIGIN}/early/")
    assert verdict.allowed(f"{ORIGIN}/late/")


def test_robots_txt_itself_is_always_allowed():
    assert allows("User-agent: *\nDisallow: /", "/robots.txt")


@given(st.binary(max_size=400))
def test_any_bytes_can_be_parsed(body):
    assert allows(body) in (True, False)


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("skitter/1.0", "skitter"),
        ("my-bot_x/2 (+http://me)", "my-bot_x"),
        ("Mozilla/5.0 (compatible; Foobot/2.1; +http://foo)", "Foobot"),
        ("Mozilla/5.0 (X11; Linux)", "Mozilla"),
        ("123", ""),
        ("", ""),
    ],
)
def test_the_product_token_of_a_user_agent(user_agent, token):
    assert product_token(user_agent) == token


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.test/x/y?z", "http://a.test"),
        ("https://a.test:8443", "https://a.test:8443"),
        ("http://u:p@a.test:81/x@y", "http://a.test:81"),
        ("http://a.test?x=/b", "http://a.test"),
        ("http://[::1]:8/", "http://[::1]:8"),
    ],
)
def test_the_origin_of_a_url(url, origin):
    assert origin_of(url) == origin


def test_a_record_survives_the_way_through_the_frontier():
    record = RobotsRecord(RobotsState.UNREACHABLE, 12.5, 30, b"\xff", 3, "dns: x")
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("data", [None, b"", b"rubbish", b"\x90", encode_record(RobotsRecord(RobotsState.RULES, 0, 0, version=9))])  # fmt: skip
def test_a_record_that_cannot_be_read_counts_as_none(data):
    assert decode_record(data) is None


@pytest.mark.parametrize(("age", "holds"), [(0, True), (59, True), (61, False), (-59, True), (-3600, False)])
def test_a_record_holds_for_its_time_and_not_from_the_far_future(age, holds):
    now = 1_700_000_000.0
    assert RobotsRecord(RobotsState.RULES, now - age, 60).holds(now) is holds
