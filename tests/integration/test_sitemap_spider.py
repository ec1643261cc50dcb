"""Crawls that start from sitemaps: by a spider, and by `skitter crawl --sitemap`."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli_command import skitter, usage_error
from skitter.testing import Answer

SPIDER = Path(__file__).parents[2] / "examples" / "sitemap_shop.py"


@pytest.fixture
def site(serve):
    def answer(visit):
        origin = f"http://{visit.host}:{visit.port}"
        if visit.path == "/robots.txt":
            return Answer(f"Sitemap: {origin}/index.xml\n".encode(), content_type="text/plain")
        if visit.path == "/index.xml":
            maps = [f"{origin}/map{n}.xml.gz" for n in range(3)] + [f"{origin}/images.xml"]
            return xml("sitemapindex", [f"<sitemap><loc>{url}</loc></sitemap>" for url in maps])
        if visit.path.startswith("/map"):
            number = int(visit.path[4])
            entries = [f"<url><loc>{origin}/product/{number}-{n}</loc></url>" for n in range(1500)][
                : 1500 if number == 0 else 5
            ]
            entries += [
                f"<url><loc>{origin}/page/{number}</loc><lastmod>2026-02-01</lastmod></url>",
                f"<url><loc>{origin}/page/old{number}</loc><lastmod>2020-02-01</lastmod></url>",
                f"<url><loc>{origin}/other/{number}</loc></url>",
                f'<url><loc>{origin}/page/x</loc><link rel="alternate" hreflang="de" href="{origin}/page/de"/></url>',
            ]
            packed = xml("urlset", entries)
            return Answer(gzip.compress(packed.body), content_type="application/gzip")
        return Answer(b"<title>x</title>")

    return serve(answer)


def xml(root, entries):
    text = f'<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{"".join(entries)}</{root}>'
    return Answer(text.encode(), content_type="application/xml")


def items(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_spider_fetches_exactly_the_pages_that_its_rules_admit(site, tmp_path):
    options = ["-o", "x.jsonl", "-s", "delay=0", "-s", "concurrency_per_slot=16"]
    result = skitter("run", SPIDER, "-a", f"site={site.url[:-1]}", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = items(tmp_path / "x.jsonl")
    products = {item["product"] for item in found if "product" in item}
    assert products == {
        f"{site.url}product/{number}-{n}" for number in range(3) for n in range(1500 if number == 0 else 5)
    }
    pages = {item["page"] for item in found if "page" in item}
    assert pages == {f"{site.url}page/{name}" for name in ("0", "1", "2", "x", "de")}
    assert len(found) == len(products) + len(pages)
    assert "/images.xml" not in {hit.target for hit in site.log.hits}


@pytest.mark.parametrize(
    "attribute",
    [
        'sitemap_urls = "http://h.test/map.xml"', 'sitemap_follow = "/map"', 'sitemap_rules = ["/product/"]',
        'sitemap_rules = ("/product/", "parse")', 'sitemap_rules = [("/product/", "parse_prodct")]',
        'sitemap_rules = [("/product/(", "parse")]',
    ],
)  # fmt: skip
def test_an_attribute_of_the_wrong_type_is_refused_before_the_crawl(tmp_path, attribute):
    (tmp_path / "maps.py").write_text(
        "from skitter import SitemapSpider\nclass Maps(SitemapSpider):\n    sitemap_urls = ['http://127.0.0.1:9/']\n"
        f"    {attribute}\n    def parse(self, response): pass\n"
    )
    assert "sitemap_" in usage_error("run", "maps.py", cwd=tmp_path)


def test_a_filter_by_date_keeps_the_sitemaps_of_robots_txt_and_one_that_chooses_nothing_is_named(
    site, tmp_path
):
    (tmp_path / "maps.py").write_text(
        f"from skitter import SitemapSpider\nclass Maps(SitemapSpider):\n    sitemap_urls = ['{site.url}robots.txt']\n"
        "    def sitemap_filter(self, entries):\n        return (entry for entry in entries if entry.lastmod)\n"
        "    def parse(self, response): yield {'url': response.url}\n"
    )
    result = skitter("run", "maps.py", "-o", "x.jsonl", cwd=tmp_path)
    assert result.returncode == 0
    assert (
        f"{site.url}index.xml: sitemap_filter, sitemap_follow and sitemap_rules chose none of its 4 entries"
        in result.stderr
    )
    assert "no callback yielded an item" in result.stderr


def test_a_crawl_of_a_sitemap_without_pages_is_reported(serve, tmp_path):
    empty = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"></urlset>'
    server = serve(lambda visit: Answer(empty, content_type="application/xml"))
    result = skitter(
        "crawl", "--sitemap", server.url_of("/map.xml"), "--no-robots", "-o", "x.jsonl", cwd=tmp_path
    )
    assert result.returncode == 0
    assert "the sitemaps name no page that this crawl may fetch; check their URLs" in result.stderr
    assert "callback" not in result.stderr


def test_a_spider_of_the_user_is_not_taken_for_that_of_a_crawl_without_code(site, tmp_path):
    (tmp_path / "own.py").write_text(
        "from skitter import Spider\nclass PageSpider(Spider):\n    def parse(self, response): pass\n"
        f"    async def start(self): yield '{site.url}'\n"
    )
    result = skitter("run", "own.py", "-a", "sitemaps=x", "-o", "x.jsonl", cwd=tmp_path)
    assert result.returncode == 0
    assert "no callback yielded an item" in result.stderr


@pytest.mark.parametrize("start", [["{url}", "--sitemap", "auto"], ["--sitemap", "{url}index.xml"]])
def test_a_crawl_without_code_reads_sitemaps(site, tmp_path, start):
    words = [word.format(url=site.url) for word in start]
    options = [
        "-o",
        "x.jsonl",
        "-s",
        "delay=0",
        "-s",
        "concurrency_per_slot=16",
        "--allow",
        "/page/|xml|robots|/$",
    ]
    result = skitter("crawl", *words, *options, cwd=tmp_path)
    assert "Traceback" not in result.stderr
    found = {item["url"] for item in items(tmp_path / "x.jsonl")} - {site.url}
    assert found == {f"{site.url}page/{name}" for name in ("0", "1", "2", "x", "old0", "old1", "old2")}


def test_the_scope_of_a_crawl_limits_its_pages_but_not_its_sitemaps(serve, tmp_path):
    def answer(visit):
        """The sitemaps are on another host (localhost) than the pages (127.0.0.1)."""
        pages, maps = f"http://127.0.0.1:{visit.port}", f"http://localhost:{visit.port}"
        if visit.path == "/robots.txt":
            return Answer(f"Sitemap: {maps}/index.xml\n".encode(), content_type="text/plain")
        if visit.path == "/index.xml":
            return xml("sitemapindex", [f"<sitemap><loc>{maps}/map.xml</loc></sitemap>"])
        if visit.path == "/map.xml":
            urls = [f"{pages}/product/1", f"{pages}/news/1", f"{maps}/product/2"]
            return xml("urlset", [f"<url><loc>{url}</loc></url>" for url in urls])
        # The link is refused, and must not keep the sitemap from being read.
        return Answer(f'<title>x</title><a href="{maps}/index.xml">index</a>'.encode())

    server = serve(answer)
    options = ("--delay", "0", "--allow", "/product/", "--allow", "/start", "-o", "x.jsonl")
    result = skitter("crawl", f"{server.url}start", "--sitemap", "auto", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {item["url"] for item in items(tmp_path / "x.jsonl")} == {
        f"{server.url}start",
        f"{server.url}product/1",
    }


def test_a_crawl_needs_a_url_or_a_sitemap(tmp_path):
    assert "no URL" in usage_error("crawl", cwd=tmp_path)
    assert "no URL" in usage_error("crawl", "--sitemap", "auto", cwd=tmp_path)


MEASURED = """
import sys
from pathlib import Path
from skitter.cli.main import run

