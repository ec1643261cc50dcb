"""Parts of browser pages that need no browser: options, rules, cookies, errors, redirects, the guard proxy."""

import asyncio
import gc
import sys
import weakref

import pytest

from crawl_harness import Scripted
from skitter import Request, Response
from skitter.browser.adaptive import AdaptiveFetcher, LearnedRules, is_shell, shape_of
from skitter.browser.client_hints import user_agent_override
from skitter.browser.cookies import changed_cookies, cookies_to_set
from skitter.browser.errors import BrowserGone, network_error
from skitter.browser.fetcher import BrowserFetcher, shared_browser
from skitter.browser.guard_proxy import GuardProxy
from skitter.browser.pool import ContextPool
from skitter.browsing import Browsing, Click, InfiniteScroll, Wait, remaining
from skitter.errors import RedirectError, RequestError, SettingsError
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import (
    ConnectError,
    FetcherCapabilities,
    ForbiddenAddress,
    ProxyError,
    TlsError,
    UnresolvedHost,
    UnsendableRequest,
)
from skitter.fetch.cookie_jar import Cookie
from skitter.fetch.identity.contract import SourceContext
from skitter.fetch.routing import RoutingFetcher, fetcher_rules
from skitter.request import decode_request, encode_request
from skitter.settings import Settings
from skitter.testing import Answer
from skitter.worker.retry import redirected

URL = "http://site.test/a"


# --- options --------------------------------------------------------------------------------------------------


def test_options_survive_storage_as_plain_data_and_as_objects():
    plain = {
        "wait_for": "h1",
        "actions": [{"do": "click", "selector": "#a"}, {"do": "infinite_scroll", "limit": 3}],
    }
    typed = Browsing(wait_for="h1", actions=[Click("#a"), InfiniteScroll(3)])
    for given in (plain, typed):
        request = Request(URL, fetcher="browser", browsing=given)
        assert decode_request(URL, encode_request(request)) == request
        assert request.browsing.actions == (Click("#a"), InfiniteScroll(3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait": "h1"},
        {"actions": [{"do": "fly"}]},
        {"actions": [{"do": "click"}]},
        {"wait_until": "later"},
        {"actions": "x"},
        7,
    ],
)
def test_wrong_options_are_refused_with_their_field(wrong):
    with pytest.raises(RequestError) as caught:
        Request(URL, browsing=wrong)
    assert caught.value.field.startswith("browsing")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"wait_for": "h1", "wait_until": "load"}, False),
        ({"actions": [{"do": "pdf"}]}, True),
        ({"record": "/api/"}, True),
        ({"init_script": "1"}, True),
        ({"keep_page": True}, True),
    ],
)
def test_options_that_only_a_browser_can_carry_out_need_one(options, expected):
    assert Request(URL, browsing=options).browsing.needs_browser is expected


def test_the_actions_after_a_navigation_remain():
    options = Browsing(wait_for="form", actions=(Click("#go"), Wait("h1")))
    assert remaining(options, 1) == Browsing(actions=(Wait("h1"),))


# --- redirects ------------------------------------------------------------------------------------------------


def moved(request, target, status=200, **fields):
    return Response(request.url, status, request=request, moved_to=Request(target, **fields))


def test_a_navigation_becomes_the_request_that_the_browser_wanted_to_send():
    request = Request(
        URL, "parse", session="s", fetcher="browser", cb_kwargs={"a": 1}, browsing={"actions": [Click("b")]}
    )
    fields = {
        "method": "POST",
        "body": b"x=1",
        "headers": {"Content-Type": "text/plain"},
        "browsing": Browsing(),
    }
    found = redirected(request, moved(request, "http://site.test/b", **fields), 5)
    assert (found.url, found.method, found.body, found.headers) == (
        "http://site.test/b", "POST", b"x=1", {"Content-Type": "text/plain"},
    )  # fmt: skip
    assert (found.callback, found.session, found.fetcher, found.cb_kwargs) == (
        "parse",
        "s",
        "browser",
        {"a": 1},
    )
    assert found.redirects == (URL,)
    assert found.browsing == Browsing()


