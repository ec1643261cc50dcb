"""Collector: visits, depth, contexts, forms, clones and limits of URLs."""

import contextvars
import email
import email.policy
import re

import pytest

from crawl_harness import CrawlHarness, Scripted, page
from skitter import Collector, LimitRule, Request, Response
from skitter.errors import RequestError, SettingsError, UsageError
from skitter.forms import encode_multipart
from skitter.frontends.collector import FormFile, extensions
from skitter.testing import Answer


@pytest.fixture
def crawl(serve, tmp_path):
    """``ran = await crawl(crawler, pages, **settings)``: crawl from ``/``."""

    async def run(crawler, pages, start=("/",), seeds_url=False, **settings):
        site = Scripted(pages)
        server = serve(site)
        for path in start:
            crawler.visit(server.url.rstrip("/") + path)
        spider = crawler.__spider__("crawler", "test")(**{"url": server.url} if seeds_url else {})
        ran = await CrawlHarness(spider, tmp_path, **settings).run()
        ran.site, ran.url = site, server.url
        return ran

    return run


def follower(**options):
    """Return a collector that follows every link and yields each page with its depth."""
    crawler = Collector(**options)
    crawler.on_html("a[href]", lambda element: element.request.visit(element.attr("href")))
    crawler.on_response(lambda response: {"path": path_of(response), "depth": response.request.depth})
    return crawler


def path_of(subject):
    return "/" + subject.url.rpartition("/")[2]


def found(ran):
    return sorted((item["path"], item["depth"]) for item in ran.items)


CHAIN = {"/": ["/b"], "/b": ["/c"], "/c": ["/d"], "/d": []}


async def test_depth_counts_from_zero_and_depth_limit_is_the_last_that_is_fetched(crawl):
    ran = await crawl(follower(depth_limit=2), CHAIN)
    assert found(ran) == [("/", 0), ("/b", 1), ("/c", 2)]
    assert ran.counters["refused/depth"] == 1


async def test_the_collectors_own_visit_within_a_callback_is_one_deeper_too(crawl):
    """Colly restarts at depth 1 there, which defeats its limit."""
    crawler = Collector(depth_limit=1)
    crawler.on_html("a", lambda element: crawler.visit(element.request.absolute_url(element.attr("href"))))
    crawler.on_response(lambda response: {"path": path_of(response), "depth": response.request.depth})
    ran = await crawl(crawler, CHAIN)
    assert found(ran) == [("/", 0), ("/b", 1)]


async def test_siblings_do_not_see_each_others_context(crawl):
    """Colly's share one map: the last writer wins for all of them."""
    crawler = Collector()

    @crawler.on_html("a")
    def follow(element):
        context = element.response.ctx
        context.setdefault("trail", []).append(element.attr("href"))
        element.request.visit(element.attr("href"))

    crawler.on_scraped(lambda response: {"path": path_of(response), "trail": list(response.ctx["trail"])})
    pages = {"/": ["/b", "/c"], "/b": ["/d"], "/c": ["/e"], "/d": ["#"], "/e": ["#"]}
    ran = await crawl(crawler, pages)
    assert {item["path"]: item["trail"] for item in ran.items} == {
        "/": ["/b", "/c"],
        "/b": ["/b", "/d"],
        "/c": ["/b", "/c", "/e"],
        "/d": ["/b", "/d", "#"],
        "/e": ["/b", "/c", "/e", "#"],
    }


async def test_a_context_may_be_replaced_and_the_collectors_own_visit_takes_none(crawl):
    crawler = Collector()

    @crawler.on_response
    def look(response):
        yield {"path": path_of(response), "ctx": dict(response.ctx)}
        if path_of(response) == "/":
            response.ctx["from"] = "page"
            response.request.visit("/taken")
            response.request.visit("/given", ctx={"from": "argument"})
            crawler.visit(response.request.absolute_url("/none"))

    ran = await crawl(crawler, {"/": [], "/taken": [], "/given": [], "/none": []})
    contexts = {item["path"]: item["ctx"] for item in ran.items}
    assert contexts == {"/": {}, "/taken": {"from": "page"}, "/given": {"from": "argument"}, "/none": {}}


