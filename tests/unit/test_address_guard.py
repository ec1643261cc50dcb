"""The address guard: a public page does not lead into a private network, however its address is written."""

import asyncio
import socket
from typing import ClassVar

import pycurl
import pytest

from crawl_harness import CrawlHarness, Scripted, page, redirect
from servers.fetch_proxy import Proxy
from servers.name_server import NameServer
from skitter import Request, Spider
from skitter._utils.concurrency import stop_listening
from skitter.errors import SettingsError
from skitter.fetch import address_guard
from skitter.fetch.address_guard import AddressGuard, networks_of
from skitter.fetch.contract import ConnectError, Disconnected, ForbiddenAddress
from skitter.fetch.http import HttpFetcher
from skitter.fetch.proxy_routes import ProxyRoutes
from skitter.fetch.transfer import Transfer
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.politeness import Politeness
from skitter.run import notify
from skitter.run.fetcher_factory import make_guard
from skitter.run.notify import Notifier
from skitter.run.passes import PassRecord
from skitter.settings import Settings, build_settings
from skitter.testing import Answer, SiteServer

PUBLIC = ["93.184.216.34", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.255",
          "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "2a00:1450:4001::8a", "64:ff9b::808:808", "::ffff:8.8.8.8"]  # fmt: skip
CLOSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "169.254.1.1", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "100::1", "2001::1", "2001:0:7f00:1::1", "2001:db8::1", "2002:7f00:1::1",
    "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
    "ff02::1", "not an address", "",
]  # fmt: skip


@pytest.mark.parametrize("ip", PUBLIC)
def test_a_public_address_is_allowed(ip):
    assert AddressGuard().allows(ip)


@pytest.mark.parametrize("ip", CLOSED)
def test_an_address_that_is_not_public_is_refused(ip):
    assert not AddressGuard().allows(ip)


# --- spellings of this machine -----------------------------------------------------------------------------------

LOOPBACK = [
    "127.0.0.1", "127.0.0.2", "127.1", "127.0.1", "127.255.255.254", "0", "0.0.0.0", "0x0", "00", "2130706433",
    "0x7f000001", "0x7F000001", "017700000001", "0177.0.0.1", "0177.0.0.01", "0x7f.0.0.1", "0x7f.1", "0x7f.0x1",
    "127.0x1", "127.000.000.001", "0000177.0.0.1", "127.0.0.1.", "127.1.", "2130706434", "0x7f00000a",
    "%31%32%37.0.0.1", "127.0.0.%31", "user:pass@127.0.0.1", "example.com@127.0.0.1", "a:b@127.1",
    "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u2460\u2461\u2466.0.0.1", "12\u00ad7.0.0.1",
    "localhost", "LOCALHOST", "LocalHost", "localhost.", "a.localhost", "a.b.localhost", "loc%61lhost", "\uff2c\uff2f\uff23\uff21\uff2chost",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::FFFF:7F00:0001]",
    "[0:0:0:0:0:ffff:127.0.0.2]", "[::127.0.0.1]", "[::7f00:1]", "[2002:7f00:1::]", "[2002:7f00:1::1]",
    "[2001:0:7f00:1::]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[::ffff:0:127.0.0.1]",
    "[fe80::1]", "[fd00::2]", "169.254.169.254", "2852039166", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1",
    "user@[::1]",
]  # fmt: skip


