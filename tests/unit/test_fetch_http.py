"""HttpFetcher: the bytes of requests and the resulting responses."""

import asyncio
import contextlib
import gzip
import logging
import random
import zlib

import brotli
import pytest

from servers.fetch_raw import RawServer, page
from skitter.errors import SettingsError, UsageError
from skitter.fetch import multi
from skitter.fetch.contract import BodyTooLarge, ConnectError, UnsendableRequest
from skitter.fetch.http import HttpFetcher
from skitter.fetch.resolver import Resolver
from skitter.request import Request
from skitter.settings import DEFAULT_USER_AGENT, Settings


@pytest.fixture
async def open_fetcher():
    """``await open_fetcher(setting=...)``: a fetcher that closes with the test."""
    opened = []

    async def start(**settings):
        fetcher = HttpFetcher(Settings(**settings))
        await fetcher.open()
        opened.append(fetcher)
        return fetcher

    yield start
    for fetcher in opened:
        await fetcher.close()


async def test_a_response_carries_all_that_is_known_of_the_answer(open_fetcher):
    answer = page(b"<p>hi</p>", "Content-Type: text/html", "X-Two: a", "X-Two: b", status="203 Odd")
    async with RawServer({"/a?b=1": answer}) as server:
        request = Request(server.url("/a?b=1"))
        response = await (await open_fetcher()).fetch(request)
    assert (response.status, response.body, response.url) == (203, b"<p>hi</p>", request.url)
    assert (response.ip, response.protocol) == ("127.0.0.1", "http/1.1")
    assert response.headers.get("content-type") == "text/html"
    assert response.request is request
    assert 0 < response.latency < 60


async def test_default_headers_come_in_the_order_of_a_browser(open_fetcher):
    async with RawServer({"/": page()}) as server:
        fetcher = await open_fetcher(user_agent="bot/1")
        await fetcher.fetch(Request(server.url()))
    asked = server.asked[0]
    assert asked.header_names == ["Host", "User-Agent", "Accept", "Accept-Language", "Accept-Encoding"]
    assert asked.header("User-Agent") == "bot/1"
    assert asked.header("Accept-Encoding") == "zstd, gzip, br, deflate"


async def test_headers_of_a_request_win_and_do_not_stay_for_the_next(open_fetcher):
    async with RawServer({"/": page()}) as server:
        fetcher = await open_fetcher(headers={"Accept": "*/*"})
        await fetcher.fetch(Request(server.url(), headers={"accept": "text/plain", "X-A": "ä", "X-B": ""}))
        await fetcher.fetch(Request(server.url()))
    first, second = server.asked
    assert first.header_names == [
        "Host",
        "User-Agent",
        "accept",
        "Accept-Language",
        "Accept-Encoding",
        "X-A",
        "X-B",
    ]
    assert (first.header("accept"), first.header("X-A"), first.header("X-B")) == ("text/plain", "ä", "")
    assert second.header_names == ["Host", "User-Agent", "Accept", "Accept-Language", "Accept-Encoding"]
    assert second.header("Accept") == "*/*"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
async def test_a_body_is_sent_with_its_length_and_no_other_headers(open_fetcher, method):
    async with RawServer({"/": page(b"ok")}) as server:
        request = Request(server.url(), method=method, body=b"a=1\0\xff")
        assert (await (await open_fetcher()).fetch(request)).body == b"ok"
    asked = server.asked[0]
    assert asked.head.startswith(method.encode() + b" / ")
    assert asked.body == b"a=1\0\xff"
    assert asked.header("Content-Length") == "5"
    assert asked.header("Content-Type") is None
    assert asked.header("Expect") is None


async def test_framing_headers_of_a_request_do_not_garble_the_connection(open_fetcher):
    async with RawServer({"/": page()}) as server:
        headers = {"Content-Length": "99", "Transfer-Encoding": "chunked", "Content-Type": "text/x"}
        request = Request(server.url(), method="POST", body=b"abc", headers=headers)
        await (await open_fetcher()).fetch(request)
    assert server.asked[0].body == b"abc"
    assert server.asked[0].header("Transfer-Encoding") is None
    assert server.asked[0].header("Content-Type") == "text/x"


async def test_a_post_without_a_body_has_a_length_of_0(open_fetcher):
    async with RawServer({"/": page()}) as server:
        await (await open_fetcher()).fetch(Request(server.url(), method="POST"))
    assert server.asked[0].header("Content-Length") == "0"


async def test_a_plain_get_follows_a_post_a_head_and_a_proxied_request_unchanged(open_fetcher):
    async with RawServer({"/": page(b"body")}) as server:
        fetcher = await open_fetcher()
        await fetcher.fetch(Request(server.url()))
        await fetcher.fetch(Request(server.url(), method="POST", body=b"x", timeout=60, cookies={"a": "b"}))
        assert (await fetcher.fetch(Request(server.url()))).body == b"body"
    first, _, last = server.asked
    assert first.head == last.head
    assert last.connection == 1