def test_navigations_in_a_circle_end():
    request = Request(URL, redirects=("http://site.test/b",))
    with pytest.raises(RedirectError, match=r"^redirect/loop"):
        redirected(request, moved(request, "http://site.test/b"), 5)
    with pytest.raises(RedirectError, match=r"^redirect/limit"):
        redirected(request, moved(request, "http://site.test/c"), 1)


def test_a_form_that_is_sent_to_its_own_page_is_not_a_loop():
    request = Request(URL, browsing={"actions": [Click("#go"), Wait("h1")]})
    answer = moved(request, URL, method="POST", browsing=Browsing(actions=(Wait("h1"),)))
    assert redirected(request, answer, 5).dont_filter


# --- routing --------------------------------------------------------------------------------------------------


class Named:
    capabilities = FetcherCapabilities()

    def __init__(self, name, log):
        self.name, self.log = name, log

    async def open(self):
        self.log.append(f"open {self.name}")

    async def close(self):
        self.log.append(f"close {self.name}")

    async def fetch(self, request, *, permit, on_headers=None):
        return Response(request.url, body=self.name.encode(), request=request)


async def routed(rules, *requests, default="http"):
    log = []
    fetcher = RoutingFetcher(
        default, {default: Named(default, log)}, lambda name: Named(name, log), fetcher_rules(rules)
    )
    await fetcher.open()
    responses = [await fetcher.fetch(request) for request in requests]
    await fetcher.close()
    return responses, log


async def test_a_request_chooses_its_fetcher_which_opens_with_its_first_request():
    responses, log = await routed(
        (), Request(URL), Request(URL, fetcher="browser"), Request(URL, fetcher="browser")
    )
    assert [response.text for response in responses] == ["http", "browser", "browser"]
    assert log == ["open http", "open browser", "close http", "close browser"] or sorted(log[2:]) == [
        "close browser",
        "close http",
    ]


async def test_a_rule_for_a_host_outside_ascii_matches_it_as_urls_spell_it():
    rules = [{"domain_glob": "*.m\u00fcnchen.test", "fetcher": "browser"}]
    responses, _ = await routed(rules, Request("http://www.xn--mnchen-3ya.test:81/"))
    assert responses[0].text == "browser"


async def test_the_first_rule_that_matches_decides_unless_the_request_does():
    rules = [
        {"domain_glob": "*.test", "fetcher": "browser", "browsing": {"wait_for": "h1"}},
        {"url_regexp": "/a$", "fetcher": "http"},
    ]
    requests = [
        Request(URL),
        Request("http://other.example/a"),
        Request(URL, fetcher="http"),
        Request("http://x.test:81/"),
    ]
    responses, _ = await routed(rules, *requests, default="http")
    assert [response.text for response in responses] == ["browser", "http", "http", "browser"]
    assert responses[0].request.browsing == Browsing(wait_for="h1")
    assert responses[2].request.browsing is None
    own = {"wait_for": "p", "keep_page": True}
    rules[0]["browsing"] |= {"wait_until": "commit"}
    responses, _ = await routed(rules, Request(URL, browsing=own))
    assert responses[0].request.browsing == Browsing(wait_until="commit", wait_for="p", keep_page=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"domain_glob": "a", "url_regexp": "b"},
        {"url_regexp": "("},
        {"domain": "a"},
        {"url_regexp": "a", "browsing": {"x": 1}},
    ],
)
def test_a_wrong_rule_is_refused(wrong):
    with pytest.raises(SettingsError) as caught:
        fetcher_rules([wrong])
    assert caught.value.field == "fetcher_rules"


