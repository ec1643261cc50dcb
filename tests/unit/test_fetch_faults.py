"""HttpFetcher with misbehaving servers: each fault is one kind of error, and nothing hangs."""

import asyncio
import gzip
import zlib

import pytest

from servers.fetch_raw import RawServer, page
from skitter.fetch.contract import (
    BodyTooLarge,
    ConnectError,
    Disconnected,
    ProtocolError,
    TimedOut,
    UndecodableBody,
    UnresolvedHost,
)
from skitter.fetch.http import HttpFetcher
from skitter.request import Request
from skitter.settings import Settings

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


async def fetch(url, **settings):
    fetcher = HttpFetcher(Settings(**settings))
    await fetcher.open()
    try:
        return await fetcher.fetch(Request(url))
    finally:
        await fetcher.close()


async def ask(answer, *, closing=True, **settings):
    """Fetch from a server that sends this answer and closes the connection."""
    async with RawServer({"/": answer}, closing=("/",) if closing else ()) as server:
        return await fetch(server.url(), **settings)


async def test_a_refused_connection(free_port):
    with pytest.raises(ConnectError) as caught:
        await fetch(f"http://127.0.0.1:{free_port}/")
    assert caught.value.retryable


async def test_a_host_that_does_not_resolve():
    # A label of 64 characters is invalid, so no name server is asked.
    with pytest.raises(UnresolvedHost):
        await fetch(f"http://{'a' * 64}.test/")


async def test_a_connection_closed_without_an_answer():
    with pytest.raises(ConnectError):
        await ask(b"")


@pytest.mark.parametrize(
    ("before", "kind"), [(b"", ConnectError), (HEAD + b"Content-Length: 9\r\n\r\nabc", Disconnected)]
)
async def test_a_connection_reset(before, kind):
    async def answer(wire):
        if before:
            await wire.send(before)
        wire.reset()
        return False

    with pytest.raises(kind):
        await ask(answer)


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 100\r\n\r\nshort",
        CHUNKED + b"5\r\nhel",
        CHUNKED + b"5\r\nhello\r\n",
        HEAD + b"Content-Ty",
    ],
)
async def test_a_truncated_answer(answer):
    with pytest.raises(Disconnected):
        await ask(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>HTTP/0.9</html>",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/9.9 x\r\n\r\n",
        CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nhelloXX0\r\n\r\n",
        CHUNKED + b"F" * 20 + b"\r\nhello",
    ],
)
async def test_an_answer_that_is_not_http_or_has_invalid_chunks(answer):
    with pytest.raises(ProtocolError):
        await ask(answer)


@pytest.mark.parametrize("filler", [b"X-Filler: " + b"x" * 1000 + b"\r\n", b"x" * 1000, b"a: b\r\n" * 100])
async def test_a_header_block_without_end(filler):
    async def answer(wire):
        await wire.send(HEAD + b"X-First: ")
        while True:
            await wire.send(filler)

    with pytest.raises(ProtocolError):
        await ask(answer)


async def test_a_server_that_accepts_tcp_but_not_tls():
    async with RawServer({}) as server:  # waits for the end of the request's headers
        with pytest.raises(TimedOut):
            await fetch(f"https://127.0.0.1:{server.port}/", connect_timeout=0.3)