async def test_head_returns_headers_without_a_body(open_fetcher):
    async with RawServer({"/": b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"}) as server:
        fetcher = await open_fetcher(max_body=100)
        response = await fetcher.fetch(Request(server.url(), method="HEAD"))
        again = await fetcher.fetch(Request(server.url(), method="HEAD"))
    assert response.body == again.body == b""
    assert response.headers.get("Content-Length") == "5000"
    assert server.connections == 1


async def test_a_large_upload_arrives_whole(open_fetcher):
    body = bytes(range(256)) * 20_000
    async with RawServer({"/": page(b"ok")}) as server:
        await (await open_fetcher()).fetch(Request(server.url(), method="PUT", body=body))
    assert server.asked[0].body == body


@pytest.mark.parametrize(
    "request_",
    [
        Request("http://127.0.0.1:9/", headers={"X": "a\r\nEvil: 1"}),
        Request("http://127.0.0.1:9/", headers={"X Y": "a"}),
        Request("http://127.0.0.1:9/", headers={"X": "a\0b"}),
        Request("http://127.0.0.1:9/", cookies={"a": "b\r\nEvil: 1"}),
        Request("http://127.0.0.1:9/", cookies={"a": "b; c=d"}),
        Request("http://127.0.0.1:9/", method="GET / HTTP/1.1\r\nX:"),
        Request("http://127.0.0.1:9/", method=""),
        Request("ftp://127.0.0.1/x"),
        Request("file:///etc/passwd"),
        Request("/relative"),
        Request("http://"),
        Request("http://127.0.0.1:99999/"),
    ],
    ids=repr,
)
async def test_an_unsendable_request_is_refused_and_not_retryable(open_fetcher, request_):
    with pytest.raises(UnsendableRequest) as caught:
        await (await open_fetcher()).fetch(request_)
    assert not caught.value.retryable
    assert caught.value.remedy


async def test_a_url_that_is_not_canonical_is_sent_as_a_browser_would(open_fetcher):
    async with RawServer({"/%C3%A4%20b?q=%C3%B6": page(b"ok"), "/a/../b": page(b"as is")}) as server:
        fetcher = await open_fetcher()
        assert (await fetcher.fetch(Request(server.url("/ä b?q=ö#frag")))).body == b"ok"
        shouted = Request(server.url("/a/../b#frag"))
        assert (await fetcher.fetch(shouted)).body == b"as is"


async def test_a_redirect_is_a_response_like_any_other(open_fetcher):
    async with RawServer({"/": page(b"", "Location: /next", status="302 Found")}) as server:
        response = await (await open_fetcher()).fetch(Request(server.url()))
    assert (response.status, response.headers.get("Location")) == (302, "/next")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "hints", [b"HTTP/1.1 103 Early Hints\r\nX-Hint: 1\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", b""]
)
async def test_only_the_final_header_block_counts(open_fetcher, hints):
    chunked = b"HTTP/1.1 200 OK\r\nX-Real: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n"
    async with RawServer({"/": hints + chunked}) as server:
        response = await (await open_fetcher()).fetch(Request(server.url()))
    assert (response.status, response.body) == (200, b"hi")
    assert response.headers.get("X-Real") == "1"
    assert response.headers.get("X-Hint") is None
    assert response.headers.get("X-Trailer") is None


async def test_header_lines_may_end_with_a_bare_line_feed(open_fetcher):
    async with RawServer({"/": b"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\nhi"}) as server:
        response = await (await open_fetcher()).fetch(Request(server.url()))
    assert (response.body, response.headers.get("X-A")) == (b"hi", "b")


CODED = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress}


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("limit", [1, 70_000, 200_000, 200_001])
async def test_a_large_body_is_cut_to_its_first_bytes_if_that_is_wanted(open_fetcher, coding, limit):
    whole = random.Random(3).randbytes(200_000)
    answer = page(CODED[coding](whole), f"Content-Encoding: {coding}")
    async with RawServer({"/": answer, "/next": page(b"next")}) as server:
        fetcher = await open_fetcher(max_body=limit, truncate_body=True)
        response = await fetcher.fetch(Request(server.url()))
        after = await fetcher.fetch(Request(server.url("/next"), max_body=4))
        with pytest.raises(BodyTooLarge):
            await fetcher.fetch(Request(server.url("/next"), max_body=3, truncate_body=False))
    assert (response.body, response.is_truncated) == (whole[:limit], limit < len(whole))
    assert response.replace(status=1).is_truncated == response.is_truncated
    assert (after.body, after.is_truncated) == (b"next", False)


