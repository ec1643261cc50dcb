"""Faulty sites: each available page is in the output once, and all others are dead letters with their reasons."""

import re

import pytest

from sites.cases import Reason
from sites.faulty import BODY_LIMIT, READ_TIMEOUT, RETRIES, TOTAL_TIMEOUT, FaultySite

pytestmark = pytest.mark.chaos

SETTINGS = {
    "robots": "no", "delay": 0, "concurrency_per_slot": 32, "retry_delay": 0.2, "max_retries": RETRIES,
    "read_timeout": READ_TIMEOUT, "timeout": TOTAL_TIMEOUT, "max_body": BODY_LIMIT,
    "deny": "outside.invalid", "max_page_memory": 300_000_000,  # one page has 30 MB
}  # fmt: skip


def explains(error, reason: Reason):
    """Return whether the error of a dead letter is of the expected kind or status."""
    if reason.status:
        return error.startswith(f"status/{reason.status}:")
    return re.split("[:/]", error)[0] in reason.kinds


@pytest.mark.parametrize("workers", [1, 2])
def test_every_available_page_is_crawled_and_the_others_are_dead_letters_with_reasons(
    crawling, site_process, workers
):
    site = site_process("sites.faulty:FaultySite", hosts=2)
    truth = FaultySite().expected_pages(site.origins)
    crawl = crawling("Everything", workers=workers, settings=SETTINGS, arguments={"url": site.url})
    assert crawl.run() == 0, crawl.errors

    letters = crawl.dead_letters()
    for url, reason in truth.dead.items():
        assert url in letters, f"{truth.faults[url]}: {url} is no dead letter"
        assert explains(letters[url], reason), f"{truth.faults[url]}: {letters[url]}"
    astray = dict(letters)
    for urls, reason in truth.dead_one_of:
        (url,) = urls & set(letters)
        assert explains(letters[url], reason), letters[url]
        del astray[url]
    assert set(astray) == set(truth.dead)

    urls = crawl.urls()
    wrong = {url: truth.faults.get(url, "") for url in set(truth.pages) ^ set(urls)}
    assert not wrong, f"missing or too much: {wrong}"
    assert set(urls.values()) == {1}
    for item in crawl.items():
        assert item["title"] == truth.pages[item["url"]], truth.faults.get(item["url"])
    assert not [hit.target for hit in site.hits() if hit.target.startswith("/decoy/")]
    counts = crawl.counts()
    assert counts["added"] == counts["done"] + counts["dead"]
    assert counts["queue"] == counts["delayed"] == 0
