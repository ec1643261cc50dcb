"""Crawls with identities: real workers, a real site and real proxies on loopback."""

import asyncio
import socket
import sys
from collections import Counter
from contextlib import AsyncExitStack, ExitStack

import pytest

from crawl_harness import CrawlHarness, Scripted, page, redirect
from servers.fetch_proxy import Proxy
from skitter import HookAction, Request, Spider
from skitter._utils.concurrency import cancel_and_wait
from skitter._utils.notes import BLOCKED
from skitter.errors import RetryRequest, SettingsError
from skitter.fetch.contract import BehindProxy, FetcherCapabilities, ProxyError
from skitter.fetch.http import HttpFetcher
from skitter.fetch.identity.contract import IdentitySources
from skitter.fetch.identity.fetcher import IdentityFetcher
from skitter.fetch.routing import RoutingFetcher
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import JobState
from skitter.response import Response
from skitter.settings import Settings
from skitter.testing import Answer
from skitter.worker.heartbeat import WorkerReporter

PAGES = {"/": [f"/{number}" for number in range(12)], **{f"/{number}": [] for number in range(12)}}


class Seen(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        yield {"path": response.url.rpartition("/")[2], "proxy": response.request.proxy}
        yield response.follow_all("a")


@pytest.fixture
def run(serve, tmp_path):
    async def run_it(pages=PAGES, spider_class=Seen, workers=1, frontier="memory", processes=1, **settings):
        site = Scripted(pages)
        server = serve(site)
        if "proxies" in settings:
            settings["reuse_connections"] = False  # the test's proxy serves one request per connection
        settings.setdefault("robots", False)  # the tests count every request
        spider = spider_class(url=server.url)
        bench = CrawlHarness(spider, tmp_path, frontier=frontier, processes=processes, **settings)
        ran = await bench.run(workers)
        ran.site, ran.server, ran.spider, ran.bench = site, server, spider, bench
        return ran

    return run_it


@pytest.fixture
async def proxies_of():
    async with AsyncExitStack() as stack:

        async def start(count, **options):
            return [await stack.enter_async_context(Proxy(**options)) for _ in range(count)]

        yield start


def agents(ran):
    return Counter(visit.headers["user-agent"] for visit in ran.site.visits)


async def test_each_request_has_another_identity(run):
    ran = await run(user_agents=["A/1", {"User-Agent": "B/2", "Accept-Language": "de", "X-Hint": "b"}] * 10)
    assert set(agents(ran)) <= {"A/1", "B/2"}
    for visit in ran.site.visits:
        of_b = visit.headers["user-agent"] == "B/2"
        assert visit.headers["accept-language"] == ("de" if of_b else "en")
        assert visit.headers.get("x-hint") == ("b" if of_b else None)
        assert "gzip" in visit.headers["accept-encoding"]


async def test_values_of_a_request_take_precedence_over_the_sources(run, proxies_of):
    (proxy,) = await proxies_of(1)

    class Own(Seen):
        async def start(self):
            yield Request(self.url, headers={"User-Agent": "own"}, proxy="")
            yield Request(f"{self.url}0", headers={"x-hint": "own"})

        def parse(self, response):
            yield {"agent": response.request.headers}

    ran = await run(
        spider_class=Own,
        user_agents=[{"User-Agent": "A", "X-Hint": "a", "X-More": "a"}],
        proxies=[proxy.http],
    )
    heads = {visit.target: visit.headers for visit in ran.site.visits}
    assert (heads["/"]["user-agent"], heads["/"].get("x-hint")) == ("own", None)
    assert [heads["/0"][name] for name in ("user-agent", "x-hint", "x-more")] == ["A", "own", "a"]
    assert len(proxy.heads) == 1


async def test_requests_use_the_proxies_in_turn(run, proxies_of):
    proxies = await proxies_of(3)
    ran = await run(proxies=",".join(proxy.http for proxy in proxies))
    assert len(ran.items) == 13
    assert sorted(len(proxy.heads) for proxy in proxies) == [4, 4, 5]
    assert {item["proxy"] for item in ran.items} == {proxy.http for proxy in proxies}


async def test_a_proxy_is_chosen_by_http_and_by_socks_with_a_login(run, proxies_of):
    web, socks = await proxies_of(2)
    login = web.http.replace("://", "://anna:secret@")
    ran = await run(proxies=[login, socks.socks])
    assert len(ran.items) == 13
    assert all(b"Proxy-Authorization: Basic YW5uYTpzZWNyZXQ=" in head for head in web.heads)
    assert web.heads
    assert socks.socks_targets


@pytest.mark.parametrize("robots", [True, False])
async def test_a_dead_proxy_costs_no_page_its_attempt(run, proxies_of, free_port, robots):
    (good,) = await proxies_of(1)
    dead = [f"http://127.0.0.1:{free_port}", f"socks5h://127.0.0.1:{free_port}"]
    ran = await run(proxies=[*dead, good.http], max_retries=0, robots=robots)
    assert (ran.state, ran.letters, len(ran.items)) == (JobState.FINISHED, {}, 13)
    assert ran.counters["free/proxy"] >= 2
    assert not [name for name in ran.counters if name.startswith("retried/")]
    assert {item["proxy"] for item in ran.items} == {good.http}


async def test_a_proxy_that_wants_another_login_is_left_alone(run, proxies_of):
    (good,) = await proxies_of(1)
    (closed,) = await proxies_of(1, refusal="407 Proxy Authentication Required")
    ran = await run(proxies=[closed.http, good.http], max_retries=0)
    assert (ran.letters, len(ran.items)) == ({}, 13)
    assert 1 <= len(closed.heads) <= 12


async def test_requests_wait_while_all_proxies_are_in_cooldown(run, proxies_of):
    (proxy,) = await proxies_of(1)
    proxy.refuse_first(2)
    ran = await run(proxies=[proxy.http], max_retries=0, proxy_cooldown=0.05, concurrency=2)
    assert (ran.letters, len(ran.items), ran.state) == ({}, 13, JobState.FINISHED)
    assert ran.counters["free/proxy"] >= 1


async def test_a_worker_without_a_proxy_that_responds_reports_why_it_waits(run, free_port, monkeypatch):
    monkeypatch.setattr("skitter.worker.heartbeat._REPORT_SECONDS", 0.01)
    told = asyncio.get_running_loop().create_future()
    announce = WorkerReporter.announce

    async def noted(self):
        await announce(self)
        if (waits := self.report().waits) and not told.done():
            told.set_result(waits)

    monkeypatch.setattr(WorkerReporter, "announce", noted)
    crawl = asyncio.create_task(run(proxies=[f"http://ann:secret@127.0.0.1:{free_port}"]))
    try:
        async with asyncio.timeout(60):
            assert await told == f"no proxy responds (http://127.0.0.1:{free_port})"
    finally:
        await cancel_and_wait([crawl])


async def test_an_unavailable_server_is_not_blamed_on_the_proxies(run, proxies_of, free_port):
    proxies = await proxies_of(2)

    class Away(Seen):
        async def start(self):
            yield Request(self.url)
            for number in range(6):
                yield Request(f"https://127.0.0.1:{free_port}/away{number}")

    ran = await run(
        spider_class=Away, proxies=[proxy.http for proxy in proxies], max_retries=1, proxy_cooldown=100.0
    )
    assert len(ran.items) == 13
    assert set(ran.letters) == {f"/away{number}" for number in range(6)}
    assert "free/proxy" not in ran.counters


async def test_a_list_is_read_from_a_url_and_from_a_file(run, proxies_of, serve, tmp_path):
    one, two = await proxies_of(2)
    vendor = serve(lambda _visit: Answer(f"{one.http}\n".encode()))
    ran = await run(proxies=f"url:{vendor.url}")
    assert (len(ran.items), len(one.heads) > 0) == (13, True)
    (tmp_path / "proxies.txt").write_text(f"{two.http}\n")
    ran = await run(proxies=f"file:{tmp_path / 'proxies.txt'}")
    assert {item["proxy"] for item in ran.items} == {two.http}


async def test_a_session_keeps_its_agent_its_proxy_and_its_cookies_together(run, proxies_of):
    proxies = await proxies_of(3)

    def counting(visit):
        return page(*PAGES["/"], headers={"Set-Cookie": f"id={visit.headers.get('cookie', 'id=new')[3:]}x"})

    ran = await run(
        pages=dict.fromkeys(PAGES, counting), sessions=4, user_agents=[f"A/{number}" for number in range(100_000)],
        proxies=[proxy.http for proxy in proxies], concurrency=1,
    )  # fmt: skip
    by_agent = {}
    for visit in ran.site.visits:
        by_agent.setdefault(visit.headers["user-agent"], []).append(visit.headers.get("cookie"))
    assert len(by_agent) == 4
    for cookies in by_agent.values():
        assert cookies == [None, *(f"id=new{'x' * number}" for number in range(1, len(cookies)))]
    by_proxy = [set(_agents(proxy)) for proxy in proxies]
    assert sum(len(found) for found in by_proxy) == 4  # no cookie was seen by two of them


def _agents(proxy):
    return [
        line[12:]
        for head in proxy.heads
        for line in head.decode().split("\r\n")
        if line[:12] == "User-Agent: "
    ]


async def test_a_blocked_session_is_replaced_and_its_page_obtained_by_another(run):
    def wall(visit):
        return Answer(status=403) if visit.headers["user-agent"] in {"A/0", "A/1"} else page()

    ran = await run(
        pages={"/": PAGES["/"], **dict.fromkeys(list(PAGES)[1:], wall)},
        sessions={"size": 3}, user_agents=[f"A/{number}" for number in range(12)], max_retries=20,
    )  # fmt: skip
    assert (ran.letters, len(ran.items)) == ({}, 13)
    assert ran.counters.get("retried/status/403", 0) == ran.counters.get("status/403", 0)


class Suspicious(Seen):
    """The first identity is blocked: its pages have the status 200 and ask for a captcha."""

    def __init__(self, **arguments):
        self.blocked = None
        super().__init__(**arguments)
        self.attempts = []

    def after_request(self, response):
        request = response.request
        self.blocked = self.blocked or (request.session, request.proxy)
        self.attempts.append((response.url, request.retries, request.session, request.proxy))
        if self.in_hook:
            self.check(response)

    def check(self, response):
        session, proxy = self.blocked
        sent = response.request
        if (session and sent.session == session) or (proxy and sent.proxy == proxy):
            raise RetryRequest("the page asks for a captcha", blocked=True)

    def parse(self, response):
        self.check(response)
        yield from super().parse(response)


def suspicious(in_hook=False):
    return lambda **arguments: Suspicious(in_hook=in_hook, **arguments)


IDENTITIES = {
    "user_agents": [f"A/{number}" for number in range(100)],
    "proxy_cooldown": 1000,
    "max_retries": 1,
}


@pytest.mark.parametrize("in_hook", [False, True])
@pytest.mark.parametrize("sources", ["sessions", "proxies", "both"])
async def test_an_identity_that_a_page_shows_to_be_blocked_is_not_used_again(
    run, proxies_of, sources, in_hook
):
    settings = dict(IDENTITIES)
    if sources != "sessions":
        settings["proxies"] = [proxy.http for proxy in await proxies_of(3)]
    if sources != "proxies":
        settings["sessions"] = 3
    ran = await run(spider_class=suspicious(in_hook), concurrency=1, **settings)
    assert (ran.letters, len(ran.items)) == ({}, 13)
    (first, _, session, proxy), second, *others = ran.spider.attempts
    assert second[:2] == (first, 1)
    for _, _, later_session, later_proxy in (second, *others):
        assert sources == "proxies" or later_session != session
        assert sources == "sessions" or later_proxy != proxy
    assert len(others) == 12
    assert ran.counters[f"retried/{'hook/after_request' if in_hook else 'callback'}"] == 1


@pytest.mark.parametrize("processes", [1, 3])
async def test_workers_of_a_job_report_blocked_proxies_to_each_other(run, proxies_of, processes):
    proxies = [proxy.http for proxy in await proxies_of(3)]
    ran = await run(
        spider_class=suspicious(), workers=processes, processes=processes, concurrency=1, concurrency_per_slot=12,
        proxies=proxies, proxy_rotation="host", **IDENTITIES,
    )  # fmt: skip
    assert (ran.letters, len(ran.items)) == ({}, 13)
    with_blocked = [retries for _, retries, _, proxy in ran.spider.attempts if proxy == ran.spider.blocked[1]]
    assert set(with_blocked) == {0}
    assert len(with_blocked) <= 2 * processes, "each worker has at most one more in flight"
    note = await ran.bench.frontier.notes.get(BLOCKED)
    assert (note is None) is (processes == 1)
    assert ran.spider.blocked[1].encode() not in (note or b""), "it may contain a password"


async def test_a_retry_in_another_worker_uses_neither_the_blocked_proxy_nor_the_session(
    serve, tmp_path, proxies_of
):
    url = serve(Scripted({"/": []})).url
    settings = {
        "allow_networks": ["127.0.0.0/8"], "cookies": "shared", "sessions": 1, "reuse_connections": False,
        "proxies": [proxy.http for proxy in await proxies_of(4)], "proxy_rotation": "host",
    }  # fmt: skip
    bench = CrawlHarness(Seen(url=url), tmp_path, **IDENTITIES, **settings)
    context = bench.frontier_context()
    frontier = EmbeddedFrontier(context.politeness, context.options)
    await frontier.open()
    one, other = bench.fetcher(frontier.notes), bench.fetcher(frontier.notes)

    async def sent(fetcher, **fields):
        return (await fetcher.fetch(Request(url, **fields))).request

    async with AsyncExitStack() as stack:
        stack.push_async_callback(frontier.close)
        for fetcher in (one, other):
            await fetcher.open()
            stack.push_async_callback(fetcher.close)
        first = await sent(one)
        same = await sent(other, session=first.session)
        assert (same.session, same.proxy) == (first.session, first.proxy)
        await one.capabilities.report_blocked(first)
        later = [await sent(other, session=first.session, retries=1), await sent(other), await sent(one)]
    assert first.session not in {request.session for request in later}
    assert {request.proxy for request in later} == {later[0].proxy} != {first.proxy}


class TwoIdentities(Suspicious):
    """Chooses other proxies than those of the settings for all pages except the first."""

    def identity_of(self, request):
        return None if request.url == self.url else IdentitySources(proxies=self.proxies)


async def test_a_blocked_proxy_belongs_to_the_identity_that_the_spider_chose(run, proxies_of):
    default, *own = [proxy.http for proxy in await proxies_of(4)]

    def chooses(**arguments):
        return TwoIdentities(in_hook=False, proxies=own, blocked=("", own[0]), **arguments)

    ran = await run(spider_class=chooses, proxies=[default], concurrency=1, **IDENTITIES)
    assert (ran.letters, len(ran.items)) == ({}, 13)
    used = Counter(proxy for _, _, _, proxy in ran.spider.attempts)
    assert used[default] == 1
    assert 1 <= used[own[0]] <= 2, "another request may have been in flight"
    assert used[own[1]] + used[own[2]] == 12


async def test_a_page_without_a_session_or_a_proxy_of_a_list_is_only_retried(run):
    class Own(Seen):
        def parse(self, response):
            if not response.request.retries:
                raise RetryRequest("the page asks for a captcha", blocked=True)
            yield {"session": response.request.session}

        async def start(self):
            yield Request(self.url, session="anna")

    for settings in ({}, {"sessions": 2}):
        ran = await run(spider_class=Own, **settings)
        assert (ran.letters, ran.items) == ({}, [{"session": "anna"}])


async def test_without_sessions_403_is_final(run):
    ran = await run(pages={"/": Answer(status=403)})
    assert ran.letters == {"/": "status/403: the server responded with 403"}


async def test_the_hops_of_a_redirect_stay_in_the_session_that_got_the_cookie(run):
    def gate(visit):
        return redirect("/in", **{"Set-Cookie": "pass=1"})

    def inside(visit):
        return page() if "pass=1" in visit.headers.get("cookie", "") else Answer(status=404)

    ran = await run(
        pages={"/": gate, "/in": inside}, sessions=20, user_agents=[f"A/{number}" for number in range(20)]
    )
    assert (ran.letters, [item["path"] for item in ran.items]) == ({}, ["in"])
    assert len(agents(ran)) == 1


class LogsIn(Seen):
    """The pages behind the login are linked from the page that sets the cookie."""

    def parse(self, response):
        yield {"path": response.url.rpartition("/")[2], "body": response.text[:6]}
        yield response.follow_all("a")


@pytest.mark.parametrize("frontier", ["memory", "sqlite", "socket"])
async def test_with_shared_cookies_what_one_worker_gets_all_workers_send(run, frontier):
    def member(visit):
        return page() if "in=1" in visit.headers.get("cookie", "") else Answer(status=404)

    pages = {
        "/": redirect("/login"),
        "/login": page(*PAGES["/"], headers={"Set-Cookie": "in=1"}),
        **dict.fromkeys(list(PAGES)[1:], member),
    }
    ran = await run(
        pages, LogsIn, workers=3, frontier=frontier, cookies="shared", concurrency=1, concurrency_per_slot=12
    )
    assert (ran.letters, len(ran.items)) == ({}, 13)


async def test_sessions_with_shared_cookies_are_the_same_in_every_worker(run):
    class Bound(Seen):
        def parse(self, response):
            yield {"path": response.url.rpartition("/")[2]}
            yield response.follow_all("a", session=response.request.session)

    def member(visit):
        return (
            page()
            if f"as={visit.headers['user-agent']}" in visit.headers.get("cookie", "")
            else Answer(status=404)
        )

    def root(visit):
        return page(*PAGES["/"], headers={"Set-Cookie": f"as={visit.headers['user-agent']}"})

    ran = await run(
        {"/": root, **dict.fromkeys(list(PAGES)[1:], member)}, Bound, workers=3, concurrency=1, concurrency_per_slot=12,
        cookies="shared", sessions=5, user_agents=[f"A{number}" for number in range(50)],
    )  # fmt: skip
    assert (ran.letters, len(ran.items), len(agents(ran))) == ({}, 13, 1)


async def test_a_jar_for_each_proxy(run, proxies_of):
    proxies = await proxies_of(2)

    def counting(visit):
        return page(
            *PAGES["/"], headers={"Set-Cookie": f"n={int(visit.headers.get('cookie', 'n=0')[2:]) + 1}"}
        )

    ran = await run(
        dict.fromkeys(PAGES, counting),
        proxies=[proxy.http for proxy in proxies],
        cookies="proxy",
        concurrency=1,
    )
    counted = Counter(visit.headers.get("cookie") for visit in ran.site.visits)
    assert counted == {None: 2, **{f"n={number}": 2 for number in range(1, 6)}, "n=6": 1}


async def test_without_cookies_none_are_sent_back(run):
    ran = await run(
        dict.fromkeys(PAGES, lambda _: page(*PAGES["/"], headers={"Set-Cookie": "a=1"})), cookies="none"
    )
    assert {visit.headers.get("cookie") for visit in ran.site.visits} == {None}


async def test_a_cookie_file_is_sent_from_the_first_request_on(run, tmp_path):
    path = tmp_path / "cookies.txt"
    path.write_text("# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/\tFALSE\t0\tin\t1\n")
    for mode in ("session", "shared"):
        ran = await run(cookie_file=str(path), cookies=mode)
        assert {visit.headers.get("cookie") for visit in ran.site.visits} == {"in=1"}


async def test_a_source_that_takes_longer_than_the_distance_allows_sends_nothing_late(run):
    class Slow:
        """Its first answer is late: by then another worker may have had the next turn."""

        asked = 0

        async def header_for(self, request):
            self.asked += 1
            if self.asked == 1:
                await asyncio.sleep(0.2)  # the grace is a tenth of the delay

        async def absorb(self, response):
            pass

    cookies = Slow()
    ran = await run({"/": []}, cookies=cookies, delay=0.8, max_retries=0)
    assert (len(ran.items), ran.letters, len(ran.site.visits)) == (1, {}, 1)
    assert ran.counters["free/late"] >= 1
    assert cookies.asked == 1 + ran.counters["free/late"]


@pytest.mark.parametrize("own", [True, False])
async def test_header_hooks_work_with_sources(run, own):
    class Looking(Seen):
        def on_headers(self, response):
            return HookAction.DROP if response.url.endswith("/2") else None

    ran = await run(spider_class=Looking, user_agents=["A/1"], **({"fetcher": Canned()} if own else {}))
    assert (ran.letters, ran.counters["refused/hook"]) == ({}, 1)
    assert len(ran.items) == (3 if own else 12)
    assert own or set(agents(ran)) == {"A/1"}


class Canned:
    """A custom fetcher without cookies and network."""

    def __init__(self, _context=None):
        self.requests = []
        self.life = []

    async def open(self):
        self.life.append("open")

    async def close(self):
        self.life.append("close")

    capabilities = FetcherCapabilities()

    async def fetch(self, request, *, permit, on_headers=None):
        self.requests.append(request)
        links = "".join(f'<a href="/{number}">' for number in range(3))
        return Response(request.url, headers={"Set-Cookie": "a=1"}, body=links.encode(), request=request)


async def test_another_fetcher_replaces_ours_and_receives_the_cookies(run):
    canned = Canned()
    ran = await run(fetcher=canned, concurrency=1)
    assert (len(ran.items), ran.site.visits, canned.life) == (4, [], ["open", "close"])
    assert [request.headers.get("Cookie") for request in canned.requests] == [None, "a=1", "a=1", "a=1"]
    with pytest.raises(SettingsError, match="both proxy and proxies"):
        await run(fetcher=canned, proxy="http://a:1", proxies="http://b:1")


async def test_no_identity_is_added_unless_a_source_is_named(tmp_path):
    assert type(CrawlHarness(Seen(url=""), tmp_path).fetcher()) is RoutingFetcher


async def test_a_source_that_cannot_be_opened_closes_what_is_open():
    class Broken:
        def headers(self, request):
            return {}

        async def open(self):
            raise SettingsError("broken", remedy="mend it")

    canned = Canned()
    fetcher = IdentityFetcher(canned, user_agents=Broken())
    with pytest.raises(SettingsError, match="broken"):
        await fetcher.open()
    assert canned.life == ["open", "close"]


@pytest.mark.parametrize("code", [4, 5])
async def test_a_socks_proxy_that_cannot_reach_the_server_is_not_at_fault(proxies_of, code):
    (proxy,) = await proxies_of(1, socks_reply=code)
    fetcher = HttpFetcher(Settings(proxy=proxy.socks))
    await fetcher.open()
    with pytest.raises(BehindProxy):
        await fetcher.fetch(Request("http://away.test/"))
    await fetcher.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full backlog refuses at once")
async def test_a_proxy_that_does_not_take_the_connection_in_time_is_at_fault():
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        fetcher = HttpFetcher(Settings(proxy=proxy, connect_timeout=0.2))
        await fetcher.open()
        with pytest.raises(ProxyError):
            await fetcher.fetch(Request("http://site.test/"))
        await fetcher.close()
