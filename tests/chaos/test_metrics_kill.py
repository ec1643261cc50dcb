"""Metrics during kills: no counter ever decreases, and at the end each has the correct value."""

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

import pytest
from crawling import FAST, ROUNDS, at_moments, check_exact
from prometheus_client.parser import text_string_to_metric_families

from cli_command import skitter

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = (600, 40, 2) if len(ROUNDS) == 1 else (4000, 40, 2)
KILLS = 10 if len(ROUNDS) == 1 else 100
"""Kills in one crawl."""
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}


class Sampler(threading.Thread):
    """Reads the metrics every 50 ms until it is ended."""

    def __init__(self, port):
        super().__init__()
        self._url = f"http://127.0.0.1:{port}/metrics"
        self.ending = threading.Event()
        self.series = {}
        self.samples = 0
        self.falls = []

    def run(self):
        while not self.ending.wait(0.05):
            try:
                with urllib.request.urlopen(self._url, timeout=5) as answer:
                    self._read(answer.read().decode())
            except (urllib.error.URLError, ConnectionError, TimeoutError, http.client.HTTPException):
                continue  # between two runs, or the process was killed in the middle of a response

    def _read(self, text):
        self.samples += 1
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if family.type not in {"counter", "histogram"}:
                    continue
                key = sample.name, *sorted(sample.labels.items())
                if sample.value < self.series.get(key, 0):
                    self.falls.append((key, self.series[key], sample.value))
                self.series[key] = sample.value


def check_counters(counters, items, gone):
    """Check that all counters have the correct values, including those of the spider, of monitors and of histograms."""
    pages = len(items)
    assert (
        counters["pages"] == counters["items"] == counters["user/seen"] == counters["coverage/title"] == pages
    )
    assert counters["user/characters"] == sum(len(item["title"]) for item in items)
    times = Counter()
    for name, count in counters.items():
        if name.startswith("time/") and not name.endswith("/us"):
            times[name.split("/")[1]] += count
    assert times["callback"] == times["store"] == pages
    assert times["fetch"] == times["wait"] == pages + gone


@pytest.mark.timeout(400 if len(ROUNDS) == 1 else 3600)
@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("victim", ["worker", "owner"])
def test_counters_never_fall_and_end_at_the_truth(crawling, site, truth, free_port, victim, seed):
    rng = random.Random(f"{victim} {seed}")
    pages, gone = truth
    crawl = crawling("Counted", workers=2, settings=FAST, arguments={"url": site.url})
    crawl.command += [f"--metrics={free_port}"]
    sampler = Sampler(free_port)
    sampler.start()
    try:
        crawl.start()
        for _ in at_moments(crawl, site, sorted(rng.sample(range(PAGES), KILLS))):
            getattr(crawl, f"kill_{victim}")()
            if victim == "owner":
                crawl.start()
        assert crawl.wait() in {0, 3}, crawl.errors  # 0: the killed run has already judged the pass
    finally:
        sampler.ending.set()
        sampler.join()
    check_exact(crawl, pages, gone)
    assert sampler.samples > KILLS
    assert sampler.falls == []
    status = json.loads(skitter("status", "job", "--json", cwd=crawl.folder).stdout)
    check_counters(status["counts"]["counters"], crawl.items(), len(gone))
    (record,) = status["passes"]
    assert [verdict["passed"] for verdict in record["verdicts"]] == [True, True, False]
    assert [verdict["monitor"] for verdict in status["violated"]] == ["broken"]
    assert (record["figures"]["pages"], record["figures"]["failed"]) == (len(pages), len(gone))
    assert 0 < sampler.series["skitter_pages_total", ("job", "job")] <= len(pages)
    # A later run of the finished job serves the final values.
    final = Sampler(free_port)
    crawl.command += ["-s", "wait_for_seeds=yes"]
    crawl.start()
    final.start()
    try:
        deadline = time.monotonic() + 60
        while not final.series and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        final.ending.set()
        final.join()
        crawl.end()
    assert final.series["skitter_pages_total", ("job", "job")] == len(pages)
    assert final.series["skitter_callback_seconds_count", ("job", "job")] == len(pages)
    assert final.series["skitter_fetch_seconds_count", ("job", "job")] == len(pages) + len(gone)
    assert final.series["skitter_user_total", ("job", "job"), ("name", "seen")] == len(pages)
    assert final.series["skitter_items_total", ("job", "job")] == len(pages)
    assert final.series["skitter_requests_failed_total", ("job", "job"), ("kind", "status")] == len(gone)
