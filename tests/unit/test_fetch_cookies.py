"""CookieJars: which cookies are sent with which requests."""

from types import SimpleNamespace

import pytest

from skitter.fetch import cookie_jar
from skitter.fetch.contract import UnsendableRequest
from skitter.fetch.cookie_jar import MAX_COOKIES_A_SITE
from skitter.fetch.cookies import CookieJars
from skitter.request import Request
from skitter.response import Response


def absorb(jars, url, *cookies, session=""):
    headers = "".join(f"Set-Cookie: {cookie}\r\n" for cookie in cookies).encode()
    jars.absorb(Response(url, 200, headers=headers, request=Request(url, session=session)))


def sent(jars, url, **more):
    header = jars.header_for(Request(url, **more))
    return set(header.split("; ")) if header else set()


@pytest.mark.parametrize(
    ("set_by", "cookie", "goes_to", "stays_away_from"),
    [
        ("http://a.example.com/", "n=v", ["http://a.example.com/x"], ["http://example.com/", "http://b.example.com/"]),
        (
            "http://a.example.com/",
            "n=v; Domain=example.com",
            ["http://a.example.com/", "http://b.example.com/", "http://example.com/"],
            ["http://badexample.com/", "http://example.org/"],
        ),
        ("http://example.com/", "n=v; Path=/in", ["http://example.com/in/a"], ["http://example.com/", "http://example.com/inn"]),
        ("http://example.com/a/b", "n=v", ["http://example.com/a/c"], ["http://example.com/"]),
        ("https://example.com/", "n=v; Secure", ["https://example.com/"], ["http://example.com/"]),
        ("http://127.0.0.1:81/", "n=v", ["http://127.0.0.1:82/"], ["http://127.0.0.2:81/"]),
        ("http://localhost/", "n=v", ["http://localhost/"], ["http://other/"]),
        ("http://[::1]:8/", "n=v", ["http://[::1]:9/"], ["http://[::2]:8/"]),
        ("http://user@example.com/", "n=v", ["http://example.com/"], []),
        ("http://shop.co.uk/", "n=v; Domain=.shop.co.uk", ["http://www.shop.co.uk/"], ["http://other.co.uk/"]),
        ("https://example.com/", "__Host-n=v; Secure; Path=/", ["https://example.com/"], []),
    ],
)  # fmt: skip
def test_a_cookie_goes_where_its_attributes_say(set_by, cookie, goes_to, stays_away_from):
    jars = CookieJars()
    absorb(jars, set_by, cookie)
    pair = cookie.partition(";")[0]
    assert [sent(jars, url) for url in goes_to] == [{pair}] * len(goes_to)
    assert [sent(jars, url) for url in stays_away_from] == [set()] * len(stays_away_from)


@pytest.mark.parametrize(
    ("set_by", "cookie"),
    [
        ("http://a.example.com/", "n=v; Domain=other.com"),
        ("http://shop.co.uk/", "n=v; Domain=co.uk"),
        ("http://shop.co.uk/", "n=v; Domain=.uk"),
        ("http://me.github.io/", "n=v; Domain=github.io"),
        ("http://example.com/", "n=v; Domain=www.example.com"),
        ("http://example.com/", "n=v; Secure"),
        ("https://example.com/", "__Secure-n=v"),
        ("https://example.com/", "__Host-n=v; Secure; Path=/; Domain=example.com"),
        ("https://example.com/", "__Host-n=v; Secure; Path=/deep"),
        ("http://example.com/", "n=v; Max-Age=0"),
        ("http://example.com/", "n=v; Expires=Thu, 01 Jan 1970 00:00:00 GMT"),
        ("http://example.com/", "n=" + "v" * 5000),
    ],
)
def test_a_cookie_that_breaks_the_rules_is_not_kept(set_by, cookie):
    jars = CookieJars()
    absorb(jars, set_by, cookie)
    everywhere = [set_by, set_by.replace("http://", "https://"), set_by.replace("://", "://www.")]
    assert [sent(jars, url) for url in everywhere] == [set()] * 3


