"""Pages in a real browser: eight kinds of sites with exact expected items, and pages that attack the browser."""

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from playwright.async_api import Error

from browsers import descendants, kill, require_browser, survivors
from crawl_harness import CrawlHarness, Scripted
from servers.name_server import NameServer
from sites.javascript import WORDS, hostile_site, javascript_site
from skitter import Collector, Request, Spider
from skitter.browser.adaptive import read_rules, reset_rules
from skitter.browser.guard_proxy import GuardProxy
from skitter.browser.process import BrowserProcess
from skitter.browsing import Click, Evaluate, Fill, InfiniteScroll, LoadMore, Pdf, Screenshot, Wait
from skitter.errors import FetchError
from skitter.fetch.contract import TooLate
from skitter.run.fetcher_factory import make_fetcher
from skitter.settings import build_settings
from skitter.testing import Answer

BROWSER = {"fetcher": "browser", "page_timeout": 20, "retry_delay": 0.01, "allow_networks": ["127.0.0.0/8"]}


@pytest.fixture(autouse=True, scope="module")
def browser():
    require_browser()


@pytest.fixture
def other_processes():
    """The processes that already run below this process: the servers of other tests."""
    return descendants(os.getpid()).keys()


PROCESSES = {
    "renderer": lambda line: "--type=renderer" in line,
    "browser": lambda line: (
        "--user-data-dir=" in line and "--type=" not in line and "watchdog.py" not in line
    ),
    "watchdog": lambda line: "watchdog.py" in line,
    "driver": lambda line: "run-driver" in line,
}
"""The processes of a browser by their command lines."""


def spider_of(requests, parse, **attributes):
    async def start(self):
        for request in requests:
            yield request

    return type("Pages", (Spider,), {"name": "pages", "start": start, "parse": parse, **attributes})()


def page_of(response):
    return response.url.partition("/")[2].partition("/")[2].partition("/")[2]


def texts(query):
    """Return a callback that yields all texts that a query finds."""

    def parse(self, response):
        yield {"page": page_of(response), "texts": response.css(query).getall()}

    return parse


def follow(self, response):
    yield {"page": page_of(response), "texts": response.css("h1::text").getall()}
    for link in response.css("a"):
        yield response.follow(link, "follow", browsing={"wait_for": "h1"}, session=response.request.session)


def in_app(self, response):
    yield {"page": "in app", "texts": [response.captured["path"], *response.css("h1::text").getall()]}


def frames(self, response):
    yield {
        "page": "frames",
        "texts": [response.css(tag + "::text").get() for tag in ("h2", "h3", "x-card b")],
    }


SHOWN = "location.pathname == '/spa/c' && document.querySelector('h1').textContent == 'spa c'"


async def test_eight_kinds_of_sites_give_their_exact_items(serve, tmp_path, other_processes):
    url = serve(javascript_site).url_of
    login = [Fill("#user", "ann"), Fill("#word", "secret"), Click("#go"), Wait("h1")]
    route = [Click("a"), Wait(function=SHOWN), Evaluate("location.pathname", "path")]
    requests = [
        Request(url("/server"), "follow"),
        Request(url("/spa/"), "follow", browsing={"wait_for": "h1"}),
        Request(url("/spa/a?app"), "in_app", browsing={"wait_for": "a", "actions": route}),
        Request(url("/scroll"), "items", browsing={"wait_for": "li", "actions": [InfiniteScroll(timeout=8)]}),
        Request(url("/more"), "items", browsing={"actions": [LoadMore("#more", timeout=15)]}),
        Request(url("/delayed"), browsing={"wait_for": ".ready"}),
        Request(url("/frames"), "frames", browsing={"wait_for": "x-card"}),
        Request(url("/login"), "follow", browsing={"actions": login}, session="ann"),
        Request(url("/fetched"), "cells", browsing={"wait_for": "td"}),
    ]
    spider = spider_of(
        requests, texts("h1::text"), follow=follow, items=texts("li::text"), cells=texts("td.name::text"),
        frames=frames, in_app=in_app,
    )  # fmt: skip
    ran = await CrawlHarness(spider, tmp_path, **BROWSER).run()
    assert ran.letters == {}
    assert {item["page"]: item["texts"] for item in ran.items} == {
        "server": ["server"], "server/1": ["server 1"], "server/2": ["server 2"],
        "spa/": ["spa "], "spa/a": ["spa a"], "spa/b": ["spa b"], "spa/c": ["spa c"], "in app": ["/spa/c", "spa c"],
        "scroll": list(WORDS), "more": list(WORDS), "delayed": ["late"], "frames": ["shadow", "framed", "slotted"],
        "account": ["ann"], "account/orders": ["orders of ann"], "fetched": list(WORDS[:3]),
    }  # fmt: skip
    assert survivors(descendants(os.getpid()).keys() - other_processes) == []