async def test_a_fetcher_that_cannot_be_made_fails_only_its_request():
    def make(name):
        raise SettingsError("missing", remedy="install it", field="fetcher")

    fetcher = RoutingFetcher("http", {"http": Named("http", [])}, make, ())
    await fetcher.open()
    with pytest.raises(UnsendableRequest) as caught:
        await fetcher.fetch(Request(URL, fetcher="other"))
    assert caught.value.remedy == "install it"
    assert (await fetcher.fetch(Request(URL))).text == "http"


# --- cookies and errors ---------------------------------------------------------------------------------------


def cookie(name, value, **more):
    return {"name": name, "value": value, "domain": "site.test", "path": "/", "expires": -1, **more}


def test_only_changed_cookies_are_set_and_others_deleted():
    changes, gone = cookies_to_set(
        URL, [("a", "1"), ("b", "2")], [cookie("a", "1"), cookie("b", "1"), cookie("c", "3")]
    )
    assert [(change["name"], change["value"]) for change in changes] == [("b", "2")]
    assert [change["name"] for change in gone] == ["c"]


def test_cookies_of_scripts_become_set_cookie_lines():
    found = [
        cookie("a", "1"),
        cookie("b", "2", domain=".site.test", path="/x", secure=True, httpOnly=True, expires=0.5),
        cookie("c", "3", sameSite="Lax"),
    ]
    kept = [Cookie("away", "y", "site.test", False, "/x", False, None)]
    others = [Cookie("d", "4", "site.test", True, "/x", False, None)]
    found += [
        cookie("d", "4", path="/x"),
        cookie("e", "5", path="/x"),
        cookie("f", "6", domain="www.site.test"),
    ]
    found += [cookie("g", "7", domain=".www.site.test"), cookie("h", "8", domain=".other-site.test")]
    sent = [("a", "1"), ("gone", "x"), ("away", "y")]
    assert changed_cookies(URL, found, sent, kept, others) == [
        "b=2; Path=/x; Domain=site.test; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Secure; HttpOnly",
        "c=3; Path=/; SameSite=Lax",
        "e=5; Path=/x",
        "away=; Path=/x; Domain=site.test; Max-Age=0",
        "gone=; Path=/; Max-Age=0",
    ]


def test_a_cookie_of_the_jar_is_set_with_its_attributes_unless_the_request_has_its_own():
    kept = [
        Cookie("a", "1", "site.test", False, "/", False, 2_000_000_000, "strict"),
        Cookie("b", "2", "www.site.test", True, "/x", True, None, "none"),
        Cookie("own", "3", "site.test", False, "/", False, None),
        Cookie("kept", "4", "site.test", False, "/", False, None),
    ]
    sent = [("a", "1"), ("b", "2"), ("kept", "4"), ("own", "9")]
    changes, _ = cookies_to_set(URL, sent, [cookie("kept", "4", domain=".site.test")], kept)
    assert changes == [
        {"name": "a", "value": "1", "url": "http://site.test/", "path": "/", "secure": False, "domain": ".site.test",
         "expires": 2_000_000_000, "sameSite": "Strict"},
        {"name": "b", "value": "2", "url": "https://www.site.test/x", "path": "/x", "secure": True, "sameSite": "None"},
        {"name": "own", "value": "9", "url": URL},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Page.goto: net::ERR_NAME_NOT_RESOLVED at http://x/", UnresolvedHost),
        ("Page.goto: net::ERR_CERT_AUTHORITY_INVALID at http://x/", TlsError),
        ("Page.goto: net::ERR_PROXY_CONNECTION_FAILED at http://x/", ProxyError),
        ("Page.goto: net::ERR_CONNECTION_REFUSED at http://x/", ConnectError),
        ("Page.goto: Target page, context or browser has been closed", BrowserGone),
    ],
)
def test_errors_of_the_browser_have_the_classes_of_http(text, kind):
    assert type(network_error(Exception(text))) is kind


# --- guard proxy ----------------------------------------------------------------------------------------------


