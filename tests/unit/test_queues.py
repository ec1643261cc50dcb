"""Named queues: how requests get their queue, what workers lease, and which values are refused."""

import json
import resource

import pytest

from cli_command import skitter, usage_error
from crawl_harness import CrawlHarness, Scripted, page, redirect
from recipe_runs import run_recipe_text
from skitter import Request, Spider
from skitter.brokers.address import UrlRules, parse_address
from skitter.errors import RequestError, SettingsError, UsageError
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import Entry
from skitter.frontier.workers import WorkerReport, queues_without_workers
from skitter.links import Links
from skitter.politeness import HostLimits, LimitRule, Politeness
from skitter.queues import queue_of, slot_in, without_queue
from skitter.request import decode_request
from skitter.run.crawl import QueuesWithoutWorkers
from skitter.run.job import JobSpec, queues_per_worker
from skitter.scope import Scope
from skitter.settings import build_settings
from skitter.worker.inflight import QueueBudget, make_queue_budget
from skitter.worker.links import LinkCollector
from skitter.worker.seeds import read_seed

BASE = "http://h.test/"


def gathered(given, parent):
    found = LinkCollector(Scope(), Politeness(), 42).collect(given, parent)
    entries = found.entries + [entry for batch in found.batches for entry in batch.entries()]
    return {
        entry.url.removeprefix(BASE): (entry.slot, decode_request(entry.url, entry.record).queue)
        for entry in entries
    }


def both(path, **fields):
    """A request, and a batch of two links, with the same fields."""
    return [Request(f"{BASE}{path}", **fields), Links(BASE, [f"{path}1", f"{path}2"], fields)]


# --- names and slots ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b", "a|b", "ä", "*", "x" * 65, "a/b", 7])
def test_a_request_with_an_invalid_queue_name_is_rejected(name):
    with pytest.raises(RequestError, match="queue"):
        Request(BASE, queue=name)


@pytest.mark.parametrize("slot", ["h.test", "rule:0", "rule:2:h.test", "[::1]"])
def test_a_slot_contains_its_queue_and_is_that_of_the_host_without_it(slot):
    assert slot_in("detail", slot) == f"detail|{slot}"
    assert queue_of(slot_in("detail", slot)) == "detail"
    assert without_queue(slot_in("detail", slot)) == slot
    for default in ("", "default"):
        assert slot_in(default, slot) == slot
    assert (queue_of(slot), without_queue(slot)) == ("default", slot)


def test_a_rule_and_the_limits_of_a_queue_are_found_by_the_slot():
    queues = {
        "detail": HostLimits(delay=5.0, rates=("1/2s",)),
        "default": HostLimits(concurrency_per_slot=9),
    }
    rules = [LimitRule(domain_glob="slow.test", delay=60.0), LimitRule(domain_glob="*.pool", unit="rule")]
    politeness = Politeness(HostLimits(delay=1.0, concurrency_per_slot=2), rules, queues=queues)
    assert politeness.limits_of("h.test") == HostLimits(delay=1.0, jitter=0.0, concurrency_per_slot=9)
    assert politeness.limits_of("list|h.test") == HostLimits(delay=1.0, jitter=0.0, concurrency_per_slot=2)
    assert politeness.limits_of("detail|h.test") == HostLimits(
        delay=5.0, jitter=0.0, concurrency_per_slot=2, rates=("1/2s",)
    )
    assert politeness.limits_of("detail|slow.test").delay == 60.0
    assert politeness.limits_of(slot_in("detail", politeness.slot_of("a.pool"))).delay == 5.0
    changed = politeness.changed(HostLimits(delay=3.0), {})
    assert [changed.limits_of(slot).delay for slot in ("list|h.test", "detail|h.test")] == [3.0, 5.0]


# --- explicit and inherited queues ----------------------------------------------------------------------------


def test_children_stay_in_the_queue_of_their_page_unless_they_name_another():
    parent = Request(BASE, queue="list")
    found = gathered([*both("a"), *both("b", queue="detail"), *both("c", queue="default")], parent)
    assert {found[name] for name in ("a", "a1", "a2")} == {("list|h.test", "list")}
    assert {found[name] for name in ("b", "b1", "b2")} == {("detail|h.test", "detail")}
    assert {found[name][0] for name in ("c", "c1", "c2")} == {"h.test"}


