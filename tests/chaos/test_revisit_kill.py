"""Kills during both passes of a job that remembers its pages change neither its report nor its items.

A test runs one seed with five kills. ``SKITTER_CHAOS_ROUNDS=10 make chaos`` runs ten seeds: 50 kills.

"""

import json
import os
import random
import urllib.request

import pytest
from crawling import AHEAD, FAST, at_moments, hold, served, visits

from cli_command import skitter
from sites.changing import ChangingSite
from sites.news import before_now
from skitter.frontier.embedded.inspection import read_status
from skitter.frontier.records import JobState

pytestmark = pytest.mark.chaos

SEEDS = range(int(os.environ.get("SKITTER_CHAOS_ROUNDS", "1")))
KILLS_OF_PASS = {1: 2, 2: 3}
SITE = {"pages": 400, "page_bytes": 2000}


def pass_of(crawl):
    """Return the pass of the job, and whether it is finished. Returns ``(0, False)`` before there is a frontier."""
    status = read_status(crawl.folder / ".skitter/job/frontier.db")
    return (0, False) if status is None else (status.pass_number, status.state is JobState.FINISHED)


def run_pass(crawl, site, number, kills, rng, requests=SITE["pages"]):
    """Run a pass to its end, and kill a worker or everything at random moments. Return the number of kills.

    ``requests``: all moments are before this request of the pass.
    """
    base, killed = served(site), 0
    moments = sorted(rng.sample(range(requests), kills))
    plain = [word for word in crawl.command if word != "--recrawl"]
    while True:
        current, is_finished = pass_of(crawl)
        crawl.command = plain if current == number else [*plain, "--recrawl"]
        if moments:
            hold(site, base + moments[0] + AHEAD)
        crawl.start()
        if current == number and is_finished and not moments:  # the last kill may have hit the end of the run
            assert crawl.wait() == 0, crawl.errors
            return killed
        for _ in at_moments(crawl, site, [base + moment for moment in moments]):
            moments.pop(0)
            victim = rng.choice(["worker", "owner", "all"])
            killed += crawl.kill_worker(rng) if victim == "worker" else getattr(crawl, f"kill_{victim}")()
            if victim != "worker":
                break
        else:
            if not moments:
                assert crawl.wait() == 0, crawl.errors
                continue
        if crawl.has_ended and pass_of(crawl) == (number, True):
            moments.clear()  # the pass ended before the next moment


def prices_of(crawl):
    items = crawl.items()
    prices = {int(item["url"].rpartition("/p")[2]): int(item["price"]) for item in items}
    assert len(prices) == len(items), "an item twice"
    return prices


@pytest.mark.parametrize("output", ["items.jsonl", "items.db"])
@pytest.mark.parametrize("seed", SEEDS)
def test_kills_change_neither_the_report_nor_the_items(crawling, bounded_site, seed, output):
    rng = random.Random(f"{seed} {output}")
    site = bounded_site("sites.changing:ChangingSite", SITE, delay=0.01)
    known = ChangingSite(**SITE)
    crawl = crawling(
        "Priced", workers=2, output=output, settings={**FAST, "changes": "all"}, arguments={"url": site.url}
    )  # fmt: skip
    killed = run_pass(crawl, site, 1, KILLS_OF_PASS[1], rng)
    assert prices_of(crawl) == known.prices(1)
    request = urllib.request.Request(f"{site.url}version/2", method="POST")
    urllib.request.urlopen(request).close()
    killed += run_pass(crawl, site, 2, KILLS_OF_PASS[2], rng)
    assert killed >= 3
    assert prices_of(crawl) == known.prices(2)
    found = {}
    for page in json.loads(skitter("changes", "job", "--json", cwd=crawl.folder).stdout):
        found.setdefault(page["reason"] or page["change"], set()).add(page["url"])
    truth = known.expected_changes(site.origins)
    assert found == {
        "new": truth.new, "changed": truth.changed, "status/404": truth.missing, "unlinked": truth.unlinked
    }  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_lose_no_page_of_passes_that_fetch_a_share(crawling, bounded_site, seed):
    rng = random.Random(f"{seed} share")
    site = bounded_site("sites.changing:ChangingSite", SITE, delay=0.01)
    known = ChangingSite(**SITE)
    crawl = crawling(
        "Priced", workers=2, settings={**FAST, "changes": "all", "revisit_share": 0.4}, arguments={"url": site.url}
    )  # fmt: skip
    killed = run_pass(crawl, site, 1, 1, rng)
    request = urllib.request.Request(f"{site.url}version/2", method="POST")
    urllib.request.urlopen(request).close()
    old, new = known.prices(1), known.prices(2)
    for number in range(2, 12):
        killed += run_pass(crawl, site, number, 2 if number < 4 else 0, rng, requests=SITE["pages"] // 4)
        found = prices_of(crawl)
        wrong = {page: price for page, price in found.items() if price not in {old.get(page), new.get(page)}}
        assert not wrong
        assert not new.keys() - found.keys(), "pages are missing"
        if found == new:
            break
    assert found == new
    assert killed >= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_change_no_choice_by_lastmod(crawling, bounded_site, seed):
    rng = random.Random(f"{seed} lastmod")
    old = {f"/old{number}": before_now(200_000) for number in range(200)}
    edited = {f"/edited{number}": before_now(200_000) for number in range(200)}
    site = bounded_site("sites.news:NewsSite", {"lastmod": old | edited, "sections": 4}, delay=0.01)
    crawl = crawling(
        "Maps", workers=2, settings={**FAST, "changes": "all", "use_lastmod": True}, arguments={"url": site.url}
    )  # fmt: skip
    killed = run_pass(crawl, site, 1, 1, rng)
    urllib.request.urlopen(urllib.request.Request(f"{site.url}edited", method="POST")).close()
    before = visits(site)
    killed += run_pass(crawl, site, 2, 3, rng, requests=len(edited))
    assert killed >= 3
    again = {url.removeprefix(site.url[:-1]) for url in visits(site) - before}
    assert again == {"/index.xml", *(f"/map{number}.xml.gz" for number in range(4)), *edited}
    texts = {item["url"].removeprefix(site.url[:-1]): item["text"] for item in crawl.items()}
    assert texts == dict.fromkeys(old, "first") | dict.fromkeys(edited, "second")
    assert len(crawl.items()) == len(texts), "an item twice"
    report = skitter("changes", "job", "--json", "--kind", "skipped", cwd=crawl.folder)
    assert {page["url"].removeprefix(site.url[:-1]) for page in json.loads(report.stdout)} == set(old)
