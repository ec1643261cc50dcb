"""Later passes fetch the pages of sitemaps by their lastmod: exact requested URLs, and exact reports."""

import json
import os
import signal

import pytest

from cli_command import Logged, SlowingSite, lines_of, skitter, usage_error
from sites.news import NewsSite, before_now

DAY = 86_400
MAPS = """
from skitter import SitemapSpider

class Maps(SitemapSpider):
    sitemap_urls = ["{url}index.xml"]
    sitemap_alternate_links = True

    def parse(self, response):
        yield {{"url": response.url, "text": response.css("p::text").get()}}
        yield response.follow_all("a")
"""
RECIPE = """
name: maps
start: {{sitemap: "{url}index.xml"}}
pages:
  any:
    items: {{fields: {{url: {{value: "{{url}}"}}, text: p}}}}
    follow: [{{css: a, page: any}}]
"""


@pytest.fixture
def crawl_of(tmp_path, serve):
    """Return a function that returns a function, which runs one pass of a job over a site."""

    def start(site, *options, source=MAPS, name="maps.py"):
        url = serve(site).url
        (tmp_path / name).write_text(source.format(url=url))

        def crawl(*more):
            done = skitter(
                "run", name, "--job", "maps", "-o", "items.jsonl", "--delay", 0, "--recrawl", "--changes", "all",
                "--summary", "summary.json", "-s", "use_lastmod=yes", *options, *more, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            changes = json.loads((tmp_path / "summary.json").read_text())["changes"]
            return {kind: amount for kind, amount in changes.items() if amount}

        return crawl

    return start


def changes_in(folder, kind=()):
    """Return the paths of the last pass by their change, as `skitter changes` lists them."""
    done = skitter("changes", "maps", "--json", *kind, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = {}
    for page in json.loads(done.stdout):
        found.setdefault(page["reason"] or page["change"], []).append("/" + page["url"].split("/", 3)[3])
    return {change: sorted(paths) for change, paths in found.items()}


def texts_in(folder):
    found = {"/" + item["url"].split("/", 3)[3]: item["text"] for item in lines_of(folder / "items.jsonl")}
    assert len(found) == len(lines_of(folder / "items.jsonl")), "an item twice"
    return found


SITEMAPS = ["/index.xml", "/map0.xml.gz"]
OLD = {"/old": before_now(2 * DAY), "/oldday": before_now(4 * DAY, "%Y-%m-%d"), "/ancient": "2003"}
USUAL = {"/undated": "", "/invalid": "last week", "/future": before_now(-2 * DAY)}


@pytest.mark.parametrize(
    ("source", "name"), [(MAPS, "maps.py"), (RECIPE, "maps.yaml")], ids=["spider", "recipe"]
)
def test_a_pass_requests_the_pages_whose_lastmod_is_later_or_not_usable(crawl_of, tmp_path, source, name):
    site = NewsSite({**OLD, **USUAL, "/today": before_now(0, "%Y-%m-%d"), "/edited": before_now(2 * DAY)})
    site.links["/old"] = ["/comments"]
    site.texts["/comments"] = "first"
    crawl = crawl_of(site, source=source, name=name)
    everything = sorted([*SITEMAPS, *site.texts])
    assert crawl() == {"new": len(everything)}
    assert site.taken() == everything
    site.texts |= dict.fromkeys(site.texts, "second")
    site.lastmod["/edited"] = before_now(0)
    assert crawl() == {"changed": 7, "unchanged": 1, "skipped": 3}
    assert site.taken() == sorted([*SITEMAPS, *USUAL, "/today", "/edited", "/comments"])
    assert changes_in(tmp_path, ["--kind", "skipped"]) == {"skipped": sorted(OLD)}
    assert texts_in(tmp_path) == {path: "first" if path in OLD else "second" for path in site.texts}


def test_without_the_setting_all_pages_are_requested(crawl_of):
    site = NewsSite({**OLD, **USUAL})
    crawl = crawl_of(site, "-s", "use_lastmod=no")
    crawl()
    everything = site.taken()
    assert crawl() == {"unchanged": len(everything)}
    assert site.taken() == everything


def test_the_lastmod_of_an_unchanged_sitemap_is_remembered(crawl_of):
    site = NewsSite({**OLD, "/undated": ""})
    site.has_etags = True
    crawl = crawl_of(site)
    crawl()
    site.taken()
    for _ in range(2):
        assert crawl() == {"unchanged": 3, "skipped": 3}
        assert site.taken() == [*SITEMAPS, "/undated"]


def test_the_setting_can_change_from_pass_to_pass(crawl_of):
    """The sitemap never changes, so its links are remembered from the pass that parsed it."""
    site = NewsSite({**OLD, "/undated": ""})
    site.has_etags = True
    crawl = crawl_of(site)
    everything = sorted([*SITEMAPS, *OLD, "/undated"])
    few = [*SITEMAPS, "/undated"]
    for use, requested in (
        ("no", everything), ("yes", everything), ("yes", few), ("no", everything), ("yes", few), ("yes", few)
    ):  # fmt: skip
        crawl("-s", f"use_lastmod={use}")
        assert site.taken() == requested


def test_a_later_lastmod_makes_a_page_due_that_the_share_leaves_out(crawl_of):
    site = NewsSite(
        {f"/{number}": before_now(2 * DAY) for number in range(20)} | {f"/u{n}": "" for n in range(20)}
    )
    crawl = crawl_of(site, "-s", "revisit_share=0.05")
    crawl()
    site.taken()
    site.lastmod |= {f"/{number}": before_now(0) for number in range(5)}
    assert crawl() == {"changed": 1, "unchanged": 7, "skipped": 34}  # the second sitemap has changed
    taken = site.taken()
    assert [path for path in taken if "u" not in path and "xml" not in path] == ["/0", "/1", "/2", "/3", "/4"]
    assert len([path for path in taken if "u" in path]) == 1, "the share of the pages without a lastmod"


def test_pages_that_vanish_are_reported_as_usual(crawl_of, tmp_path):
    site = NewsSite({**OLD, "/deleted": before_now(2 * DAY), "/unlisted": before_now(2 * DAY)})
    crawl = crawl_of(site)
    crawl()
    site.taken()
    del site.texts["/deleted"], site.lastmod["/unlisted"]
    assert crawl() == {"changed": 1, "unchanged": 1, "gone": 1, "unlinked": 1, "skipped": 4}
    assert changes_in(tmp_path) == {"changed": ["/map0.xml.gz"], "unlinked": ["/unlisted"]}
    site.taken()
    site.lastmod["/deleted"] = before_now(0)
    crawl()
    assert site.taken() == sorted([*SITEMAPS, "/deleted"])
    assert changes_in(tmp_path) == {"changed": ["/map0.xml.gz"], "status/404": ["/deleted"]}
    assert texts_in(tmp_path) == dict.fromkeys(OLD, "first")


def test_an_entry_with_a_lastmod_counts_more_than_an_alternate_without_one(crawl_of):
    site = NewsSite({"/en": before_now(0), "/de": before_now(2 * DAY), "/fr": ""})
    site.alternates = {"/en": ["/de"], "/fr": ["/de"]}
    crawl = crawl_of(site)
    crawl()
    assert site.taken() == sorted([*SITEMAPS, "/de", "/en", "/fr"])
    crawl()
    assert site.taken() == sorted([*SITEMAPS, "/en", "/fr"])


HOME = """
from skitter import SitemapSpider

class Maps(SitemapSpider):
    start_urls = ["{url}"]

    def parse(self, response):
        yield response.follow_all("a")
        if response.depth == 0:
            yield response.follow("/index.xml", self.parse_sitemap)
"""


def test_a_page_that_is_linked_before_its_sitemap_is_read_is_fetched_as_usual(crawl_of):
    site = NewsSite(OLD)
    site.texts["/"], site.links["/"] = "home", ["/old"]
    crawl = crawl_of(site, source=HOME)
    for expected in ([*SITEMAPS, "/", *OLD], [*SITEMAPS, "/", "/old"]):
        crawl()
        assert site.taken() == sorted(expected)


def test_a_page_that_failed_is_fetched_again_whatever_its_lastmod(crawl_of):
    site = NewsSite({**OLD, "/late": before_now(2 * DAY)})
    text = site.texts.pop("/late")
    crawl = crawl_of(site)
    crawl()
    site.taken()
    site.texts["/late"] = text
    assert crawl() == {"new": 1, "unchanged": 2, "skipped": 3}
    assert site.taken() == sorted([*SITEMAPS, "/late"])


def test_a_crawl_without_code_uses_the_lastmod(serve, tmp_path):
    site = NewsSite({**OLD, **USUAL})
    url = serve(site).url

    def crawl():
        done = skitter(
            "crawl", "--sitemap", f"{url}index.xml", "--job", "maps", "-o", "items.jsonl", "--delay", 0, "--recrawl",
            "--changes", "all", "-s", "use_lastmod=yes", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return site.taken()

    assert crawl() == sorted([*SITEMAPS, *OLD, *USUAL])
    assert crawl() == sorted([*SITEMAPS, *USUAL])


def test_a_kill_in_the_middle_of_a_pass_changes_neither_the_choice_nor_the_report(crawl_of, tmp_path):
    """All processes of the crawl are killed while due pages wait for their answers."""
    old = {f"/old{number}": before_now(2 * DAY) for number in range(150)}
    edited = {f"/edited{number}": before_now(2 * DAY) for number in range(150)}
    site = NewsSite({**old, **edited}, sections=3)
    slow = SlowingSite(site, after=10_000, delay=120)  # no slow answer is sent before the kill
    crawl = crawl_of(slow, "-s", "concurrency_per_slot=8", "-s", "concurrency=8")
    assert crawl() == {"new": 304}
    sitemaps = {"/index.xml", *(f"/map{number}.xml.gz" for number in range(3))}
    site.taken()
    site.lastmod |= {path: before_now(0) for path in edited}
    site.texts |= dict.fromkeys(site.texts, "second")
    slow.slow_down(60)
    words = ["run", "maps.py", "--job", "maps", "-o", "items.jsonl", "--delay", "0", "--changes", "all", "-s",
             "use_lastmod=yes", "-s", "concurrency_per_slot=8", "-s", "concurrency=8"]  # fmt: skip
    with Logged(*words, "--recrawl", cwd=tmp_path) as run:
        run.wait_for(slow.reached.is_set)
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait(60)
    slow.released.set()
    assert len(site.requested) < len(sitemaps) + len(edited), "the pass was over"
    done = skitter(*words, "--summary", "summary.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(site.taken()) == {*sitemaps, *edited}
    changes = json.loads((tmp_path / "summary.json").read_text())["changes"]
    assert {kind: amount for kind, amount in changes.items() if amount} == {
        "changed": 153, "unchanged": 1, "skipped": 150
    }  # fmt: skip
    assert texts_in(tmp_path) == dict.fromkeys(old, "first") | dict.fromkeys(edited, "second")


def test_the_setting_needs_a_job_that_remembers_its_pages(tmp_path):
    (tmp_path / "maps.py").write_text(MAPS.format(url="http://127.0.0.1:9/"))
    assert usage_error("run", "maps.py", "-s", "use_lastmod=yes", cwd=tmp_path) == (
        "skitter: use_lastmod needs changes; set changes to all, changed or new, so that the job remembers its pages"
    )
