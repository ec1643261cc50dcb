"""CachingFetcher: which responses are kept, for how long, and for which requests."""

import pytest

from crawl_harness import CrawlHarness, Scripted
from servers.fetch_raw import RawServer, page
from skitter import Collector, Request
from skitter.errors import SettingsError
from skitter.fetch.cache import CachingFetcher
from skitter.fetch.contract import Aborted
from skitter.fetch.http import HttpFetcher
from skitter.testing import Answer


@pytest.fixture
async def fetcher(tmp_path):
    opened = CachingFetcher(HttpFetcher(), tmp_path / "cache")
    await opened.open()
    yield opened
    await opened.close()


async def twice(fetcher, server, first, second=None):
    """Fetch two requests. Return the bodies, and how many requests the server received."""
    before = len(server.asked)
    found = [
        await fetcher.fetch(Request(**{"url": server.url(), **fields})) for fields in (first, second or first)
    ]
    return found[1], len(server.asked) - before


async def test_an_answer_comes_back_as_it_was(fetcher):
    answer = page(b"hi", "X-Two: a", "X-Two: \xfc", "Content-Type: text/html", status="203 Odd")
    async with RawServer({"/": answer}) as server:
        response, asked = await twice(fetcher, server, {})
    assert (asked, response.status, response.body, response.content_type) == (1, 203, b"hi", "text/html")
    assert response.headers.getall("x-two") == ["a", "ü".encode().decode("latin-1")]
    assert response.request.url == response.url


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"headers": {"Accept-Language": "de"}}),
        ({}, {"cookies": {"a": "b"}}),
        ({}, {"session": "ann"}),
        ({"method": "POST", "body": b"a"}, None),
        ({"method": "HEAD"}, None),
        ({"headers": {"Cache-Control": "no-store"}}, None),
        ({}, {"headers": {"cache-control": "no-cache"}}),
    ],
)
async def test_other_requests_are_fetched_by_themselves(fetcher, first, second):
    async with RawServer({"/": page(b"hi")}) as server:
        assert (await twice(fetcher, server, first, second))[1] == 2


async def test_a_header_of_a_class_derived_from_str_is_part_of_the_key(fetcher):
    class Token(str):
        __slots__ = ()

    async with RawServer({"/": page(b"hi")}) as server:
        assert (await twice(fetcher, server, {"headers": {"X-A": Token("a")}}, {"headers": {"X-A": "a"}}))[
            1
        ] == 1


async def test_a_retry_replaces_the_stored_response(fetcher):
    async with RawServer({"/": page(b"captcha")}) as server:
        await fetcher.fetch(Request(server.url()))
        server.answers["/"] = page(b"new")
        assert (await fetcher.fetch(Request(server.url(), retries=1))).body == b"new"
        assert (await fetcher.fetch(Request(server.url()))).body == b"new"


async def test_a_request_with_no_cache_replaces_the_stored_response(fetcher):
    async with RawServer({"/": page(b"old")}) as server:
        await fetcher.fetch(Request(server.url()))
        server.answers["/"] = page(b"new")
        assert (await fetcher.fetch(Request(server.url()))).body == b"old"
        await fetcher.fetch(Request(server.url(), headers={"Cache-Control": "no-cache"}))
        assert (await fetcher.fetch(Request(server.url()))).body == b"new"


@pytest.mark.parametrize(
    ("status", "headers", "kept"),
    [
        ("404 Not Found", (), True),
        ("301 Moved", ("Location: /x",), True),
        ("302 Found", ("Location: /x",), False),
        ("403 Forbidden", (), False),
        ("429 Too Many", (), False),
        ("500 Oh", (), False),
        ("200 OK", ("Cache-Control: private, NO-STORE",), False),
    ],
)
async def test_only_answers_that_may_be_kept_are(fetcher, status, headers, kept):
    async with RawServer({"/": page(b"x", *headers, status=status)}) as server:
        assert (await twice(fetcher, server, {}))[1] == (1 if kept else 2)


async def test_an_expired_response_is_fetched_again(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("skitter.fetch.cache.time.time", lambda: now[0])
    fetcher = CachingFetcher(HttpFetcher(), tmp_path, ttl=10)
    await fetcher.open()
    async with RawServer({"/": page(b"hi")}) as server:
        for later in (0, 9, 1):
            now[0] += later
            await fetcher.fetch(Request(server.url()))
        assert len(server.asked) == 2
    await fetcher.close()


async def test_files_that_cannot_be_read_or_written_make_no_page_fail(fetcher, tmp_path):
    async with RawServer({"/": page(b"hi")}) as server:
        await fetcher.fetch(Request(server.url()))
        (file,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        file.write_bytes(b"\x93garbage")
        assert (await fetcher.fetch(Request(server.url()))).body == b"hi"
        file.unlink()
        file.mkdir()
        assert (await fetcher.fetch(Request(server.url()))).body == b"hi"
    assert not list((tmp_path / "cache").rglob("*.tmp"))


async def test_header_hooks_see_a_kept_answer_before_its_body(fetcher):
    seen = []

    async def unwanted(response):
        seen.append((response.status, response.body))
        return False

    async with RawServer({"/": page(b"hi")}) as server:
        await fetcher.fetch(Request(server.url()))
        with pytest.raises(Aborted):
            await fetcher.fetch(Request(server.url()), on_headers=unwanted)
        with pytest.raises(Aborted):
            await fetcher.fetch(Request(server.url("/"), session="other"), on_headers=unwanted)
    assert seen == [(200, b"")] * 2


async def test_a_second_crawl_of_a_collector_asks_the_site_for_robots_txt_alone(serve, tmp_path):
    site = Scripted({"/": ["/b"], "/b": [], "/robots.txt": Answer(b"", content_type="text/plain")})
    url = serve(site).url

    async def crawl(folder):
        crawler = Collector(cache_dir=str(tmp_path / "cache"), cache_ttl=1000)
        crawler.on_html("a", lambda element: element.request.visit(element.attr("href")))
        crawler.on_response(lambda response: {"url": response.url})
        crawler.visit(url)
        return await CrawlHarness(crawler.__spider__("c", "j")(), tmp_path / folder, robots=True).run()

    assert len((await crawl("1")).items) == len((await crawl("2")).items) == 2
    assert site.counts == {"/": 1, "/b": 1, "/robots.txt": 2}


async def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "cache"):
        with pytest.raises(SettingsError, match="cache_dir") as caught:
            await CachingFetcher(HttpFetcher(), folder).open()
        assert str(folder) in str(caught.value)
