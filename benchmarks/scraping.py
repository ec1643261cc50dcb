"""What scrapes of the metrics cost a crawl at full speed.

    python benchmarks/scraping.py [--rounds 5] [--pages 20000] [--every 0.05]

Crawls of a generated site alternate: metrics that are served but not read, and metrics that are read much more often than in
practice, because the cost of one scrape every 5 s is below the noise of the machine. The difference of the medians, divided by the
number of scrapes, is the cost of one scrape; the goal is that one scrape every 5 s costs less than 1 % of the CPU time.
Part two measures one scrape of a job with 10,000 hosts and 8 workers, without a crawl beside it.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from crawlers import Job, skitter
from measure import measure
from webserver import free_port, nginx, site_files

from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import Entry, Outcome, Resolution
from skitter.frontier.workers import WorkerReport
from skitter.observe.metrics import JobSample, expose
from skitter.politeness import Politeness

INTERVAL = 5.0
"""Seconds between two scrapes in practice."""
GOAL = 0.01
CACHE = Path(__file__).parents[1] / ".cache" / "bench-data"
HOSTS, WORKERS = 10_000, 8


class Scraper(threading.Thread):
    """Reads the metrics at a fixed interval until the end of its block."""

    def __init__(self, port, every):
        super().__init__(daemon=True)
        self._url, self._every = f"http://127.0.0.1:{port}/metrics", every
        self._ending = threading.Event()
        self.count = 0

    def run(self):
        while not self._ending.wait(self._every):
            try:
                with urllib.request.urlopen(self._url, timeout=5) as answer:
                    self.count += b"skitter_pages_total" in answer.read()
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                continue  # the crawl is starting or has ended

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self.join()


def crawl(start, every):
    """Return the CPU seconds of one crawl, and the number of scrapes."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [*skitter(Job(start, Path(folder, "items.jsonl"))), "--metrics", str(port)]
        with Scraper(port, every) as scraper:
            used = measure(command, folder)
    return used.cpu, scraper.count


async def fill():
    """Return the sample of a job with many hosts, after a page of some of them."""
    frontier = EmbeddedFrontier(Politeness())
    await frontier.open()
    slots = [f"h{number}.test" for number in range(HOSTS)]
    await frontier.add(
        [Entry(n.to_bytes(16, "big"), slot, f"http://{slot}/", b"x") for n, slot in enumerate(slots)]
    )
    for number in range(WORKERS):
        name = f"w{number}"
        await frontier.reports.announce(
            WorkerReport(name, "here", 1, "0", 9.0, 32, 32, 40, 0, 0, 0, 1.0), 3600
        )
        leases = (await frontier.lease(name, 50)).leases
        counters = {"pages": 1, "status/200": 1} | {
            f"time/{kind}/{number}": 1 for kind in ("wait", "fetch", "callback")
        }
        await frontier.commit(
            [Outcome(lease.id, Resolution.DONE, counters=dict(counters)) for lease in leases]
        )
    return frontier


async def wide(repeat=50):
    """Return the CPU seconds of one scrape of the wide job, and its number of series."""
    frontier = await fill()
    begun = time.process_time()
    for _ in range(repeat):
        sample = JobSample("wide", "running", await frontier.status(), await frontier.reports.workers())
        body, _ = expose([sample], "")
    cost = (time.process_time() - begun) / repeat
    await frontier.close()
    return cost, sum(not line.startswith(b"#") for line in body.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--every", type=float, default=0.05, metavar="SECONDS")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    site, pages, port = site_files(CACHE, options.pages)
    quiet, scraped, scrapes = [], [], []
    with tempfile.TemporaryDirectory() as folder, nginx(folder, pages, port):
        start = site.url(0, [f"127.0.0.1:{port}"])
        for number in range(options.rounds):
            for _ in range(2):
                often = (number + len(quiet) + len(scraped)) % 2  # each is first in every other round
                cpu, count = crawl(start, options.every if often else 3600.0)
                (scraped if often else quiet).append(cpu)
                if often:
                    scrapes.append(count)
    without, with_scrapes, count = map(statistics.median, (quiet, scraped, scrapes))
    per_page = max(0.0, with_scrapes - without) / count
    cost, series = asyncio.run(wide())
    print(f"crawl without scrapes: {without:.2f} s of CPU; with {count:.0f} scrapes: {with_scrapes:.2f} s")
    met = True
    for name, seconds in (
        ("one host, during a crawl", per_page),
        (f"{HOSTS:,} hosts, {WORKERS} workers, {series} series", cost),
    ):
        share = seconds / INTERVAL
        met = met and share < GOAL
        print(
            f"one scrape ({name}): {seconds * 1000:.2f} ms; every {INTERVAL:g} s: {share:.3%} of one core, goal below {GOAL:.0%}"
        )
    sys.exit(not met)


if __name__ == "__main__":
    main()
