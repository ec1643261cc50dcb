"""Documents that a page in the browser loads: none without a lease, none past the guard, and all with the identity of the
request.
"""

import asyncio
import base64
import json
import socket

import pytest
import trustme

from browsers import BROWSER, Headings, require_browser
from browsers import crawl_headings as crawl
from crawl_harness import CrawlHarness, Scripted
from servers.fetch_proxy import Proxy
from servers.name_server import NameServer
from servers.tls import SocketServers, hostile_tls
from skitter import Request, Spider
from skitter.browsing import Click, Wait
from skitter.testing import Answer, WireAnswer

SHOWN = {"wait_for": "#shown"}
LATER = (
    "<script>setTimeout(() => document.body.insertAdjacentHTML('beforeend', '<p id=shown>'), 1500)</script>"
)
"""Shows an element after the time that the browser needs for its own work."""


@pytest.fixture(autouse=True, scope="module")
def browser():
    require_browser()


def html(text, **fields):
    return Answer(f"<!doctype html><title>t</title>{text}".encode(), **fields)


RULES = {
    "prerender": [{"urls": ["/taken/1"], "eagerness": "immediate"}],
    "prefetch": [{"urls": ["/taken/2"], "eagerness": "immediate"}],
}
DOCUMENTS = {
    "/rules": f"<script type=speculationrules>{json.dumps(RULES)}</script>",
    "/links": "<link rel=prefetch href=/taken/3><link rel=prerender href=/taken/4>",
    "/open": "<script>open('/taken/5'); const w = open('about:blank'); if (w) w.location = '/taken/6'</script>",
    "/target": "<a target=_blank href=/taken/7>a</a><script>document.querySelector('a').click()</script>",
    "/form": "<form target=_blank method=post action=/taken/8></form><script>document.forms[0].submit()</script>",
    "/shared": "<script>try { new SharedWorker('/taken/9') } catch {}</script>",
}
"""Pages that make a browser load other documents."""


async def test_a_browser_loads_no_document_that_the_frontier_has_not_leased(serve, tmp_path):
    pages = {path: html(f"<h1>{path}</h1>{text}{LATER}") for path, text in DOCUMENTS.items()}
    site = Scripted(pages | {f"/taken/{number}": html("taken") for number in range(1, 10)})
    url = serve(site).url_of
    found, ran = await crawl(tmp_path, [Request(url(path), browsing=SHOWN) for path in DOCUMENTS])
    assert ran.letters == {}
    assert found == {path: path for path in DOCUMENTS}
    assert dict(site.counts) == dict.fromkeys(DOCUMENTS, 1)


async def test_a_window_that_a_click_opens_loads_nothing_but_the_request_in_its_place(serve, tmp_path):
    script = "<script>go.onclick = () => { %s }</script>"
    pages = {
        "/link": html("<h1>link</h1><a id=go target=_blank href=/new/1>go</a>"),
        "/script": html("<h1>script</h1><button id=go>go</button>" + script % "open('/new/2')"),
        "/late": html(
            "<h1>late</h1><button id=go>go</button>"
            + script % "const w = open('about:blank'); setTimeout(() => w.location = '/new/3')"
        ),
    }
    new = {f"/new/{number}": html(f"<h1>new {number}</h1>") for number in (1, 2, 3)}
    site = Scripted(pages | new)
    url = serve(site).url_of
    requests = [Request(url(path), browsing={"actions": [Click("#go"), Wait(seconds=1)]}) for path in pages]
    found, ran = await crawl(tmp_path, requests)
    assert ran.letters == {}
    assert found == {"/new/1": "new 1", "/new/2": "new 2", "/new/3": "new 3"}
    assert dict(site.counts) == dict.fromkeys([*pages, *new], 1)


async def test_a_page_that_leaves_the_web_is_a_dead_letter_with_the_reason(serve, tmp_path):
    targets = ["about:blank", "file:///etc/passwd", "chrome://version", "view-source:about:blank"]
    pages = {f"/{number}": html(f"<script>location = '{to}'</script>") for number, to in enumerate(targets)}
    url = serve(Scripted(pages)).url_of
    found, ran = await crawl(tmp_path, [Request(url(path)) for path in pages])
    assert found == {}
    for number, target in enumerate(targets):
        assert ran.letters[f"/{number}"].startswith(f"page_limit: the page opens {target}")