async def test_a_context_that_cannot_be_stored_is_an_error_that_names_it(crawl):
    crawler = Collector()

    @crawler.on_response
    def look(response):
        response.ctx["socket"] = object()
        response.request.visit("/b")

    ran = await crawl(crawler, {"/": []})
    assert "meta['socket'] is an object" in ran.letters["/"]


async def test_a_visit_can_set_fields_of_its_request(crawl):
    crawler = Collector()

    @crawler.on_response
    def look(response):
        yield {"path": path_of(response)}
        for number in range(3):
            response.request.visit(f"/{number}", priority=number)

    ran = await crawl(crawler, {"/": [], "/0": [], "/1": [], "/2": []}, concurrency=1, concurrency_per_slot=1)
    assert [visit.target for visit in ran.site.visits] == ["/", "/2", "/1", "/0"]


async def test_many_links_of_a_page_travel_as_one_batch():
    from skitter.frontends.collector.request import CollectorRequest, PendingRequests

    crawler, visits = Collector(), PendingRequests(Response("http://h/"))
    request = CollectorRequest(crawler, Request("http://h/"), visits)
    for number in range(100):
        request.visit(f"/{number}")
    request.ctx["a"] = 1
    request.visit_all(["/x", "/y"])
    batches = visits.take()
    assert [(len(batch), batch.fields) for batch in batches] == [(100, {}), (2, {"meta": {"a": 1}})]


async def test_the_base_of_the_page_is_respected(crawl):
    crawler = Collector()
    crawler.on_html("a", lambda element: element.request.visit(element.attr("href")))
    crawler.on_html("a", lambda element: {"to": element.request.absolute_url(element.attr("href"))})
    body = b'<base href="/deep/er/"><a href="x">x</a><a href="javascript:void(0)">j</a><a href="http://[">bad</a>'
    ran = await crawl(crawler, {"/": Answer(body), "/deep/er/x": []})
    assert [item["to"] for item in ran.items] == [f"{ran.url}deep/er/x", "javascript:void(0)", ""]
    assert (ran.site.counts["/deep/er/x"], ran.counters["refused/unparsable"]) == (1, 1)


# Methods and forms


def echo(visit):
    return Answer(f"{visit.method} {visit.headers.get('content-type', '')} ".encode() + visit.body)


async def test_every_method_sends_its_documented_request(crawl):
    crawler = Collector()

    @crawler.on_response
    def look(response):
        request = response.request
        if path_of(response) != "/":
            yield {"path": path_of(response), "said": response.text}
            return
        request.post("/post", {"a": "1 2", "b": "ü"})
        request.post_raw("/raw", b"{}", "application/json")
        request.send("PUT", "/put", body="text", headers={"Content-Type": "text/plain"})
        request.head("/head")
        crawler.post(request.absolute_url("/own"), {"x": "y"})

    site = {"/": [], **dict.fromkeys(("/post", "/raw", "/put", "/head", "/own"), echo)}
    ran = await crawl(crawler, site)
    form = "application/x-www-form-urlencoded"
    assert {item["path"]: item["said"] for item in ran.items} == {
        "/post": f"POST {form} a=1+2&b=%C3%BC",
        "/raw": "POST application/json {}",
        "/put": "PUT text/plain text",
        "/head": "",
        "/own": f"POST {form} x=y",
    }


async def test_forms_may_begin_a_crawl_and_two_different_ones_are_two_requests(crawl):
    crawler, received = Collector(), []
    crawler.on_response(lambda response: received.append(response.text))

    @crawler.seeds
    def begin(url):
        crawler.post(url, {"a": "1"})
        crawler.post(url, {"a": "2"})
        crawler.post(url, {"a": "1"})
        crawler.post_raw(url, "raw")
        crawler.post_multipart(url, {"a": "b"})

    ran = await crawl(crawler, {"/": echo}, start=(), seeds_url=True)
    assert (len(received), ran.site.counts["/"]) == (4, 4)