async def through(proxy_url, *requests):
    """Send raw requests over one connection of a proxy. Return the status lines and bodies."""
    port = int(proxy_url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for request in requests:
        writer.write(request.encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            break
        size = next(
            (int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: ")),
            0,
        )
        answers.append((head.split(b"\r\n")[0].decode(), (await reader.readexactly(size)).decode()))
    writer.close()
    return answers


@pytest.mark.parametrize("iterations", range(6))
async def test_a_proxy_whose_start_is_cancelled_leaves_no_socket_open(iterations):
    proxy = GuardProxy(AddressGuard(), 5)
    opening = asyncio.create_task(proxy.open())
    for _ in range(iterations):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await proxy.close()
    del opening, proxy
    gc.collect()  # a socket that is still open is a warning, which pytest raises


@pytest.mark.parametrize("iterations", range(1, 6))
async def test_a_proxy_whose_end_is_cancelled_leaves_no_socket_open(iterations):
    proxy = GuardProxy(AddressGuard(), 5)
    await proxy.open()
    closing = asyncio.create_task(proxy.close())
    for _ in range(iterations):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    del closing, proxy
    gc.collect()  # a socket that is still open is a warning, which pytest raises


async def test_the_proxy_serves_several_hosts_over_one_connection_and_counts_bytes(serve):
    one, two = Scripted({"/a": Answer(b"one")}), Scripted({"/b?c": Answer(b"two")})
    first, second = serve(one).url_of("/a"), serve(two).url_of("/b?c")
    proxy = GuardProxy(AddressGuard(["127.0.0.0/8"]), 5)
    url = await proxy.open()
    post = f"POST {first} HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\nContent-Length: 2\r\n\r\nhi"
    get = f"GET {second} HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = await through(url, post, get, get)
    assert [body for _, body in answers] == ["one", "two", "two"]
    assert one.visits[0].body == b"hi"
    assert "proxy-connection" not in one.visits[0].headers
    assert proxy.received > 6
    assert proxy.ip_of(first) == "127.0.0.1"
    await proxy.close()


@pytest.mark.parametrize(
    ("fields", "is_sent"),
    [
        ("Content-Length: 2", True),
        ("content-length:2", True),
        ("Content-Length: 2\r\nContent-Length: 2", False),
        ("Content-Length: 2, 2", False),
        ("Content-Length: 2\r\nContent-Length: 3", False),
        ("Content-Length: 3\r\nX: y\r\ncontent-length : 2", False),
        ("Content-Length: 2, 3", False),
        ("Content-Length: +2", False),
        ("Content-Length: 2x", False),
        ("Content-Length:", False),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", False),
        ("transfer-encoding: chunked", False),
    ],
)
async def test_the_proxy_refuses_a_request_whose_end_is_not_certain(serve, fields, is_sent):
    site = Scripted({"/": Answer(b"page")})
    proxy = GuardProxy(AddressGuard(["127.0.0.0/8"]), 5)
    url = await proxy.open()
    ((status, _),) = await through(url, f"POST {serve(site).url} HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\nhi")
    assert status == ("HTTP/1.1 200 OK" if is_sent else "HTTP/1.1 400 Bad Request")
    assert [visit.body for visit in site.visits] == [b"hi"] * is_sent
    await proxy.close()


async def test_the_proxy_tunnels(serve):
    site = Scripted({"/": Answer(b"plain")})
    server = serve(site)
    proxy = GuardProxy(AddressGuard(["127.0.0.0/8"]), 5)
    url = await proxy.open()
    connect = f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = await through(url, connect, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answers == [("HTTP/1.1 200 Connection established", ""), ("HTTP/1.1 200 OK", "plain")]
    await proxy.close()


@pytest.mark.parametrize(
    ("host", "kind"),
    [("127.0.0.1", ForbiddenAddress), ("[::1]", ForbiddenAddress), ("nosuch.invalid", UnresolvedHost)],
)
async def test_the_proxy_refuses_with_a_reason(serve, host, kind):
    site = Scripted({"/": Answer(b"secret")})
    server = serve(site)
    target = f"{host}:{server.port}"
    proxy = GuardProxy(AddressGuard(), 5)
    url = await proxy.open()
    for request in (f"GET http://{target}/ HTTP/1.1\r\n\r\n", f"CONNECT {target} HTTP/1.1\r\n\r\n"):
        answers = await through(url, request)
        assert answers == [("HTTP/1.1 502 Bad Gateway", "")]
    assert type(proxy.failure_of(f"http://{target}/")) is kind
    assert site.visits == []
    await proxy.close()


async def test_the_proxy_connects_to_the_address_that_was_checked(monkeypatch, serve):
    """The name resolves to a public address first, and to loopback at the next lookup (DNS rebinding)."""
    site = Scripted({"/": Answer(b"secret")})
    server = serve(site)
    loop, look_ups = asyncio.get_running_loop(), []

    async def getaddrinfo(host, port, **_options):
        look_ups.append(host)
        return [
            (2, 1, 6, "", ("192.0.2.1" if host == "rebind.test" and len(look_ups) > 1 else "127.0.0.1", port))
        ]

    monkeypatch.setattr(type(loop), "getaddrinfo", lambda _loop, *args, **kw: getaddrinfo(*args, **kw))
    proxy = GuardProxy(AddressGuard(["192.0.2.0/24"]), 5)
    answers = await through(await proxy.open(), f"GET http://rebind.test:{server.port}/ HTTP/1.1\r\n\r\n")
    assert answers == [("HTTP/1.1 502 Bad Gateway", "")]
    assert site.visits == []
    await proxy.close()


# --- adaptive -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "shell"),
    [
        ("<html><body><div id=root></div><script src=a.js></script>", True),
        ("<title>App</title><div id='app'>Loading ...</div><script>start()</script>", True),
        (
            "<noscript>You need to enable JavaScript to run this app.</noscript><p>x</p><script></script>",
            True,
        ),
        ("<body><script>document.write(1)</script>", True),
        ("<h1>A page</h1><script src=statistics.js></script>", False),
        ("<div id=root></div>", False),
        (f"<div id=root>{'word ' * 100}</div><script src=a.js></script>", False),
        ("", False),
    ],
)
def test_an_empty_application_shell_is_recognised(html, shell):
    assert is_shell(html) is shell


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/product/123", "/product/*"),
        ("/a/deadbeef/x?q=1", "/a/*/x"),
        ("/blog/how-to-cook", "/blog/how-to-cook"),
        ("/p/" + "x" * 50, "/p/*"),
        ("/", "/"),
    ],
)
def test_paths_of_one_shape_share_a_rule(path, shape):
    assert shape_of("http://site.test" + path) == shape


class Notes:
    def __init__(self):
        self.values = {}

    async def get(self, key):
        return self.values.get(key)

    async def put(self, key, value, ttl):
        self.values[key] = value

    async def compare_and_swap(self, key, old, new, ttl):
        if self.values.get(key) != old:
            return False
        self.values[key] = new
        return True


async def test_workers_share_learned_rules_and_a_complete_page_ends_a_rule():
    notes = Notes()
    one, two = LearnedRules(notes), LearnedRules(notes)
    for number in range(3):
        await one.learn(f"http://site.test/p/{number}", browser=True)
    assert await two.count_of("http://site.test/p/77") == 2
    assert await two.count_of("http://site.test/q/77") == 0
    await two.learn("http://site.test/p/5", browser=False)
    assert notes.values
    assert await LearnedRules(notes).count_of("http://site.test/p/1") == 0


# --- tabs that do not open ------------------------------------------------------------------------------------


class StubbornBrowser:
    """A browser whose pages open, but that refuses DevTools sessions."""

    def __init__(self):
        self.browser = self
        self.open = []
        """Open contexts and pages."""

    async def new_context(self, **options):
        return OpenPart(self)


class OpenPart:
    """A context or a page."""

    def __init__(self, browser):
        self.browser = browser
        browser.open.append(self)

    async def new_page(self):
        return OpenPart(self.browser)

    async def new_cdp_session(self, page):
        raise ConnectionError("refused")

    async def close(self):
        self.browser.open.remove(self)


@pytest.mark.parametrize(("session", "left"), [("", 0), ("a", 1)], ids=["no session", "session"])
async def test_a_tab_that_does_not_open_leaves_nothing_open(session, left):
    browser = StubbornBrowser()
    pool = ContextPool(browser, Settings(), {}, AddressGuard(), None)
    try:
        for _ in range(3):
            with pytest.raises(ConnectionError, match="refused"):
                await pool.acquire(Request(URL, session=session))
            assert len(browser.open) == left  # the context of a session keeps its cookies
    finally:
        await pool.close()


# --- proxies of contexts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxy", "options"),
    [
        ("http://ann:s%25@proxy.test:3128", {"server": "http://proxy.test:3128", "username": "ann", "password": "s%"}),
        ("http://[2001:db8::1]:3128", {"server": "http://[2001:db8::1]:3128"}),
        ("socks5h://proxy.test", {"server": "socks5://proxy.test"}),
        ("proxy.test:3128", {"server": "http://proxy.test:3128"}),
    ],
    ids=["login", "IPv6", "default port", "variable of the environment without a scheme"],
)  # fmt: skip
async def test_a_context_gets_its_proxy(proxy, options):
    class Browser:
        async def new_context(self, **options):
            self.proxy = options["proxy"]
            raise ConnectionError("refused")

    browser = StubbornBrowser()
    browser.browser = Browser()
    pool = ContextPool(browser, Settings(), {}, AddressGuard(), None)
    with pytest.raises(ConnectionError, match="refused"):
        await pool.acquire(Request(URL, proxy=proxy))
    assert browser.browser.proxy == options