async def test_webrtc_sends_nothing_past_the_guard(serve, tmp_path):
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.create_server(("127.0.0.2", 0)) as connections,
    ):
        datagrams.bind(("127.0.0.1", 0))
        for listener in (datagrams, connections):
            listener.setblocking(False)
        servers = [
            {"urls": f"stun:127.0.0.1:{datagrams.getsockname()[1]}"},
            {
                "urls": f"turn:127.0.0.2:{connections.getsockname()[1]}?transport=tcp",
                "username": "a",
                "credential": "b",
            },
        ]
        script = f"""<h1></h1><script>(async () => {{
            const found = [], peer = new RTCPeerConnection({{iceServers: {json.dumps(servers)}}});
            peer.onicecandidate = event => event.candidate && found.push(event.candidate.candidate);
            peer.createDataChannel('x');
            await peer.setLocalDescription(await peer.createOffer());
            setTimeout(() => document.querySelector('h1').textContent = found.length + ' candidates', 2000);
        }})()</script>"""
        url = serve(Scripted({"/": html(script)})).url
        wait = {"wait_for": Wait(function="document.querySelector('h1').textContent")}
        narrow = {"allow_networks": ["127.0.0.1/32"], "seeds_open_networks": False}
        found, ran = await crawl(tmp_path, [Request(url, browsing=wait)], **narrow)
        with pytest.raises(BlockingIOError):
            datagrams.recv(2000)
        with pytest.raises(BlockingIOError):
            connections.accept()
    assert ran.letters == {}
    assert found == {"/": "0 candidates"}, "the page learns no address of the machine"


async def test_a_server_that_asks_for_a_login_or_a_restart_answers_as_over_http(serve, tmp_path):
    login = Answer(b"<h1>who?</h1>", status=401, headers={"WWW-Authenticate": "Basic realm=x"})
    hints = {"Accept-CH": "Sec-CH-UA-Full-Version-List", "Critical-CH": "Sec-CH-UA-Full-Version-List"}
    fetch = "<h1></h1><script>fetch('/login').then(r => document.querySelector('h1').textContent = r.status)</script>"
    site = Scripted({
        "/login": login,
        "/hints": html("<h1>hints</h1>", headers=hints),
        "/fetch": html(fetch),
    })  # fmt: skip
    url = serve(site).url_of
    wait = {"wait_for": Wait(function="document.querySelector('h1').textContent")}
    requests = [Request(url("/login")), Request(url("/hints")), Request(url("/fetch"), browsing=wait)]
    found, ran = await crawl(tmp_path, requests)
    assert {path: error.partition(":")[0] for path, error in ran.letters.items()} == {"/login": "status/401"}
    assert found == {"/hints": "hints", "/fetch": "401"}


async def test_a_page_that_sets_a_cookie_and_reloads_is_loaded_again_with_it(serve, tmp_path):
    def guarded(visit):
        if "known=1" in visit.headers.get("cookie", ""):
            return html("<h1>let in</h1>")
        return html("<h1>wait</h1><script>document.cookie = 'known=1'; location.reload()</script>")

    site = Scripted({"/": guarded})
    found, ran = await crawl(tmp_path, [Request(serve(site).url)])
    assert ran.letters == {}
    assert found == {"/": "let in"}
    assert site.counts["/"] == 2


class LoginThenBrowser(Spider):
    """Logs in by HTTP, loads two pages in the browser, and then fetches a page by HTTP."""

    name = "login"

    def __init__(self, url, session):
        super().__init__()
        self.url, self.session = url, session

    async def start(self):
        yield Request(f"{self.url}/login", "logged_in", fetcher="http", session=self.session)

    def logged_in(self, response):
        yield Request(f"{self.url}/shop/1", "shown", session=self.session, browsing=SHOWN)

    def shown(self, response):
        if response.url.endswith("1"):
            yield Request(f"{self.url}/shop/2", "shown", session=self.session, browsing=SHOWN)
        else:
            yield Request(f"{self.url}/plain", "done", fetcher="http", session=self.session)

    def done(self, response):
        yield {"text": response.text}


