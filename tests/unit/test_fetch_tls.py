"""HttpFetcher over TLS: trusted certificates, and the HTTP version."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from servers.fetch_h2 import Http2Server
from servers.fetch_proxy import Proxy
from servers.fetch_raw import RawServer, page
from servers.name_server import NameServer
from servers.tls import server_side
from skitter.errors import FetchError, UsageError
from skitter.fetch import tls as fetch_tls
from skitter.fetch.contract import ConnectError, TlsError
from skitter.fetch.http import HttpFetcher
from skitter.fetch.tls import TlsSessions, file_for, is_unverified
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


async def test_an_unknown_authority_is_refused_and_not_retryable(authority):
    async with RawServer({"/": page(b"safe")}, tls=server_side(authority)) as server:
        with pytest.raises(TlsError) as caught:
            await fetch_all([server.url()])
    assert not caught.value.retryable
    assert "unverified_hosts" in caught.value.remedy
    assert server.asked == []


async def test_a_certificate_for_another_name_is_refused(authority, ca_file):
    tls = server_side(authority, "elsewhere.example")
    async with RawServer({"/": page(b"safe")}, tls=tls) as server:
        with pytest.raises(TlsError):
            await fetch_all([server.url()], ca_file=ca_file)


async def test_without_verification_any_certificate_is_accepted(authority):
    tls = server_side(authority, "elsewhere.example")
    async with RawServer({"/": page(b"whatever")}, tls=tls) as server:
        (response,) = await fetch_all([server.url()], verify_tls=False)
    assert response.body == b"whatever"


async def test_an_aborted_handshake_is_a_connection_error():
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
    async def answer_without_tls(reader, writer):
        await reader.read(1)
        writer.write(page(b"plain"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer_without_tls, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TlsError):
            await fetch_all([f"https://127.0.0.1:{port}/"])


async def test_http2_is_used_if_the_server_supports_it(authority, ca_file):
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


async def test_only_the_hosts_that_are_named_may_show_any_certificate(authority):
    async with RawServer({"/": page(b"whatever")}, tls=server_side(authority)) as server:
        for patterns in (("127.0.0.1",), ("*.test", "127.*")):
            (response,) = await fetch_all([server.url()], unverified_hosts=patterns)
            assert response.body == b"whatever"
        with pytest.raises(TlsError):
            await fetch_all([server.url()], unverified_hosts=("other.test",))


async def test_a_connection_without_verification_is_not_used_for_a_verified_host(authority):
    """The name decides, although both names lead to the same server."""
    async with RawServer({"/": page(b"x")}, tls=server_side(authority)) as server:
        port = server.port
        fetcher = HttpFetcher(Settings(unverified_hosts=("127.0.0.1",)))
        await fetcher.open()
        try:
            await fetcher.fetch(Request(f"https://127.0.0.1:{port}/"))
            with pytest.raises(TlsError):
                await fetcher.fetch(Request(f"https://localhost:{port}/"))
        finally:
            await fetcher.close()


@pytest.fixture
def client_files(authority, tmp_path):
    made = authority.issue_cert("client@example.test")
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    made.cert_chain_pems[0].write_to_path(str(cert))
    made.private_key_pem.write_to_path(str(key))
    return str(cert), str(key)


@pytest.fixture
def client_bundle(client_files, tmp_path):
    path = tmp_path / "both.pem"
    path.write_text("".join(Path(name).read_text() for name in client_files))
    return str(path), ""


@pytest.mark.parametrize("files", ["client_files", "client_bundle"])
async def test_a_server_that_asks_for_it_sees_the_client_certificate(authority, ca_file, files, request):
    tls = server_side(authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    cert, key = request.getfixturevalue(files)
    async with RawServer({"/": page(b"known")}, tls=tls) as server:
        (response,) = await fetch_all([server.url()], ca_file=ca_file, client_cert=cert, client_key=key)
        assert response.body == b"known"
        with pytest.raises(FetchError):
            await fetch_all([server.url()], ca_file=ca_file)


async def test_certificates_are_chosen_by_host(authority, client_bundle, ca_file):
    tls = server_side(authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    bundle, other = client_bundle[0], {"other.test": ca_file}
    hosts = {"127.*": bundle}
    async with RawServer({"/": page(b"known")}, tls=tls) as server:
        trusting = {"ca_files": {"127.0.0.1": ca_file}}
        (response,) = await fetch_all([server.url()], **trusting, client_certs=hosts)
        assert response.body == b"known"
        for settings in (
            {"client_certs": hosts, "ca_files": other},
            {**trusting, "client_certs": {"other.test": bundle}},
        ):
            with pytest.raises(FetchError):
                await fetch_all([server.url()], **settings)


async def test_a_client_certificate_of_one_host_is_not_shown_to_another(authority, client_bundle, ca_file):
    tls = server_side(authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    async with RawServer({"/": page(b"known")}, tls=tls) as server:
        certs = {"127.0.0.1": client_bundle[0]}
        fetcher = HttpFetcher(Settings(ca_file=ca_file, client_certs=certs, unverified_hosts=("localhost",)))
        await fetcher.open()
        try:
            assert (await fetcher.fetch(Request(server.url()))).body == b"known"
            # The same handle and server under a name without verification, which does not receive the
            # client certificate.
            with pytest.raises(FetchError):
                await fetcher.fetch(Request(server.url().replace("127.0.0.1", "localhost")))
            assert (await fetcher.fetch(Request(server.url()))).body == b"known"
        finally:
            await fetcher.close()


@pytest.mark.parametrize("field", ["ca_files", "client_certs"])
async def test_a_certificate_file_of_a_host_that_cannot_be_used_is_reported(field, tmp_path):
    with pytest.raises(UsageError) as caught:
        await fetch_all([], **{field: {"*.test": str(tmp_path / "missing.pem")}})
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["ca_file", "client_cert", "client_key"])
async def test_a_certificate_file_that_cannot_be_used_is_reported_before_the_first_request(field, tmp_path):
    path = tmp_path / "bad.pem"
    path.write_text("not a certificate")
    for name in (str(path), str(tmp_path / "missing.pem")):
        with pytest.raises(UsageError) as caught:
            await fetch_all([], **{field: name})
        assert caught.value.field == field


class SessionRecorder:
    """Answers one request for each connection, and records whether the connection resumed a session."""

    def __init__(self):
        self.resumed = []

    async def __call__(self, wire):
        self.resumed.append(wire.writer.get_extra_info("ssl_object").session_reused)
        await wire.send(page(b"x"))
        return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_next_connection_to_each_of_many_hosts_resumes_its_session(authority, ca_file, version):
    recorder, hosts = SessionRecorder(), 60
    tls = server_side(authority, "*.site.test")
    tls.minimum_version = tls.maximum_version = version
    with NameServer({"*.site.test": "127.0.0.1"}) as names:
        async with RawServer({"/": recorder}, tls=tls) as server:
            urls = [f"https://host{number}.site.test:{server.port}/" for number in range(hosts)]
            fetcher = HttpFetcher(Settings(ca_file=ca_file, dns_servers=[names.address]))
            await fetcher.open()
            for url in urls * 2:
                await fetcher.fetch(Request(url))
            await fetcher.close()
    assert recorder.resumed == [False] * hosts + [True] * hosts


async def test_no_session_is_resumed_through_a_proxy(authority, ca_file):
    recorder = SessionRecorder()
    async with RawServer({"/": recorder}, tls=server_side(authority)) as server, Proxy() as proxy:
        fetcher = HttpFetcher(Settings(ca_file=ca_file))
        await fetcher.open()
        for proxied in ("", "", proxy.http, proxy.http, ""):
            await fetcher.fetch(Request(server.url(), proxy=proxied))
        await fetcher.close()
    assert recorder.resumed == [False, True, False, False, True]


def test_the_oldest_tls_sessions_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(fetch_tls, "_MAX_CACHES", 2)
    sessions = TlsSessions()
    first = [sessions.cache_for(f"https://host{number}.test") for number in range(40)]
    assert len({id(cache) for cache in first}) == 2
    assert sessions.cache_for("https://host0.test") is first[0]
    sessions.cache_for("https://host40.test")
    assert sessions.cache_for("https://host20.test") is first[20]
    assert sessions.cache_for("https://host0.test") is not first[0]


def test_a_pattern_outside_ascii_matches_the_host_as_urls_spell_it():
    url = "https://www.xn--mnchen-3ya.test/"
    assert is_unverified(url, ["*.M\u00fcnchen.test"])
    assert file_for(url, {"*.m\u00fcnchen.test": "me.pem"}) == "me.pem"