# --- contexts of sessions -------------------------------------------------------------------------------------


class ScriptedBrowser:
    """A browser without pages. ``refused``: user agents whose contexts it does not create."""

    def __init__(self):
        self.browser = self
        self.refused = set()
        self.closed = []
        """User agents of the contexts that were closed."""

    async def new_context(self, *, user_agent, **options):
        if user_agent in self.refused:
            raise ConnectionError("refused")
        return ScriptedContext(self, user_agent)


class ScriptedContext:
    def __init__(self, browser, name):
        self.browser = browser
        self.name = name

    async def close(self):
        await asyncio.sleep(0)
        self.browser.closed.append(self.name)


@pytest.fixture
async def contexts(monkeypatch):
    """A function that opens a tab of a session in a pool with room for two contexts, and its browser."""

    class NoTab:
        @classmethod
        async def open(cls, *parts):
            return cls()

    monkeypatch.setattr("skitter.browser.pool.Tab", NoTab)
    monkeypatch.setattr("skitter.browser.pool._MAX_CONTEXTS", 2)
    browser = ScriptedBrowser()
    pool = ContextPool(browser, Settings(), {}, AddressGuard(), None)

    async def use(*names):
        taken = await asyncio.gather(
            *(pool.acquire(Request(URL, session=name, headers={"User-Agent": name})) for name in names)
        )
        for context, tab in taken:
            await pool.release(context, tab)

    yield use, browser
    await pool.close()


