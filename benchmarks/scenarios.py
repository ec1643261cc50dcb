"""What is measured, and the goal of each measurement."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.request import urlopen

from contest import Entrant, Run, contest, copier, summarize
from crawlers import CRAWLERS, HERE
from measure import Failed, measure
from preload import preload
from webserver import free_port, nginx, site_files

from skitter.testing import GeneratedSite, SiteProcess

FRONTIER_FILE = ".skitter/bench/frontier.db"
_LARGEST = 100_000
"""Pages of the largest site."""


class Goal(NamedTuple):
    name: str
    value: float
    limit: float
    at_least: bool

    @property
    def met(self):
        return self.value >= self.limit if self.at_least else self.value <= self.limit


class Bench(NamedTuple):
    cache: Path
    rounds: int
    pages: int
    crawlers: tuple[str, ...]

    @contextlib.contextmanager
    def site(self, pages):
        """Serve a generated site by nginx; gives its front page and the truth."""
        with tempfile.TemporaryDirectory(prefix="skitter-nginx-") as folder:
            site, files, port = site_files(self.cache, pages)
            origin = f"127.0.0.1:{port}"
            with nginx(folder, files, port):
                yield f"http://{origin}/", titles(site, [origin])


def titles(site, origins):
    return {url: page.title for url, page in site.expected_pages(origins).items()}


def compare(bench):
    """Pages per CPU second, side by side."""
    with bench.site(bench.pages) as (start, truth):
        entrants = {name: Entrant(name) for name in bench.crawlers}
        runs = contest("compare", entrants, start, truth, rounds=bench.rounds)
    goals = []
    if "skitter" in bench.crawlers:
        speed = {name: summarize(runs, name).pages_per_cpu_second for name in bench.crawlers}
        wanted = {"plain": 1.3, "scrapy": 12.0, "colly": 3.7, "other": 0.98}
        goals = [
            Goal(f"skitter / {name}, pages per CPU second", speed["skitter"] / speed[name], limit, True)
            for name, limit in wanted.items()
            if name in speed
        ]
        if {"other", "without-traps"} <= speed.keys():
            ratio = speed["without-traps"] / speed["other"]
            goals.append(Goal("without-traps / other, pages per CPU second", ratio, 0.98, True))
    return runs, goals


def growth(bench):
    """CPU per page and memory as the site grows."""
    runs = []
    for pages in (5_000, 20_000, _LARGEST):
        with bench.site(pages) as (start, truth):
            entrants = {f"{name} {pages}": Entrant(name) for name in bench.crawlers if name != "scrapy"}
            if "skitter" in bench.crawlers and pages == _LARGEST:
                entrants["skitter, 2 workers"] = Entrant("skitter", workers=2)
            runs += contest("growth", entrants, start, truth, rounds=bench.rounds)
    if "skitter" not in bench.crawlers:
        return runs, []
    small, large = summarize(runs, "skitter 5000"), summarize(runs, f"skitter {_LARGEST}")
    fleet = summarize(runs, "skitter, 2 workers")
    owner = 60 + 0.12 * _LARGEST / 1000
    return runs, [
        Goal("CPU per page, 100 k / 5 k pages", large.cpu_us_per_page / small.cpu_us_per_page, 1.15, False),
        Goal("MB of the owner at 100 k pages", fleet.owner_mb, owner, False),
        Goal("MB of a worker at 100 k pages", fleet.worker_mb, 120, False),
        Goal("MB of owner and worker in one process", large.owner_mb, owner + 120, False),
    ]


def backlog(bench):
    """CPU per page with a million and five million other requests waiting."""
    pages = 20_000
    entrants = {}
    with tempfile.TemporaryDirectory(prefix="skitter-frontiers-") as folder:
        for label, count in (("none", 0), ("1 M", 1_000_000), ("5 M", 5_000_000)):
            filled = Path(folder, f"{count}.db")
            asyncio.run(preload(filled, count))
            prepare = copier(filled, FRONTIER_FILE)
            entrants[label] = Entrant("skitter", limit=pages, prepare=prepare)
            entrants[f"{label}, one page"] = Entrant("skitter", limit=1, prepare=prepare)
        with bench.site(pages) as (start, truth):
            runs = contest("backlog", entrants, start, truth, rounds=bench.rounds)
    total_cpu = {label: summarize(runs, label).cpu_us_per_page * pages for label in ("none", "1 M", "5 M")}
    opening = {label: summarize(runs, f"{label}, one page").cpu_us_per_page for label in total_cpu}
    goals = []
    for label, limit in (("1 M", 1.25), ("5 M", 1.5)):
        crawling = (total_cpu[label] - opening[label]) / (total_cpu["none"] - opening["none"])
        goals.append(Goal(f"CPU per page, {label} waiting / none, opening apart", crawling, limit, False))
        total = total_cpu[label] / total_cpu["none"]
        goals.append(Goal(f"CPU per page, {label} waiting / none, with opening", total, limit, False))
    return runs, goals


def workers(bench):
    """CPU per page of two workers against one."""
    with bench.site(20_000) as (start, truth):
        entrants = {f"{count} workers": Entrant("skitter", workers=count) for count in (1, 2)}
        runs = contest("workers", entrants, start, truth, rounds=bench.rounds)
    one, two = summarize(runs, "1 workers"), summarize(runs, "2 workers")
    ratio = two.cpu_us_per_page / one.cpu_us_per_page
    return runs, [
        Goal("CPU per page, two workers / one", ratio, 1.1, False),
        Goal("MB of the owner of two workers", two.owner_mb, 60 + 0.12 * 20, False),
        Goal("MB of a worker", two.worker_mb, 120, False),
    ]


class SlowSite(NamedTuple):
    """A site whose answers take a fixed time, and how it is crawled."""

    pages: int
    seconds: float = 0.1
    in_flight: int = 64
    hosts: int = 1
    workers: int = 1
    redis: bool = False

    @property
    def bound(self):
        """The highest possible number of pages per second."""
        return self.in_flight / self.seconds


SLOW_SITES = {
    "100 ms": SlowSite(6_400),
    "20 ms": SlowSite(6_400, 0.02),
    "500 ms": SlowSite(1_600, 0.5),
    "256 in flight": SlowSite(6_400, in_flight=256),
    "50 hosts": SlowSite(6_400, hosts=50),
    "2 workers": SlowSite(6_400, workers=2),
    "Redis": SlowSite(6_400, redis=True),
    "Redis, 2 workers": SlowSite(6_400, redis=True, workers=2),
}


def latency(bench):
    """Pages a second, by the server's log, where each answer takes its time and the number in flight is limited."""
    runs, goals = [], []
    for name, slow in SLOW_SITES.items():
        crawlers = [crawler for crawler in bench.crawlers if crawler != "scrapy"]
        if slow != SlowSite(slow.pages, slow.seconds, slow.in_flight):
            crawlers = [crawler for crawler in crawlers if crawler != "plain"]  # one host, one process
        logs = {crawler: [] for crawler in crawlers}
        for _round in range(bench.rounds):
            for crawler in crawlers:
                hits = []
                runs += _crawl_slowly(name, slow, crawler, hits)
                logs[crawler].append(hits)
        for crawler, rounds in logs.items():
            in_flight, gap = median(map(mean_in_flight, rounds)), median(_gap(hits, slow) for hits in rounds)
            print(
                f"  {name}, {crawler}: {in_flight:.1f} in flight, {gap * 1000:.1f} ms until a place is taken again"
            )
            if crawler == "skitter":
                share = summarize(runs, f"{name}, skitter").pages_per_second / slow.bound
                goals.append(Goal(f"{name}: share of {slow.bound:.0f} pages/s", share, 0.9, True))
    return runs, goals


