"""robots.txt by RFC 9309: the meaning of each answer, and the selection of groups."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skitter.fetch.contract import FetcherCapabilities, TimedOut
from skitter.fetch.robots import (
    MAX_PARSED,
    Deferred,
    RobotsRecord,
    RobotsSettings,
    RobotsState,
    decode_record,
    encode_record,
    fetch_robots,
    parse_robots,
)
from skitter.fetch.robots_rules import RobotsPolicy, product_token
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
async def test_without_a_robots_txt_everything_is_allowed(status):
    record = await record_of(status, body=b"")
    verdict = parse_robots(record, "skitter", SETTINGS, time.time())
    assert verdict.allowed(f"{ORIGIN}/private/x")
    assert verdict.crawl_delay is None
    assert record.ttl == 86_400


@pytest.mark.parametrize("status", [500, 502, 503, 599, 429, 999, 199])
async def test_a_server_in_trouble_defers_its_host(status):
    record = await record_of(status)
    verdict = parse_robots(record, "skitter", SETTINGS, record.fetched_at)
    assert verdict == Deferred(
        30, exhausted=False, error=f"robots.txt returned {status}", throttled=status in (429, 503)
    )


async def test_a_network_error_is_not_an_answer_of_the_origin():
    with pytest.raises(TimedOut):
        await fetch_robots(ScriptedFetcher({f"{ORIGIN}/robots.txt": TimedOut("too slow")}), ORIGIN, SETTINGS)


async def test_a_network_error_after_a_redirect_is_an_answer_without_a_file():
    answers = {
        f"{ORIGIN}/robots.txt": (301, {"Location": "http://other.test/robots.txt"}, b""),
        "http://other.test/robots.txt": TimedOut("too slow"),
    }
    record = await fetch_robots(ScriptedFetcher(answers), ORIGIN, SETTINGS)
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


async def test_a_date_in_retry_after_is_compared_with_the_clock_of_the_server():
    times = {"Retry-After": "Thu, 01 Jan 2015 00:06:40 GMT", "Date": "Thu, 01 Jan 2015 00:00:00 GMT"}
    assert (await record_of(503, times)).ttl == 400


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


@pytest.mark.parametrize(
    "other",
    [
        "Crawl-delay: 5",
        "Invalid: x",
        "Sitemap: http://s/",
        "Host: h",
        "Request-rate: 1/5",
        "Noindex: /x",
        "Clean-param: a /b",
        "",
        "# x",
        "rubbish",
        "Visit-time: 0400-0845",
    ],
)
def test_other_records_never_end_a_group(other):
    """RFC 9309, 2.2.4: parsing of other records MUST NOT interfere with the parsing of explicitly defined records."""
    assert not allows(f"User-agent: skitter\n{other}\nUser-agent: *\nDisallow: /private/")
    assert not allows(f"User-agent: *\n{other}\nUser-agent: otherbot\nDisallow: /private/")
    assert not allows(f"User-agent: skitter\nDisallow: /a\n{other}\nDisallow: /private/")
    assert allows(f"User-agent: skitter\nDisallow: /a\n{other}\nUser-agent: *\nDisallow: /private/")


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("User-agent: *\nCrawl-delay: 5\nDisallow: /x", 5),
        ("User-agent: skitter\nCrawl-delay: 5\nUser-agent: *\nCrawl-delay: 7\nDisallow: /x", 5),
        ("User-agent: otherbot\nCrawl-delay: 5\nUser-agent: skitter\nDisallow: /x", 5),
        ("User-agent: otherbot\nCrawl-delay: 5\nUser-agent: skitter\nCrawl-delay: 1\nDisallow: /x", 1),
        ("User-agent: skitter\nUser-agent: *\nCrawl-delay: 2\nDisallow: /x", 2),
        ("User-agent: skitter\nDisallow: /x\n\nUser-agent: *\nCrawl-delay: 7", None),
        ("User-agent: skitter\nDisallow: /x\nCrawl-delay: 3\nUser-agent: *\nDisallow: /", 3),
        ("User-agent: *\nCrawl-delay: soon", None),
        ("User-agent: *\nCrawl-delay: -1", None),
        ("User-agent: *\nCrawl-delay: inf", None),
        ("Crawl-delay: 9\nUser-agent: *\nDisallow: /x", None),
    ],
)
def test_a_crawl_delay_belongs_to_the_user_agents_before_it_and_else_to_its_group(text, delay):
    assert policy(text).crawl_delay == delay


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_cr_and_lf_end_a_line(character):
    """RFC 9309, 2.2: EOL = CR / LF / CRLF."""
    assert not allows(
        f"User-agent: *\nDisallow: /private/{character}Allow: /private/x",
        f"/private/{character}Allow:%20/private/x",
    )
    assert allows(f"User-agent: *\n# {character}Disallow: /private/")
    for end in ("\r", "\n", "\r\n"):
        assert not allows(f"User-agent: *{end}Disallow: /private/{end}")


@pytest.mark.parametrize(
    ("rule", "path", "allowed"),
    [
        # The examples of 2.2.2 and 2.2.3.
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz", False),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https://foo.bar", False),
        ("/foo/bar/\u30c4", "/foo/bar/%E3%83%84", False),
        ("/foo/bar/%E3%83%84", "/foo/bar/\u30c4", False),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz", False),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", False),
        ("/path/foo-%24", "/path/foo-$", False),
        # Escapes, case, wildcards.
        ("/a%3cd.html", "/a%3Cd.html", False), ("/a%2fb.html", "/a/b.html", True), ("/%7ejoe/", "/~joe/x", False),
        ("/PRIVATE", "/private", True), ("/fish*", "/fishheads", False), ("/*.php$", "/x.php?a", True),
        ("/*.php$", "/a/x.php", False), ("/fish*.php", "/fishheads/catfish.php?x", False), ("/a*b*c", "/axbxx", True),
        ("*/x", "/y/x", False), ("$", "/", True), ("/$", "/", False), ("/$", "/x", True), ("/a$b", "/a$b", False),
        ("/a b", "/a%20b", False), ("/caf\xe9".encode("latin-1"), "/caf%E9", False), ("/x" * 9000, "/x" * 8400, False),
        ("*" * 1000 + "x", "/" + "a" * 5000, True), ("/*a" * 40 + "$", "/" + "a" * 3000 + "b", True),
    ],
)  # fmt: skip
def test_paths_are_compared_octet_by_octet(rule, path, allowed):
    rule = rule.encode() if isinstance(rule, str) else rule
    assert allows(b"User-agent: *\nDisallow: " + rule, path) is allowed


@pytest.mark.parametrize(
    "text",
    [
        "\xefUser-agent: *\nDisallow: /private/", "User-agent *\nDisallow /private/", "Useragent: *\nDissalow: /private/",
        "User-agents: *\nDisallowed: /private/", "User-agent: *\nDisallow\xa0: /private/", "User-agent: *\nDisallow:\xa0/private/",
        "User-agent: *\nDisallow all: /private/", "User-agent: * and more\nDisallow: /private/",
        "User-agent: *\nDisallow: /private/\nuser agents are welcome here\nDisallow: /b",
        "User-agent: *\nuser agents are welcome here\nDisallow: /private/",
        "User-agent: *\nAllow: /private/x y\nDisallow: /private/", "User-agent: *\nDisallow: /private/\0x",
    ],
)  # fmt: skip
def test_typing_errors_forbid_as_they_do_for_google(text):
    assert not allows(text if "\xa0" in text else text.encode("latin-1"))


class GoogleMatcher:
    """The decisions of Google's published matcher for one product token, reimplemented from its rules."""

    def __init__(self, body, token):
        self.best = {"own": [0, 0], "all": [0, 0]}
        self._token, self._agents, self._ended, self.addressed = token.lower(), set(), False, False
        self._lines = body.decode("latin-1").replace("\r", "\n").split("\n")

    def allows(self, path):
        for line in self._lines:
            record = line.partition("#")[0].strip(" \t\v\f")
            key, colon, value = record.partition(":")
            if not colon:
                words = record.split()
                if len(words) != 2:
                    continue
                key, value = words
            self._take(key.strip().lower(), value.strip(" \t\v\f"), path)
        disallow, allow = self.best["own"] if self.addressed else self.best["all"]
        return disallow <= allow

    def _take(self, key, value, path):
        if key.startswith(("user-agent", "useragent", "user agent")):
            if self._ended:
                self._agents, self._ended = set(), False
            name = value[
                : len(value) - len(value.lstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"))
            ]
            if value[:1] == "*" and value[1:2].strip() == "":
                self._agents.add("all")
            elif name.lower() == self._token:
                self._agents.add("own")
                self.addressed = True
        elif key.startswith(("allow", "disallow", "disalow")) and self._agents:
            self._ended = True
            if self._matches(value, path):
                kind = "own" if "own" in self._agents else "all"
                side = 1 if key.startswith("allow") else 0
                self.best[kind][side] = max(self.best[kind][side], len(value))

    def _matches(self, pattern, path):
        at = {0}
        for index, character in enumerate(pattern):
            if character == "$" and index == len(pattern) - 1:
                return len(path) in at
            if character == "*":
                at = set(range(min(at), len(path) + 1)) if at else at
            else:
                at = {place + 1 for place in at if path[place : place + 1] == character}
        return bool(at)


_LINES = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["User-agent", "user-agent", "Disallow", "disallow", "Allow", "Disalow", "Crawl-delay", "Sitemap", "Foo", "Useragent", "User-agents"]),
        st.sampled_from([":", ": ", " ", " : ", ":\t"]),
        st.sampled_from(["", "*", "* x", "skitter", "Skitter/2", "skitter-x", "other", "/", "/a", "/a/", "/a/b", "/*b", "/a$", "/*$", "/a/*/b", "5", "*a", "a", "/a b", "x y"]),
    ),
    st.sampled_from(["", "# c", "rubbish", "user agents are welcome", "Disallow", ": x", "Disallow all of it", "Disallow /a:b", "Allow /a:b", "Allow all: /a"]),
)  # fmt: skip