class Target:
    """A server on all addresses of this machine. It records the address of each connection."""

    async def __aenter__(self):
        self.dialled = []
        listening = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listening)
        return self

    async def __aexit__(self, *_):
        await stop_listening(self._server)

    async def _serve(self, reader, writer):
        self.dialled.append(writer.get_extra_info("sockname")[0].removeprefix("::ffff:"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()


@pytest.fixture
async def target():
    async with Target() as server:
        yield server


class ResolvingTransfer(Transfer):
    """A transfer in which names resolve as the test says, without a name server."""

    __slots__ = ()
    names: ClassVar = {}

    def prepare(self, *arguments):
        super().prepare(*arguments)
        known = [entry for name, ips in self.names.items() for entry in (f"-{name}", f"{name}:{ips}")]
        self.curl.setopt(pycurl.RESOLVE, known)


class ResolvingFetcher(HttpFetcher):
    def _new_transfer(self):
        return ResolvingTransfer(self.settings, self._base_headers, self._guard)


@pytest.fixture
async def fetcher_of():
    opened = []

    async def make(guard, kind=HttpFetcher, **settings):
        fetcher = kind(Settings(proxy=settings.pop("proxy", ""), **settings), guard=guard)
        await fetcher.open()
        opened.append(fetcher)
        return fetcher

    yield make
    for fetcher in opened:
        await fetcher.close()
    ResolvingTransfer.names = {}


@pytest.mark.parametrize("host", LOOPBACK)
async def test_no_spelling_of_a_host_leads_to_a_forbidden_address(host, target, fetcher_of):
    fetcher = await fetcher_of(AddressGuard())
    with pytest.raises(ForbiddenAddress):
        await fetcher.fetch(Request(f"http://{host}:{target.port}/"))
    assert target.dialled == []


def test_there_are_sixty_spellings():
    assert len(set(LOOPBACK)) >= 60


@pytest.mark.parametrize("host", LOOPBACK)
async def test_no_spelling_of_a_host_leads_a_webhook_to_a_forbidden_address(
    host, target, monkeypatch, caplog
):
    monkeypatch.setattr(notify, "_ATTEMPTS", 1)
    notifier = Notifier("job", Settings(notify=(f"http://{host}:{target.port}/hook",), proxy=""))
    assert not await notifier.report(PassRecord(number=1, began=1.0, ended=2.0))
    assert "is not a public address" in caplog.text
    assert target.dialled == []


@pytest.mark.parametrize("host", LOOPBACK)
async def test_no_spelling_of_a_host_is_sent_to_a_proxy(host, target, fetcher_of):
    async with Proxy() as proxy:
        fetcher = await fetcher_of(AddressGuard(), proxy=proxy.http)
        with pytest.raises(ForbiddenAddress):
            await fetcher.fetch(Request(f"http://{host}:{target.port}/"))
        assert proxy.heads == []


async def test_the_name_of_this_machine_is_its_address(target, fetcher_of):
    name = socket.gethostname()
    try:
        ip = socket.gethostbyname(name)
    except OSError:
        pytest.skip("the name of this machine does not resolve")
    if AddressGuard().allows(ip):
        pytest.skip("this machine has a public address")
    fetcher = await fetcher_of(AddressGuard())
    with pytest.raises(ForbiddenAddress):
        await fetcher.fetch(Request(f"http://{name}:{target.port}/"))
    assert target.dialled == []


# --- names ---------------------------------------------------------------------------------------------------------


async def test_a_name_that_resolves_to_another_address_later_is_checked_again(target, fetcher_of):
    fetcher = await fetcher_of(AddressGuard(["127.0.0.1"]), ResolvingFetcher, dns_cache_ttl=0)
    request = Request(f"http://rebinding.test:{target.port}/")
    before = len(target.dialled)
    ResolvingTransfer.names = {f"rebinding.test:{target.port}": "127.0.0.1"}
    assert (await fetcher.fetch(request)).body == b"ok"
    for ip in ("127.0.0.2", "[::1]", "[::ffff:127.0.0.2]"):
        ResolvingTransfer.names = {f"rebinding.test:{target.port}": ip}
        with pytest.raises(ForbiddenAddress):
            await fetcher.fetch(request)
    assert target.dialled[before:] == ["127.0.0.1"]


async def test_only_the_allowed_addresses_of_a_name_are_contacted(target, fetcher_of):
    fetcher = await fetcher_of(AddressGuard(["127.0.0.1"]), ResolvingFetcher, dns_cache_ttl=0)
    before = len(target.dialled)
    for ips in ("127.0.0.2,127.0.0.1", "[::1],127.0.0.2,127.0.0.1", "127.0.0.1,127.0.0.2,[::1]"):
        ResolvingTransfer.names = {f"mixed.test:{target.port}": ips}
        assert (await fetcher.fetch(Request(f"http://mixed.test:{target.port}/"))).body == b"ok"
    assert target.dialled[before:] == ["127.0.0.1"] * 3


async def test_a_refused_connection_to_an_allowed_address_is_not_a_forbidden_one(fetcher_of, free_port):
    fetcher = await fetcher_of(AddressGuard(["127.0.0.1"]), ResolvingFetcher, dns_cache_ttl=0)
    ResolvingTransfer.names = {f"mixed.test:{free_port}": "127.0.0.2,127.0.0.1"}
    with pytest.raises(ConnectError):
        await fetcher.fetch(Request(f"http://mixed.test:{free_port}/"))


async def test_a_handle_that_was_refused_is_not_refused_for_another_host(target, fetcher_of):
    guard = AddressGuard(["127.0.0.1"])
    fetcher = await fetcher_of(guard)
    for _ in range(3):
        with pytest.raises(ForbiddenAddress):
            await fetcher.fetch(Request(f"http://127.0.0.2:{target.port}/"))
        assert (await fetcher.fetch(Request(f"http://127.0.0.1:{target.port}/"))).body == b"ok"


class LateGuard(AddressGuard):
    """Refuses the first connection. Before the second check, another request opens a connection, which stays open."""

    def __init__(self):
        super().__init__(["127.0.0.1"])
        self.asked = 0
        self.meanwhile = None

    def allows(self, ip):
        self.asked += 1
        return self.asked > 1 and super().allows(ip)

    async def allows_by_now(self, ip):
        await self.meanwhile()
        return super().allows(ip)


async def test_the_fault_of_a_server_is_not_taken_for_a_refusal_that_was_lifted(fetcher_of):
    connections = []

    async def close_early(reader, writer):
        connections.append(writer.transport)
        for body in (b"ok", b"o"):  # the second answer is truncated
            if not (await reader.read(4096)).endswith(b"\r\n\r\n"):
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body)
            await writer.drain()
        writer.transport.abort()

    guard = LateGuard()
    fetcher = await fetcher_of(guard)
    server = await asyncio.start_server(close_early, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        guard.meanwhile = lambda: fetcher.fetch(Request(url))
        assert (await fetcher.fetch(Request(url))).body == b"ok"
        with pytest.raises(Disconnected):
            await fetcher.fetch(Request(url))
    finally:
        await stop_listening(server)
        for connection in connections:
            connection.abort()


# --- proxies -------------------------------------------------------------------------------------------------------


async def test_a_proxy_of_the_user_is_contacted_without_a_check_of_the_target(target, fetcher_of):
    guard = AddressGuard(["127.0.0.1/32"])
    async with Proxy() as proxy:
        fetcher = await fetcher_of(AddressGuard(), proxy=proxy.http)
        with pytest.raises(ForbiddenAddress):
            await fetcher.fetch(Request(f"http://localhost:{target.port}/"))
        fetcher = await fetcher_of(guard, proxy=proxy.http)
        assert (await fetcher.fetch(Request(f"http://127.0.0.1:{target.port}/"))).body == b"ok"
        assert len(proxy.heads) == 1


async def test_a_proxy_from_a_list_of_a_server_is_checked(target, fetcher_of):
    guard = AddressGuard()
    async with Proxy() as proxy:
        guard.check_proxies([proxy.http])
        fetcher = await fetcher_of(guard)
        with pytest.raises(ForbiddenAddress):
            await fetcher.fetch(Request("http://example.test/", proxy=proxy.http))
        assert proxy.heads == []


async def test_a_host_that_the_environment_excepts_from_the_proxy_is_checked(target, fetcher_of, monkeypatch):
    async with Proxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy.http)
        monkeypatch.setenv("no_proxy", "excepted.test")
        fetcher = await fetcher_of(AddressGuard(), ResolvingFetcher, proxy=None, dns_cache_ttl=0)
        ResolvingTransfer.names = {f"excepted.test:{target.port}": "127.0.0.1"}
        before = len(target.dialled)
        with pytest.raises(ForbiddenAddress):
            await fetcher.fetch(Request(f"http://excepted.test:{target.port}/"))
        assert (target.dialled[before:], proxy.heads) == ([], [])


def route(url, default=None, proxy=None, **environment):
    return ProxyRoutes(default, environment).proxy_for(Request(url, proxy=proxy))


def test_the_proxy_is_that_of_the_request_or_the_settings_or_the_environment():
    assert route("http://a.test/") == ""
    assert route("http://a.test/", http_proxy="p:1", https_proxy="s:1", all_proxy="all:1") == "p:1"
    assert route("https://a.test/", http_proxy="p:1", HTTPS_PROXY="s:1") == "s:1"
    assert route("https://a.test/", http_proxy="p:1", ALL_PROXY="all:1") == "all:1"
    assert route("http://a.test/", HTTP_PROXY="p:1") == ""
    assert route("http://a.test/", "mine:1", http_proxy="p:1") == "mine:1"
    assert route("http://a.test/", "", http_proxy="p:1") == ""
    assert route("http://a.test/", "mine:1", proxy="its:1", http_proxy="p:1") == "its:1"
    assert route("http://a.test/", "mine:1", proxy="", http_proxy="p:1") == ""


@pytest.mark.parametrize(
    ("host", "exceptions", "is_direct"),
    [
        ("a.test", "a.test", True),
        ("www.a.test:8080", "a.test", True),
        ("www.a.test", ".a.test", True),
        ("ba.test", "a.test", False),
        ("a.test.", "a.test", True),
        ("any.test", "*", True),
        ("127.0.0.1", "b.test, 127.0.0.1", True),
        ("127.0.0.1", "127.0.0.0/8", True),
        ("10.1.2.3:80", "b.test 10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("[fd00::1]:80", "fd00::/8", True),
        ("[::1]", "[::1]", True),
        ("10.1.2.3", "a.test", False),
    ],
)
def test_no_proxy_excepts_names_addresses_and_networks(host, exceptions, is_direct):
    for name in ("no_proxy", "NO_PROXY"):
        assert route(f"http://{host}/", "p:1", **{name: exceptions}) == ("" if is_direct else "p:1")


# --- opened networks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ip", "networks"),
    [
        ("8.8.8.8", set()),
        ("2606:2800:21f::1", set()),
        ("127.5.5.5", {"127.0.0.0/8", "::1/128"}),
        ("::1", {"127.0.0.0/8", "::1/128"}),
        ("::ffff:127.0.0.1", {"127.0.0.0/8", "::1/128"}),
        ("10.1.2.3", {"10.0.0.0/8"}),
        ("172.20.0.1", {"172.16.0.0/12"}),
        ("192.168.7.7", {"192.168.0.0/16"}),
        ("100.64.0.1", {"100.64.0.0/10"}),
        ("fd12:3456:789a:1::1", {"fd12:3456:789a::/48"}),
        ("169.254.3.4", {"169.254.3.4/32"}),
        ("169.254.169.254", {"169.254.169.254/32"}),
        ("168.63.129.16", {"168.63.129.16/32"}),
        ("0.0.0.0", {"0.0.0.0/32"}),
        ("fe80::1%eth0", {"fe80::1/128"}),
        ("192.0.2.2", {"192.0.2.2/32"}),
    ],
)
def test_a_seed_opens_its_own_network_only(ip, networks):
    assert {str(network) for network in networks_of(ip)} == networks


async def test_a_seed_in_a_network_with_a_metadata_server_does_not_open_the_server():
    guard = AddressGuard()
    await guard.open_for_seeds(["http://100.64.0.1/", "http://[fd00:ec2::1]/"])
    assert guard.allows("100.64.0.2")
    assert guard.allows("fd00:ec2::2")
    assert not guard.allows("100.100.100.200")
    assert not guard.allows("fd00:ec2::254")
    await guard.open_for_seeds(["http://100.100.100.200/"])
    assert guard.allows("100.100.100.200")


async def test_a_seed_by_name_opens_the_network_of_its_addresses():
    guard = AddressGuard()
    await guard.open_for_seeds(["http://localhost:8000/"])
    assert guard.allows("127.0.0.1")
    assert guard.allows("::1")
    assert not guard.allows("10.0.0.1")


async def resolve_to(monkeypatch, **names):
    """Make names resolve to lists of addresses."""
    asked = []

    async def getaddrinfo(host, *_, **__):
        asked.append(host)
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in names[host]]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