async def test_sessions_whose_context_cannot_be_created_do_not_displace_other_sessions(contexts):
    use, browser = contexts
    await use("kept")
    browser.refused = {"bad", "worse"}
    for name in browser.refused:
        with pytest.raises(ConnectionError, match="refused"):
            await use(name)
    await use("other")
    assert browser.closed == []
    browser.refused = set()
    await use("bad")  # it is tried again
    assert browser.closed == ["kept"]


async def test_each_surplus_context_is_closed_once_if_several_sessions_begin_at_once(contexts):
    use, browser = contexts
    await use("a", "b", "c", "d")
    assert browser.closed == []  # more than the maximum, because all of them are in use
    await use("e", "f")
    assert sorted(browser.closed) == ["a", "b", "c", "d"]


# --- memory ---------------------------------------------------------------------------------------------------


class MeasuredBrowser:
    """A browser whose pages do not open before its memory was measured."""

    def __init__(self):
        self.users = self.pages = 0
        self.retired = False
        self.is_alive = True
        self.loop = asyncio.get_running_loop()
        self.measured = asyncio.Event()

    def memory(self):
        self.loop.call_soon_threadsafe(self.measured.set)
        return {}

    async def acquire(self, request):
        await self.measured.wait()
        raise BrowserGone("measured")

    async def close(self):
        pass