async def test_a_form_with_files_is_read_by_the_standard_library_as_it_was_meant(crawl):
    crawler, received = Collector(), []

    @crawler.on_response
    def look(response):
        if path_of(response) == "/":
            parts = {"title": "ü", 'na"me': "x", "file": FormFile("a.txt", b"\x00\r\n", "text/plain")}
            response.request.post_multipart("/form", parts)

    def note(visit):
        received.append(visit)
        return Answer()

    await crawl(crawler, {"/": [], "/form": note})
    head = f"Content-Type: {received[0].headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + received[0].body, policy=email.policy.HTTP)
    parts = {
        part.get_param("name", header="content-disposition"): (
            part.get_filename(),
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    }
    assert parts == {
        "title": (None, "ü".encode()),
        "na%22me": (None, b"x"),
        "file": ("a.txt", b"\x00\r\n"),
    }


def test_the_same_form_is_the_same_request_and_another_is_not():
    assert encode_multipart({"a": "b"}) == encode_multipart({"a": "b"})
    assert encode_multipart({"a": "b"})[1] != encode_multipart({"a": "c"})[1]
    with pytest.raises(RequestError, match="line break"):
        encode_multipart({"a": FormFile("x", b"", "a\r\nb")})


# Which URLs


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"allowed_domains": ["127.0.0.1"]}, "host"),
        ({"disallowed_domains": ["example.com"]}, "pattern"),
        ({"url_filters": [r"/$", re.compile("/B", re.IGNORECASE)]}, "pattern"),
        ({"disallowed_url_filters": [r"example\.com"]}, "pattern"),
    ],
)
async def test_bounds_refuse_urls_and_count_them(crawl, options, refused):
    links = ["/b", "http://example.com/x", "http://www.example.com/x?b"]
    ran = await crawl(follower(**options), {"/": links, "/b": []})
    assert found(ran) == [("/", 0), ("/b", 1)]
    assert ran.counters[f"refused/{refused}"] == 2


async def test_a_disallowed_domain_is_that_of_the_url_and_nothing_else_in_it():
    from skitter.frontends.collector.options import read_options

    scope = read_options({"disallowed_domains": ["example.com"]}, {}).scope()
    for url in (
        "http://example.com",
        "https://a.b.example.com:8/x",
        "http://example.com?x",
        "http://u@example.com/",
    ):
        assert scope.refuse(url, "h") == "pattern", url
    for url in (
        "http://example.com.org/",
        "http://notexample.com/",
        "http://h/example.com/",
        "http://h/?u=http://example.com/",
    ):
        assert scope.refuse(url, "h") is None, url


def test_a_visit_before_the_run_knows_all_bounds_of_the_collector():
    crawler = Collector(
        max_url_length=30, disallowed_url_filters=["a"], settings={"depth_limit": 0, "deny": ["secret"]}
    )
    urls = [
        "http://h.test/",
        "http://h.test/" + "x" * 20,
        "http://h.test/secret",
        "http://h.test/a",
        "ftp://h.test/",
    ]
    assert [crawler.visit(url) for url in urls] == [None, "length", "pattern", None, "scheme"]


async def test_an_exact_domain_is_disallowed_without_its_subdomains():
    from skitter.frontends.collector.options import read_options

    scope = read_options({"disallowed_domains": ["=example.com"]}, {}).scope()
    refused = ["http://example.com/", "http://www.example.com/", "https://example.com:8/x"]
    assert [scope.refuse(url, "h") for url in refused] == ["pattern", None, "pattern"]


async def test_a_domain_outside_ascii_is_disallowed_as_urls_spell_it():
    from skitter.frontends.collector.options import read_options

    scope = read_options({"disallowed_domains": ["m\u00fcnchen.test"]}, {}).scope()
    assert scope.refusal("http://www.m\u00fcnchen.test/", 0) == "pattern"


async def test_a_url_is_fetched_once_unless_revisits_are_allowed(crawl):
    pages = {"/": ["/b"], "/b": ["/"]}
    assert found(await crawl(follower(), pages)) == [("/", 0), ("/b", 1)]


async def test_with_revisits_a_circle_continues_to_the_greatest_depth(crawl):
    pages = {"/": ["/b"], "/b": ["/"]}
    ran = await crawl(follower(allow_url_revisit=True, depth_limit=3), pages)
    assert ran.site.counts == {"/": 2, "/b": 2}
    assert ran.counters["refused/depth"] == 1


