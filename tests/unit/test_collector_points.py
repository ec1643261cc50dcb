"""Collector: callbacks of a request, their effects and their order."""

import gzip
import logging
import threading
from collections import Counter

import pytest

from crawl_harness import CrawlHarness, Scripted, redirect
from skitter import Collector, Request
from skitter.errors import RequestError, SettingsError, UsageError
from skitter.frontends.collector import LogDebugger
from skitter.frontier.records import JobState
from skitter.testing import Answer

HTML = Answer(b'<p class="a">one</p><p>two</p><a href="/b">b</a>')
XML = Answer(b"<feed><item id='1'>x</item><item id='2'>y</item></feed>", content_type="application/xml")


@pytest.fixture
def crawl(serve, tmp_path):
    """``ran = await crawl(crawler, pages, **settings)``: crawl from ``/``."""

    async def run(crawler, pages, start=("/",), **settings):
        site = Scripted(pages)
        server = serve(site)
        for path in start:
            crawler.visit(server.url.rstrip("/") + path)
        spider = crawler.__spider__("crawler", "test")()
        ran = await CrawlHarness(spider, tmp_path, **settings).run()
        ran.site, ran.url = site, server.url
        return ran

    return run


def path_of(subject):
    return "/" + subject.url.rpartition("/")[2]


async def test_the_points_come_in_the_order_of_the_manual(crawl):
    crawler, calls = Collector(), []
    crawler.on_scraped(lambda response: calls.append(("scraped", response.status)))
    crawler.on_xml("//p", lambda element: calls.append(("xml", element.text)))
    crawler.on_html("p", lambda element: calls.append(("html", element.text)))
    crawler.on_html("p.a", lambda element: calls.append(("html again", element.text)))
    crawler.on_response(lambda response: calls.append(("response", len(response.body) > 0)))
    crawler.on_response_headers(lambda response: calls.append(("response_headers", response.body)))
    crawler.on_request_headers(lambda request: calls.append(("request_headers", request.method)))
    crawler.on_request(lambda request: calls.append(("request", request.depth)))
    await crawl(crawler, {"/": HTML})
    assert calls == [
        ("request", 0),
        ("request_headers", "GET"),
        ("response_headers", b""),
        ("response", True),
        ("html", "one"),
        ("html", "two"),
        ("html again", "one"),
        ("xml", "one"),
        ("xml", "two"),
        ("scraped", 200),
    ]


async def test_callbacks_of_every_kind_give_items_and_links(crawl):
    crawler = Collector()

    @crawler.on_html("p.a")
    def generator(element):
        yield {"by": "generator", "text": element.text}

    @crawler.on_html("p.a")
    async def coroutine(element):
        return {"by": "coroutine"}

    @crawler.on_response
    async def async_generator(response):
        yield {"by": "async generator"}
        yield response.response.follow_all("a")

    @crawler.on_scraped
    def plain(response):
        return [{"by": "list"}]

    ran = await crawl(crawler, {"/": HTML, "/b": Answer(b"-")})
    first = [item["by"] for item in ran.items[:4]]
    assert first == ["async generator", "generator", "coroutine", "list"]
    assert ran.site.counts == {"/": 1, "/b": 1}
    assert len(ran.items) == 6


async def test_on_request_can_edit_or_abort_a_request(crawl):
    crawler, seen = Collector(), []

    @crawler.on_request
    def edit(request):
        request.headers["X-Token"] = "t"
        request.ctx["asked"] = request.url
        if request.url.endswith("/b"):
            request.abort()

    @crawler.on_request
    def later(request):
        seen.append(path_of(request))

    @crawler.on_html("a")
    def follow(element):
        element.request.visit(element.attr("href"))
        return {"asked": element.response.ctx["asked"]}

    ran = await crawl(crawler, {"/": HTML, "/b": HTML})
    assert ran.site.counts == {"/": 1}
    assert ran.site.visits[0].headers["x-token"] == "t"
    assert (seen, ran.items) == (["/"], [{"asked": ran.url}])
    assert (ran.letters, ran.counters["refused/hook"]) == ({}, 1)


