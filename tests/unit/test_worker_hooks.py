"""Hooks: order, several per point, every signal at every applicable point, plain and coroutine functions."""

from typing import ClassVar

import pytest

from crawl_harness import CrawlHarness, Scripted, page, redirect
from skitter import Request, Spider
from skitter.errors import DeferRequest, RetryRequest, SpiderError
from skitter.frontier.records import JobState
from skitter.testing import Answer
from skitter.worker.hooks import POINTS, HookAction, Hooks

PAGES = {"/": ["/a", "/b"], "/a": [], "/b": []}


class Hooked(Spider):
    """Yields one item per page. The results of its hooks are set from outside."""

    def __init__(self, **arguments):
        self.answers = {}
        super().__init__(**arguments)
        self.calls = []
        self.hooks = [Recorder(self, point) for point in POINTS]

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        if response.url.endswith("/raise"):
            raise ValueError("in the callback")
        yield {"url": response.url, "status": response.status}
        yield response.follow_all("a")


class Recorder:
    """A collection with one hook, which notifies the spider and returns the spider's result."""

    def __init__(self, spider, point):
        async def hook(subject, *_rest):
            where = getattr(subject, "url", "")
            spider.calls.append((point, "/" + where.rpartition("/")[2]))
            answer = spider.answers.get((point, "/" + where.rpartition("/")[2]))
            if isinstance(answer, list):
                answer = answer.pop(0) if answer else None
            if isinstance(answer, Exception):
                raise answer
            return answer

        setattr(self, point, hook)


@pytest.fixture
def run(serve, tmp_path):
    async def run_it(answers=None, pages=PAGES, spider_class=Hooked, **settings):
        site = Scripted(pages)
        server = serve(site)
        spider = spider_class(url=server.url, answers=answers or {})
        bench = CrawlHarness(spider, tmp_path, **settings)
        ran = await bench.run()
        ran.site, ran.spider, ran.bench = site, spider, bench
        return ran

    return run_it


def paths(ran):
    return sorted("/" + item["url"].rpartition("/")[2] for item in ran.items)


async def test_the_points_of_a_page_come_in_the_order_of_the_loop(run):
    ran = await run(pages={"/": []})
    assert [point for point, _ in ran.spider.calls] == [
        "on_start", "before_request", "before_send", "on_headers", "after_request", "before_save", "after_save",
        "on_stop",
    ]  # fmt: skip


async def test_a_failed_attempt_asks_on_error_each_time(run):
    ran = await run(pages={"/": Answer(status=500)}, max_retries=2)
    assert [point for point, _ in ran.spider.calls].count("on_error") == 3


async def test_hooks_of_one_point_run_in_order_until_the_first_decision():
    order = []
    hooks = Hooks()

    def plain(_request):
        order.append("plain")

    async def coroutine(_request):
        order.append("coroutine")
        return HookAction.DROP

    hooks.register("on_error", plain)
    hooks.register("on_error", coroutine)
    hooks.register("on_error", plain)
    assert await hooks.run("on_error", None) is HookAction.DROP
    assert order == ["plain", "coroutine"]


async def test_each_hook_gets_the_request_as_the_one_before_it_left_it():
    hooks = Hooks()
    hooks.register("before_request", lambda request: request.replace(priority=1))

    async def second(request):
        return request.replace(depth=request.priority + 1)

    hooks.register("before_request", second)
    request, signal = await hooks.revise("before_request", Request("http://h.test/"))
    assert (request.priority, request.depth, signal) == (1, 2, HookAction.CONTINUE)


async def test_a_hook_may_return_the_name_of_an_action():
    hooks = Hooks()
    hooks.register("on_error", lambda: "retry")
    assert await hooks.run("on_error") is HookAction.RETRY


async def test_an_unsupported_result_of_a_hook_names_the_hook():
    hooks = Hooks()
    hooks.register("on_error", lambda: 7)
    with pytest.raises(SpiderError, match=r"<lambda> .*7"):
        await hooks.run("on_error")


def test_an_unknown_point_is_refused():
    with pytest.raises(SpiderError, match="before_lunch"):
        Hooks().register("before_lunch", print)


def test_the_spiders_own_methods_are_hooks_before_its_collections():
    class Own(Spider):
        def on_error(self, request, error):
            return None

    hooks = Hooks()
    spider = Own()
    hooks.register_all(spider)
    assert hooks["on_error"] == [spider.on_error]
    assert not hooks["before_request"]