async def test_has_visited_returns_whether_the_job_knows_a_url(crawl):
    crawler = Collector()

    @crawler.on_response
    async def look(response):
        request = response.request
        known = [await request.has_visited("/"), await crawler.has_visited(request.absolute_url("/b"))]
        yield {"known": known, "path": path_of(response)}
        if path_of(response) == "/":
            request.visit("/b")

    ran = await crawl(crawler, {"/": [], "/b": []})
    assert {item["path"]: item["known"] for item in ran.items} == {"/": [True, False], "/b": [True, True]}


async def test_has_visited_returns_whether_a_form_was_posted(crawl):
    crawler = Collector()
    form = {"name": "ann", "city": "K\u00f6ln"}

    @crawler.on_response
    async def look(response):
        request, url = response.request, response.request.absolute_url("/form")
        same = Request.form(url, form)
        known = [await request.has_visited(same), await crawler.has_visited(same)]
        known += [await crawler.has_visited(other) for other in (url, Request.form(url, {"name": "bob"}))]
        yield {"known": known, "method": request.method}
        if request.method == "GET":
            request.post("/form", form)

    ran = await crawl(crawler, {"/": [], "/form": []})
    assert {item["method"]: item["known"] for item in ran.items} == {
        "GET": [False] * 4,
        "POST": [True, True, False, False],
    }


async def test_max_requests_stops_the_crawl(crawl):
    ran = await crawl(
        follower(), {"/": [f"/{n}" for n in range(50)], **{f"/{n}": [] for n in range(50)}}, max_pages=5
    )
    assert ran.counters["pages"] == 5
    assert follower(max_requests=5).__spider__("c", "j").custom_settings["max_pages"] == 5


async def test_stop_in_a_callback_ends_the_crawl_after_the_requests_in_progress(crawl):
    crawler = follower()
    crawler.on_response(lambda response: crawler.stop("enough"))
    ran = await crawl(crawler, CHAIN, concurrency=1)
    assert (ran.site.counts, ran.status.queued) == ({"/": 1}, 1)


# Clones


def shop(crawler, **options):
    """A list, and details that are read by another collector."""
    detail = crawler.clone("detail", **options)

    @crawler.on_html("a")
    def follow(element):
        element.response.ctx["listed_at"] = path_of(element.response)
        element.request.visit(element.attr("href"), via=detail)

    @detail.on_response
    def take(response):
        return {"detail": path_of(response), "depth": response.request.depth, **response.ctx}

    return detail


async def test_a_clone_has_callbacks_of_its_own_in_the_same_job(crawl):
    crawler = Collector()
    shop(crawler)
    ran = await crawl(crawler, {"/": ["/1", "/2"], "/1": ["/3"], "/2": []})
    assert sorted(item["detail"] for item in ran.items) == ["/1", "/2"]
    assert {(item["depth"], item["listed_at"]) for item in ran.items} == {(1, "/")}
    assert ran.site.counts["/3"] == 0


async def test_collectors_share_visited_urls(crawl):
    crawler = Collector()
    shop(crawler)
    ran = await crawl(crawler, {"/": ["/", "/1", "/1"], "/1": []})
    assert [item["detail"] for item in ran.items] == ["/1"]
    assert ran.site.counts == {"/": 1, "/1": 1}


async def test_a_clone_may_send_other_headers_and_have_other_bounds(crawl):
    crawler = Collector(user_agent="lister/1", headers={"X-Of": "list"})
    shop(crawler, user_agent="reader/2", headers={"X-Of": "detail"}, disallowed_url_filters=["/2$"])
    ran = await crawl(crawler, {"/": ["/1", "/2"], "/1": [], "/2": []})
    sent = {visit.target: (visit.headers["user-agent"], visit.headers["x-of"]) for visit in ran.site.visits}
    assert sent == {"/": ("lister/1", "list"), "/1": ("reader/2", "detail")}
    assert ran.counters["refused/hook"] == 1


async def test_a_redirect_does_not_lead_a_clone_out_of_its_bounds(crawl):
    from crawl_harness import redirect

    crawler = Collector()
    shop(crawler, disallowed_url_filters=["/away$"])
    ran = await crawl(crawler, {"/": ["/1"], "/1": redirect("/away"), "/away": []})
    assert ran.site.counts == {"/": 1, "/1": 1}