@pytest.mark.parametrize("session", ["", "ann"])
async def test_cookies_of_http_keep_their_domain_and_path_in_the_browser(serve, tmp_path, session):
    cookies = ("sid=1; Path=/", "wide=2; Path=/; Domain=shop.test", "own=3; Path=/api")
    lines = "".join(f"Set-Cookie: {line}\r\n" for line in cookies)
    login = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{lines}Content-Length: 0\r\n\r\n"
    script = (
        "<script>(async () => {await fetch('/api/%s');"
        " await fetch('//api.shop.test:' + location.port + '/x%s', {mode: 'no-cors', credentials: 'include'});"
        " %s; document.body.insertAdjacentHTML('beforeend', '<p id=shown>')})()</script>"
    )
    leave = "document.cookie = 'wide=; Domain=shop.test; Path=/; Max-Age=0'"
    site = Scripted({
        "/login": WireAnswer([login.encode()], "keep"), "/plain": Answer(b"x"),
        "/shop/1": html(script % (1, 1, "")), "/shop/2": html(script % (2, 2, leave)),
        "/api/1": Answer(b"", headers={"Set-Cookie": "own=4; Path=/api"}), "/api/2": Answer(b""),
        "/x1": Answer(b""), "/x2": Answer(b""),
    })  # fmt: skip
    port = serve(site).port
    with NameServer(dict.fromkeys(("www.shop.test", "api.shop.test"), "127.0.0.1")) as names:
        spider = LoginThenBrowser(f"http://www.shop.test:{port}", session)
        limits = {"dns_servers": (names.address,), "allow_networks": ("127.0.0.0/8",)}
        ran = await CrawlHarness(spider, tmp_path, **BROWSER | limits).run()
    assert ran.letters == {}
    sent = {visit.target: sorted(visit.headers.get("cookie", "").split("; ")) for visit in site.visits}
    assert {path: sent[path] for path in ("/shop/1", "/api/1", "/x1", "/shop/2", "/api/2", "/x2", "/plain")} == {
        "/shop/1": ["sid=1", "wide=2"], "/api/1": ["own=3", "sid=1", "wide=2"], "/x1": ["wide=2"],
        "/shop/2": ["sid=1", "wide=2"], "/api/2": ["own=4", "sid=1", "wide=2"], "/x2": ["wide=2"],
        "/plain": ["sid=1"],
    }  # fmt: skip


async def test_a_proxy_with_a_login_gets_it(serve, tmp_path):
    site = Scripted({"/": html("<h1></h1><script>fetch('/data')</script>"), "/data": Answer(b"x")})
    url = serve(site).url
    expected = b"Proxy-Authorization: Basic " + base64.b64encode(b"ann:s%cret")

    class LoginProxy(Proxy):
        async def _http(self, first, reader, writer):
            head = first + await reader.readuntil(b"\r\n\r\n")
            if expected not in head:
                writer.write(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=p\r\n"
                    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
                )
                return await writer.drain()
            rest = asyncio.StreamReader()
            rest.feed_data(head[1:])
            rest.feed_eof()
            return await super()._http(head[:1], rest, writer)

    async with LoginProxy() as proxy:
        address = proxy.http.replace("http://", "http://ann:s%25cret@")
        wrong = proxy.http.replace("http://", "http://eve:x@")
        found, ran = await crawl(
            tmp_path / "right", [Request(url, browsing={"wait_until": "networkidle"})], proxy=address
        )
        assert ran.letters == {}
        assert found == {"/": None}
        assert len(proxy.heads) >= 2
        found, ran = await crawl(tmp_path / "wrong", [Request(url, max_retries=0)], proxy=wrong)
    assert found == {}
    assert [error.partition(":")[0] for error in ran.letters.values()] == ["status/407"]
    assert "s%cret" not in str(ran.letters)