async def test_a_bomb_is_cut_and_never_expanded(open_fetcher):
    bomb = gzip.compress(bytes(50_000_000)) * 3
    async with RawServer({"/": page(bomb, "Content-Encoding: gzip")}) as server:
        request = Request(server.url(), max_body=1000, truncate_body=True)
        response = await (await open_fetcher()).fetch(request)
    assert (response.body, response.is_truncated) == (bytes(1000), True)


async def test_the_times_of_a_transfer_are_in_meta_if_they_are_wanted(open_fetcher):
    async with RawServer({"/": page()}) as server:
        fetcher = await open_fetcher(http_trace=True)
        first = await fetcher.fetch(Request(server.url(), meta={"page": 1}))
        second = await fetcher.fetch(Request(server.url()))
        plain = await (await open_fetcher()).fetch(Request(server.url()))
    trace = first.meta.pop("http_trace")
    assert first.meta == {"page": 1} and plain.meta == {}
    assert list(trace) == ["dns", "connect", "tls", "first_byte", "total", "reused"]
    assert trace["connect"] > 0 and trace["tls"] == 0 and not trace["reused"]
    assert trace["dns"] + trace["connect"] + trace["first_byte"] <= trace["total"]
    assert second.meta["http_trace"]["reused"] and second.meta["http_trace"]["connect"] == 0


async def test_a_kept_connection_serves_many_requests(open_fetcher):
    async with RawServer({"/": page(b"x")}) as server:
        fetcher = await open_fetcher()
        for _ in range(5):
            await fetcher.fetch(Request(server.url()))
    assert server.connections == 1


async def test_a_full_pool_keeps_the_connections_of_the_first_hosts(open_fetcher, monkeypatch):
    """libcurl alone would close the connection idle for the longest time, which is the one that is needed next."""
    monkeypatch.setattr(multi, "_PATIENCE", 10_000)  # the machine may be slow
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(RawServer({"/": page(b"x")})) for _ in range(4)]
        fetcher = await open_fetcher(max_connections=3, concurrency=1)
        for server in servers * 5:
            await fetcher.fetch(Request(server.url()))
    assert [server.connections for server in servers] == [1, 1, 5, 5]


async def test_a_request_after_one_whose_connection_was_closed_may_keep_its_own(open_fetcher):
    """They use the same handle."""
    async with RawServer({"/": page(b"x")}) as first, RawServer({"/": page(b"x")}) as second:
        fetcher = await open_fetcher(max_connections=1)
        for server in [first, second, first, first]:
            await fetcher.fetch(Request(server.url()))
    assert (first.connections, second.connections) == (2, 1)


async def test_without_keep_alive_each_request_has_a_connection_of_its_own(open_fetcher):
    async with RawServer({"/": page(b"x")}) as server:
        fetcher = await open_fetcher(reuse_connections=False)
        for _ in range(3):
            await fetcher.fetch(Request(server.url()))
    assert server.connections == 3


async def test_a_request_on_a_dead_kept_connection_is_sent_again(open_fetcher):
    async def die_on_second_use(wire):
        if wire.server.connections == 1 and len(wire.server.asked) == 2:
            wire.reset()
            return False
        await wire.send(page(b"alive"))
        return True

    async with RawServer({"/": die_on_second_use}) as server:
        fetcher = await open_fetcher()
        bodies = [(await fetcher.fetch(Request(server.url()))).body for _ in range(2)]
    assert bodies == [b"alive", b"alive"]
    assert [asked.connection for asked in server.asked] == [1, 1, 2]


async def test_no_more_connections_are_open_than_allowed(open_fetcher):
    async with RawServer({"/": page(b"x")}) as server:
        fetcher = await open_fetcher(max_connections=2)
        await asyncio.gather(*(fetcher.fetch(Request(server.url())) for _ in range(20)))
    assert len(server.asked) == 20
    assert server.open_most <= 2


async def test_cancelling_a_fetch_closes_its_connection_and_leaves_the_others(open_fetcher):
    started = asyncio.Event()

    async def hang(wire):
        started.set()
        await wire.gone()

    async with RawServer({"/hang": hang, "/": page(b"x")}) as server:
        fetcher = await open_fetcher()
        task = asyncio.create_task(fetcher.fetch(Request(server.url("/hang"))))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 60)
        assert (await fetcher.fetch(Request(server.url()))).body == b"x"


async def test_closing_fails_requests_in_flight_with_a_fetch_error(open_fetcher):
    started = asyncio.Event()

    async def hang(wire):
        started.set()
        await wire.gone()

    async with RawServer({"/": hang}) as server:
        fetcher = await open_fetcher()
        task = asyncio.create_task(fetcher.fetch(Request(server.url())))
        await started.wait()
        await fetcher.close()
        with pytest.raises(ConnectError, match="closed"):
            await task
        await asyncio.wait_for(server.gone.wait(), 60)