async def test_before_request_may_have_another_request_fetched(run):
    class Rewriting(Hooked):
        def before_request(self, request):
            return request.replace(headers={"X-Mark": "seen"})

    ran = await run(spider_class=Rewriting)
    assert {visit.headers.get("x-mark") for visit in ran.site.visits} == {"seen"}
    assert paths(ran) == ["/", "/a", "/b"]


async def test_the_request_of_before_request_is_fetched_and_the_queue_keeps_the_original(run):
    short = []

    class Completing(Hooked):
        def before_request(self, request):
            short.append(request.url.partition("//")[2].partition("/")[2])
            product = request.url.rpartition("/")[2]
            return request.replace(url=f"{self.url}catalogue/item?id={product}&full=1") if product else None

    pages = {
        "/": ["/17", "/18"],
        "/catalogue/item?id=17&full=1": (Answer(status=500), page()),
        "/catalogue/item?id=18&full=1": Answer(status=404),
    }
    ran = await run(pages=pages, spider_class=Completing)
    assert sorted(short) == ["", "17", "17", "18"]
    assert list(ran.letters) == ["/18"]
    assert {item["url"].rpartition("/")[2] for item in ran.items} == {"", "item?id=17&full=1"}


async def test_after_request_may_put_another_response_in_place(run):
    class Decoding(Hooked):
        def after_request(self, response):
            if response.url.endswith("/a"):
                return response.replace(status=200, body=b'<a href="/hidden">x</a>')
            return None

    ran = await run(
        spider_class=Decoding, pages={**PAGES, "/a": Answer(b"secret", status=404), "/hidden": []}
    )
    assert paths(ran) == ["/", "/a", "/b", "/hidden"]
    assert {item["status"] for item in ran.items} == {200}


@pytest.mark.parametrize(
    ("status", "answer", "end"),
    [
        (404, HookAction.DROP, "dropped"),
        (404, HookAction.IGNORE, "page"),
        (403, [HookAction.RETRY], "page"),
        (404, None, "letter"),
    ],
)
async def test_after_request_decides_over_any_status(run, status, answer, end):
    pages = {
        **PAGES,
        "/a": (page(status=status), page(status=status if answer is HookAction.IGNORE else 200)),
    }
    ran = await run({("after_request", "/a"): answer}, pages=pages)
    assert ("/a" in paths(ran)) == (end == "page")
    assert (ran.letters != {}) == (end == "letter")
    assert ran.counters.get("refused/hook", 0) == (end == "dropped")


@pytest.mark.parametrize("point", ["before_request", "after_request", "before_save"])
async def test_drop_finishes_a_request_without_output(run, point):
    ran = await run({(point, "/a"): HookAction.DROP})
    assert paths(ran) == ["/", "/b"]
    assert (ran.status.done, ran.status.failed, ran.letters) == (3, 0, {})
    assert ran.counters["refused/hook"] == 1
    assert ran.site.counts["/a"] == (point != "before_request")


@pytest.mark.parametrize("point", ["before_request", "after_request", "before_save"])
async def test_retry_tries_again_and_counts_once(run, point):
    ran = await run({(point, "/a"): [HookAction.RETRY, HookAction.RETRY]})
    assert paths(ran) == ["/", "/a", "/b"]
    assert ran.counters[f"retried/hook/{point}"] == 2
    assert (ran.counters["pages"], ran.counters["items"], ran.counters["links"]) == (3, 3, 2)
    assert ran.site.counts["/a"] == (1 if point == "before_request" else 3)


@pytest.mark.parametrize("point", ["before_request", "after_request", "before_save"])
async def test_retry_without_end_is_given_up(run, point):
    ran = await run({(point, "/a"): HookAction.RETRY}, max_retries=2)
    assert ran.letters == {"/a": f"hook/{point}: asked for a retry"}
    assert paths(ran) == ["/", "/b"]


class Insisting(Spider):
    """Asks for a retry at one point, again and again."""

    rescued: ClassVar = {"from": "errback"}

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.calls = []

    async def start(self):
        yield Request(f"{self.url}a", errback=self.rescue)

    def at(self, point):
        return HookAction.RETRY if point == self.point else None

    def before_request(self, request):
        return self.at("before_request")

    def before_send(self, request):
        return self.at("before_send")

    def on_headers(self, response):
        return self.at("on_headers")

    def after_request(self, response):
        return self.at("after_request")

    def parse(self, response):
        return {"from": "callback"}

    def before_save(self, response, items):
        return self.at("before_save") if items[0]["from"] == "callback" else None

    def on_error(self, request, error):
        self.calls.append(("on_error", str(error), request.is_last_attempt))
        return self.at("on_error")

    def rescue(self, request, error):
        self.calls.append(("errback", str(error), request.is_last_attempt))
        return self.rescued


