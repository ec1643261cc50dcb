"""Callbacks: four kinds of functions, their results, and their errors, which are outcomes of their requests."""

import asyncio
import sys
import threading
import time
from dataclasses import dataclass

import msgspec
import pytest

from crawl_harness import CrawlHarness, Scripted, page
from skitter import Request, Spider
from skitter.errors import SpiderError
from skitter.frontier.records import JobState
from skitter.testing import Answer
from skitter.worker.callbacks import CallbackRunner, describe, refuse_repeated, run_callback

ITEM, REQUEST = {"a": 1}, Request("http://h.test/")


def generator(_response):
    yield ITEM
    yield REQUEST


async def async_generator(_response):
    yield ITEM
    await asyncio.sleep(0)
    yield REQUEST


async def coroutine(_response):
    await asyncio.sleep(0)
    return [ITEM, REQUEST]


def plain(_response):
    return (ITEM, REQUEST)


@pytest.mark.parametrize("callback", [generator, async_generator, coroutine, plain])
async def test_all_four_kinds_of_functions_give_the_same(callback):
    assert await run_callback(callback, None) == [ITEM, REQUEST]


@pytest.mark.parametrize(("given", "taken"), [(None, []), (ITEM, [ITEM]), (REQUEST, [REQUEST]), ([], [])])
async def test_a_function_may_return_one_thing_or_nothing(given, taken):
    async def returns(_response):
        return given

    assert await run_callback(lambda _response: given, None) == taken
    assert await run_callback(returns, None) == taken


@pytest.mark.parametrize("given", ["text", b"bytes", 7])
async def test_an_unsupported_result_is_rejected(given):
    with pytest.raises(SpiderError, match=type(given).__name__):
        await run_callback(lambda _response: given, None)


@dataclass
class Changing:
    number: int


@dataclass(frozen=True)
class Fixed:
    number: int


class Record(msgspec.Struct):
    number: int


@pytest.mark.parametrize("item", [{"a": 1}, Changing(1), Record(1)], ids=str)
async def test_an_item_that_is_changed_and_yielded_again_is_an_error(item, serve, tmp_path):
    with pytest.raises(SpiderError, match="more than once") as caught:
        refuse_repeated([{"a": 1}, item, item])
    assert "new item for each yield" in caught.value.remedy
    refuse_repeated([{"a": 1}, {"a": 1}, Fixed(1), *[Fixed(2)] * 2])

    class Own(Spider):
        start_urls = (serve(Scripted({"/": page()})).url,)

        def parse(self, response):
            yield item
            yield item

    report = await CrawlHarness(Own(), tmp_path).run()
    assert (report.items, "more than once" in report.letters["/"]) == ([], True)


def test_a_missing_callback_is_named():
    with pytest.raises(SpiderError, match="no callback 'parse_it'"):
        CallbackRunner().find(Spider(name="s"), "parse_it")


@pytest.mark.parametrize("callback", [generator, async_generator, coroutine, plain])
async def test_threads_return_the_same_results(callback):
    runner = CallbackRunner(2)
    assert await runner.run(callback, None) == [ITEM, REQUEST]
    runner.close()


async def test_a_thread_reports_the_results_that_a_failing_generator_loses():
    def fails(_response):
        yield ITEM
        raise_something()

    def stops(_response):
        raise StopIteration

    runner = CallbackRunner(1)
    with pytest.raises(KeyError) as caught:
        await runner.run(fails, None)
    assert "0 links and 1 item" in describe(caught.value)
    with pytest.raises(RuntimeError):
        await runner.run(stops, None)
    runner.close()


async def test_blocking_callbacks_run_beside_each_other_in_threads(serve, tmp_path):
    together = threading.Barrier(3)  # broken unless three callbacks block at the same time

    class Blocking(Spider):
        async def start(self):
            for number in range(3):
                yield Request(f"{self.url}{number}")

        def parse(self, response):
            yield {"turn": together.wait(timeout=30)}

    spider = Blocking(url=serve(Scripted({f"/{number}": page() for number in range(3)})).url)
    ran = await CrawlHarness(spider, tmp_path, callback_threads=3, delay=0).run()
    assert sorted(item["turn"] for item in ran.items) == [0, 1, 2]
    assert ran.letters == {}


def test_an_error_is_described_in_one_line_with_its_place():
    with pytest.raises(KeyError) as caught:
        raise_something("two\nlines")
    line = describe(caught.value)
    assert line.startswith("KeyError: 'two\\nlines' (line ")
    assert line.endswith("of test_worker_callbacks.py, in raise_something)")


def test_an_error_of_several_lines_becomes_one():
    assert describe(ValueError("two\n  lines")) == "ValueError: two lines"