async def test_a_clone_may_be_visited_directly_and_named_by_its_number(crawl):
    crawler = Collector()
    other = crawler.clone()
    assert (other.name, other.callback) == ("clone-1", "collector:clone-1")
    crawler.on_response(lambda response: other.visit(response.request.absolute_url("/1")))
    other.on_response(lambda response: {"path": path_of(response), "depth": response.request.depth})
    ran = await crawl(crawler, {"/": [], "/1": []})
    assert ran.items == [{"path": "/1", "depth": 1}]


def test_a_clone_is_refused_a_taken_name_and_options_of_the_job():
    crawler = Collector()
    crawler.clone("detail")
    with pytest.raises(UsageError, match="already"):
        crawler.clone("detail")
    with pytest.raises(SettingsError, match="ignore_robots_txt"):
        crawler.clone(ignore_robots_txt=True)


# Limits, proxies, extensions


async def test_the_referer_extension_names_the_page_that_linked(crawl):
    crawler = follower()
    extensions.referer(crawler)
    ran = await crawl(crawler, {"/": ["/b"], "/b": []})
    assert [visit.headers.get("referer") for visit in ran.site.visits] == [None, ran.url]


@pytest.mark.parametrize(
    ("extension", "mobile"), [("random_user_agent", False), ("random_mobile_user_agent", True)]
)
async def test_the_random_user_agent_extensions_send_the_headers_of_browsers(crawl, extension, mobile):
    crawler = follower()
    getattr(extensions, extension)(crawler)
    paths = [f"/{number}" for number in range(30)]
    ran = await crawl(crawler, {"/": paths, **{path: [] for path in paths}})
    agents = {visit.headers["user-agent"] for visit in ran.site.visits}
    assert len(agents) > 1
    assert all(agent.startswith("Mozilla/5.0 ") for agent in agents)
    assert {"Mobile" in agent or "Android" in agent or "iPhone" in agent for agent in agents} == {mobile}


async def test_the_url_length_extension_refuses_long_urls_of_clones_too(crawl):
    crawler = follower()
    clone = crawler.clone("clone")
    extensions.url_length_filter(clone, 40)
    ran = await crawl(crawler, {"/": ["/b", "/" + "c" * 40], "/b": []})
    assert [visit.target for visit in ran.site.visits] == ["/", "/b"]
    assert ran.counters["refused/length"] == 1
    with pytest.raises(SettingsError, match="length"):
        extensions.url_length_filter(crawler, 0)


async def test_user_agents_and_proxies_of_the_settings_hold_for_collectors_too(crawl):
    crawler = follower(settings={"user_agents": ["a/1", "b/1"]}, disable_cookies=True)
    paths = [f"/{number}" for number in range(30)]
    first = Answer(page(*paths).body, headers={"Set-Cookie": "a=b"})
    ran = await crawl(crawler, {"/": first, **{path: [] for path in paths}})
    assert {visit.headers["user-agent"] for visit in ran.site.visits} == {"a/1", "b/1"}
    assert not [visit for visit in ran.site.visits if "cookie" in visit.headers]


async def test_headers_are_looked_at_through_sources_as_well(crawl):
    crawler, later = follower(settings={"user_agents": ["a/1"], "sessions": 2}), []
    crawler.on_response_headers(
        lambda response: response.request.abort() if path_of(response) == "/b" else None
    )
    crawler.on_response(lambda response: later.append(path_of(response)))
    ran = await crawl(crawler, {"/": ["/b"], "/b": []})
    assert (later, ran.site.counts["/b"], ran.letters) == (["/"], 1, {})


async def test_urls_that_are_too_long_are_refused_before_they_are_queued(crawl):
    ran = await crawl(follower(max_url_length=40), {"/": ["/b", "/" + "x" * 40], "/b": []})
    assert (found(ran), ran.counters["refused/length"]) == ([("/", 0), ("/b", 1)], 1)


