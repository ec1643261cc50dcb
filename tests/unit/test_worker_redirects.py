"""Redirects: new requests through the frontier, by the rules of RFC 9110, with a scope check at each hop."""

import pytest

from crawl_harness import CrawlHarness, Scripted, page, redirect
from skitter import Request, Response, Spider
from skitter.errors import RedirectError
from skitter.frontier.records import JobState
from skitter.testing import Answer
from skitter.worker.retry import redirected


def follow(status=302, location="/b", url="http://h.test/a", limit=5, set_cookie="", **fields):
    request = Request(url, **fields)
    headers = {"Location": location, **({"Set-Cookie": set_cookie} if set_cookie else {})}
    return redirected(request, Response(url, status, headers=headers, request=request), limit)


BODY_HEADERS = {
    "Content-Type": "text/plain", "content-encoding": "gzip", "Content-Language": "de", "Content-Location": "/x",
    "Content-Length": "1", "X-Other": "kept",
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "method"),
    [(301, "POST"), (302, "POST"), *((303, method) for method in ("POST", "PUT", "PATCH", "DELETE"))],
)
def test_a_redirect_to_get_drops_the_body_and_its_headers(status, method):
    """WHATWG Fetch, 4.4, HTTP-redirect fetch, step 12; RFC 9110, 15.4.2 to 15.4.4."""
    request = follow(status, method=method, body="x", headers=BODY_HEADERS)
    assert (request.method, request.body, request.url) == ("GET", b"", "http://h.test/b")
    assert request.headers == {"X-Other": "kept"}


@pytest.mark.parametrize(
    ("status", "method"),
    [(status, method) for status in (301, 302, 307, 308) for method in ("PUT", "PATCH", "DELETE", "OPTIONS")]
    + [(307, "POST"), (308, "POST")],
)
def test_all_other_redirects_keep_method_body_and_headers(status, method):
    """WHATWG Fetch, 4.4, HTTP-redirect fetch, step 12: 301 and 302 change POST only."""
    request = follow(status, method=method, body="x", headers=BODY_HEADERS)
    assert (request.method, request.body, request.headers) == (method, b"x", BODY_HEADERS)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_head_stays_head(status):
    assert follow(status, method="HEAD").method == "HEAD"


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("b", "http://h.test/dir/b"),
        ("../b", "http://h.test/b"),
        ("//other.test/x", "http://other.test/x"),
        ("?q=1", "http://h.test/dir/a?q=1"),
        ("/b#part", "http://h.test/b"),
        ("HTTPS://H.test/B", "https://h.test/B"),
    ],
)
def test_the_location_may_be_relative(location, url):
    assert follow(location=location, url="http://h.test/dir/a").url == url


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/хлеб".encode(), "http://h.test/%D1%85%D0%BB%D0%B5%D0%B1"),
        ("/a\xe7\xe3o".encode("latin-1"), "http://h.test/a%E7%E3o"),
        ("/全?q=全".encode(), "http://h.test/%E5%85%A8?q=%E5%85%A8"),
        ("http://bücher.test/".encode(), "http://xn--bcher-kva.test/"),
        (b"/%D1%85", "http://h.test/%D1%85"),
    ],
)
def test_a_raw_location_is_requested_as_it_was_sent(location, url):
    """RFC 9112, 2.2 and 5.5: the header is bytes; RFC 3986, 2.1: which are percent-encoded one by one."""
    request = Request("http://h.test/a")
    for answer in (
        Response(request.url, 302, headers=b"Location: " + location + b"\r\n\r\n", request=request),
        Response(request.url, 302, headers={"Location": location.decode("latin-1")}, request=request),
    ):
        assert redirected(request, answer, 5).url == url


def test_the_fields_of_the_request_are_kept_by_a_redirect():
    request = follow(meta={"a": 1}, cb_kwargs={"b": 2}, callback="item", priority=3, session="s", depth=4)
    assert (request.meta, request.cb_kwargs, request.callback) == ({"a": 1}, {"b": 2}, "item")
    assert (request.priority, request.session, request.depth) == (3, "s", 4)
    assert request.redirects == ("http://h.test/a",)