async def test_faults_of_tls_have_the_same_kinds_as_over_http(tmp_path):
    cases = hostile_tls(trustme.CA())
    of_certificates = {"unknown authority", "another name", "expired"}
    names = [name for name in cases if name not in of_certificates]
    with SocketServers([cases[name][0] for name in names]) as servers:
        requests = [
            Request(url, max_retries=0, timeout=10 if cases[name][1] == "timeout" else 60)
            for name, url in zip(names, servers.urls, strict=True)
        ]
        harness = CrawlHarness(
            Headings(requests), tmp_path, **BROWSER, unverified_hosts=["127.1.0.*"], allow_networks=["127.0.0.0/8"],
            unreachable_timeout=0,
        )  # fmt: skip
        ran = await harness.run()
        failures = await harness.frontier.dead_letters.list(limit=100)
    kinds = dict.fromkeys(names)
    for letter in failures:
        kinds[names[servers.urls.index(letter.url)]] = letter.error.partition(":")[0]
    # A browser does not report whether a connection has ended before or after its handshake.
    expected = {name: {"connect": "disconnected"}.get(cases[name][1], cases[name][1]) for name in names}
    assert kinds == expected
    assert len(ran.items) == list(expected.values()).count(None)


AGENT = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36"
BRANDS = '"Google Chrome";v="140", "Not A Brand";v="8", "Chromium";v="140"'
SEEN = """<h1></h1><script>(async () => {
    const own = navigator.userAgentData, heard = await (await fetch('/heard')).json();
    document.querySelector('h1').textContent = JSON.stringify([
        heard, navigator.userAgent, navigator.platform, own.platform, own.brands.map(one => one.brand), navigator.languages]);
})()</script>"""


async def test_a_page_sees_the_identity_that_its_server_sees(tmp_path, serve):
    """The address is loopback, so the page may read the client hints as over TLS."""
    headers = ("user-agent", "sec-ch-ua", "sec-ch-ua-platform", "accept-language")

    def received(visit):
        value = json.dumps([visit.headers.get(name) for name in headers])
        return Answer(value.encode(), content_type="application/json")

    documents = []

    def document(visit):
        documents.append([visit.headers.get(name) for name in headers])
        return html(SEEN)

    url = serve(Scripted({"/mac": document, "/own": document, "/heard": received})).url_of
    wait = {"wait_for": Wait(function="document.querySelector('h1').textContent")}
    mac = {"User-Agent": AGENT, "Sec-CH-UA": BRANDS, "Sec-CH-UA-Platform": '"macOS"', "Accept-Language": "de"}
    requests = [Request(url("/mac"), headers=mac, browsing=wait), Request(url("/own"), browsing=wait)]
    found, ran = await crawl(tmp_path, requests, concurrency=1, user_agent="tester/1 (+http://tester.test/)")
    assert ran.letters == {}
    at_server, agent, platform, system, brands, languages = json.loads(found["/mac"])
    assert at_server == documents[0] == [AGENT, BRANDS, '"macOS"', "de"]
    assert (agent, platform, system, languages) == (AGENT, "MacIntel", "macOS", ["de"])
    assert brands == ["Google Chrome", "Not A Brand", "Chromium"]
    at_server, agent, _, system, brands, _ = json.loads(found["/own"])
    assert at_server == documents[1]
    assert agent == at_server[0] == "tester/1 (+http://tester.test/)"
    assert f'"{system}"' == at_server[2] != '"Windows"'
    assert "Chromium" in brands


async def test_sockets_and_streams_that_stay_open_do_not_keep_a_page_open(serve, tmp_path):
    body = (
        "<h1>open</h1><script>new WebSocket('ws://' + location.host + '/socket'); new EventSource('/events')"
        "; print(); onbeforeunload = () => 'stay'; Notification.requestPermission()</script>"
    )
    site = Scripted({
        "/": html(body),
        "/socket": WireAnswer([], end="stall"),
        "/events": WireAnswer([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"], end="stall"),
    })  # fmt: skip
    found, ran = await crawl(tmp_path, [Request(serve(site).url)])
    assert ran.letters == {}
    assert found == {"/": "open"}