def test_a_later_cookie_replaces_or_deletes_an_earlier_one():
    jars = CookieJars()
    absorb(jars, "http://example.com/", "a=1", "b=1")
    absorb(jars, "http://example.com/", "a=2", "b=gone; Max-Age=-1")
    assert sent(jars, "http://example.com/") == {"a=2"}


def test_sessions_do_not_see_each_other():
    jars = CookieJars()
    absorb(jars, "http://example.com/", "who=anna", session="anna")
    assert sent(jars, "http://example.com/", session="anna") == {"who=anna"}
    assert sent(jars, "http://example.com/", session="bert") == set()
    assert sent(jars, "http://example.com/") == set()


def test_cookies_of_a_request_win_over_the_jar():
    jars = CookieJars()
    absorb(jars, "http://example.com/", "a=jar", "b=jar")
    assert sent(jars, "http://example.com/", cookies={"a": "own", "c": "own"}) == {"a=own", "b=jar", "c=own"}
    assert sent(jars, "http://elsewhere.org/", cookies={"a": "own"}) == {"a=own"}


@pytest.mark.parametrize("cookies", [{"a": "b;c"}, {"a": "b\nc"}, {"a;b": "c"}, {"a=b": "c"}])
def test_a_cookie_that_would_become_another_is_refused(cookies):
    with pytest.raises(UnsendableRequest):
        CookieJars().header_for(Request("http://example.com/", cookies=cookies))


def test_the_number_of_jars_is_bounded_and_the_least_recently_used_one_is_dropped():
    jars = CookieJars(max_jars=2)
    absorb(jars, "http://one.com/", "n=1")
    absorb(jars, "http://two.com/", "n=2")
    assert sent(jars, "http://one.com/") == {"n=1"}
    absorb(jars, "http://three.com/", "n=3")
    assert [sent(jars, f"http://{name}.com/") for name in ("one", "two", "three")] == [
        {"n=1"},
        set(),
        {"n=3"},
    ]


def test_the_size_of_all_jars_is_bounded_and_the_least_recently_used_one_is_dropped():
    jars = CookieJars(max_bytes=10_000)
    for name in ("one", "two", "three"):
        absorb(jars, f"http://{name}.com/", "n=" + "v" * 3000)
    assert sent(jars, "http://one.com/")
    absorb(jars, "http://four.com/", "n=" + "v" * 3000)
    assert [bool(sent(jars, f"http://{name}.com/")) for name in ("one", "two", "three", "four")] == [
        True, False, True, True,
    ]  # fmt: skip
    absorb(jars, "http://four.com/", "n=1")
    absorb(jars, "http://five.com/", "n=" + "v" * 3000)
    assert [bool(sent(jars, f"http://{name}.com/")) for name in ("one", "three", "four", "five")] == [
        True
    ] * 4


def test_the_number_of_cookies_of_a_site_is_bounded():
    jars = CookieJars()
    absorb(jars, "http://example.com/", *(f"n{number}=v" for number in range(1000)))
    kept = sent(jars, "http://example.com/")
    assert len(kept) == MAX_COOKIES_A_SITE
    assert "n999=v" in kept


def test_expired_cookies_do_not_count(monkeypatch):
    now = [1_700_000_000.0]
    monkeypatch.setattr(cookie_jar, "time", SimpleNamespace(time=lambda: now[0]))
    jars = CookieJars(max_bytes=2000)
    absorb(jars, "http://example.com/", "login=1")
    for number in range(100):
        absorb(jars, "http://example.com/", f"n{number}={'v' * 100}; Max-Age=1")
        now[0] += 2
        assert sent(jars, "http://example.com/") == {"login=1"}


def test_unusual_cookies_raise_no_error():
    jars = CookieJars()
    absorb(
        jars,
        "http://example.com/",
        "",
        ";",
        "=",
        "a",
        "=v",
        "x=1; Expires=never; Max-Age=soon",
        "ok=1; Path=",
    )
    assert "ok=1" in sent(jars, "http://example.com/")
