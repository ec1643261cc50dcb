"""HttpFetcher over TLS: who is trusted, and which HTTP is spoken."""

import asyncio

import pytest
import trustme

from servers.fetch_h2 import Http2Server
from servers.fetch_raw import RawServer, page
from servers.tls import server_side
from skitter.fetch.contract import ConnectError, TlsError
from skitter.fetch.http import HttpFetcher
from skitter.request import Request
from skitter.settings import Settings


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


async def fetch_all(urls, **settings):
    fetcher = HttpFetcher(Settings(**settings))
    await fetcher.open()
    try:
        return await asyncio.gather(*(fetcher.fetch(Request(url)) for url in urls))
    finally:
        await fetcher.close()


async def test_a_certificate_of_a_trusted_authority_is_accepted(authority, ca_file):
    async with RawServer({"/": page(b"safe")}, tls=server_side(authority)) as server:
        (response,) = await fetch_all([server.url()], ca_file=ca_file)
    assert response.body == b"safe"


async def test_an_unknown_authority_is_refused_and_not_worth_a_retry(authority):
    async with RawServer({"/": page(b"safe")}, tls=server_side(authority)) as server:
        with pytest.raises(TlsError) as caught:
            await fetch_all([server.url()])
    assert not caught.value.retryable
    assert "verify_tls" in caught.value.remedy
    assert server.asked == []


async def test_a_certificate_for_another_name_is_refused(authority, ca_file):
    tls = server_side(authority, "elsewhere.example")
    async with RawServer({"/": page(b"safe")}, tls=tls) as server:
        with pytest.raises(TlsError):
            await fetch_all([server.url()], ca_file=ca_file)


async def test_without_verification_any_certificate_will_do(authority):
    tls = server_side(authority, "elsewhere.example")
    async with RawServer({"/": page(b"whatever")}, tls=tls) as server:
        (response,) = await fetch_all([server.url()], verify_tls=False)
    assert response.body == b"whatever"


async def test_a_handshake_that_breaks_off_is_a_connection_error():
    async def hang_up(reader, writer):
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError) as caught:
            await fetch_all([f"https://127.0.0.1:{port}/"])
    assert caught.value.retryable


async def test_plain_http_on_a_tls_port_is_a_tls_error():
    async def speak_plainly(reader, writer):
        await reader.read(1)
        writer.write(page(b"plain"))
        await writer.drain()

    server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TlsError):
            await fetch_all([f"https://127.0.0.1:{port}/"])


async def test_http2_is_spoken_where_the_server_can(authority, ca_file):
    async with Http2Server(server_side(authority)) as server:
        urls = [f"{server.origin}/{number}" for number in range(20)]
        responses = await fetch_all(urls, ca_file=ca_file)
    assert [response.body for response in responses] == [f"/{number}".encode() for number in range(20)]
    assert {response.protocol for response in responses} == {"h2"}
    assert responses[0].headers.get("X-Served") == "yes"


async def test_http2_can_be_turned_off(authority, ca_file):
    tls = server_side(authority)
    tls.set_alpn_protocols(["h2", "http/1.1"])
    async with RawServer({"/": page(b"old")}, tls=tls) as server:
        (response,) = await fetch_all([server.url()], ca_file=ca_file, http2=False)
    assert (response.protocol, response.body) == ("http/1.1", b"old")


async def test_without_keep_alive_http2_requests_share_no_connection(authority, ca_file):
    async with Http2Server(server_side(authority)) as server:
        await fetch_all([f"{server.origin}/{n}" for n in range(3)], ca_file=ca_file, reuse_connections=False)
    assert server.connections == 3