async def test_a_fetcher_that_is_not_open_raises_an_error(open_fetcher):
    fetcher = HttpFetcher()
    with pytest.raises(UsageError):
        await fetcher.fetch(Request("http://127.0.0.1:9/"))
    fetcher = await open_fetcher()
    await fetcher.close()
    with pytest.raises(UsageError):
        await fetcher.fetch(Request("http://127.0.0.1:9/"))


async def test_credentials_go_to_their_origin_only(open_fetcher):
    async with RawServer({"/": page()}) as server, RawServer({"/": page()}) as other:
        fetcher = await open_fetcher(credentials={server.url(): "user:pw"})
        response = await fetcher.fetch(request := Request(server.url(), headers={"X": "y"}))
        await fetcher.fetch(Request(server.url(), headers={"authorization": "own"}))
        await fetcher.fetch(Request(other.url()))
    assert [asked.header("Authorization") for asked in server.asked] == ["Basic dXNlcjpwdw==", "own"]
    assert other.asked[0].header("Authorization") is None
    assert response.request is request


async def test_bytes_of_a_cookie_come_back_as_they_were_sent(open_fetcher):
    answers = {"/set": page(b"", "Set-Cookie: n=全部; Path=/"), "/": page()}
    latin = page(b"", "Set-Cookie: l=?; Path=/").replace(b"l=?", b"l=\xe9")
    async with RawServer({**answers, "/latin": latin}) as server:
        fetcher = await open_fetcher()
        await fetcher.fetch(Request(server.url("/set")))
        await fetcher.fetch(Request(server.url("/latin")))
        await fetcher.fetch(Request(server.url(), cookies={"own": "é"}))
    assert b"\r\nCookie: n=\xe5\x85\xa8\xe9\x83\xa8; l=\xe9; own=\xc3\xa9\r\n" in server.asked[-1].head


async def test_cookies_come_back_within_their_session_only(open_fetcher):
    answers = {"/set": page(b"", "Set-Cookie: sid=1; Path=/", "Set-Cookie: b=2; HttpOnly"), "/": page()}
    async with RawServer(answers) as server:
        fetcher = await open_fetcher()
        await fetcher.fetch(Request(server.url("/set"), session="anna"))
        await fetcher.fetch(Request(server.url(), session="anna", cookies={"b": "own", "c": "3"}))
        await fetcher.fetch(Request(server.url(), session="bert"))
        await fetcher.fetch(Request(server.url(), session="anna", headers={"Cookie": "only=this"}))
    _, anna, bert, explicit = server.asked
    assert anna.header("Cookie") == "sid=1; b=own; c=3"
    assert bert.header("Cookie") is None
    assert explicit.header("Cookie") == "only=this"


@pytest.mark.parametrize("name", ["connect_timeout", "read_timeout", "timeout", "max_body"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_positive_is_refused(name, value):
    with pytest.raises(SettingsError) as caught:
        Settings(**{name: value})
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("settings", "address", "warns"),
    [
        ({}, "93.184.216.34", True),
        ({}, "127.0.0.1", False),
        ({"contact": "me@h.test"}, "93.184.216.34", False),
        ({"user_agent": "mine/1"}, "93.184.216.34", False),
    ],
)
async def test_a_crawl_of_public_sites_without_a_contact_warns_once(
    open_fetcher, monkeypatch, caplog, settings, address, warns
):
    async def addresses(self, name):
        return [address], 60.0

    async def no_transfer(self, transfer):
        raise ConnectError("not in tests")

    monkeypatch.setattr(Resolver, "_addresses", addresses)
    monkeypatch.setattr(HttpFetcher, "_perform", no_transfer)
    monkeypatch.setattr(logging.getLogger("skitter"), "propagate", True)
    fetcher = await open_fetcher(**settings)
    for name in ("a.test.example", "b.test.example"):
        with pytest.raises(ConnectError):
            await fetcher.fetch(Request(f"http://{name}/"))
    assert [record for record in caplog.messages if "contact" in record] == caplog.messages
    assert len(caplog.messages) == warns


def test_the_default_user_agent_names_the_contact():
    assert Settings(contact="https://h.test/bot").user_agent == f"{DEFAULT_USER_AGENT} (+https://h.test/bot)"
    assert Settings(contact="https://h.test/bot", user_agent="mine/1").user_agent == "mine/1"
    assert "(" not in Settings().user_agent
    with pytest.raises(SettingsError) as caught:
        Settings(contact="just me")
    assert caught.value.field == "contact"