def test_delays_are_not_copied_to_the_target():
    request = follow(delay=5, not_before=10**10)
    assert (request.delay, request.not_before) == (0, 0)


def test_the_target_does_not_have_the_lastmod_of_the_listed_url():
    assert follow(lastmod="2026-11-01").lastmod == ""


@pytest.mark.parametrize(
    ("url", "location", "authorization", "cookies"),
    [
        ("https://h.test/a", "/b", True, True),
        ("https://h.test/a", "https://h.test:443/b", True, True),
        ("https://h.test/a", "http://h.test/b", False, False),
        ("http://h.test/a", "https://h.test/b", False, True),
        ("http://h.test:81/a", "https://h.test/b", False, False),
        ("http://h.test/a", "http://h.test:81/b", False, False),
        ("http://h.test/a", "http://other.test/b", False, False),
        ("http://h.test/a", "http://sub.h.test/b", False, False),
        ("http://sub.h.test/a", "http://h.test/b", False, False),
        ("http://h.test/a", "//user@h.test/b", True, True),
    ],
)
def test_credentials_stay_with_their_origin(url, location, authorization, cookies):
    """WHATWG Fetch, 4.4, HTTP-redirect fetch, step 13; an upgrade to https keeps the cookies of the host."""
    headers = {
        "Authorization": "secret", "PROXY-authorization": "secret", "COOKIE": "a=b", "X-Api-Key": "k", "X-Other": "kept"
    }  # fmt: skip
    request = follow(location=location, url=url, headers=headers, cookies={"c": "d"})
    expected = {"X-Other": "kept"}
    if authorization:
        expected |= {"Authorization": "secret", "PROXY-authorization": "secret"}
    if cookies:
        expected |= {"COOKIE": "a=b", "X-Api-Key": "k"}
    assert (request.headers, request.cookies) == (expected, {"c": "d"} if cookies else {})


@pytest.mark.parametrize(
    ("location", "error"),
    [("", "redirect/location"), ("http://[::1/", "redirect/location"), ("ftp://h.test/", "redirect/scheme")],
)
def test_an_invalid_location_is_an_error(location, error):
    with pytest.raises(RedirectError, match=f"^{error}: "):
        follow(location=location)


def test_a_loop_is_an_error_at_its_first_repetition():
    with pytest.raises(RedirectError, match=r"^redirect/loop: "):
        follow(location="/start", redirects=("http://h.test/start",))


def test_a_redirect_to_itself_that_sets_a_cookie_is_tried_again():
    request = follow(location="/a", set_cookie="seen=1")
    assert (request.url, request.dont_filter) == ("http://h.test/a", True)


def test_a_redirect_is_not_a_loop_if_a_cookie_was_set_since_the_last_visit():
    first = follow(url="http://h.test/a", location="/b", set_cookie="seen=1")
    second = redirected(first, Response(first.url, 302, headers={"Location": "/a"}, request=first), 9)
    assert (second.url, second.dont_filter, second.redirects) == (
        "http://h.test/a", True, ("http://h.test/a", "http://h.test/b"),
    )  # fmt: skip
    with pytest.raises(RedirectError, match=r"^redirect/loop: http://h\.test/b "):
        redirected(second, Response(second.url, 302, headers={"Location": "/b"}, request=second), 9)


def test_a_hop_continues_in_the_session_of_the_previous_one():
    request = Request("http://h.test/a")
    sent = request.replace(session="chosen")
    response = Response("http://h.test/a", 302, headers={"Location": "/b"}, request=sent)
    assert redirected(request, response, 9).session == "chosen"


def test_a_chain_may_be_as_long_as_the_limit():
    chain = tuple(f"http://h.test/{number}" for number in range(4))
    assert len(follow(redirects=chain, limit=5).redirects) == 5
    with pytest.raises(RedirectError, match=r"^redirect/limit: more than 4"):
        follow(redirects=chain, limit=4)


