"""Proxies: lists, rotation, cooldowns, and failures of proxies and servers."""

import asyncio
import re
from collections import Counter

import pytest

from skitter.errors import SettingsError
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import BehindProxy, BodyTooLarge, FetcherCapabilities, ProxyError, TimedOut
from skitter.fetch.identity.contract import NoProxyAvailable, SourceError
from skitter.fetch.identity.proxies import ProxyPool
from skitter.fetch.identity.proxy_lists import (
    FileProxyList,
    FixedProxyList,
    UrlProxyList,
    label,
    parse_list,
    parse_proxy,
)
from skitter.request import Request
from skitter.response import Response

PAGE = Request("http://site.test/")


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
async def pool_of():
    pools = []

    async def make(*proxies, rotation="round-robin", **options):
        clock = Clock()
        given = proxies[0] if proxies and not isinstance(proxies[0], str) else FixedProxyList(proxies)
        pool = ProxyPool(given, rotation, clock=clock, cooldown=10.0, **options)
        pool.clock = clock
        pools.append(pool)
        await pool.open()
        return pool

    yield make
    for pool in pools:
        await pool.close()


def three():
    return [f"http://p{number}:1" for number in range(3)]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://p:3128", "http://p:3128"),
        (" socks5h://u:pw@p:1080/ ", "socks5h://u:pw@p:1080"),
        ("10.0.0.1:8080", "http://10.0.0.1:8080"),
        ("p.test:8080:anna:p@ss/word", "http://anna:p%40ss%2Fword@p.test:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("https://p:443", "https://p:443"),
    ],
)
def test_a_proxy_is_written_in_the_forms_that_vendors_use(text, url):
    assert parse_proxy(text) == url


@pytest.mark.parametrize(
    "text", ["", "p", "ftp://p:21", "http://p", "http://p:99999", "http://p:1/path", "p:http"]
)
def test_an_invalid_proxy_is_rejected_with_the_expected_form(text):
    with pytest.raises(SettingsError, match=re.escape(repr(label(text.strip())))) as caught:
        parse_proxy(text)
    assert "scheme://" in caught.value.remedy


@pytest.mark.parametrize(
    "text", ["ftp://anna:secret@p:21", "http://anna:secret@p", "p:1:anna:secret:more stuff"]
)
def test_an_error_never_repeats_a_password(text):
    with pytest.raises(SettingsError) as caught:
        parse_proxy(text)
    assert "secret" not in str(caught.value)
    assert "secret" not in label(text)


def test_a_list_is_lines_with_comments_or_a_json_array():
    lines = "# mine\n\nhttp://a:1\nb:2 # spare\nhttp://a:1\n"
    assert parse_list(lines) == ["http://a:1", "http://b:2"]
    assert parse_list('["a:1", "socks5://b:2"]') == ["http://a:1", "socks5://b:2"]
    with pytest.raises(SettingsError, match=r"^line 2: "):
        parse_list("a:1\nnonsense")
    with pytest.raises(SettingsError, match="JSON"):
        parse_list("[1]")


async def test_round_robin_uses_all_proxies_equally(pool_of):
    pool = await pool_of(*three())
    assert Counter(pool.choose(PAGE, "") for _ in range(9)) == dict.fromkeys(three(), 3)


async def test_random_rotation_uses_all_proxies(pool_of):
    pool = await pool_of(*three(), rotation="random")
    assert {pool.choose(PAGE, "") for _ in range(200)} == set(three())


async def test_a_sticky_key_keeps_its_proxy_in_every_worker_and_the_keys_spread(pool_of):
    one = await pool_of(*three(), rotation="host")
    other = await pool_of(*reversed(three()), rotation="host")
    pages = [Request(f"http://h{number}.test/{number}") for number in range(60)]
    chosen = [one.choose(page, "") for page in pages]
    assert chosen == [other.choose(page, "") for page in reversed(pages)][::-1]
    assert set(chosen) == set(three())
    by_session = await pool_of(*three(), rotation="session")
    assert len({by_session.choose(page, "anna") for page in pages}) == 1


async def test_a_cooldown_of_a_proxy_moves_only_its_keys_and_returns_them(pool_of):
    pool = await pool_of(*three(), rotation="host")
    pages = [Request(f"http://h{number}.test/") for number in range(60)]
    before = [pool.choose(page, "") for page in pages]
    pool.report("http://p1:1", PAGE, ProxyError("refused"))
    during = [pool.choose(page, "") for page in pages]
    assert "http://p1:1" not in during
    assert all(new == old for new, old in zip(during, before, strict=True) if old != "http://p1:1")
    pool.clock.now += 12.1
    assert [pool.choose(page, "") for page in pages] == before