@pytest.mark.parametrize("before", [b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\nabc"])
async def test_a_silent_server_causes_an_error_after_the_read_timeout(before):
    async def answer(wire):
        await wire.send(before)
        await wire.gone()

    with pytest.raises(TimedOut, match="no data"):
        await ask(answer, read_timeout=0.4)


async def test_a_slow_body_is_not_a_stall():
    async def answer(wire):
        await wire.send(HEAD + b"Content-Length: 12\r\n\r\n")
        for _ in range(12):
            await asyncio.sleep(0.1)
            await wire.send(b"x")

    assert (await ask(answer, read_timeout=0.8)).body == b"x" * 12


async def test_a_trickle_is_ended_by_the_total_timeout():
    async def answer(wire):
        await wire.send(HEAD + b"\r\n")
        while True:
            await wire.send(b"x")
            await asyncio.sleep(0.05)

    with pytest.raises(TimedOut):
        await ask(answer, timeout=0.5)


async def test_a_request_may_have_a_timeout_of_its_own():
    async def hang(wire):
        await wire.gone()

    async with RawServer({"/": hang, "/ok": page(b"x")}) as server:
        fetcher = HttpFetcher(Settings(timeout=60))
        await fetcher.open()
        with pytest.raises(TimedOut):
            await fetcher.fetch(Request(server.url(), timeout=0.2))
        assert (await fetcher.fetch(Request(server.url("/ok"), timeout=20))).body == b"x"
        await fetcher.close()


async def test_a_body_larger_than_the_limit_is_refused_before_it_is_read():
    with pytest.raises(BodyTooLarge):
        await ask(HEAD + b"Content-Length: 1001\r\n\r\n", closing=False, max_body=1000)


@pytest.mark.parametrize("head", [HEAD + b"\r\n", CHUNKED])
async def test_an_endless_body_is_cut_at_the_limit(head):
    sent = 0

    async def answer(wire):
        nonlocal sent
        await wire.send(head)
        block = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        while True:
            await wire.send(block)
            sent += len(block)

    with pytest.raises(BodyTooLarge):
        await ask(answer, max_body=100_000)
    # In addition to the read part, only the content of socket buffers can have left the server.
    assert sent < 50_000_000


async def test_a_body_of_exactly_the_limit_is_whole():
    assert len((await ask(page(b"x" * 1000), max_body=1000)).body) == 1000


async def test_a_coded_body_arrives_decoded_and_its_header_stays():
    answer = page(gzip.compress(b"plain"), "Content-Encoding: GZip")
    response = await ask(answer)
    assert response.body == b"plain"
    assert response.headers.get("Content-Encoding") == "GZip"


async def test_stacked_codings_may_be_in_several_headers():
    body = gzip.compress(zlib.compress(b"plain"))
    answer = page(body, "Content-Encoding: deflate, identity", "content-encoding: x-gzip")
    assert (await ask(answer)).body == b"plain"


async def test_a_large_coded_body_is_decoded_as_well():
    plain = bytes(range(256)) * 4000
    stored = gzip.compress(plain, compresslevel=0)
    assert (await ask(page(stored, "Content-Encoding: gzip"))).body == plain


async def test_a_decompression_bomb_is_too_large():
    bomb = gzip.compress(bytes(50_000_000))
    with pytest.raises(BodyTooLarge):
        await ask(page(bomb, "Content-Encoding: gzip"), max_body=1_000_000)


@pytest.mark.parametrize("body", [gzip.compress(b"x" * 500)[:-9], b"not gzip at all"], ids=["cut", "plain"])
async def test_a_broken_coded_body_is_undecodable(body):
    with pytest.raises(UndecodableBody):
        await ask(page(body, "Content-Encoding: gzip"))


async def test_an_empty_coded_body_is_empty():
    assert (await ask(page(b"", "Content-Encoding: gzip"))).body == b""


async def test_a_fetcher_continues_after_every_fault():
    answers = {"/short": HEAD + b"Content-Length: 9\r\n\r\nabc", "/ok": page(b"x"), "/none": b""}
    async with RawServer(answers, closing=("/short", "/none")) as server:
        fetcher = HttpFetcher()
        await fetcher.open()
        for path in ("/short", "/ok", "/none", "/ok"):
            if path == "/ok":
                assert (await fetcher.fetch(Request(server.url(path)))).body == b"x"
            else:
                with pytest.raises((Disconnected, ConnectError)):
                    await fetcher.fetch(Request(server.url(path)))
        await fetcher.close()