@pytest.mark.parametrize(
    "point", ["before_request", "before_send", "on_headers", "after_request", "before_save"]
)
async def test_the_errback_is_called_when_no_retry_is_left_for_a_hook(serve, tmp_path, point):
    spider = Insisting(url=serve(Scripted({"/a": []})).url, point=point)
    ran = await CrawlHarness(spider, tmp_path, max_retries=1).run()
    assert [call[0] for call in spider.calls] == ["on_error", "errback"]
    assert all("asked for a retry" in text and is_last for _, text, is_last in spider.calls)
    assert ([item["from"] for item in ran.items], ran.letters) == (["errback"], {})
    assert ran.counters[f"retried/hook/{point}"] == 1


@pytest.mark.parametrize("status", [404, 503])
async def test_the_retry_rules_decide_when_on_error_has_no_retry_left(serve, tmp_path, status):
    spider = Insisting(url=serve(Scripted({"/a": Answer(status=status)})).url, point="on_error")
    rules = {"retry_delay": 0.01, "max_retries": 1, "max_throttled": 2}
    ran = await CrawlHarness(spider, tmp_path, **rules).run()
    attempts = [call[0] for call in spider.calls]
    assert attempts == ["on_error"] * (2 if status == 404 else 3) + ["errback"]
    assert ([item["from"] for item in ran.items], ran.letters) == (["errback"], {})


async def test_the_dead_letter_names_the_failure_and_not_the_hook_that_retried_it(serve, tmp_path):
    spider = Insisting(url=serve(Scripted({"/a": Answer(status=404)})).url, point="on_error", rescued=None)
    ran = await CrawlHarness(spider, tmp_path, retry_delay=0.01, max_retries=1).run()
    assert ran.letters == {"/a": "status/404: the server responded with 404"}


@pytest.mark.parametrize("slot", [False, True])
async def test_a_request_postponed_by_before_request_returns_without_counting_an_attempt(run, slot):
    wish = DeferRequest("not now", 0.02, slot=slot)
    answers = {("before_request", "/a"): [wish, wish, wish]}
    ran = await run(answers, max_retries=0)
    assert (ran.letters, ran.site.counts["/a"]) == ({}, 1)
    assert [call for call in ran.spider.calls if call == ("before_request", "/a")] == [
        ("before_request", "/a")
    ] * 4
    assert sorted(item["url"].rpartition("/")[2] for item in ran.items) == ["", "a", "b"]
    assert not [name for name in ran.counters if name.startswith("retried")]


@pytest.mark.parametrize("point", ["before_request", "after_request", "before_save", "after_save"])
async def test_stop_continues_with_the_request_and_stops_the_crawl(run, point):
    ran = await run({(point, "/a"): HookAction.STOP}, pages={**PAGES, "/a": ["/c"], "/c": []}, concurrency=1)
    assert ran.state is JobState.STOPPING
    assert "/a" in paths(ran)
    assert "/c" not in paths(ran)
    assert ran.status.leased == 0
    assert ran.failure is None


@pytest.mark.parametrize(
    "point", ["before_request", "after_request", "before_save", "on_error", "after_save"]
)
async def test_fail_fails_the_crawl_and_a_rerun_resumes(run, point):
    pages = {**PAGES, "/a": (Answer(status=500), page())} if point == "on_error" else PAGES
    ran = await run({(point, "/a"): [HookAction.FAIL]}, pages=pages)
    assert f"hook {point} at" in str(ran.failure)
    assert ran.failure.remedy
    assert (ran.status.leased, ran.state) == (0, JobState.RUNNING)
    again = await ran.bench.run()
    assert again.state is JobState.FINISHED
    assert paths(again) == ["/", "/a", "/b"]
    assert again.letters == {}


async def test_ignore_passes_an_error_status_to_the_callback(run):
    ran = await run({("on_error", "/a"): HookAction.IGNORE}, pages={**PAGES, "/a": page(status=404)})
    assert {"/" + item["url"].rpartition("/")[2]: item["status"] for item in ran.items} == {
        "/": 200, "/a": 404, "/b": 200,
    }  # fmt: skip
    assert ran.letters == {}