def test_requests_without_a_queue_are_in_the_default_queue():
    found = gathered([*both("a"), *both("b", queue="default")], Request(BASE))
    assert {slot for slot, _ in found.values()} == {"h.test"}


def test_children_of_a_page_that_was_sent_back_to_the_default_queue_stay_there():
    (child,) = gathered([Request(f"{BASE}a")], Request(BASE, queue="default")).values()
    assert child[0] == "h.test"


def test_the_queue_is_not_part_of_the_identity_of_a_request():
    gatherer = LinkCollector(Scope(), Politeness(), 42)
    prints = {gatherer.entry(Request(BASE, queue=queue)).fingerprint for queue in ("", "a", "b")}
    assert len(prints) == 1


def test_a_line_of_seeds_may_name_a_queue():
    assert read_seed('{"url": "http://h.test/", "queue": "detail"}').queue == "detail"
    with pytest.raises(RequestError, match="queue"):
        read_seed('{"url": "http://h.test/", "queue": "no name"}')


async def test_a_redirect_and_a_retry_stay_in_their_queue(serve, tmp_path):
    pages = {
        "/": [],
        "/old": redirect("/new"),
        "/new": (page(status=503, headers={"Retry-After": "0"}), page("/last")),
        "/last": page(),
    }

    class Moved(Spider):
        async def start(self):
            yield Request(f"{self.url}old", queue="detail")

        def parse(self, response):
            yield {"path": response.url.rpartition("/")[2], "queue": response.request.queue}
            yield response.follow_all("a")

    ran = await CrawlHarness(Moved(url=serve(Scripted(pages)).url), tmp_path, max_throttled=3).run()
    assert ran.items == [{"path": "new", "queue": "detail"}, {"path": "last", "queue": "detail"}]
    assert ran.status.queues == {"default": 0, "detail": 0}


RECIPE = """name: shop
start: [{url: "{site}", queue: list}]
pages:
  list:
    follow:
      - {css: a.book, page: book, queue: detail}
    next: a.next
  book:
    items: {fields: {title: title}}
    follow: [{css: a.also, page: book}]
"""


async def test_a_recipe_names_queues_of_its_starts_and_links(serve, tmp_path):
    def html(*links):
        body = "".join(f'<a class="{kind}" href="{href}">x</a>' for kind, href in links)
        return page().__class__(f"<title>t</title>{body}".encode())

    site = Scripted({
        "/": html(("book", "/b1"), ("next", "/2")), "/2": html(("book", "/b2")),
        "/b1": html(("also", "/b3")), "/b2": html(), "/b3": html(),
    })  # fmt: skip
    ran = await run_recipe_text(RECIPE.replace("{site}", serve(site).url), tmp_path)
    assert len(ran.items) == 3
    assert ran.status.queues.keys() == {"default", "list", "detail"}
    assert {slot.key.partition("|")[0] for slot in ran.status.busiest} <= {"list", "detail"}


# --- settings and options -------------------------------------------------------------------------------------


def test_the_setting_defines_sizes_and_limits():
    text = '{"detail": {"concurrency": 8, "concurrency_per_slot": "2", "delay": 1, "rates": ["1/s", "20/m"]}, "list": {}}'
    settings = build_settings({"queues": text})
    limits = settings.politeness().queues
    assert limits["detail"] == HostLimits(delay=1.0, concurrency_per_slot=2, rates=("1/s", "20/m"))
    assert limits["list"] == HostLimits()
    assert settings.queue_sizes() == {"detail": 8}