async def test_hostile_pages_become_one_dead_letter_each(serve, tmp_path, other_processes):
    forbidden = Scripted({"/": Answer(b"secret")})
    target = serve(forbidden, hosts=2).url_of(origin_index=1)
    url = serve(hostile_site(target)).url_of
    expected = {
        "/loop": "timeout", "/alerts": "page_limit", "/memory": "page_limit", "/popups": "page_limit",
        "/stream": "timeout", "/file": "page_limit", "/requests": "page_limit", "/away?n=5": "redirect/limit",
        "/": "forbidden",
    }  # fmt: skip
    paths = [
        "/loop",
        "/alerts",
        "/memory",
        "/popups",
        "/stream",
        "/file",
        "/forbidden",
        "/requests",
        "/away?n=0",
    ]
    fine = ["/ok", "/sub", "/worker", "/download", "/noise"]
    requests = [
        Request(url(path), timeout=8 if expected.get(path) == "timeout" else 60, max_retries=0)
        for path in paths
    ] + [Request(url(path)) for path in fine]
    spider = spider_of(requests, texts("h1::text"))
    ran = await CrawlHarness(
        spider, tmp_path, **BROWSER | {"allow_networks": ["127.0.0.1/32"]}, seeds_open_networks=False, max_redirects=5, page_max_requests=100, page_memory=600 * 2**20, browser_pages=3,
    ).run()  # fmt: skip
    assert {path: error.partition(": ")[0] for path, error in ran.letters.items()} == expected
    assert {item["page"]: item["texts"] for item in ran.items} == {path[1:]: [path[1:]] for path in fine}
    assert forbidden.visits == []
    assert survivors(descendants(os.getpid()).keys() - other_processes) == []


REBINDING = b"""<title>x</title><script>
(async () => {
  for (let n = 0; n < 100; n++) {
    try { if ((await fetch("/probe?" + n, {cache: "no-store"})).status == 502) break } catch { break }
    await new Promise(done => setTimeout(done, 100));
  }
  document.body.append(Object.assign(document.createElement("h1"), {textContent: "refused"}));
})()
</script><body></body>"""


async def test_a_name_that_changes_its_address_leads_a_script_to_no_forbidden_one(serve, tmp_path):
    with NameServer({"rebinding.test": "127.0.0.1"}, ttl=1) as name_server:
        probes = []

        def answer(visit):
            if visit.path == "/probe":
                probes.append(visit.target)
                name_server.names["rebinding.test"] = "127.0.0.2"
            return Answer(REBINDING, headers={"Connection": "close"})

        port = serve(answer).port
        with socket.create_server(("127.0.0.2", port)) as forbidden:
            spider = spider_of(
                [Request(f"http://rebinding.test:{port}/", browsing={"wait_for": "h1"})], texts("h1::text")
            )
            narrow = {"allow_networks": ["127.0.0.1/32"], "seeds_open_networks": False, "robots": False}
            ran = await CrawlHarness(
                spider, tmp_path, **BROWSER | narrow, dns_servers=(name_server.address,)
            ).run()
            forbidden.setblocking(False)
            with pytest.raises(BlockingIOError):
                forbidden.accept()
    assert 0 < len(probes) < 100
    assert [item["texts"] for item in ran.items] == [["refused"]]
    assert ran.letters == {}