def _crawl_slowly(name, slow, crawler, hits):
    # A server of its own for each run: its log is that run's alone.
    arguments = {"pages": slow.pages, "hosts": slow.hosts}
    with contextlib.ExitStack() as stack:
        site = SiteProcess("skitter.testing:GeneratedSite", arguments, hosts=slow.hosts, delay=slow.seconds)
        server = stack.enter_context(site)
        frontier = f"{stack.enter_context(redis_server())}/0" if slow.redis else ""
        hosts = ",".join({origin.partition(":")[0] for origin in server.origins})
        entrant = Entrant(crawler, slow.in_flight, slow.workers, frontier=frontier, hosts=hosts)

        def served_rate():
            hits.extend(server.hits())
            return len(hits) / (max(hit.ended for hit in hits) - hits[0].received)

        truth = titles(GeneratedSite(**arguments), server.origins)
        label = f"{name}, {crawler}"
        return contest("latency", {label: entrant}, server.url, truth, rounds=1, served_rate=served_rate)


def mean_in_flight(hits):
    """Return the mean number of requests that the server had, in the middle half of a crawl."""
    first, last = hits[0].received, max(hit.ended for hit in hits)
    begin, end = first + (last - first) / 4, last - (last - first) / 4
    return sum(max(0.0, min(hit.ended, end) - max(hit.received, begin)) for hit in hits) / (end - begin)