async def test_an_async_on_request_may_change_the_whole_request(crawl):
    crawler = Collector()

    @crawler.on_request
    async def edit(request):
        request.method, request.body = "POST", b"asked"
        request.cookies["kind"] = "oat"

    site = {"/": lambda visit: Answer(visit.body + visit.headers["cookie"].encode())}
    crawler.on_response(lambda response: {"text": response.text, "method": response.request.method})
    ran = await crawl(crawler, site)
    assert ran.items == [{"text": "askedkind=oat", "method": "POST"}]


async def test_the_last_moment_is_after_robots_txt(crawl):
    rules = Answer(b"User-agent: *\nDisallow: /b", content_type="text/plain")
    crawler, asked, sent = Collector(), [], []
    crawler.on_request(lambda request: asked.append(path_of(request)))
    crawler.on_request_headers(lambda request: sent.append(path_of(request)))
    crawler.on_response(lambda response: response.request.visit("/b"))
    await crawl(crawler, {"/": HTML, "/robots.txt": rules}, robots=True)
    assert (asked, sent) == (["/", "/b"], ["/"])


async def test_a_request_aborted_at_the_last_moment_is_not_sent(crawl):
    crawler = Collector()
    crawler.on_request_headers(lambda request: request.abort())
    ran = await crawl(crawler, {"/": HTML})
    assert (ran.site.counts, ran.letters) == ({}, {})


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_an_answer_aborted_by_its_headers_reaches_no_later_point(crawl, kind):
    crawler, later = Collector(), []

    def plain(response):
        if response.headers["content-type"] == "image/png":
            response.request.abort()

    async def waiting(response):
        plain(response)

    crawler.on_response_headers(plain if kind == "plain" else waiting)
    crawler.on_response(lambda response: later.append(path_of(response)))
    crawler.on_error(lambda response, error: later.append(error))
    crawler.on_html("a", lambda element: element.request.visit(element.attr("href")))
    ran = await crawl(crawler, {"/": HTML, "/b": Answer(b"png", content_type="image/png")})
    assert (later, ran.site.counts["/b"], ran.letters) == (["/"], 1, {})


async def test_abort_in_a_later_callback_skips_the_rest_of_the_page(crawl):
    crawler, calls = Collector(), []

    @crawler.on_html("p")
    def first(element):
        calls.append(element.text)
        element.request.abort()
        return {"text": element.text}

    crawler.on_scraped(calls.append)
    ran = await crawl(crawler, {"/": HTML})
    assert (calls, ran.items, ran.letters) == (["one"], [{"text": "one"}], {})


async def test_on_error_gets_a_bad_status_with_its_answer_and_a_dead_host_without(crawl, free_port):
    crawler, errors = Collector(), []

    @crawler.on_error
    def failed(response, error):
        errors.append((response.status, response.body, type(error).__name__, response.request.ctx))

    crawler.on_scraped(lambda response: errors.append("scraped"))
    crawler.visit(f"http://127.0.0.1:{free_port}/dead", ctx={"dead": True})
    ran = await crawl(crawler, {"/": Answer(b"gone", status=410)}, max_retries=1)
    assert sorted(errors, key=str) == [
        (0, b"", "ConnectError", {"dead": True}),
        (410, b"gone", "StatusError", {}),
    ]
    assert len(ran.letters) == 2


async def test_on_error_is_called_once_after_all_retries(crawl):
    crawler, errors = Collector(), []
    crawler.on_error(lambda response, error: errors.append(response.status))
    ran = await crawl(crawler, {"/": Answer(status=500)}, max_retries=2)
    assert (errors, ran.site.counts["/"]) == ([500], 3)


async def test_visits_of_on_error_replace_the_results_of_the_page(crawl):
    crawler = Collector()
    crawler.on_error(lambda response, error: response.request.visit("/mirror"))
    crawler.on_response(lambda response: {"path": path_of(response), "depth": response.request.depth})
    ran = await crawl(crawler, {"/": Answer(status=404), "/mirror": HTML})
    assert (ran.items, ran.letters) == ([{"path": "/mirror", "depth": 1}], {})