@pytest.mark.parametrize(
    ("queues", "named"),
    [
        ({"a b": {}}, "'a b'"),
        ({"detail": {"speed": 1}}, "'speed'"),
        ({"detail": {"delay": "soon"}}, "queue detail"),
        ({"detail": {"delay": -1}}, "delay"),
        ({"detail": {"concurrency_per_slot": 0}}, "concurrency_per_slot"),
        ({"detail": {"rates": ["often"]}}, "'often'"),
        ({"detail": {"rates": 7}}, "queue detail"),
        ({"detail": {"concurrency": 0}}, "queue detail"),
        ({"detail": {"concurrency": "many"}}, "queue detail"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_name(queues, named):
    settings = build_settings({"queues": queues})
    with pytest.raises(SettingsError, match=named):
        settings.politeness(), settings.queue_sizes()


@pytest.mark.parametrize(
    ("workers", "queues", "expected"),
    [
        (3, {}, [[], [], []]),
        (2, {"list": 0, "detail": 0}, [["list", "detail"]] * 2),
        (1, {"list": 1, "detail": 2}, [["list"], ["detail"], ["detail"]]),
        (2, {"list": 0, "detail": 1}, [["list"], ["list"], ["detail"]]),
    ],
)
def test_each_worker_process_receives_the_queues_that_it_serves(workers, queues, expected):
    assert JobSpec(job="x", spider="-", workers=workers, queues=queues).queues_per_worker() == expected


@pytest.mark.parametrize(("workers", "queues"), [(64, {}), (1, {"list": 0, "detail": 63})])
def test_more_worker_processes_than_may_have_open_files_are_refused(workers, queues, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert len(queues_per_worker(workers, queues)) == 64
    with pytest.raises(UsageError, match="more than the 64 for which this machine has") as caught:
        queues_per_worker(workers + 1, queues)
    assert "ulimit -n" in caught.value.remedy


def test_more_worker_processes_than_have_memory_are_refused_in_one_line(tmp_path):
    error = usage_error("crawl", "http://127.0.0.1:1/", "--workers", 10**12, cwd=tmp_path)
    assert "1,000,000,000,000 worker processes" in error
    assert not (tmp_path / ".skitter").exists()


@pytest.mark.parametrize("text", ["a b", "detail:", "detail:0", "detail:two", ":2", "detail:1:2"])
def test_an_option_that_names_no_queue_is_refused_in_one_line(text, tmp_path):
    ran = skitter("crawl", "http://127.0.0.1:1/", "--queue", text, cwd=tmp_path)
    assert ran.returncode == 2
    assert "--queue" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / ".skitter").exists()


def test_seeds_are_added_to_the_queue_of_the_option_or_to_their_own(serve, tmp_path):
    site = serve(Scripted({"/": page()}))
    assert skitter("crawl", site.url, "--job", "x", "--delay", 0, cwd=tmp_path).returncode == 0
    lines = f'{site.url}a\n{{"url": "{site.url}b", "queue": "list"}}\n{{"url": "{site.url}c", "queue": "default"}}'
    added = skitter("add", "x", "--file", "-", "--queue", "detail", cwd=tmp_path, stdin=lines)
    assert added.stderr.startswith("added: 3")
    status = json.loads(skitter("status", "x", "--json", cwd=tmp_path).stdout)
    assert status["counts"]["queues"] == {"default": 1, "detail": 1, "list": 1}
    refused = skitter("add", "x", f"{site.url}d", "--queue", "no name", cwd=tmp_path)
    assert refused.returncode == 2
    assert "queue" in refused.stderr


# --- leases of a worker ---------------------------------------------------------------------------------------


def test_a_worker_without_queues_requests_no_shares():
    assert make_queue_budget((), {}) is None


def test_a_worker_requests_the_remaining_quota_of_a_queue():
    budget = QueueBudget((), {"detail": 3})
    assert budget.quotas(10) == {"detail": 3, "*": 10}
    budget.begin("detail|h.test")
    budget.begin("h.test")
    assert budget.quotas(9) == {"detail": 2, "*": 9}
    budget.end("detail|h.test")
    assert budget.quotas(2) == {"detail": 2, "*": 2}


def test_a_worker_that_serves_some_queues_asks_for_no_others():
    budget = QueueBudget(("list", "detail"), {"detail": 3, "other": 5})
    assert budget.quotas(10) == {"list": 10, "detail": 3}
    assert budget.concurrency is None
    assert QueueBudget(("detail",), {"detail": 64, "other": 5}).concurrency == 64
    assert QueueBudget((), {"detail": 64}).concurrency is None


async def test_a_worker_never_has_more_of_a_queue_in_flight_than_its_size(serve, tmp_path):
    class Two(Spider):
        async def start(self):
            for number in range(12):
                yield Request(f"{self.url}d{number}", queue="detail")
                yield Request(f"{self.url}x{number}")

        def parse(self, response):
            yield {"url": response.url}

    class Counting(EmbeddedFrontier):
        most = dict.fromkeys(("detail", "default"), 0)

        async def lease(self, *arguments):
            result = await super().lease(*arguments)
            for queue in self.most:
                in_flight_now = sum(slot.in_flight for slot in self._slots if slot.queue == queue)
                self.most[queue] = max(self.most[queue], in_flight_now)
            return result

    settings = {"queues": {"detail": {"concurrency": 2}}, "concurrency": 6, "concurrency_per_slot": 100}
    bench = CrawlHarness(Two(url=serve(Scripted({})).url), tmp_path, allowed_statuses=[404], **settings)
    context = bench.frontier_context()
    bench.frontier = Counting(context.politeness, context.options)
    ran = await bench.run()
    assert len(ran.items) == 24
    assert Counting.most["detail"] == 2
    assert 2 < Counting.most["default"] <= 6


async def test_the_frontier_call_is_unchanged_if_no_queue_is_named(serve, tmp_path):
    class One(Spider):
        async def start(self):
            yield self.url

        def parse(self, response):
            yield {}

    class Plain(EmbeddedFrontier):
        async def lease(self, worker, limit, reports=()):  # as before there were queues
            return await super().lease(worker, limit, reports)

    bench = CrawlHarness(One(url=serve(Scripted({"/": page()})).url), tmp_path)
    bench.frontier = Plain(Politeness(HostLimits(delay=0.0)))
    assert (await bench.run()).items == [{}]


# --- queues without a worker ----------------------------------------------------------------------------------


def report(name, *queues):
    return WorkerReport(name, "machine", 1, "0", 1.0, 32, 0, 0, 0, 0, 0, 0.0, queues)


async def test_a_queue_that_no_worker_serves_is_reported_once_and_not_before_a_worker_may_have_come(caplog):
    frontier = EmbeddedFrontier(Politeness(HostLimits(delay=0.0)))
    entries = [
        Entry(bytes([n]) * 16, slot, f"{BASE}{n}", b"") for n, slot in enumerate(("detail|h", "list|h"))
    ]
    await frontier.add(entries)
    await frontier.reports.announce(report("w", "list"), 1000.0)
    watch = QueuesWithoutWorkers()
    record_counts = []
    for now in (0.0, 9.0, 10.0, 11.0, 500.0):
        await watch.check(frontier, await frontier.status(), now)
        record_counts.append(len(caplog.records))
    assert record_counts == [0, 0, 1, 1, 1]
    assert "no worker serves queue detail, which has 1 waiting request:" in caplog.text
    await frontier.reports.announce(report("late", "detail"), 1000.0)
    again = QueuesWithoutWorkers()
    for now in (0.0, 100.0):
        await again.check(frontier, await frontier.status(), now)
    assert len(caplog.records) == 1


async def test_the_default_queue_is_reported_although_no_other_queue_has_requests(caplog):
    """The requests of a job with --queue list may all be in the default queue."""
    frontier = EmbeddedFrontier(Politeness(HostLimits(delay=0.0)))
    await frontier.add([Entry(bytes(16), "h", f"{BASE}0", b"")])
    status = await frontier.status()
    assert queues_without_workers(status, []) == {}
    await frontier.reports.announce(report("w", "list"), 1000.0)
    assert queues_without_workers(status, await frontier.reports.workers()) == {"default": 1}
    watch = QueuesWithoutWorkers()
    for now in (0.0, 10.0):
        await watch.check(frontier, status, now)
    assert "no worker serves queue default, which has 1 waiting request:" in caplog.text
    await frontier.reports.announce(report("w2"), 1000.0)
    assert queues_without_workers(status, await frontier.reports.workers()) == {}


# --- brokers --------------------------------------------------------------------------------------------------


def test_each_queue_has_a_topic_of_its_own_with_a_name_that_fits():
    rules = UrlRules("x://HOST", 1, is_name=lambda name: len(name) <= 64)
    address = parse_address("x://h/pages?state=sqlite:", "job", rules)
    assert address.of_queue("default") == address
    assert address.of_queue("detail").topic == "pages-detail"
    long = [address.of_queue("x" * 63 + end).topic for end in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 64