def raise_something(what="missing"):
    raise KeyError(what)


async def wait_for_what_is_cancelled():
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


class Troubled(Spider):
    """Every link names the callback of its page."""

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"page": "start"}
        for href in response.hrefs():
            name = href.removeprefix("/")
            yield response.follow(href, callback=name, errback="rescue" if name.endswith("rescued") else None)

    def fine(self, response):
        yield {"page": "fine"}

    def generator(self, response):
        yield {"page": "half"}
        raise_something()

    async def async_generator(self, response):
        yield {"page": "half"}
        raise_something()

    async def coroutine(self, response):
        raise_something()

    def plain(self, response):
        raise_something()

    def leaves(self, response):
        sys.exit(3)

    async def cancelled(self, response):
        await wait_for_what_is_cancelled()

    async def cancels_itself(self, response):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    def recurses(self, response):
        return self.recurses(response)

    def gives_text(self, response):
        yield "text"

    def gives_bad_request(self, response):
        yield {"page": "half"}
        yield Request("http://h.test/", meta={"x": object()})

    def gives_unfinished(self, response):
        yield {"page": "half"}
        yield Request("http://h.test/", fingerprint_keys=("nothing",))

    def rescued(self, response):
        raise_something()

    async def rescue(self, request, error):
        yield {"page": "rescued", "error": type(error).__name__, "of": request.callback}


@pytest.fixture
def run(serve, tmp_path):
    async def run_it(pages, spider_class=Troubled, **settings):
        site = Scripted(pages)
        spider = spider_class(url=serve(site).url)
        ran = await CrawlHarness(spider, tmp_path, **settings).run()
        ran.site = site
        return ran

    return run_it


ERRORS = {
    "generator": "callback: KeyError: 'missing'",
    "async_generator": "callback: KeyError: 'missing'",
    "coroutine": "callback: KeyError: 'missing'",
    "plain": "callback: KeyError: 'missing'",
    "leaves": "callback: SystemExit: 3",
    "cancelled": "callback: CancelledError",
    "cancels_itself": "callback: CancelledError",
    "recurses": "callback: RecursionError",
    "gives_text": "callback: SpiderError: a callback returned an unsupported str: 'text'",
    "gives_bad_request": "callback: RequestError: request 'http://h.test/' cannot be stored",
    "gives_unfinished": "callback: MissingFingerprintKey",
}


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_of_user_code_fails_only_its_page(run, name):
    ran = await run({"/": [f"/{name}", "/fine"], f"/{name}": [], "/fine": []})
    assert ran.state is JobState.FINISHED
    assert list(ran.letters) == [f"/{name}"]
    assert ran.letters[f"/{name}"].startswith(ERRORS[name])
    assert sorted(item["page"] for item in ran.items) == ["fine", "start"]
    assert ran.site.counts[f"/{name}"] == 1, "an error of user code is not retried"
    assert ran.counters["pages"] == 2
    assert ran.counters["failed/callback"] == 1


@pytest.mark.parametrize("errback", [None, "rescue"])
async def test_each_seed_whose_callback_fails_is_named_once_in_the_log(run, caplog, errback):
    class Failing(Troubled):
        async def start(self):
            for name in ("first", "second", "third"):
                yield Request(f"{self.url}{name}", errback=errback)

        def parse(self, response):
            raise KeyError("absent")

        def rescue(self, request, error):
            raise TypeError("not this either")

    ran = await run({f"/{name}": [] for name in ("first", "second", "third")}, Failing)
    assert len(ran.letters) == 3
    lines = [record.getMessage() for record in caplog.records if record.levelname in {"ERROR", "WARNING"}]
    seeds = [line for line in lines if line.startswith("seed ")]
    assert len(seeds) == 2, "the first one has the line of the error"
    of_first = 1 if errback is None else 2  # both errors
    assert len(lines) == of_first + len(seeds)


async def test_an_errback_takes_the_place_of_a_failed_callback(run):
    ran = await run({"/": ["/rescued"], "/rescued": []})
    assert ran.letters == {}
    assert {"page": "rescued", "error": "KeyError", "of": "rescued"} in ran.items
    assert "failed/callback" not in ran.counters


async def test_an_errback_sees_a_bad_status_once_its_retries_are_used_up(run):
    ran = await run({"/": ["/rescued"], "/rescued": Answer(status=500)}, max_retries=2)
    assert {"page": "rescued", "error": "StatusError", "of": "rescued"} in ran.items
    assert (ran.letters, ran.site.counts["/rescued"]) == ({}, 3)