async def test_on_error_may_retry_what_the_rules_would_not_and_no_more_often_than_allowed(crawl):
    crawler = Collector()
    crawler.on_error(lambda response, error: response.request.retry())
    crawler.on_response(lambda response: {"path": path_of(response)})
    pages = {"/": (Answer(status=403), HTML), "/never": Answer(status=403)}
    ran = await crawl(crawler, pages, start=("/", "/never"), max_retries=2)
    assert (ran.items, ran.site.counts) == ([{"path": "/"}], {"/": 2, "/never": 3})
    assert list(ran.letters) == ["/never"]


async def test_on_error_receives_an_exception_of_a_callback(crawl):
    crawler, errors = Collector(), []

    @crawler.on_html("p")
    def broken(element):
        raise KeyError("colour")

    @crawler.on_error
    def failed(response, error):
        errors.append(
            (
                type(error).__name__,
                response.status,
                response.body == HTML.body,
                response.css("p.a::text").get(),
            )
        )

    ran = await crawl(crawler, {"/": HTML})
    assert errors == [("KeyError", 200, True, "one")]
    assert ran.letters["/"].startswith("callback: KeyError: 'colour'")


async def test_retry_fetches_the_page_again_and_drops_its_first_results(crawl):
    crawler = Collector()

    @crawler.on_response
    def look(response):
        yield {"text": response.text}
        if response.text == "wait":
            response.request.retry()

    ran = await crawl(crawler, {"/": (Answer(b"wait"), Answer(b"wait"), Answer(b"ready"))})
    assert (ran.items, ran.site.counts["/"], ran.letters) == ([{"text": "ready"}], 3, {})


async def test_a_retry_discards_changes_of_the_context_and_counts_the_attempt(crawl):
    crawler, seen = Collector(), []

    @crawler.on_response
    def look(response):
        seen.append((dict(response.ctx), response.request.request.retries))
        response.ctx["seen"] = True
        if not response.request.request.retries:
            response.request.retry()

    ran = await crawl(crawler, {"/": HTML})
    assert (seen, ran.letters) == ([({}, 0), ({}, 1)], {})


async def test_every_status_goes_to_the_callbacks_on_request(crawl):
    crawler, errors = Collector(parse_http_error_response=True), []
    crawler.on_html("p.a", lambda element: {"status": element.response.status})
    crawler.on_error(lambda response, error: errors.append(error))
    pages = {
        "/": redirect("/new"),
        "/new": Answer(HTML.body, status=404),
        "/busy": Answer(HTML.body, status=503),
    }
    ran = await crawl(crawler, pages, start=("/", "/busy"))
    assert sorted(item["status"] for item in ran.items) == [404, 503]
    assert errors == []


async def test_a_redirect_is_a_page_if_it_is_not_to_be_followed(crawl):
    crawler = Collector(follow_redirects=False)
    crawler.on_response(lambda response: {"status": response.status, "to": response.headers["location"]})
    ran = await crawl(crawler, {"/": redirect("/new"), "/new": HTML})
    assert (ran.items, ran.site.counts) == ([{"status": 302, "to": "/new"}], {"/": 1})


async def test_xml_is_for_xpath_and_html_for_both(crawl):
    crawler = Collector()
    crawler.on_html("item", lambda element: {"html": element.text})
    crawler.on_xml("//item", lambda element: {"id": element.attr("id"), "text": element.text})
    crawler.on_xml("//item/@id", lambda element: {"attribute": element.text, "name": element.name})
    ran = await crawl(crawler, {"/": XML})
    assert ran.items == [
        {"id": "1", "text": "x"},
        {"id": "2", "text": "y"},
        {"attribute": "1", "name": ""},
        {"attribute": "2", "name": ""},
    ]


