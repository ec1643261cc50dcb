"""Pages in the browser obey the settings of HTTP fetches, or refuse them. Broken answers are detected as over HTTP."""

import pytest
import trustme

from browsers import crawl_headings as crawl
from browsers import require_browser
from crawl_harness import Scripted
from servers.fetch_raw import RawServer, page
from servers.name_server import NameServer
from servers.tls import server_side
from skitter import Request
from skitter.browser.executable import check_settings, sandbox_obstacle
from skitter.errors import SettingsError
from skitter.settings import Settings
from skitter.testing import Answer, WireAnswer

HTML = b"Content-Type: text/html"
DOCUMENT = b"<!doctype html><title>t</title><h1>whole</h1>" + b"<p>text</p>" * 500


@pytest.fixture(autouse=True, scope="module")
def browser():
    require_browser()


def broken(*head, body=DOCUMENT, end="close"):
    """Return a truncated answer, then a complete one."""
    first = b"\r\n".join([b"HTTP/1.1 200 OK", *head, b"", body[: len(body) // 2]])
    kind = "text/html" if head[0] == HTML else "text/plain"
    return WireAnswer([first, 0.2], end=end), Answer(body, content_type=kind)


async def test_a_document_that_is_cut_short_is_fetched_again(serve, tmp_path):
    whole = f"Content-Length: {len(DOCUMENT)}".encode()
    chunk = b"%x\r\n" % len(DOCUMENT)
    site = Scripted({
        "/length": broken(HTML, whole),
        "/reset": broken(HTML, whole, end="reset"),
        "/chunked": (WireAnswer([b"\r\n".join([b"HTTP/1.1 200 OK", HTML, b"Transfer-Encoding: chunked", b"",
                                              chunk + DOCUMENT[:900]])]), Answer(DOCUMENT)),
        "/endless": broken(HTML, b"Connection: close", end="reset"),
        "/plain": broken(b"Content-Type: text/plain", b"Content-Length: 6", body=b"abcdef"),
        "/stopped": Answer(b"<!doctype html><h1>stopped</h1><script>window.stop()</script><p>rest"),
        "/mail": Answer(b"<!doctype html><h1>mail</h1><script>location = 'mailto:a@b.test'</script><p>rest"),
    })  # fmt: skip
    url = serve(site).url_of
    paths = ["/length", "/reset", "/chunked", "/endless", "/plain", "/stopped", "/mail"]
    found, ran = await crawl(tmp_path, [Request(url(path)) for path in paths])
    assert ran.letters == {}
    assert found == {
        **dict.fromkeys(paths[:4], "whole"), "/plain": "abcdef", "/stopped": "stopped", "/mail": "mail",
    }  # fmt: skip
    assert {path: site.counts[path] for path in paths} == {
        **dict.fromkeys(paths[:5], 2), "/stopped": 1, "/mail": 1,
    }  # fmt: skip


async def test_credentials_are_sent_to_their_origin_only(serve, tmp_path):
    def guarded(visit):
        known = visit.headers.get("authorization") == "Basic YW5uOnNlY3JldA=="
        return Answer(
            b"ann" if known else b"",
            status=200 if known else 401,
            headers={"Access-Control-Allow-Origin": "*"},
        )

    fetch = "<h1></h1><script>fetch('%s').then(r => r.text()).then(t => document.querySelector('h1').textContent = t || 'none')</script>"
    other = serve(Scripted({"/data": guarded}))
    pages = {
        "/data": guarded,
        "/": lambda visit: Answer((fetch % "/data").encode(), status=guarded(visit).status),
    }
    mine = serve(Scripted(pages | {"/away": Answer((fetch % other.url_of("/data")).encode())}))
    wait = {"wait_for": {"do": "wait", "function": "document.querySelector('h1').textContent"}}
    requests = [Request(mine.url_of(path), browsing=wait) for path in ("/", "/away")]
    found, ran = await crawl(tmp_path, requests, credentials={mine.url.rstrip("/"): "ann:secret"})
    assert ran.letters == {}
    assert found == {"/": "ann", "/away": "none"}


BUSY = """<!doctype html><title>t</title><h1></h1><iframe src=/frame?page></iframe><script>
    const load = path => fetch(path).then(() => path, () => 'blocked');
    Promise.all(['/data?page', '/ads/1.js', '/moved'].map(load))
        .then(found => document.querySelector('h1').textContent = found.join());
</script>"""
LOADED = {"wait_for": {"do": "wait", "function": "document.querySelector('h1').textContent"}}


@pytest.mark.parametrize("fetcher", ["browser", "adaptive"])
async def test_urls_that_match_a_pattern_are_blocked_but_never_the_page_itself(serve, tmp_path, fetcher):
    site = Scripted({
        "/page": Answer(BUSY.encode()), "/leaves": Answer(b"<title>t</title><h1></h1><script>location = '/page'</script>"),
        "/frame?page": Answer(b"frame"), "/data?page": Answer(b"data"), "/ads/1.js": Answer(b"ad"),
        "/moved": Answer(status=302, headers={"Location": "/ads/2.js"}), "/ads/2.js": Answer(b"ad"),
    })  # fmt: skip
    url = serve(site).url_of
    found, ran = await crawl(
        tmp_path, [Request(url("/leaves"), browsing=LOADED)], fetcher=fetcher, required_selectors=["h1::text"],
        blocked_urls=["page$", r"/ads/\d+\.js", "^about:"], page_max_requests=2,
    )  # fmt: skip
    assert (found, ran.letters) == ({"/page": "blocked,blocked,blocked"}, {})
    assert {path for path in site.counts if "page" not in path} == {"/leaves", "/moved"}
    assert {path for path in site.counts if "?" in path} == set()


@pytest.mark.parametrize("field", ["blocked_urls", "record"])
async def test_a_page_with_a_url_that_takes_a_pattern_too_long_fails(serve, tmp_path, field):
    slow = f"<h1>slow</h1><script>fetch('/{'a' * 3000}')</script>"
    site = Scripted({"/slow": Answer(slow.encode()), "/plain": Answer(b"<h1>plain</h1>")})
    url, pattern = serve(site).url_of, "(?:(?:a|a)|(?:a|aa))+b$"
    browsing, settings = (
        (LOADED | {"record": pattern}, {}) if field == "record" else (LOADED, {field: [pattern]})
    )
    found, ran = await crawl(
        tmp_path, [Request(url("/slow"), browsing=browsing), Request(url("/plain"))], **settings
    )
    assert found == {"/plain": "plain"}
    assert list(ran.letters) == ["/slow"]
    assert ran.letters["/slow"].startswith("page_limit: the regular expression")


async def test_only_hosts_that_the_settings_name_need_no_valid_certificate(tmp_path):
    answers = {"/a": page(b"<h1>a</h1>", "Content-Type: text/html")}
    async with RawServer(answers, tls=server_side(trustme.CA())) as server:
        address = server.url("/a")
        for hosts, expected in ((["127.0.0.*"], {"/a": "a"}), (["other.test"], {})):
            found, ran = await crawl(tmp_path / hosts[0], [Request(address)], unverified_hosts=hosts)
            assert found == expected
    assert [error.partition(":")[0] for error in ran.letters.values()] == ["tls"]


async def test_names_are_looked_up_at_the_name_servers_of_the_settings(serve, tmp_path):
    server = serve(Scripted({"/": Answer(b"<h1>found</h1>")}))
    with NameServer({"good.test": "127.0.0.1"}) as name_server:
        requests = [Request(f"http://{host}.test:{server.port}/", max_retries=0) for host in ("good", "bad")]
        settings = {
            "dns_servers": (name_server.address,),
            "allow_networks": ["127.0.0.0/8"],
            "unreachable_timeout": 0,
        }
        found, ran = await crawl(tmp_path, requests, **settings)
    assert found == {"/": "found"}
    assert [error.partition(":")[0] for error in ran.letters.values()] == ["dns"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ca_file", "ca.pem"),
        ("client_cert", "me.pem"),
        ("client_key", "me.pem"),
        ("reuse_connections", False),
    ],
)
async def test_a_setting_that_the_browser_cannot_obey_is_refused(name, value):
    with pytest.raises(SettingsError) as caught:
        check_settings(Settings(**{name: value}))
    assert caught.value.field == name
    assert caught.value.remedy


def test_a_browser_without_its_sandbox_has_a_reason(monkeypatch):
    assert sandbox_obstacle(Settings(browser_sandbox=False))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "root" in sandbox_obstacle(Settings())