class Collector(Spider):
    async def start(self):
        yield Request(self.url, headers={"Authorization": "secret"})

    def parse(self, response):
        yield {"url": response.url, "depth": response.depth}
        yield response.follow_all("a")


@pytest.fixture
def run(serve, tmp_path):
    async def run_it(pages, hosts=1, **settings):
        site = Scripted({})
        server = serve(site, hosts=hosts)
        site._pages.update(pages(server) if callable(pages) else pages)
        ran = await CrawlHarness(Collector(url=server.url), tmp_path, **settings).run()
        assert ran.state is JobState.FINISHED
        ran.site, ran.server = site, server
        return ran

    return run_it


async def test_a_redirect_leads_to_the_page_at_the_same_depth(run):
    ran = await run({"/": ["/old"], "/old": redirect("/older", 301), "/older": redirect("new"), "/new": []})
    new = ran.server.url_of("/new")
    assert ran.items == [{"url": ran.server.url, "depth": 0}, {"url": new, "depth": 1}]
    assert (ran.counters["redirects"], ran.counters["pages"], ran.status.done) == (2, 2, 4)


async def test_a_target_that_is_known_is_not_fetched_again(run):
    ran = await run({"/": ["/a", "/b"], "/a": redirect("/b"), "/b": redirect("/")})
    assert ran.site.counts == {"/": 1, "/a": 1, "/b": 1}
    assert len(ran.items) == 1


async def test_a_page_behind_its_own_cookie_is_obtained(run):
    def wall(visit):
        return (
            page()
            if "seen=1" in visit.headers.get("cookie", "")
            else redirect("/", **{"Set-Cookie": "seen=1"})
        )

    ran = await run({"/": wall})
    assert [item["url"] for item in ran.items] == [ran.server.url]
    assert ran.letters == {}


async def test_a_page_behind_a_cookie_that_another_page_sets_is_obtained(run):
    def wall(visit):
        return page() if "seen=1" in visit.headers.get("cookie", "") else redirect("/gate")

    ran = await run(
        {
            "/": ["/in"],
            "/in": wall,
            "/gate": redirect("/pass"),
            "/pass": redirect("/in", **{"Set-Cookie": "seen=1"}),
        }
    )
    assert {item["url"][-3:] for item in ran.items} >= {"/in"}
    assert (ran.letters, ran.site.counts["/in"]) == ({}, 2)


async def test_a_page_is_requested_again_after_a_redirect_that_set_a_cookie(run):
    def wall(visit):
        if "seen=1" in visit.headers.get("cookie", ""):
            return page()
        return redirect("/check", **{"Set-Cookie": "seen=1"})

    ran = await run({"/": wall, "/check": redirect("/")})
    assert [item["url"] for item in ran.items] == [ran.server.url]
    assert ran.letters == {}


async def test_a_page_that_sets_cookies_forever_is_given_up(run):
    ran = await run({"/": redirect("/", **{"Set-Cookie": "again=1"})}, max_redirects=3)
    assert ran.letters == {"/": "redirect/limit: more than 3 redirects"}
    assert ran.site.counts["/"] == 4


async def test_a_redirect_out_of_scope_is_counted_and_not_followed(run):
    ran = await run({"/": ["/a", "/b"], "/a": redirect("http://127.0.0.9:1/x"), "/b": []}, deny=[":1/"])
    assert ran.counters["refused/pattern"] == 1
    assert (ran.letters, ran.status.done) == ({}, 3)


async def test_another_host_never_sees_the_credentials(run):
    ran = await run(lambda server: {"/": redirect(server.url_of("/x", 1)), "/x": []}, hosts=2)
    seen = {visit.target: visit.headers.get("authorization") for visit in ran.site.visits}
    assert seen == {"/": "secret", "/x": None}


async def test_a_redirect_without_location_is_a_dead_letter(run):
    ran = await run({"/": Answer(status=302)})
    assert ran.letters["/"].startswith("redirect/location: status 302 without a Location")
    assert ran.counters["failed/redirect/location"] == 1