async def test_a_proxy_that_fails_again_rests_twice_as_long_until_it_has_worked(pool_of):
    pool = await pool_of(*three())

    def rest():
        pool.report("http://p0:1", PAGE, ProxyError("refused"))
        seconds = 0
        while not pool.usable("http://p0:1"):
            pool.clock.now += 0.1
            seconds += 0.1
        pool.choose(PAGE, "")
        return seconds

    first, second, third = rest(), rest(), rest()
    assert 8 <= first <= 12.2
    assert 16 <= second <= 24.2
    assert 32 <= third <= 48.2
    pool.report("http://p0:1", PAGE, None)
    assert rest() <= 12.2


async def test_many_requests_that_fail_at_once_are_one_failure(pool_of):
    pool = await pool_of(*three())
    for _ in range(50):
        pool.report("http://p0:1", PAGE, ProxyError("refused"))
    pool.clock.now += 12.1
    assert pool.usable("http://p0:1")


async def test_an_unavailable_server_starts_no_cooldown_of_a_proxy(pool_of):
    pool = await pool_of(*three())
    for _ in range(50):
        for proxy in three():
            assert pool.report(proxy, PAGE, BehindProxy("502")) is False
            assert pool.report(proxy, PAGE, TimedOut("slow")) is False
    assert all(pool.usable(proxy) for proxy in three())


@pytest.mark.parametrize("known", [True, False])
async def test_a_proxy_whose_requests_all_time_out_has_a_cooldown(pool_of, known):
    pool = await pool_of(*three())
    pages = [PAGE] * 3 if known else [Request(f"http://h{number}.test/") for number in range(3)]
    if known:
        pool.report("http://p1:1", PAGE, None)  # another proxy has shown that the host is reachable
    for page in pages:
        assert pool.usable("http://p0:1")
        pool.report("http://p0:1", page, TimedOut("slow"))
    assert not pool.usable("http://p0:1")


async def test_an_error_of_a_page_does_not_count_against_its_proxy(pool_of):
    pool = await pool_of(*three())
    for number in range(10):
        pool.report("http://p0:1", Request(f"http://h{number}.test/"), BodyTooLarge("big"))
    assert pool.usable("http://p0:1")


async def test_a_failure_of_the_proxy_is_free_only_while_any_request_succeeded_recently(pool_of):
    pool = await pool_of(*three(), outage_timeout=100.0)
    assert pool.report("http://p0:1", PAGE, ProxyError("refused")) is True
    pool.clock.now += 101
    assert pool.report("http://p1:1", PAGE, ProxyError("refused")) is False
    pool.report("http://p2:1", PAGE, None)
    assert pool.report("http://p2:1", PAGE, ProxyError("refused")) is True


async def test_an_error_without_an_available_proxy_has_a_wait_and_counts_after_the_outage_timeout(pool_of):
    pool = await pool_of(*three(), outage_timeout=15.0)
    for proxy in three():
        pool.report(proxy, PAGE, ProxyError("refused"))
    with pytest.raises(NoProxyAvailable) as caught:
        pool.choose(PAGE, "")
    assert caught.value.free
    assert 8 <= caught.value.wait <= 12
    pool.clock.now += 12.1
    for proxy in three():
        pool.report(proxy, PAGE, ProxyError("refused"))
    pool.clock.now += 5
    with pytest.raises(NoProxyAvailable) as caught:
        pool.choose(PAGE, "")
    assert not caught.value.free
    assert caught.value.retryable