async def test_a_name_with_a_public_address_opens_nothing(monkeypatch):
    await resolve_to(monkeypatch, mixed=["10.0.0.1", "8.8.8.8"], wiki=["10.1.1.1"], far=["8.8.8.8"])
    guard = AddressGuard()
    await guard.open_for_seeds(["http://mixed/", "http://far/", "http://unknown/"])
    assert not guard.allows("10.0.0.1")
    await guard.open_for_seeds(["http://wiki/"])
    assert guard.allows("10.0.0.1")


async def test_a_name_is_looked_up_once_and_only_the_first_names_are(monkeypatch):
    asked = await resolve_to(monkeypatch)
    guard = AddressGuard()
    for _ in range(2):
        await guard.open_for_seeds(["http://a/1", "http://a/2"])
    assert asked == ["a"]
    await guard.open_for_seeds(f"http://n{number}/" for number in range(100))
    assert asked == ["a", *(f"n{number}" for number in range(15))]
    await guard.open_for_seeds(["http://127.0.0.1/"])
    assert guard.allows("127.0.0.1")


async def looking_up(monkeypatch, guard, url):
    """Open the networks of a seed. Return the task, which waits for the name server, and the event of the answer."""
    asked, answered = asyncio.Event(), asyncio.Event()

    async def getaddrinfo(*_, **__):
        asked.set()
        await answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.1.1", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    opening = asyncio.create_task(guard.open_for_seeds([url]))
    await asked.wait()
    return opening, answered