def _gap(hits, slow):
    """Return the median time from the end of an answer to the request that takes its place."""
    ended = sorted(hit.ended for hit in hits)
    return median(
        hit.received - end
        for end, hit in zip(
            ended[len(hits) // 4 :], hits[len(hits) // 4 + slow.in_flight * slow.workers :], strict=False
        )
    )


@contextlib.contextmanager
def redis_server():
    """Run a Redis server without persistence; gives its URL."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def startup(bench):
    """CPU of commands that do next to nothing: start and end of the process."""
    program = str(Path(sys.executable).with_name("skitter"))
    runs = []
    with bench.site(1) as (start, _truth):
        commands = {
            "--version": [program, "--version"],
            "crawl": [program, "crawl", start, "-o", "out.jsonl", "--quiet", "--no-robots"],
            "plain": [sys.executable, str(HERE / "plain.py"), start, "out.jsonl"],
        }
        for _round in range(bench.rounds):
            for label, command in commands.items():
                with tempfile.TemporaryDirectory(prefix="skitter-bench-") as folder:
                    usage = measure(command, folder)
                runs.append(Run("startup", label, 1, usage, 1 / usage.wall))
    seconds = {label: summarize(runs, label).cpu_us_per_page / 1e6 for label in commands}
    return runs, [
        Goal("CPU seconds of skitter --version", seconds["--version"], 0.1, False),
        Goal("CPU seconds of skitter crawl, one page", seconds["crawl"], 0.6, False),
    ]


_SCRAPE_INTERVAL = 5.0
_SCRAPES = 100
"""Times as many scrapes as that, so that their cost stands out from the noise."""


def scraping(bench):
    """CPU that scraping the metrics every 5 s adds to a page, from runs that are scraped a hundred times as often."""
    port = free_port()
    CRAWLERS["scraped"] = lambda job: [*CRAWLERS["skitter"](job), "--metrics", str(port)]
    entrants = {name: Entrant(name) for name in ("skitter", "scraped")}
    with bench.site(bench.pages) as (start, truth), _scraped(port) as scrapes:
        runs = contest("scraping", entrants, start, truth, rounds=bench.rounds)
    if len(scrapes) < _SCRAPES * bench.rounds / _SCRAPE_INTERVAL:
        raise Failed(f"only {len(scrapes)} scrapes")
    speed = {name: summarize(runs, name).pages_per_cpu_second for name in entrants}
    share = (speed["skitter"] / speed["scraped"] - 1) / _SCRAPES
    return runs, [Goal("share of the CPU of a page that scraping every 5 s adds", share, 0.01, False)]


@contextlib.contextmanager
def _scraped(port):
    """Scrape a port again and again. Gives the sizes of the answers."""
    ending, sizes = threading.Event(), []

    def scrape():
        while not ending.wait(_SCRAPE_INTERVAL / _SCRAPES):
            with (
                contextlib.suppress(OSError),
                urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer,
            ):
                sizes.append(len(answer.read()))

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield sizes
    finally:
        ending.set()
        thread.join()


SCENARIOS = {
    "compare": compare,
    "growth": growth,
    "backlog": backlog,
    "workers": workers,
    "latency": latency,
    "startup": startup,
    "scraping": scraping,
}