PACKED = gzip.compress(XML.body)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/sitemap.xml", Answer(XML.body, content_type="text/plain")),
        ("/SITEMAP.XML?page=1", Answer(XML.body, content_type="application/octet-stream")),
        ("/sitemap.xml.gz", Answer(PACKED, content_type="application/x-gzip")),
        ("/sitemap.xml.gz", Answer(PACKED, content_type="application/xml")),
        ("/sitemap.xml.gz", Answer(XML.body, content_type="text/plain")),
    ],
)
async def test_a_file_of_xml_is_decompressed_and_read_as_xml_whatever_the_server_calls_it(
    crawl, path, answer
):
    crawler, found = Collector(), []
    crawler.on_xml("//item", lambda element: found.append((element.name, element.attr("id"))))
    crawler.on_response(lambda response: found.append((response.body, response.text)))
    await crawl(crawler, {path: answer}, start=[path])
    assert found == [(XML.body, XML.body.decode()), ("item", "1"), ("item", "2")]


async def test_html_and_errors_at_the_address_of_a_file_of_xml_stay_as_they_are(crawl):
    crawler, found = Collector(parse_http_error_response=True), []
    crawler.on_response(lambda response: found.append((response.status, response.headers["Content-Type"])))
    crawler.on_html("p", lambda element: found.append(element.text))
    crawler.on_xml("//p", lambda element: found.append(element.text))
    pages = {
        "/a.xml": Answer(b"<p>a", content_type="text/html"),
        "/b.xml.gz": Answer(b"not found", status=404, content_type="text/plain"),
    }
    await crawl(crawler, pages, start=pages)
    assert Counter(found) == {(200, "text/html"): 1, "a": 2, (404, "text/plain"): 1}


async def test_a_compressed_file_of_xml_fails_if_it_is_too_large_or_damaged(crawl):
    crawler, errors = Collector(max_body_size=1000), []
    crawler.on_error(lambda response, error: errors.append(f"{response.url.rpartition('/')[2]} {error}"))
    crawler.on_xml("//a", lambda element: None)
    pages = {
        "/bomb.xml.gz": Answer(gzip.compress(b"<a>" + bytes(5000)), content_type="application/gzip"),
        "/cut.xml.gz": Answer(PACKED[:-9], content_type="application/gzip"),
    }
    ran = await crawl(crawler, pages, start=pages, max_retries=0)
    assert sorted(errors) == [
        "bomb.xml.gz the body exceeds the limit when its gzip coding is decoded",
        "cut.xml.gz truncated gzip data",
    ]
    assert ran.counters.get("pages", 0) == 0


async def test_a_detached_callback_is_not_called_again(crawl):
    crawler, calls = Collector(), []

    @crawler.on_html("p")
    def once(element):
        calls.append("html")
        assert crawler.on_html_detach("p")
        assert not crawler.on_html_detach("p")

    @crawler.on_response
    def response_once(response):
        calls.append("response")
        assert crawler.detach(response_once)
        response.request.visit("/b")

    crawler.on_xml("//p", lambda element: calls.append("xml"))
    assert crawler.on_xml_detach("//p")
    await crawl(crawler, {"/": HTML, "/b": HTML})
    assert calls == ["response", "html", "html"]


async def test_the_debugger_receives_every_event(crawl, caplog):
    crawler = Collector(debugger=LogDebugger())
    crawler.on_html("p.a", lambda element: element.request.visit("/no"))
    crawler.on_xml("//a", lambda element: None)
    crawler.on_error(lambda response, error: None)
    with caplog.at_level(logging.INFO, "skitter.frontends.collector"):
        await crawl(crawler, {"/": HTML})
    kinds = [record.getMessage().split("[")[1].split("]")[0] for record in caplog.records]
    first = ["request", "request_headers", "response_headers", "response", "html", "xml", "scraped"]
    assert kinds == [*first, "request", "request_headers", "response_headers", "error"]
    assert "collector [html] http://127.0.0.1" in caplog.text
    assert "query='p.a'" in caplog.text