def page_of_all_channels(host, port):
    """Return a page that uses each way of a browser to send data to a host."""
    place = f"{host}:{port}"
    return Answer(
        f"""<title>x</title><link rel=dns-prefetch href=//{place}><link rel=preconnect href=//{place}>
        <link rel=prefetch href=//{place}/prefetch><link rel=preload as=fetch href=//{place}/preload crossorigin>
        <link rel=stylesheet href=//{place}/css><link rel=modulepreload href=//{place}/module>
        <link rel=icon href=//{place}/icon><link rel=manifest href=//{place}/manifest>
        <style>@font-face {{ font-family: f; src: url(//{place}/font) }} body {{ font-family: f; background: url(//{place}/back) }}</style>
        <img src=//{place}/img srcset="//{place}/set 2x"><video src=//{place}/video></video><object data=//{place}/object></object>
        <embed src=//{place}/embed><iframe src=//{place}/iframe></iframe><iframe src="http://[::ffff:{host}]:{port}/"></iframe>
        <svg><image href=//{place}/svg /><use href=//{place}/use#a /></svg>
        <form id=form action=//{place}/form method=post target=frame><input name=a></form><iframe name=frame></iframe>
        <script src=//{place}/script></script><script type=speculationrules>
          {{"prefetch": [{{"source": "list", "urls": ["http://{place}/speculation"]}}]}}</script>
        <script>
        const attempts = [
          () => fetch("http://{place}/fetch", {{mode: "no-cors", keepalive: true}}),
          () => navigator.sendBeacon("http://{place}/beacon", "x"),
          () => new WebSocket("ws://{place}/socket"), () => new EventSource("http://{place}/events"),
          () => new WebTransport("https://{place}/transport").ready,
          () => new Worker(URL.createObjectURL(new Blob(["fetch('http://{place}/worker')"]))),
          () => import("http://{place}/import"), () => form.submit(), () => open("http://{place}/open"),
          async () => {{
            const servers = ["stun:{place}", "turn:{place}?transport=udp", "turn:{place}?transport=tcp", "turns:{place}?transport=tcp"];
            const peer = new RTCPeerConnection({{iceServers: servers.map(urls => ({{urls, username: "u", credential: "c"}}))}});
            peer.createDataChannel("x");
            await peer.setLocalDescription(await peer.createOffer());
            await peer.addIceCandidate({{candidate: "candidate:1 1 udp 1 {host} {port} typ host", sdpMid: "0"}}).catch(() => 0);
          }},
        ];
        for (const attempt of attempts) {{ try {{ Promise.resolve(attempt()).catch(() => 0) }} catch {{}} }}
        setTimeout(() => document.body.append(Object.assign(document.createElement("h1"), {{textContent: "done"}})), 3000);
        </script>""".encode()
    )


