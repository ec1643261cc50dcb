"""Dead hosts do not delay other hosts, and fail for their own reason, with the default settings."""

import asyncio
import contextlib
import socket
import time
from functools import partial
from urllib.parse import urlsplit

import pytest

from crawl_harness import CrawlHarness, Scripted, page, redirect
from servers.name_server import SILENT, NameServer
from skitter import Request, Spider
from skitter.fetch.robots import RobotsSettings
from skitter.frontier.embedded import frontier as embedded
from skitter.testing import Answer, SiteServer
from skitter.worker import origins, pipeline
from skitter.worker import robots as worker_robots

DEFAULTS = {"retry_delay": 1.0, "connect_timeout": 10.0, "timeout": 120.0}
"""The default settings, which the harness shortens."""


LOOPBACK = {"allow_networks": ("127.0.0.0/8",)}


class Watching(Spider):
    """Records pages and failures in order."""

    def __init__(self, urls, **arguments):
        super().__init__(**arguments)
        self.urls, self.events = urls, []

    async def start(self):
        for url in self.urls:
            yield Request(url, errback=self.rescue)

    def parse(self, response):
        self.events.append(("page", urlsplit(response.url).path))
        for link in response.css("a"):
            yield response.follow(link.attrib["href"], errback=self.rescue)

    def rescue(self, request, error):
        self.events.append(("failed", request.url))

    @property
    def failures(self):
        return [url for kind, url in self.events if kind == "failed"]

    def pages_after_the_first_failure(self):
        first = next(
            (index for index, (kind, _) in enumerate(self.events) if kind == "failed"), len(self.events)
        )
        return [path for kind, path in self.events[first:] if kind == "page"]


class RetryClock:
    """The clock of the delays before retries. A test speeds it up once the retries may happen."""

    perf_counter, time = staticmethod(time.perf_counter), staticmethod(time.time)

    def __init__(self, monkeypatch):
        self._hurried_at = float("inf")
        for module in (origins, pipeline):
            monkeypatch.setattr(module, "time", self)
        monkeypatch.setattr(embedded, "steady_clock", lambda: self.monotonic)

    def monotonic(self):
        now = time.monotonic()
        return now + 30.0 * max(0.0, now - self._hurried_at)

    def speed_up(self):
        self._hurried_at = time.monotonic()


@contextlib.contextmanager
def silent_server():
    """A server on all loopback addresses that never accepts a connection."""
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))
        sock.listen(4096)
        yield sock.getsockname()[1]


