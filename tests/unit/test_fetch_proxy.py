"""HttpFetcher through a proxy."""

import ssl

import pytest
import trustme

from servers.fetch_proxy import Proxy
from servers.fetch_raw import RawServer, page
from skitter.fetch.contract import BehindProxy, ProxyError
from skitter.fetch.http import HttpFetcher
from skitter.request import Request
from skitter.settings import Settings


async def fetch(request, **settings):
    fetcher = HttpFetcher(Settings(**settings))
    await fetcher.open()
    try:
        return await fetcher.fetch(request)
    finally:
        await fetcher.close()


def tls_server():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return RawServer({"/": page(b"secret", "X-Far: yes")}, tls=context)


async def test_a_request_goes_through_its_own_proxy_and_the_next_one_does_not():
    async with RawServer({"/": page(b"x")}) as server, Proxy() as proxy:
        fetcher = HttpFetcher()
        await fetcher.open()
        assert (await fetcher.fetch(Request(server.url(), proxy=proxy.http))).body == b"x"
        assert (await fetcher.fetch(Request(server.url()))).body == b"x"
        await fetcher.close()
    assert len(proxy.heads) == 1
    assert proxy.heads[0].startswith(f"GET {server.url()} HTTP/1.1".encode())


async def test_the_proxy_of_the_settings_serves_all_and_a_request_may_go_without():
    async with RawServer({"/": page(b"x")}) as server, Proxy() as proxy:
        await fetch(Request(server.url()), proxy=proxy.http)
        await fetch(Request(server.url(), proxy=""), proxy=proxy.http)
    assert len(proxy.heads) == 1


async def test_a_proxy_of_the_environment_is_used_unless_the_settings_say_no(monkeypatch):
    async with RawServer({"/": page(b"x")}) as server, Proxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy.http)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        await fetch(Request(server.url()))
        await fetch(Request(server.url()), proxy="")
    assert len(proxy.heads) == 1


async def test_a_password_in_the_proxy_url_is_sent_to_the_proxy_only():
    async with RawServer({"/": page(b"x")}) as server, Proxy() as proxy:
        await fetch(Request(server.url(), proxy=f"http://anna:pass@127.0.0.1:{proxy.port}"))
    assert b"Proxy-Authorization: Basic YW5uYTpwYXNz" in proxy.heads[0]


async def test_https_goes_through_a_tunnel_whose_own_answer_is_not_taken_for_the_page():
    async with tls_server() as server, Proxy() as proxy:
        response = await fetch(Request(server.url(), proxy=proxy.http), verify_tls=False)
    assert (response.status, response.body) == (200, b"secret")
    assert response.headers.get("X-Far") == "yes"
    assert proxy.heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1".encode())


async def test_socks5_resolves_names_at_the_proxy():
    async with RawServer({"/": page(b"x")}) as server, Proxy() as proxy:
        url = f"http://only-the-proxy-knows.example:{server.port}/"
        assert (await fetch(Request(url, proxy=proxy.socks))).body == b"x"
    assert proxy.socks_targets == [("only-the-proxy-knows.example", server.port)]


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ("407 Proxy Authentication Required", ProxyError),
        ("403 Forbidden", ProxyError),
        ("502 Bad Gateway", BehindProxy),
    ],
)
async def test_a_refused_tunnel_is_an_error_of_the_proxy_or_of_what_lies_behind_it(refusal, kind):
    async with tls_server() as server, Proxy(refusal) as proxy:
        with pytest.raises(ProxyError) as caught:
            await fetch(Request(server.url(), proxy=proxy.http), verify_tls=False)
    assert type(caught.value) is kind
    assert caught.value.remedy


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
async def test_a_proxy_that_is_not_there_is_an_error_of_the_proxy(free_port, scheme):
    with pytest.raises(ProxyError):
        await fetch(Request("http://example.com/", proxy=f"{scheme}://127.0.0.1:{free_port}"))


async def test_a_proxy_whose_name_does_not_resolve_is_an_error_of_the_proxy():
    with pytest.raises(ProxyError):
        await fetch(Request("http://example.com/", proxy=f"http://{'a' * 64}.test:1"))