@settings(max_examples=400)
@given(
    st.lists(_LINES, max_size=9),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.sampled_from(["/", "/a", "/a/", "/a/b", "/b", "/a/x/b", "/ab", "/a:b", "/c"]),
)
def test_no_url_that_google_forbids_is_allowed(lines, end, path):
    text = end.join(lines).encode()
    assert GoogleMatcher(text, "skitter").allows(path) or not allows(text, path)


def test_a_crawler_without_a_product_token_obeys_the_group_of_all():
    text = "User-agent: 123\nAllow: /\n\nUser-agent: *\nDisallow: /private/"
    assert not allows(text, token="")


def test_escapes_are_compared_by_their_characters():
    assert not allows("User-agent: *\nDisallow: /ä/", "/%C3%A4/x")
    assert not allows("User-agent: *\nDisallow: /%7Eme/", "/~me/x")


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfUser-agent: *\nDisallow: /private/", b"\xff\xfe\nUser-agent: *\nDisallow: /private/"])  # fmt: skip
def test_a_byte_order_mark_and_invalid_bytes_are_tolerated(text):
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
        ("360Spider/1.0", ""),
        ("", ""),
    ],
)
def test_the_product_token_of_a_user_agent(user_agent, token):
    assert product_token(user_agent) == token


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("User-agent: *\nContent-Signal: search=yes, AI-Train = No\nDisallow: /a", {"search": True, "ai-train": False}),
        ("Content-signal: ai-input=no\n\nUser-agent: *\nDisallow:", {"ai-input": False}),
        ("User-agent: *\nDisallow: /\nContent-Signal: ai-train=no\nUser-agent: skitter\nAllow: /", {}),
        ("User-agent: a\nUser-agent: skitter\nContent-Signal: ai-train=yes\nUser-agent: *\nContent-Signal: search=no",
         {"ai-train": True}),
        ("User-agent: *\nContent-Signal: search, ai-train=maybe, =, x=yes", {"x": True}),
    ],
)  # fmt: skip
def test_content_signals_belong_to_a_group(text, expected):
    assert policy(text, "skitter").content_signals == expected


def test_a_content_signal_does_not_end_the_user_agents_of_a_group():
    text = "User-agent: skitter\nContent-Signal: ai-train=no\nUser-agent: other\nDisallow: /private"
    assert not allows(text)