async def test_a_seed_waits_for_the_network_that_another_seed_of_its_host_is_opening(monkeypatch):
    guard = AddressGuard()
    first, answered = await looking_up(monkeypatch, guard, "http://wiki/1")
    second = asyncio.create_task(guard.open_for_seeds(["http://wiki/2"]))
    second.add_done_callback(lambda _: opened.append(guard.allows("10.0.0.1")))
    opened = []
    await asyncio.sleep(0)
    answered.set()
    await asyncio.gather(first, second)
    assert opened == [True]


async def test_a_seed_opens_its_network_after_a_call_for_its_host_was_cancelled(monkeypatch):
    guard = AddressGuard()
    cancelled, answered = await looking_up(monkeypatch, guard, "http://wiki/1")
    cancelled.cancel()
    answered.set()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    await guard.open_for_seeds(["http://wiki/2"])
    assert guard.allows("10.0.0.1")


async def test_look_ups_without_an_answer_have_one_budget_for_all_batches_of_seeds(monkeypatch):
    asked = []

    async def getaddrinfo(host, *_, **__):
        asked.append(host)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(address_guard, "_RESOLVE_TIMEOUT", 0.02)
    monkeypatch.setattr(address_guard, "_RESOLVE_BUDGET", 0.05)
    guard = AddressGuard()
    for number in range(16):
        await guard.open_for_seeds([f"http://n{number}/"])
    assert 1 <= len(asked) <= 4
    await guard.open_for_seeds(["http://127.0.0.1/"])
    assert guard.allows("127.0.0.1")