async def test_an_errback_sees_a_fetch_that_failed(run, free_port):
    class Unreachable(Troubled):
        def parse(self, response):
            yield response.follow(f"http://127.0.0.1:{free_port}/", errback=self.rescue, max_retries=0)

    ran = await run({"/": []}, Unreachable)
    assert [item["error"] for item in ran.items] == ["ConnectError"]


async def test_an_errback_without_results_leaves_the_dead_letter(run):
    class Silent(Troubled):
        def rescue(self, request, error):
            return None

    ran = await run({"/": ["/rescued"], "/rescued": page(status=404)}, Silent)
    assert ran.letters == {"/rescued": "status/404: the server responded with 404"}


async def test_an_errback_that_fails_too_is_called_once_and_both_errors_are_kept(run):
    calls = []

    class Failing(Troubled):
        def rescue(self, request, error):
            calls.append(request.url)
            raise TypeError("not this either")

    ran = await run({"/": ["/rescued"], "/rescued": page(status=404)}, Failing)
    (error,) = ran.letters.values()
    assert error.startswith("status/404: the server responded with 404; then TypeError: not this either")
    assert len(calls) == 1


async def test_cb_kwargs_meta_and_priority_travel_with_a_request(run):
    class Travelling(Spider):
        async def start(self):
            yield Request(self.url, cb_kwargs={"who": "a"}, meta={"deep": {"list": [1, 2.5, None, "é"]}})

        def parse(self, response, who):
            yield {"who": who, "meta": response.meta, "priority": response.request.priority}
            if who == "a":
                yield response.follow("/b", cb_kwargs={"who": "b"}, meta=response.meta, priority=-5)

    ran = await run({"/": [], "/b": (Answer(status=500), page())}, Travelling)
    meta = {"deep": {"list": [1, 2.5, None, "é"]}}
    assert ran.items == [
        {"who": "a", "meta": meta, "priority": 0},
        {"who": "b", "meta": meta, "priority": -5},
    ]


async def test_of_requests_that_wait_the_one_of_highest_priority_is_fetched_first(run):
    class Choosy(Spider):
        async def start(self):
            yield Request(self.url)

        def parse(self, response):
            for number in (1, -3, 7, 0):
                yield response.follow(f"/{number}", priority=number, callback="leaf")

        def leaf(self, response):
            yield {"url": response.url}

    pages = {"/": [], **{f"/{number}": [] for number in (1, -3, 7, 0)}}
    ran = await run(pages, Choosy, concurrency=1, concurrency_per_slot=1)
    assert [visit.target for visit in ran.site.visits] == ["/", "/7", "/1", "/0", "/-3"]


async def test_an_item_that_cannot_be_written_fails_only_its_page(run):
    class Odd(Troubled):
        def fine(self, response):
            yield {"page": object()}

    ran = await run({"/": ["/fine"], "/fine": []}, Odd)
    assert [item["page"] for item in ran.items] == ["start"]
    assert ran.letters["/fine"].startswith("store: item 1 of the page")
    assert ran.counters["items"] == 1


class _Base(Spider):
    def request_in_base(self):
        return Request("http://h.test/", self.__parse_page, errback=self.__failed)

    def __parse_page(self, response):
        """A callback."""

    def __failed(self, request, error):
        """An errback."""


class Derived(_Base):
    def request_in_derived(self):
        return Request("http://h.test/", self.__parse_page)

    def __parse_page(self, response):
        """Another callback."""


def test_a_private_method_can_be_a_callback():
    spider = Derived()
    of_base, of_derived = spider.request_in_base(), spider.request_in_derived()
    names = [of_base.callback, of_base.errback, of_derived.callback]
    assert names == ["_Base__parse_page", "_Base__failed", "_Derived__parse_page"]
    found = [CallbackRunner().find(spider, name).__doc__ for name in names]
    assert found == ["A callback.", "An errback.", "Another callback."]


class Blocking(Spider):
    """Its callback blocks the worker at the first call for longer than its leases last."""

    called = 0

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        self.called += 1
        end = time.monotonic() + 0.5
        while self.called == 1 and time.monotonic() < end:
            pass
        yield {"call": self.called}


async def test_a_callback_that_lets_leases_expire_has_a_warning(serve, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("skitter.worker.pipeline._LONG_CALLBACK", 0.4)
    spider = Blocking(url=serve(Scripted({"/": []})).url)
    ran = await CrawlHarness(spider, tmp_path, lease_seconds=0.3).run()
    assert len(ran.items) == 1
    warnings = [record.getMessage() for record in caplog.records if "did nothing else" in record.getMessage()]
    assert len(warnings) == 1
    assert "leases expired (lease_seconds)" in warnings[0]
    assert warnings[0].endswith("set callback_threads")