async def test_a_raw_location_arrives_at_the_server_as_it_was_sent(run):
    ran = await run({"/": Answer(status=302, headers={"Location": "/хлеб".encode().decode("latin-1")})})
    assert set(ran.site.counts) == {"/", "/%D1%85%D0%BB%D0%B5%D0%B1"}


async def test_304_and_300_are_not_redirects(run):
    ran = await run({"/": ["/a", "/b"], "/a": Answer(status=304), "/b": redirect("/c", 300)})
    assert {path: error.partition(":")[0] for path, error in ran.letters.items()} == {
        "/a": "status/304", "/b": "status/300",
    }  # fmt: skip


def refresh_to(content):
    return Answer(f'<title>x</title><meta http-equiv="refresh" content="{content}">'.encode())


async def test_a_refresh_is_followed_at_the_depth_of_its_page_which_is_kept(run):
    pages = {
        "/": refresh_to("0; url=/a"), "/a": Answer(b"<a href=/l>", headers={"Refresh": "9; /b"}), "/b": refresh_to("11; /late"),
        "/l": refresh_to("5"), "/late": [],
    }  # fmt: skip
    ran = await run(pages, refresh_delay_cap=10)
    assert {(item["url"][len(ran.server.url) - 1 :], item["depth"]) for item in ran.items} == {
        ("/", 0), ("/a", 0), ("/b", 0), ("/l", 1),
    }  # fmt: skip
    assert (ran.counters["refreshes"], ran.counters["pages"], ran.letters) == (2, 4, {})
    assert "redirects" not in ran.counters


async def test_a_refresh_is_not_followed_unless_it_is_asked_for(run):
    ran = await run({"/": refresh_to("0; url=/a"), "/a": []})
    assert ran.site.counts == {"/": 1}


async def test_a_refresh_never_fails_its_page(run):
    pages = {
        "/": ["/1", "/2", "/3"],
        "/1": refresh_to("0; /2"),
        "/2": refresh_to("0; /1"),
        "/3": refresh_to("0; ftp://h/"),
    }
    ran = await run(pages, refresh_delay_cap=0, deny=["never"])
    assert (len(ran.items), ran.letters) == (4, {})
    assert ran.counters["refused/redirect/scheme"] == 1


async def test_a_chain_of_refreshes_ends_at_the_limit_of_redirects(run):
    pages = {f"/{number or ''}": refresh_to(f"0; /{number + 1}") for number in range(9)}
    ran = await run(pages, refresh_delay_cap=0, max_redirects=3)
    assert (len(ran.items), ran.counters["refused/redirect/limit"], ran.letters) == (4, 1, {})


async def test_a_refresh_out_of_scope_is_counted(run):
    ran = await run({"/": refresh_to("0; http://127.0.0.9:1/x")}, refresh_delay_cap=0, deny=[":1/"])
    assert (ran.counters["refused/pattern"], len(ran.items)) == (1, 1)


async def test_another_host_never_sees_the_credentials_after_a_refresh(run):
    ran = await run(
        lambda server: {"/": refresh_to(f"0; {server.url_of('/x', 1)}"), "/x": []},
        hosts=2,
        refresh_delay_cap=0,
    )
    seen = {visit.target: visit.headers.get("authorization") for visit in ran.site.visits}
    assert seen == {"/": "secret", "/x": None}


async def test_credentials_in_a_location_are_sent_to_it_and_not_stored_in_its_url(run):
    ran = await run(
        lambda server: {"/": redirect(f"http://me:pw@{server.url_of('/x', 1)[7:]}"), "/x": ["/y"], "/y": []},
        hosts=2,
    )
    seen = {visit.target: visit.headers.get("authorization") for visit in ran.site.visits}
    assert seen == {"/": "secret", "/x": "Basic bWU6cHc=", "/y": None}
    assert ran.server.url_of("/x", 1) in {item["url"] for item in ran.items}