async def test_names_are_not_looked_up_if_a_proxy_does_it(monkeypatch):
    asked = await resolve_to(monkeypatch)
    await AddressGuard(looks_up_seeds=False).open_for_seeds(["http://a/1"])
    assert asked == []
    for settings in ({"proxy": "http://p:1"}, {"proxies": ["http://p:1"]}):
        await make_guard(build_settings(settings)).open_for_seeds(["http://a/1"])
    assert asked == []
    await make_guard(Settings()).open_for_seeds(["http://a/1"])
    assert asked == ["a"]


async def test_seeds_open_nothing_if_the_setting_says_so():
    frontier = EmbeddedFrontier(Politeness())
    await frontier.open()
    await AddressGuard(notes=frontier.notes).open_for_seeds(["http://127.0.0.1/"])
    guard = AddressGuard(["10.0.0.0/8"], seeds_open=False, notes=frontier.notes)
    await guard.open_for_seeds(["http://127.0.0.1/"])
    assert not await guard.allows_by_now("127.0.0.1")
    assert not guard.allows("127.0.0.1")
    assert guard.allows("10.0.0.1")
    await frontier.close()


async def test_the_workers_of_a_job_share_the_networks_opened_by_seeds():
    frontier = EmbeddedFrontier(Politeness())
    await frontier.open()
    first, second, third = (AddressGuard(notes=frontier.notes) for _ in range(3))
    await asyncio.gather(
        first.open_for_seeds(["http://127.0.0.1/"]), second.open_for_seeds(["http://10.0.0.1/"])
    )
    assert not third.allows("127.0.0.1")
    assert await third.allows_by_now("127.0.0.1")
    assert third.allows("10.0.0.1")
    assert not await third.allows_by_now("192.168.0.1")
    await frontier.close()