async def test_ignore_after_a_fetch_passes_any_status_to_the_callback(run):
    ran = await run({("after_request", "/a"): HookAction.IGNORE}, pages={**PAGES, "/a": page(status=503)})
    assert paths(ran) == ["/", "/a", "/b"]


async def test_ignore_finishes_a_failed_callback_without_a_dead_letter(run):
    pages = {"/": ["/raise"], "/raise": []}
    ran = await run({("on_error", "/raise"): HookAction.IGNORE}, pages=pages)
    assert (paths(ran), ran.letters) == (["/"], {})
    assert (ran.counters["errors/ignored"], ran.status.done) == (1, 2)


async def test_drop_in_on_error_spares_the_dead_letters(run):
    ran = await run({("on_error", "/a"): HookAction.DROP}, pages={**PAGES, "/a": page(status=404)})
    assert (ran.letters, ran.counters["refused/hook"], ran.status.done) == ({}, 1, 3)


async def test_retry_in_on_error_retries_a_request_that_would_be_given_up(run):
    pages = {**PAGES, "/a": (Answer(status=404), page())}
    ran = await run({("on_error", "/a"): [HookAction.RETRY]}, pages=pages)
    assert (paths(ran), ran.letters) == (["/", "/a", "/b"], {})


@pytest.mark.parametrize(
    "point", ["before_request", "before_send", "on_headers", "after_request", "before_save", "on_error"]
)
async def test_an_exception_in_a_hook_fails_its_request_alone(run, point):
    pages = {**PAGES, "/a": page(status=404)} if point == "on_error" else PAGES
    ran = await run({(point, "/a"): RuntimeError("oops")}, pages=pages)
    assert list(ran.letters) == ["/a"]
    assert "RuntimeError: oops" in ran.letters["/a"]
    kind = "status/404" if point == "on_error" else f"hook/{point}"
    assert ran.letters["/a"].startswith(f"{kind}: ") and ran.counters[f"failed/{kind}"] == 1
    assert paths(ran) == ["/", "/b"]
    assert ran.state is JobState.FINISHED


async def test_an_exception_after_the_save_is_counted_and_the_items_stay(run):
    ran = await run({("after_save", "/a"): RuntimeError("oops")})
    assert (paths(ran), ran.letters, ran.counters["errors/hook"]) == (["/", "/a", "/b"], {}, 1)


async def test_before_save_may_change_the_items(run):
    class Changing(Hooked):
        def before_save(self, response, items):
            items[0]["length"] = len(response.body)
            items.append({"url": response.url, "second": True})

    ran = await run(pages={"/": []}, spider_class=Changing)
    assert [set(item) for item in ran.items] == [{"url", "status", "length"}, {"url", "second"}]
    assert ran.counters["items"] == 2


@pytest.mark.parametrize(
    ("action", "kept", "dropped"), [(None, 1, 2), (HookAction.STOP, 1, 2), (HookAction.DROP, 0, 3)]
)
async def test_items_that_before_save_removes_are_counted(run, action, kept, dropped):
    class Choosy(Hooked):
        def parse(self, response):
            yield from ({"number": number} for number in range(3))

        def before_save(self, response, items):
            del items[1:]
            return action

    ran = await run(pages={"/": []}, spider_class=Choosy)
    assert (len(ran.items), ran.counters["dropped_items/hook"]) == (kept, dropped)


async def test_items_of_a_page_that_before_save_retries_are_counted_once(run):
    class Retrying(Hooked):
        def before_save(self, response, items):
            items.clear()
            self.tries = getattr(self, "tries", 0) + 1
            return HookAction.RETRY if self.tries == 1 else None

    ran = await run(pages={"/": []}, spider_class=Retrying)
    assert (ran.spider.tries, ran.items, ran.counters["dropped_items/hook"]) == (2, [], 1)


async def test_an_exception_at_the_start_fails_the_crawl_before_anything_is_fetched(run):
    ran = await run({("on_start", "/"): RuntimeError("no database")})
    assert "hook on_start: RuntimeError: no database" in str(ran.failure)
    assert ran.site.visits == []


async def test_an_error_text_with_invalid_unicode_stays_readable(run, caplog):
    caplog.set_level("CRITICAL", logger="skitter")  # a test runner's report cannot contain it either

    class Odd(Hooked):
        def before_request(self, request):
            if request.url.endswith("/a"):
                raise ValueError("\udc80 half a pair")

    ran = await run(spider_class=Odd)
    assert "\\udc80 half a pair" in ran.letters["/a"]
    assert paths(ran) == ["/", "/b"]