async def test_unused_hook_points_have_no_hooks():
    spider = Collector().__spider__("crawler", "test")()
    for point in ("before_request", "before_send", "on_headers", "after_request", "on_error"):
        assert getattr(spider, point, None) is None


async def test_adding_an_item_without_a_page_is_an_error_of_that_request(crawl):
    crawler = Collector()
    crawler.on_request(lambda request: {"too": "early"})
    ran = await crawl(crawler, {"/": HTML})
    assert "SpiderError: " in ran.letters["/"]


async def test_a_request_that_was_not_sent_cannot_be_retried(crawl):
    crawler, errors = Collector(), []

    @crawler.on_request
    def too_early(request):
        try:
            request.retry()
        except UsageError as error:
            errors.append(error.remedy)

    await crawl(crawler, {"/": HTML})
    assert ["on_response on" in remedy for remedy in errors] == [True]


async def test_a_visit_after_the_page_has_ended_is_refused_and_not_lost_in_silence(crawl):
    crawler, kept = Collector(), []
    crawler.on_response(lambda response: kept.append(response.request))
    await crawl(crawler, {"/": HTML})
    with pytest.raises(UsageError, match="have ended"):
        kept[0].visit("/b")


@pytest.mark.parametrize(
    ("register", "fault"),
    [
        (lambda c: c.on_html("p[", print), "CSS"),
        (lambda c: c.on_xml("//p[", print), "XPath"),
        (lambda c: c.on_html("p", 5), "not callable"),
        (lambda c: c.on_request(None), "not callable"),
    ],
)
def test_a_registration_that_cannot_work_is_refused_at_once(register, fault):
    with pytest.raises(UsageError, match=fault):
        register(Collector())


async def test_blocking_callbacks_of_a_collector_run_in_threads_and_visit_as_children(crawl):
    together = threading.Barrier(10)  # all ten must run at the same time
    crawler = Collector(callback_threads=10)

    @crawler.on_html("a")
    def wait_and_follow(element):
        together.wait(timeout=30)
        crawler.visit(f"/end{element.request.url[-1]}")

    @crawler.on_response
    def read(response):
        yield {"page": path_of(response), "depth": response.request.depth}

    ran = await crawl(
        crawler,
        {f"/{n}": HTML for n in range(10)} | {f"/end{n}": Answer(b"<p>end") for n in range(10)},
        [f"/{n}" for n in range(10)],
        delay=0,
    )
    assert sorted((item["page"], item["depth"]) for item in ran.items) == [
        *((f"/{n}", 0) for n in range(10)), *((f"/end{n}", 1) for n in range(10)),
    ]  # fmt: skip


async def test_stop_can_be_called_in_a_thread(crawl):
    crawler = Collector(callback_threads=1)
    crawler.on_response(lambda response: crawler.stop("enough"))
    crawler.on_html("a", lambda element: crawler.visit("/b"))
    ran = await crawl(crawler, {"/": HTML, "/b": HTML})
    assert ran.state is JobState.STOPPING


CYRILLIC = "<meta charset=utf-8><p>\u0442\u0435\u0441\u0442</p>".encode("cp1251")


async def test_a_wrong_charset_is_corrected_by_collector_request_and_response(crawl):
    crawler = Collector(encoding="windows-1251")
    texts = {}

    @crawler.on_request
    def of_the_request(request):
        request.encoding = {"/request": "koi8-r"}.get(path_of(request), request.encoding)

    @crawler.on_response
    def of_the_response(response):
        if path_of(response) == "/response":
            response.encoding = "cp866"

    @crawler.on_html("p")
    def read(element):
        texts[path_of(element.response)] = element.text

    paths = ["/job", "/request", "/response"]
    await crawl(crawler, {path: Answer(CYRILLIC) for path in paths}, paths)
    assert texts == {
        "/job": "\u0442\u0435\u0441\u0442",
        "/request": "\u0442\u0435\u0441\u0442".encode("cp1251").decode("koi8-r"),
        "/response": "\u0442\u0435\u0441\u0442".encode("cp1251").decode("cp866"),
    }