@pytest.mark.parametrize("text", ["10.0.0.0/33", "local", "", "127.0.0.1:80"])
def test_an_invalid_network_is_an_error_of_its_setting(text):
    with pytest.raises(SettingsError) as caught:
        AddressGuard([text])
    assert caught.value.field == "allow_networks"


# --- crawls --------------------------------------------------------------------------------------------------------

NARROW = {"allow_networks": ("127.0.0.1/32",), "seeds_open_networks": False}


async def test_links_and_redirects_to_a_forbidden_address_are_dead_letters(tmp_path, target):
    before = len(target.dialled)
    hosts = ["127.0.0.2", "[::1]", "2130706434", "0x7f.2", "[::ffff:127.0.0.2]"]
    ways = {f"/way{number}": f"http://{host}:{target.port}/" for number, host in enumerate(hosts)}
    links = [f"http://{host}:{target.port}/link{number}" for number, host in enumerate(hosts)]
    pages = {"/": page(*ways, *links)} | {path: redirect(url) for path, url in ways.items()}
    with SiteServer(Scripted(pages)) as site:
        spider = following(site.url)
        report = await CrawlHarness(spider, tmp_path, **NARROW).run()
    assert target.dialled[before:] == []
    assert {error.partition(":")[0] for error in report.letters.values()} == {"forbidden"}
    assert (
        report.status.failed == report.counters["failed/forbidden"] == 3 + 5
    )  # different targets of redirects, links
    assert not any(name.startswith("retried/") for name in report.counters)


async def test_a_robots_txt_does_not_lead_to_a_forbidden_address(tmp_path, target):
    before = len(target.dialled)
    pages = {
        "/": page("/a"),
        "/robots.txt": redirect(f"http://127.0.0.2:{target.port}/robots.txt"),
    }
    with SiteServer(Scripted(pages)) as site:
        report = await CrawlHarness(following(site.url), tmp_path, robots=True, **NARROW).run()
    assert target.dialled[before:] == []
    assert list(report.letters) == ["/"]
    assert report.letters["/"].startswith("forbidden:")