async def test_limit_rules_become_settings_of_the_job(crawl):
    crawler = Collector()
    crawler.limit(domain_glob="*.example.com", delay=2, jitter=1, concurrency_per_slot=1)
    crawler.clone().limit(LimitRule(domain_regexp=".*", rates=("1/0.5s",), unit="rule"))
    spider = crawler.__spider__("crawler", "test")()
    politeness = CrawlHarness(spider, ".").settings.politeness()
    slow = politeness.limits_of(politeness.slot_of("a.example.com"))
    assert (slow.delay, slow.jitter, slow.concurrency_per_slot) == (2, 1, 1)
    assert politeness.slot_of("x.org") == politeness.slot_of("y.org")
    assert politeness.limits_of(politeness.slot_of("x.org")).rates == ("1/0.5s",)
    with pytest.raises(SettingsError, match="domain_glob"):
        crawler.limit(delay=1)
    with pytest.raises(SettingsError, match="delay"):
        crawler.limit(domain_glob="*", delay="x")
    with pytest.raises(SettingsError, match="no field 'parallelism'") as caught:
        crawler.limit(domain_glob="*", parallelism=2)
    assert "concurrency_per_slot" in caught.value.remedy


async def test_a_proxy_is_chosen_for_each_request(crawl):
    crawler, asked = follower(), []

    def choose(request):
        asked.append(path_of(request))
        return "http://127.0.0.1:1" if path_of(request) == "/b" else None

    crawler.set_proxy_func(choose)
    crawler.on_error(lambda response, error: asked.append(type(error).__name__))
    await crawl(crawler, {"/": ["/b"]}, max_retries=0)
    assert asked == ["/", "/b", "ProxyError"]


@pytest.mark.parametrize("point", ["request", "request_headers", "response_headers"])
async def test_a_visit_before_the_response_is_a_child_of_the_request(crawl, point):
    crawler = Collector()

    @getattr(crawler, f"on_{point}")
    def more(subject):
        request = subject.request if point == "response_headers" else subject
        if request.depth == 0:
            assert request.visit("one") is None
            assert crawler.visit(request.absolute_url("/two"), ctx={"from": point}) is None

    crawler.on_response(lambda response: {"path": path_of(response), "depth": response.request.depth})
    pages = {"/": [], "/one": [], "/two": []}
    ran = await crawl(crawler, pages)
    assert sorted(ran.items, key=str) == [
        {"path": "/", "depth": 0}, {"path": "/one", "depth": 1}, {"path": "/two", "depth": 1},
    ]  # fmt: skip
    assert (ran.site.counts, crawler.group.pending.peek()[1:]) == (dict.fromkeys(pages, 1), [])


async def test_a_visit_of_a_request_that_is_aborted_is_kept(crawl):
    crawler = Collector()

    @crawler.on_request
    def instead(request):
        if request.url.endswith("/"):
            request.visit("other")
            request.abort()

    crawler.on_response(lambda response: {"path": path_of(response)})
    ran = await crawl(crawler, {"/other": []})
    assert (ran.items, ran.site.counts) == ([{"path": "/other"}], {"/other": 1})


async def test_a_visit_returns_why_it_is_refused(crawl):
    crawler = Collector(allowed_domains=["127.0.0.1"], disallowed_url_filters=["secret"], depth_limit=1)
    returned = []

    @crawler.on_response
    def page(response):
        returned.append([
            response.request.visit(url)
            for url in ("/ok", "http://elsewhere.test/", "/secret", "mailto:x@y", "http://[::1")
        ])  # fmt: skip

    assert crawler.visit("http://elsewhere.test/") == "host"
    ran = await crawl(crawler, {"/": [], "/ok": []})
    assert returned[0] == [None, "host", "pattern", "scheme", "unparsable"]
    assert returned[1] == ["depth", "depth", "depth", "depth", "unparsable"]
    assert ran.site.counts == {"/": 1, "/ok": 1}
    assert ran.counters["refused/host"] == 2


async def test_a_visit_during_a_run_outside_of_callbacks_is_refused_and_not_kept_for_a_later_run(crawl):
    crawler, raised = Collector(), []

    def outside():
        try:
            crawler.visit("http://127.0.0.1:9/later")
        except UsageError as error:
            raised.append(error.remedy)

    crawler.on_response(lambda response: contextvars.Context().run(outside))
    await crawl(crawler, {"/": []})
    assert len(raised) == 1
    assert not any("later" in request.url for request in crawler.group.pending.peek())