async def test_an_unknown_encoding_is_refused_where_it_is_written():
    with pytest.raises(RequestError) as refused:
        Request("http://h.test/", encoding="klingon")
    assert refused.value.field == "encoding"
    with pytest.raises(SettingsError) as refused:
        Collector(encoding="klingon")
    assert refused.value.field == "encoding"


async def test_a_redirect_handler_decides_by_the_chain(crawl):
    crawler, asked, seen = Collector(), [], []

    @crawler.set_redirect_handler
    def at_most_two(request, via):
        asked.append((path_of(request), [one.rpartition("/")[2] for one in via]))
        return None if len(via) <= 2 else False  # a handler in Colly returns nil or an error

    crawler.on_response(lambda response: seen.append(path_of(response)))
    await crawl(
        crawler,
        {f"/{n}": redirect(f"/{n + 1}") for n in range(4)}
        | {"/4": HTML, "/ok": redirect("/4x"), "/4x": HTML},
        ["/0", "/ok"],
    )
    assert asked.count(("3", [])) == 0
    assert ("/3", ["0", "1", "2"]) in asked
    assert seen == ["/4x"]


async def test_a_body_is_cut_and_its_transfer_measured_if_the_collector_wants_it(crawl):
    crawler, seen = Collector(max_body_size=10, truncate_body=True, http_trace=True), {}

    @crawler.on_response
    def note(response):
        seen[path_of(response)] = response.body, response.is_truncated, sorted(response.trace), response.ctx
        if response.request.depth == 0:
            response.request.ctx["from"] = "/"
            response.request.visit("/whole", max_body=100)

    body = b"0123456789abc"
    await crawl(crawler, {"/": Answer(body), "/whole": Answer(body)})
    steps = ["connect", "dns", "first_byte", "reused", "tls", "total"]
    assert seen == {
        "/": (body[:10], True, steps, {"from": "/"}),
        "/whole": (body, False, steps, {"from": "/"}),
    }


NAMESPACED = b"""<r xmlns="urn:a" xmlns:m="urn:m"><e id="1"><m:t>one</m:t></e><e id="2"><t>two</t></e></r>"""


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("//e/t", ["one", "two"]),
        ("/r/e[@id='2']", ["two"]),
        ("//m:t", ["one"]),
        ("//*[local-name()='t' and namespace-uri()='urn:a']", ["two"]),
        ("//t[re:test(., '^t') or . = 'm:t']", ["two"]),
        ("//child::e/child::t", ["one", "two"]),
    ],
)
async def test_names_without_a_prefix_match_in_any_namespace(crawl, query, texts):
    crawler, found = Collector(), []
    crawler.on_xml(query, lambda element: found.append(element.text))
    await crawl(crawler, {"/": Answer(NAMESPACED, content_type="application/xml")})
    assert found == texts


def test_a_decorator_without_its_query_is_refused():
    for register in (Collector().on_html, Collector().on_xml):
        with pytest.raises(UsageError) as caught:
            register(lambda element: None)
        assert f"write @crawler.{register.__name__}(" in caught.value.remedy


def test_a_debugger_that_is_a_class_is_refused_before_the_crawl():
    with pytest.raises(UsageError) as caught:
        Collector(debugger=LogDebugger)
    assert caught.value.remedy == "pass an object: debugger=LogDebugger()"


async def test_a_clone_in_a_callback_is_refused_with_its_remedy(crawl):
    crawler = Collector()
    crawler.on_response(lambda response: crawler.clone("details"))
    ran = await crawl(crawler, {"/": HTML})
    assert (
        "cannot be cloned during a run; create the clone where callbacks are registered" in ran.letters["/"]
    )


async def test_an_attribute_of_a_request_that_would_have_no_effect_is_an_error(crawl):
    crawler = Collector()

    @crawler.on_request
    def edit(request):
        request.priority = 5

    ran = await crawl(crawler, {"/": HTML})
    assert "no attribute 'priority'" in ran.letters["/"]