@pytest.mark.parametrize("robots", [True, False])
@pytest.mark.parametrize("frontier", ["memory", "sqlite", "socket"])
async def test_a_seed_opens_its_network_to_all_workers(tmp_path, frontier, robots):
    pages = {f"/{number}": page(f"/{number + 1}") for number in range(20)}
    with SiteServer(Scripted({"/": page("/0"), **pages}), hosts=2) as site:
        spider = following(site.url, site.url_of("/0", 1))
        harness = CrawlHarness(spider, tmp_path, frontier=frontier, robots=robots)
        report = await harness.run(workers=2)
    assert {error.partition("/")[0] for error in report.letters.values()} == {"status"}  # the last link
    assert report.counters["pages"] == 1 + 2 * 20


async def test_a_public_seed_opens_nothing(tmp_path, target):
    before = len(target.dialled)
    spider = following(f"http://127.0.0.1:{target.port}/")
    report = await CrawlHarness(spider, tmp_path, seeds_open_networks=False).run()
    assert target.dialled[before:] == []
    assert report.letters["/"].startswith("forbidden:")


@pytest.mark.parametrize("robots", [True, False])
async def test_a_name_server_that_changes_its_answer_leads_to_no_forbidden_address(tmp_path, serve, robots):
    pages = {
        f"/{number}": (lambda _, number=number: page(f"/{number + 1}", delay=0.4)) for number in range(20)
    }
    port = serve(Scripted(pages)).port
    changing = NameServer({"rebinding.test": ("127.0.0.1", "127.0.0.2")}, ttl=1)
    with changing as name_server, socket.create_server(("127.0.0.2", port)) as forbidden:
        report = await CrawlHarness(
            following(f"http://rebinding.test:{port}/0"),
            tmp_path,
            robots=robots,
            reuse_connections=False,
            dns_servers=(name_server.address,),
            **NARROW,
        ).run()
        forbidden.setblocking(False)
        with pytest.raises(BlockingIOError):
            forbidden.accept()
    assert name_server.asked["rebinding.test"] >= 2
    (letter,) = report.letters.values()
    assert letter.startswith("forbidden:")


async def test_no_spelling_leads_a_file_of_an_item_to_a_forbidden_address(tmp_path, target):
    before = len(target.dialled)
    files = [f"http://{host}:{target.port}/{number}.png" for number, host in enumerate(LOOPBACK)]

    class Listing(Spider):
        name = "listing"

        def parse(self, response):
            yield {"file_urls": [*files, f"{response.url}moved.png"]}

    moved = redirect(f"http://127.0.0.2:{target.port}/moved.png")
    with SiteServer(Scripted({"/": Answer(b"x"), "/moved.png": moved}), hosts=3) as site:
        Listing.start_urls = [site.url_of("/", 2)]
        report = await CrawlHarness(
            Listing(),
            tmp_path,
            files_store=str(tmp_path / "files"),
            allow_networks=("127.0.0.3/32",),
            seeds_open_networks=False,
        ).run()
    assert target.dialled[before:] == []
    (item,) = report.items
    assert {found["error"].partition(":")[0] for found in item["files"]} == {"forbidden"}
    assert len(item["files"]) == len(LOOPBACK) + 1


async def test_a_sitemap_and_other_requests_of_a_callback_are_checked(tmp_path, target):
    before = len(target.dialled)

    class Picking(Spider):
        name = "picking"

        async def start(self):
            yield Request(self.start_urls[0])

        def parse(self, response):
            yield Request(f"http://127.0.0.2:{target.port}/image.png", method="POST", callback="parse")
            yield Request(f"http://[::1]:{target.port}/sitemap.xml", dont_filter=True, priority=9)

    with SiteServer(Scripted({"/": Answer(b"x")})) as site:
        Picking.start_urls = [site.url]
        report = await CrawlHarness(Picking(), tmp_path, **NARROW).run()
    assert target.dialled[before:] == []
    assert sorted(report.letters) == ["/image.png", "/sitemap.xml"]


def following(*urls):
    class Following(Spider):
        name = "following"
        start_urls = urls

        def parse(self, response):
            yield {"url": response.url}
            yield response.follow_all("a[href]")

    return Following()