class Changing:
    lasting = False

    def __init__(self, *answers):
        self.answers = list(answers)

    async def read(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_an_outage_of_all_proxies_is_logged_once_until_one_responds(pool_of, caplog):
    pool = await pool_of(
        "http://ann:secret@p0:1", "http://p1:1", "http://p2:1", "http://p3:1", outage_timeout=30.0
    )

    def fail_all():
        for proxy in pool.known():
            pool.report(proxy, PAGE, ProxyError("connection refused"))
        for _ in range(3):
            with pytest.raises(NoProxyAvailable):
                pool.choose(PAGE, "")

    assert pool.outage() == ""
    fail_all()
    assert pool.outage() == "no proxy responds (http://p0:1, http://p1:1, http://p2:1 and 1 more)"
    pool.clock.now += 15.0
    fail_all()
    waiting = [text for text in caplog.messages if text.startswith(pool.outage())]
    assert len(waiting) == 1
    assert "for 30 s; to end the wait, stop the run, correct the setting proxies" in waiting[0]
    assert "secret" not in caplog.text
    pool.clock.now += 16.0
    fail_all()
    assert caplog.text.count("no proxy has responded for 30 s") == 1
    caplog.clear()
    pool.report("http://p1:1", PAGE, None)
    assert pool.outage() == ""
    fail_all()
    assert caplog.text.count("requests wait for one") == 1


async def test_an_outage_of_a_list_that_changes_names_the_time_of_its_next_reading(pool_of, caplog, tmp_path):
    path = tmp_path / "proxies.txt"
    path.write_text("http://p0:1")
    pool = await pool_of(FileProxyList(path), every=60.0)
    pool.report("http://p0:1", PAGE, ProxyError("connection refused"))
    with pytest.raises(NoProxyAvailable):
        pool.choose(PAGE, "")
    assert "correct the list of proxies, which is read again every 60 s" in caplog.text
    path.write_text("http://p1:1")
    await pool.refresh()
    assert pool.outage() == ""


async def test_a_reread_list_keeps_the_health_of_its_remaining_proxies(pool_of):
    pool = await pool_of(Changing(["http://a:1", "http://b:1"], ["http://b:1", "http://c:1"]))
    pool.report("http://b:1", PAGE, ProxyError("refused"))
    await pool.refresh()
    assert {pool.choose(PAGE, "") for _ in range(5)} == {"http://c:1"}
    assert not pool.usable("http://a:1")
    pool.clock.now += 12.1
    assert {pool.choose(PAGE, "") for _ in range(5)} == {"http://b:1", "http://c:1"}
    pool.report("http://a:1", PAGE, ProxyError("of one that has left"))


async def test_a_list_that_cannot_be_read_again_stays_as_it_is(pool_of, caplog):
    pool = await pool_of(Changing(["http://a:1"], SourceError("gone"), []))
    await pool.refresh()
    await pool.refresh()
    assert pool.choose(PAGE, "") == "http://a:1"
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


async def test_an_empty_list_at_the_start_is_an_error(pool_of):
    with pytest.raises(SourceError, match="proxies") as caught:
        await pool_of(Changing([]))
    assert caught.value.field == "proxies"


async def test_a_list_is_read_again_at_its_interval(pool_of):
    class Exhausted(Changing):
        reached = asyncio.Event()

        async def read(self):
            if not self.answers:
                self.reached.set()
                await asyncio.Event().wait()
            return await super().read()

    source = Exhausted(["http://a:1"], ["http://b:1"])
    pool = await pool_of(source, every=0.001)
    await source.reached.wait()
    assert pool.choose(PAGE, "") == "http://b:1"


async def test_a_file_is_read_as_it_is_now_and_an_error_names_it(tmp_path):
    path = tmp_path / "proxies.txt"
    path.write_text("a:1\n")
    source = FileProxyList(path)
    assert await source.read() == ["http://a:1"]
    path.write_text("a:1\nnonsense\n")
    with pytest.raises(SourceError, match=r"proxies\.txt: line 2: .*'nonsense'"):
        await source.read()
    path.unlink()
    with pytest.raises(SourceError, match=r"proxies\.txt"):
        await source.read()


class Answering:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    capabilities = FetcherCapabilities()

    async def fetch(self, request, *, permit, on_headers=None):
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_list_by_url_is_fetched_without_any_proxy():
    fetcher = Answering(Response("http://vendor.test/", 200, body=b"a:1\nb:2:u:p\n"))
    assert await UrlProxyList("http://vendor.test/list?key=1", fetcher, AddressGuard()).read() == [
        "http://a:1",
        "http://u:p@b:2",
    ]
    assert fetcher.asked == [Request("http://vendor.test/list?key=1", proxy="")]


@pytest.mark.parametrize("answer", [Response("http://vendor.test/", 403), TimedOut("slow")])
async def test_an_unavailable_list_by_url_is_an_error_without_its_token(answer):
    with pytest.raises(SourceError, match=r"vendor\.test/list: .*(403|slow)") as caught:
        await UrlProxyList(
            "http://u:secret@vendor.test/list?key=secret", Answering(answer), AddressGuard()
        ).read()
    assert "secret" not in str(caught.value)
