"""Every example of the collector runs and has the documented result."""

import asyncio
import json
import subprocess
import sys
import urllib.parse
import urllib.request

import pytest

from cli_command import lines_of, skitter, urls_of
from distances import assert_distance
from manual import ROOT
from servers.fetch_proxy import Proxy
from services.redis_servers import running
from skitter.testing import SiteProcess

EXAMPLES = ROOT / "examples" / "collector"
RUN_HERE = {
    "basic", "cloned_collectors", "depth_limit", "error_handling", "local_files", "login", "multipart", "parallel",
    "proxy_switcher", "jitter", "rate_limit", "redis_backend", "request_context", "scraper_server", "url_filter",
    "url_queue",
}  # fmt: skip


@pytest.fixture(scope="module")
def shared_site():
    """The site of the examples, in a separate process."""
    with SiteProcess("collector_site:Site", search=[EXAMPLES]) as process:
        yield process


@pytest.fixture
def site(shared_site):
    return shared_site


@pytest.fixture
def run(tmp_path, site):
    """Run an example to its end, on the site by default. Return the lines that it printed."""

    def run_example(name, *arguments):
        result = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments or [site.url])],
            cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        return result.stdout.splitlines()

    return run_example


def test_every_example_is_tested_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {"collector_site"} == RUN_HERE


def test_basic_visits_and_prints_all(run, site):
    lines = run("basic")
    assert lines[0] == f"visiting {site.url}"
    assert len([line for line in lines if line.startswith("found Book")]) == 13
    assert lines[-1] == "finished 16"


def test_error_handling_names_what_failed(run, site, tmp_path):
    assert run("error_handling") == ["finished 3 0"]
    found = {item["url"]: (item["status"], item.get("error")) for item in lines_of(tmp_path / "errors.jsonl")}
    assert found == {
        site.url: (200, None),
        f"{site.url}gone": (404, "StatusError"),
        "http://127.0.0.1:1/": (0, "ConnectError"),
    }


def test_a_login_opens_protected_pages(run, site, tmp_path):
    assert run("login") == []
    assert urls_of(tmp_path / "members.jsonl") == [f"{site.url}members/{rest}" for rest in ("", "1", "2")]


def test_depth_limit_goes_no_further(run, site):
    found = [line.split() for line in run("depth_limit")]
    depths = {url.removeprefix(site.url): int(depth) for depth, url in found}
    assert depths == {"": 0, "shelf/0": 1, "shelf/4": 2, **{f"book/{number}": 2 for number in range(4)}}


def test_multipart_arrives_as_a_form(run):
    (line,) = run("multipart")
    assert "'type': 'multipart/form-data'" in line


def test_parallel_crawls_all_in_two_processes(run, site, tmp_path):
    run("parallel")
    assert len(set(urls_of(tmp_path / "pages.jsonl"))) == len(urls_of(tmp_path / "pages.jsonl")) == 16


async def test_proxy_switcher_uses_them_in_turn(run, site):
    async with Proxy() as first, Proxy() as second:
        lines = await asyncio.to_thread(run, "proxy_switcher", site.url, first.socks, second.socks)
        used = [line.split()[0] for line in lines]
    assert len(used) == 2  # the front page; one of the three links of the second step is a page
    assert set(used) <= {first.socks, second.socks}
    assert first.socks_targets
    assert second.socks_targets


def test_url_queue_works_off_the_list_and_has_nothing_left(run, tmp_path):
    run("url_queue")
    assert len(lines_of(tmp_path / "books.jsonl")) == 12
    status = skitter("status", "url_queue", "--json", cwd=tmp_path)
    assert '"done": 12' in status.stdout
    run("url_queue")
    assert len(lines_of(tmp_path / "books.jsonl")) == 12


def test_jitter_keeps_its_distance(run, site):
    before = len(site.hits())
    assert run("jitter") == ["6"]
    hits = site.hits()[before:]
    assert (hits[0].target, len(hits)) == ("/robots.txt", 7)
    assert_distance(hits, 0.1, parallel=2)


def test_rate_limit_holds_in_each_window(run, site):
    before = len(site.hits())
    assert run("rate_limit") == ["6"]
    robots, *pages = site.hits()[before:]
    assert (robots.target, len(pages)) == ("/robots.txt", 6)
    # A busy server may record a page late, but never before it was sent.
    times = [page.received - robots.ended for page in pages]
    assert times[2] >= 0.4
    assert times[4] >= 0.8
    assert times[5] >= 1.9


def test_redis_backend_keeps_the_crawl_in_a_server(run, site, tmp_path):
    assert run("redis_backend", site.url, running("valkey").url) == ["finished 12"]
    assert len(lines_of(tmp_path / "books.jsonl")) == 12


def test_request_context_is_each_pages_own(run, site, tmp_path):
    run("request_context")
    found = {item["title"]: (item["shelf"], item["place"]) for item in lines_of(tmp_path / "books.jsonl")}
    assert found == {f"Book {number}": (str(number // 4 * 4), number % 4) for number in range(12)}


def test_scraper_server_answers_with_the_links_of_a_page(site, tmp_path):
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / "scraper_server.py", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(process.stdout.readline().split()[-1])

        def ask(url):
            query = urllib.parse.urlencode({"url": url})
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/?{query}", timeout=60) as answer:
                return json.load(answer)

        expected = {f"{site.url}{path}": 1 for path in ("shelf/0", "members/", "gone")}
        assert ask(site.url) == {"status": 200, "links": expected}
        assert ask(f"{site.url}gone") == {"status": 404, "links": {}}
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            ask("no url")
        refused.value.close()
    finally:
        process.kill()
        process.communicate()


def test_url_filter_accepts_only_matching_urls(run, site):
    *urls, last = run("url_filter")
    assert last == "refused 3"
    wanted = ["", "members/", *(f"shelf/{start}" for start in (0, 4, 8)), *(f"book/{n}" for n in range(10))]
    assert sorted(urls) == sorted(f"{site.url}{path}" for path in wanted if path != "members/")


@pytest.mark.parametrize("how", ["script", "command"])
def test_cloned_collectors_fill_models(run, site, tmp_path, how):
    if how == "script":
        run("cloned_collectors")
    else:
        place = f"{EXAMPLES / 'cloned_collectors.py'}:shelves"
        result = skitter("run", place, "-a", f"site={site.url}", "-o", "books.jsonl", "-w", 2, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    found = {item["title"]: item for item in lines_of(tmp_path / "books.jsonl")}
    assert len(found) == 12
    assert found["Book 3"] == {"title": "Book 3", "price": 8.0, "author": "Author 0", "tags": ["new"]}


def test_local_files_are_crawled(run, tmp_path):
    folder = tmp_path / "files"
    (folder / "deep").mkdir(parents=True)
    (folder / "index.html").write_text('<h1>One</h1><a href="deep/two.html">2</a>')
    (folder / "deep" / "two.html").write_text('<h1>Two</h1><a href="../index.html">1</a>')
    assert sorted(run("local_files", folder)) == ["One", "Two"]