@pytest.fixture
def closed_ports(free_port):
    """Ports without a listener."""
    sockets = [socket.socket() for _ in range(8)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    yield ports
    for sock in sockets:
        sock.close()


async def test_closed_ports_and_the_other_scheme_do_not_hold_the_pages_of_their_host(
    serve, tmp_path, closed_ports, monkeypatch
):
    good = [f"/{number}" for number in range(40)]
    server = serve(site := Scripted({"/": lambda _: page(*bad, *good), **dict.fromkeys(good, Answer(b"x"))}))
    bad = [f"http://127.0.0.1:{port}/{number}" for port in closed_ports for number in range(5)]
    bad += [
        f"https://127.0.0.1:{server.port}/{number}" for number in range(5)
    ]  # no server completes a handshake there
    clock = RetryClock(monkeypatch)

    class WaitingForAllPages(Watching):
        """Makes the pages precede all retries, however slow the machine is."""

        def parse(self, response):
            yield from super().parse(response)
            if len(self.events) == 1 + len(good):
                clock.speed_up()

    spider = WaitingForAllPages([server.url])
    waits = {
        "connect_timeout": 3.0,
        "retry_delay": 30.0,
        "unreachable_timeout": 1000.0,
        "lease_seconds": 10_000.0,
    }
    ran = await CrawlHarness(spider, tmp_path, **DEFAULTS | waits, max_retries=1).run()
    assert set(site.counts) == {"/", *good}
    assert sorted(spider.failures) == sorted(bad)
    assert spider.pages_after_the_first_failure() == []
    assert (ran.counters["failed/connect"], ran.counters["failed/timeout"]) == (40, 5)


async def test_silent_hosts_do_not_hold_the_others(serve, tmp_path):
    good = [f"/{number}" for number in range(60)]
    server = serve(Scripted({"/": good, **dict.fromkeys(good, Answer(b"x"))}))
    with silent_server() as port:
        silent = [f"http://127.0.1.{number}:{port}/" for number in range(1, 101)]
        spider = Watching([*silent[:50], server.url, *silent[50:]])
        limits = {"concurrency": 4, "unreachable_timeout": 8.0}
        ran = await CrawlHarness(spider, tmp_path, **DEFAULTS | limits).run()
    assert len(spider.events) - len(spider.failures) == 61
    assert spider.pages_after_the_first_failure() == []
    assert sorted(spider.failures) == sorted(silent)
    assert ran.counters["failed/timeout"] == 100


async def test_names_without_an_answer_do_not_hold_the_others(serve, tmp_path):
    good = [f"/{number}" for number in range(30)]
    server = serve(Scripted({"/": good, **dict.fromkeys(good, Answer(b"x"))}))
    with NameServer({"good.test": "127.0.0.1", "*.silent.test": SILENT}) as name_server:
        silent = [f"http://h{number}.silent.test/" for number in range(60)]
        unknown = [f"http://h{number}.nowhere.test/" for number in range(20)]
        spider = Watching([*silent, *unknown, f"http://good.test:{server.port}/"])
        limits = {
            "connect_timeout": 10.0,
            "max_retries": 0,
            "dns_servers": (name_server.address,),
            **LOOPBACK,
        }
        ran = await CrawlHarness(spider, tmp_path, **DEFAULTS | limits).run()
    assert sorted(spider.failures) == sorted(silent + unknown)
    assert ran.counters["failed/dns"] == 80
    last_page = max(index for index, (kind, _) in enumerate(spider.events) if kind == "page")
    assert not set(silent) & {url for _, url in spider.events[:last_page]}
    assert name_server.asked["good.test"] == 1


async def test_a_name_that_does_not_exist_is_asked_for_once(tmp_path):
    with NameServer({"*.silent.test": SILENT}) as name_server:
        spider = Watching(["http://typo.test/", "http://typo.test/2", "http://h.silent.test/"])
        limits = {"dns_servers": (name_server.address,), "connect_timeout": 1.0, "max_retries": 1, **LOOPBACK}
        ran = await CrawlHarness(spider, tmp_path, **DEFAULTS | limits).run()
    assert sorted(spider.failures) == ["http://h.silent.test/", "http://typo.test/", "http://typo.test/2"]
    assert name_server.asked["typo.test"] == 1
    assert ran.counters["retried/dns"] == 1


async def test_an_answer_of_a_name_server_is_used_as_long_as_it_says(serve, tmp_path):
    chain = {
        f"/{number}": lambda visit, number=number: page(f"/{number + 1}", delay=0.4) for number in range(5)
    }
    server = serve(Scripted({**chain, "/5": Answer(b"x")}))
    with NameServer({"good.test": "127.0.0.1"}, ttl=1) as name_server:
        spider = Watching([f"http://good.test:{server.port}/0"])
        ran = await CrawlHarness(spider, tmp_path, dns_servers=(name_server.address,), **LOOPBACK).run()
    assert ran.counters["pages"] == 6
    assert name_server.asked["good.test"] >= 2


@pytest.mark.parametrize("workers", [1, 2])
async def test_every_failed_request_is_reported_once(serve, tmp_path, free_port, workers):
    pages = {
        "/robots.txt": Answer(b"", status=404),
        "/": ["/loop", "/ftp", "/gone", "/away"],
        "/loop": redirect("/loop"),
        "/ftp": redirect("ftp://127.0.0.1/x"),
        "/away": lambda visit: page(*dead),
    }
    dead = [f"http://127.0.0.1:{free_port}/closed", "http://no-such-name.invalid/unknown"]
    server = serve(Scripted(pages))
    received = []

    class RecordingErrors(Watching):
        def on_error(self, request, error):
            received.append(request.url)

    spider = RecordingErrors([server.url])
    ran = await CrawlHarness(spider, tmp_path, max_retries=0).run(workers)
    expected = sorted([*dead, *(server.url_of(path) for path in ("/loop", "/ftp", "/gone"))])
    assert sorted(spider.failures) == sorted(received) == expected
    kinds = {path: error.partition(":")[0] for path, error in ran.letters.items()}
    assert kinds == {
        "/closed": "connect", "/unknown": "dns", "/loop": "redirect/loop", "/ftp": "redirect/scheme", "/gone": "status/404",
    }  # fmt: skip


async def test_an_unavailable_robots_txt_is_reported_once_for_each_page(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(worker_robots, "RobotsSettings", partial(RobotsSettings, first_deferral=0.01))
    server = serve(site := Scripted({"/robots.txt": Answer(status=500)}))
    spider = Watching([server.url_of(f"/{number}") for number in range(3)])
    ran = await CrawlHarness(spider, tmp_path).run()
    assert sorted(spider.failures) == sorted(spider.urls)
    assert ran.counters["failed/robots"] == 3
    assert set(site.counts) == {"/robots.txt"}


async def test_workers_wait_for_a_host_that_answered_before(tmp_path, free_port):
    """The server is away for a while, during which more attempts fail than a page may have."""
    site = Scripted({"/": [f"/{n}" for n in range(20)]} | {f"/{n}": Answer(b"x" * 100) for n in range(20)})
    servers = contextlib.ExitStack()
    port = servers.enter_context(SiteServer(site, port=free_port)).port  # no other process gets it meanwhile
    gone = []

    class Outage(Watching):
        async def on_error(self, request, error):
            gone.append(error.kind)
            if len(gone) == 5:
                await asyncio.to_thread(servers.enter_context, SiteServer(site, port=port))

        async def parse(self, response):
            if response.url.endswith("/"):  # the only page fetched so far
                await asyncio.to_thread(servers.close)
            for result in super().parse(response):
                yield result

    with servers:
        spider = Outage([f"http://127.0.0.1:{port}/"])
        ran = await CrawlHarness(spider, tmp_path, retry_delay=0.05, max_retries=2).run()
    assert ran.letters == {}
    assert ran.counters["pages"] == 21
    assert set(gone) == {"connect"}
    assert len(gone) >= 5