@pytest.mark.parametrize(("network", "is_open"), [("127.0.0.1/32", False), ("127.0.0.0/8", True)])
async def test_no_part_of_a_page_reaches_a_forbidden_address(serve, tmp_path, network, is_open):
    with (
        socket.create_server(("127.0.0.2", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.2", port))
        url = serve(Scripted({"/": page_of_all_channels("127.0.0.2", port)})).url_of("/")
        spider = spider_of(
            [Request(url, browsing={"wait_for": "h1"}, timeout=15 if is_open else 60, max_retries=0)],
            texts("h1::text"),
        )
        limits = {"allow_networks": [network], "seeds_open_networks": False, "robots": False}
        ran = await CrawlHarness(spider, tmp_path, **BROWSER | limits).run()
        tcp.setblocking(False)
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):  # a proxy carries no UDP
            udp.recv(2000)
        if is_open:
            tcp.accept()[0].close()  # shows that the page tries
        else:
            with pytest.raises(BlockingIOError):
                tcp.accept()
            assert [item["texts"] for item in ran.items] == [["done"]]


async def test_adaptive_fetching_uses_the_browser_for_the_pages_that_need_it(serve, tmp_path):
    site = javascript_site
    visits = []

    def counting(visit):
        visits.append(visit.target)
        return site(visit)

    url = serve(counting).url_of
    numbers = range(8)
    requests = [Request(url("/server/1")), *(Request(url(f"/js/{number}")) for number in numbers)]
    harness = CrawlHarness(
        spider_of(requests, texts("h1::text")),
        tmp_path,
        **BROWSER | {"fetcher": "adaptive", "concurrency": 1},
    )
    ran = await harness.run()
    assert ran.letters == {}
    assert {item["page"]: item["texts"] for item in ran.items} == {
        "server/1": ["server 1"], **{f"js/{number}": [f"page {number}"] for number in numbers},
    }  # fmt: skip
    assert visits.count("/server/1") == 1
    assert 10 <= sum(visits.count(f"/js/{number}") for number in numbers) <= 12, "two by HTTP first, then few"
    host = url("/").partition("/")[2].strip("/")
    rules = await read_rules(harness.frontier.notes)
    assert rules == {f"{host}/js/*": 2}
    assert await reset_rules(harness.frontier.notes, "other.test") == 0
    assert await reset_rules(harness.frontier.notes) == 1
    assert await read_rules(harness.frontier.notes) == {}


async def test_a_callback_can_use_the_page_which_is_closed_afterwards(serve, tmp_path):
    url = serve(javascript_site).url_of
    held = []

    async def parse(self, response):
        held.append(response.page)
        title = await response.page.evaluate("document.querySelector('h1').textContent")
        yield {"page": page_of(response), "texts": [title]}
        if page_of(response) == "js/2":
            raise ValueError

    def pictures(self, response):
        yield {"page": "pictures", "texts": list(response.captured.values())}

    actions = [Screenshot(), Screenshot("h1", "h1"), Pdf()]
    requests = [Request(url(f"/js/{number}"), browsing={"keep_page": True}) for number in (1, 2)]
    requests.append(Request(url("/js/3"), "pictures", browsing={"actions": actions}))
    spider = spider_of(requests, parse, pictures=pictures)
    ran = await CrawlHarness(spider, tmp_path, **BROWSER, capture_dir=str(tmp_path / "shots")).run()
    assert list(ran.letters) == ["/js/2"]
    found = {item["page"]: item["texts"] for item in ran.items}
    assert found.keys() == {"js/1", "pictures"}
    assert found["js/1"] == ["page 1"]
    assert await asyncio.to_thread(first_bytes, found["pictures"]) == [b"\x89PNG", b"\x89PNG", b"%PDF"]
    assert all(page.is_closed() for page in held)


async def test_a_collector_gets_the_open_page_which_is_closed_afterwards(serve, tmp_path):
    url = serve(javascript_site).url_of
    crawler, held, order = Collector(), [], []
    crawler.on_html("h1", lambda element: order.append("html"))

    @crawler.on_page
    async def look(response, page):
        order.append("page")
        held.append(page)
        if page_of(response) == "js/2":
            response.request.abort()
        if page_of(response) == "js/3":
            raise ValueError
        yield {
            "page": page_of(response),
            "texts": [await page.evaluate("document.querySelector('h1').textContent")],
        }

    @crawler.on_response
    def begin(response):
        order.append(page_of(response))

    for number in (1, 2, 3):
        crawler.visit(url(f"/js/{number}"), fetcher="browser")
    crawler.visit(url("/server/1"))
    spider = crawler.__spider__("crawler", "test")()
    ran = await CrawlHarness(spider, tmp_path, **BROWSER | {"fetcher": "http", "concurrency": 1}).run()
    assert list(ran.letters) == ["/js/3"]
    assert sorted((item["page"], *item["texts"]) for item in ran.items) == [
        ("js/1", "page 1"),
        ("js/2", "page 2"),
    ]
    assert sorted(order) == sorted(
        ["js/1", "page", "html", "js/2", "page", "js/3", "page", "server/1", "html"]
    ), "not called over HTTP, nor is anything after an abort"
    assert order[order.index("js/1") :][:3] == ["js/1", "page", "html"]
    assert len(held) == 3
    assert all(page.is_closed() for page in held)


def first_bytes(names):
    return [Path(name).read_bytes()[:4] for name in names]


@pytest.mark.parametrize(
    ("process", "number"),
    [
        ("renderer", signal.SIGKILL),
        ("watchdog", signal.SIGKILL),
        ("browser", signal.SIGSTOP),
        ("driver", signal.SIGSTOP),
    ],
    ids=["renderer dies", "watchdog dies", "browser hangs", "driver hangs"],
)
async def test_a_process_that_dies_or_hangs_costs_a_retry(serve, tmp_path, process, number, other_processes):
    killed, asked = [], threading.Event()

    def break_all():
        asked.wait(60)
        found = descendants(os.getpid()).items()
        killed.extend(pid for pid, line in found if PROCESSES[process](line))
        for pid in killed:
            kill(pid, number)

    def site(visit):
        if visit.target != "/fatal":
            return javascript_site(visit)
        first = not asked.is_set()
        asked.set()
        return Answer(b"<h1>alive</h1>", delay=5 if first else 0)

    killer = threading.Thread(target=break_all)
    killer.start()
    url = serve(site).url_of
    spider = spider_of(
        [Request(url("/fatal")), *(Request(url(f"/js/{n}")) for n in range(3))], texts("h1::text")
    )
    ran = await CrawlHarness(spider, tmp_path, **BROWSER | {"page_timeout": 10, "max_retries": 10}).run()
    await asyncio.to_thread(killer.join)
    assert killed
    assert ran.letters == {}
    assert sorted(item["texts"][0] for item in ran.items) == ["alive", "page 0", "page 1", "page 2"]
    assert survivors(descendants(os.getpid()).keys() - other_processes) == []


async def test_a_browser_in_which_no_page_opens_any_more_is_replaced(serve, tmp_path, monkeypatch):
    """A driver that is killed at the wrong moment leaves a browser that seems to be connected."""
    start, started = BrowserProcess.start, []

    async def fail(**_options):
        raise Error("Target page, context or browser has been closed")

    async def start_the_first_one_broken(settings):
        started.append(await start(settings))
        if len(started) == 1:
            monkeypatch.setattr(started[0].browser, "new_context", fail)
        return started[-1]

    monkeypatch.setattr(BrowserProcess, "start", start_the_first_one_broken)
    url = serve(javascript_site).url_of
    spider = spider_of([Request(url(f"/js/{number}")) for number in range(3)], texts("h1::text"))
    ran = await CrawlHarness(spider, tmp_path, **BROWSER | {"max_retries": 3}).run()
    assert ran.letters == {}
    assert sorted(item["texts"][0] for item in ran.items) == ["page 0", "page 1", "page 2"]
    assert len(started) == 2


async def test_a_lease_is_renewed_while_its_page_loads(serve, tmp_path):
    site = Scripted({"/slow": Answer(b"<h1>slow</h1>", delay=12)})
    spider = spider_of([Request(serve(site).url_of("/slow"))], texts("h1::text"))
    harness = CrawlHarness(spider, tmp_path, **BROWSER | {"lease_seconds": 8, "page_timeout": 60})
    ran = await harness.run(workers=2)
    assert ran.letters == {}
    assert [item["texts"] for item in ran.items] == [["slow"]]
    assert site.counts["/slow"] == 1, "the other worker did not get the lease"
    assert ran.counters.get("leases/expired", 0) == 0


async def test_robots_txt_holds_for_every_document_that_the_browser_would_load(serve, tmp_path):
    site = Scripted({
        "/robots.txt": Answer(b"User-agent: *\nDisallow: /private", content_type="text/plain"),
        "/script": Answer(b"<h1>script</h1><script>location = '/private/1'</script>"),
        "/button": Answer(b"<h1>button</h1><form action=/private/2><button id=go>go</button></form>"),
        "/private/data": Answer(b"data"),
        "/page": Answer(b"<h1>page</h1><script>fetch('/private/data')</script>"),
    })  # fmt: skip
    url = serve(site).url_of
    requests = [
        Request(url("/script")),
        Request(url("/button"), browsing={"actions": [Click("#go")]}),
        Request(url("/private/3")),
        Request(url("/page")),
    ]
    ran = await CrawlHarness(spider_of(requests, texts("h1::text")), tmp_path, **BROWSER, robots=True).run()
    assert ran.letters == {}
    assert [item["page"] for item in ran.items] == ["page"]
    documents = [visit.target for visit in site.visits if visit.target != "/private/data"]
    assert sorted(documents) == ["/button", "/page", "/robots.txt", "/script"], "nor the icon"
    assert ran.counters["refused/robots"] == 3


class Permit:
    """Allows the request. If it is ``late``, it refuses it once a connection has been reported."""

    expires = True
    is_traced = False

    def __init__(self, *, late):
        self.late = late
        self.connecting = 0.0

    def report_connecting(self, seconds):
        self.connecting = seconds

    def may_send(self):
        return not (self.late and self.connecting)


async def test_the_time_before_the_document_is_reported_also_if_it_was_too_long(serve):
    server = serve(lambda visit: Answer(b"<p>page"))
    fetcher = await asyncio.to_thread(make_fetcher, build_settings(BROWSER))  # searches for the browser
    await fetcher.open()
    try:
        late, timely = Permit(late=True), Permit(late=False)
        with pytest.raises(TooLate):
            await fetcher.fetch(Request(server.url), permit=late)
        assert server.log.hits == []
        response = await fetcher.fetch(Request(server.url), permit=timely)
    finally:
        await fetcher.close()
    assert response.css("p::text").get() == "page"
    assert late.connecting > 0
    assert timely.connecting > 0


async def test_a_browser_that_is_replaced_leaves_no_port_open_at_the_end(serve, monkeypatch):
    """Its proxies must be closed even if it still loads a page when the crawl ends."""
    opening, ports = GuardProxy.open, []

    async def open_and_note(proxy):
        url = await opening(proxy)
        ports.append(int(url.rpartition(":")[2]))
        return url

    monkeypatch.setattr(GuardProxy, "open", open_and_note)
    server = serve(lambda visit: Answer(b"<p>page", delay=30 if "slow" in visit.target else 0))
    settings = build_settings({**BROWSER, "browser_pages": 4, "browser_max_pages": 5})
    fetcher = await asyncio.to_thread(make_fetcher, settings)
    await fetcher.open()
    await asyncio.gather(*(fetcher.fetch(Request(server.url_of(f"/{n}"))) for n in range(4)))
    slow = [asyncio.create_task(fetcher.fetch(Request(server.url_of(f"/slow{n}")))) for n in range(2)]
    while sum("slow" in hit.target for hit in server.log.hits) < 2:  # the second one in a new browser
        await asyncio.sleep(0.05)
    await fetcher.close()
    ends = await asyncio.gather(*slow, return_exceptions=True)
    assert all(isinstance(end, FetchError) for end in ends)
    assert len(ports) >= 3  # of an idle and of a busy context of the old browser, and of the new browser
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_an_error_in_a_header_hook_fails_the_page_with_this_error(serve, tmp_path):
    def on_headers(spider, response):
        raise ValueError("a mistake in the hook")

    url = serve(Scripted({"/": []})).url
    ran = await CrawlHarness(
        spider_of([Request(url)], page_of, on_headers=on_headers), tmp_path, **BROWSER
    ).run()
    assert ran.letters["/"].startswith("hook/on_headers: ValueError: a mistake in the hook")