async def test_on_error_is_called_for_settled_failures_without_effect(run):
    """A redirect with an invalid target. The hook fails as well, and its answer would be an IGNORE."""
    for answer in (ValueError("in the hook"), HookAction.IGNORE):
        ran = await run({("on_error", "/loop"): answer}, {"/": ["/loop"], "/loop": redirect("/loop")})
        assert ("on_error", "/loop") in ran.spider.calls
        assert ran.letters["/loop"].startswith("redirect/loop: ")
        assert (ran.state, ran.status.done) == (JobState.FINISHED, 1)


class Failing(Spider):
    """Fails the crawl while a page of another host waits for its robots.txt."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.errors = []

    def parse(self, response):
        yield Request(self.slow)
        yield Request(self.url + "fail")

    def before_request(self, request):
        return HookAction.FAIL if request.url.endswith("fail") else None

    def on_error(self, request, error):
        self.errors.append((request.url, type(error).__name__))


async def test_a_page_that_waits_for_robots_txt_has_no_error_when_the_crawl_fails(serve, tmp_path):
    slow = serve(Scripted({"/robots.txt": Answer(b"", delay=30.0)}))
    spider = Failing(url=serve(Scripted({"/": []})).url, slow=slow.url)
    spider.start_urls = [spider.url]
    ran = await CrawlHarness(spider, tmp_path).run()
    assert ran.failure is not None
    assert (spider.errors, ran.letters) == ([], {})


class Counting(Spider):
    """Records the number of each attempt at every point that receives a request."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.seen = []

    async def start(self):
        yield Request(f"{self.url}page", errback=self.failed, **self.fields)

    def note(self, point, request):
        self.seen.append((point, request.retries, request.is_last_attempt))

    def before_request(self, request):
        self.note("before_request", request)
        return request.replace(headers={"X-A": "1"})

    def after_request(self, response):
        self.note("after_request", response.request)

    def on_error(self, request, error):
        self.note("on_error", request)

    def parse(self, response):
        self.note("parse", response.request)
        if response.request.is_last_attempt:
            yield Request(f"{self.url}next", self.follow)
        else:
            raise RetryRequest("not yet")

    def follow(self, response):
        self.note("next", response.request)

    def failed(self, request, error):
        self.note("errback", request)


@pytest.fixture
def attempts(serve, tmp_path):
    async def run_it(pages, frontier="sqlite", fields=None, **settings):
        spider = Counting(url=serve(Scripted(pages)).url, fields=fields or {})
        ran = await CrawlHarness(spider, tmp_path, frontier=frontier, robots=False, **settings).run()
        return spider.seen, ran

    return run_it


async def test_every_attempt_has_its_number_and_the_last_one_knows_it(attempts):
    seen, ran = await attempts({"/page": [], "/next": []}, max_retries=2)
    points = ("before_request", "after_request", "parse")
    assert seen == [
        *((point, 0, False) for point in points), ("on_error", 0, False),
        *((point, 1, False) for point in points), ("on_error", 1, False),
        *((point, 2, True) for point in points),
        ("before_request", 0, False), ("after_request", 0, False), ("next", 0, False),
    ]  # fmt: skip
    assert ran.letters == {}


@pytest.mark.parametrize(("fields", "settings"), [({"max_retries": 0}, {}), ({}, {"max_retries": 0})])
async def test_without_retries_the_first_attempt_is_the_last(attempts, fields, settings):
    seen, _ = await attempts({"/page": [], "/next": []}, fields=fields, **settings)
    assert [entry for entry in seen if entry[0] == "parse"] == [("parse", 0, True)]


async def test_on_error_and_the_errback_know_whether_the_rules_give_a_request_up(attempts):
    seen, _ = await attempts({"/page": Answer(status=404)})
    assert seen[1:] == [("after_request", 0, False), ("on_error", 0, True), ("errback", 0, True)]


async def test_a_throttled_request_has_more_retries_than_a_failed_one(attempts):
    answers = (Answer(status=429, headers={"Retry-After": "0"}),) * 3
    seen, _ = await attempts({"/page": answers, "/next": []}, max_retries=1, max_throttled=2)
    assert [entry for entry in seen if entry[0] in {"on_error", "errback"}] == [
        ("on_error", 0, False), ("on_error", 1, False), ("on_error", 2, True), ("errback", 2, True),
    ]  # fmt: skip