code = run(sys.argv[1:])
Path("status").write_text(Path("/proc/self/status").read_text())
sys.exit(code)
"""


def memory_of(url, folder):
    """Crawl a sitemap and the first of its pages. Return the largest resident size of the process in kB, and its items."""
    folder.mkdir()
    crawl = subprocess.run(
        [sys.executable, "-c", MEASURED, "crawl", "--sitemap", url, "--no-robots", "--delay", "0", "--limit", "20",
         "-o", "x.jsonl", "--quiet"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert crawl.returncode == 0, crawl.stderr
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", (folder / "status").read_text())
    return int(peak), items(folder / "x.jsonl")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_a_crawl_uses_20_mb_at_most_for_a_sitemap_of_50_mb(serve, tmp_path):
    def site(visit):
        number = int(visit.path.partition("-")[2] or 0)
        if not number:
            return Answer(b"<title>x</title>")
        start = f"http://{visit.host}:{visit.port}/p/"
        urls = [f"<url><loc>{start}{n:06}/{'x' * (1000 - len(start))}</loc></url>" for n in range(number)]
        return Answer(gzip.compress(xml("urlset", urls).body, 1), content_type="application/gzip")

    url = serve(site).url
    small, _ = memory_of(f"{url}map-20", tmp_path / "small")
    large, found = memory_of(f"{url}map-50000", tmp_path / "large")
    assert len(found) == 19  # the sitemap counts as a page
    assert large - small < 20_000, f"{small} kB with 20 URLs, {large} kB with 50,000"