async def test_the_memory_of_a_browser_is_watched_after_its_fetcher_was_closed_and_opened_again(monkeypatch):
    async def start(settings):
        return MeasuredBrowser()

    monkeypatch.setattr("skitter.browser.fetcher._MONITOR_INTERVAL", 0.0)
    monkeypatch.setattr("skitter.browser.fetcher.check_installed", lambda settings: None)
    monkeypatch.setattr("skitter.browser.fetcher.BrowserProcess.start", start)
    monkeypatch.setattr("skitter.browser.fetcher.ContextPool", lambda process, *parts: process)
    fetcher = BrowserFetcher(SourceContext(Settings(page_timeout=20.0)))
    for _ in range(2):
        await fetcher.open()
        with pytest.raises(BrowserGone, match="measured"):
            await fetcher.fetch(Request(URL))
        await fetcher.close()


async def test_a_browser_is_closed_if_the_other_fetcher_of_an_adaptive_one_cannot_be_opened(monkeypatch):
    async def fail(self):
        raise SettingsError("no", remedy="none")

    monkeypatch.setattr("skitter.browser.fetcher.check_installed", lambda settings: None)
    monkeypatch.setattr("skitter.browser.adaptive.HttpFetcher.open", fail)
    context = SourceContext(Settings())
    fetcher = AdaptiveFetcher(context)
    with pytest.raises(SettingsError):
        await fetcher.open()
    assert fetcher._browser._users == 0


def test_fetchers_of_a_worker_share_a_browser_which_is_freed_with_them():
    context = SourceContext(Settings())
    one, two = shared_browser(context), shared_browser(context)
    assert one is two
    shared = weakref.ref(one)
    del one, two, context
    gc.collect()
    assert shared() is None


# --- client hints ---------------------------------------------------------------------------------------------

CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/141.0.0.0 Safari/537.36"


def test_client_hints_follow_from_the_user_agent_and_claim_no_system_that_it_does_not_name():
    windows = user_agent_override(CHROME, {})
    assert (windows["platform"], windows["userAgentMetadata"]["platform"]) == ("Win32", "Windows")
    assert {"brand": "Chromium", "version": "141"} in windows["userAgentMetadata"]["brands"]
    honest = user_agent_override("tester/1", {})
    assert "platform" not in honest
    assert "brands" not in honest["userAgentMetadata"], "those of the browser itself"
    assert honest["userAgentMetadata"]["platform"] == {"linux": "Linux", "darwin": "macOS"}[sys.platform]


def test_headers_of_the_request_override_what_the_user_agent_says():
    headers = {
        "sec-ch-ua": '"A \\"B\\"";v="1", "Chromium";v="2"',
        "Sec-CH-UA-Mobile": "?1",
        "Accept-Language": "de",
    }
    override = user_agent_override(CHROME, headers)
    assert override["acceptLanguage"] == "de"
    assert override["userAgentMetadata"]["mobile"] is True
    assert [brand["version"] for brand in override["userAgentMetadata"]["brands"]] == ["1", "2"]
