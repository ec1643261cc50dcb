"""What is measured, and the goal of each measurement."""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import NamedTuple

from contest import Entrant, contest, copier, summarize
from preload import preload
from webserver import nginx, site_files

from skitter.testing import GeneratedSite, SiteProcess

FRONTIER_FILE = ".skitter/bench/frontier.db"
LATENCY = 0.1
IN_FLIGHT = 64
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
    return {url: page.title for url, page in site.truth(origins).items()}


def compare(bench):
    """Pages per CPU second, side by side."""
    with bench.site(bench.pages) as (start, truth):
        entrants = {name: Entrant(name) for name in bench.crawlers}
        runs = contest("compare", entrants, start, truth, rounds=bench.rounds)
    goals = []
    if "skitter" in bench.crawlers:
        speed = {name: summarize(runs, name).pages_per_cpu_second for name in bench.crawlers}
        wanted = {"plain": 1.0, "scrapy": 12.0, "other": 0.98}
        goals = [
            Goal(f"skitter / {name}, pages per CPU second", speed["skitter"] / speed[name], limit, True)
            for name, limit in wanted.items()
            if name in speed
        ]
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
    whole = {label: summarize(runs, label).cpu_us_per_page * pages for label in ("none", "1 M", "5 M")}
    opening = {label: summarize(runs, f"{label}, one page").cpu_us_per_page for label in whole}
    goals = []
    for label, limit in (("1 M", 1.25), ("5 M", 1.5)):
        crawling = (whole[label] - opening[label]) / (whole["none"] - opening["none"])
        goals.append(Goal(f"CPU per page, {label} waiting / none, opening apart", crawling, limit, False))
        total = whole[label] / whole["none"]
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
        Goal("CPU per page, two workers / one", ratio, 1.2, False),
        Goal("MB of the owner of two workers", two.owner_mb, 60 + 0.12 * 20, False),
        Goal("MB of a worker", two.worker_mb, 120, False),
    ]


def latency(bench):
    """Pages a second, by the server's log, where each answer takes 100 ms and 64 may be in flight."""
    arguments = {"pages": 6_400}
    runs = []
    names = [name for name in bench.crawlers if name != "scrapy"]
    for _round in range(bench.rounds):
        for name in names:
            # A server of its own for each run: its log is that run's alone.
            with SiteProcess("skitter.testing:GeneratedSite", arguments, delay=LATENCY) as server:
                truth = titles(GeneratedSite(**arguments), server.origins)
                entrant = {name: Entrant(name, concurrency=IN_FLIGHT)}
                runs += contest(
                    "latency", entrant, server.url, truth, rounds=1, served_rate=lambda: _rate(server.hits())
                )
    if "skitter" not in names:
        return runs, []
    rate = summarize(runs, "skitter").pages_per_second
    return runs, [Goal("share of 640 pages/s", rate / (IN_FLIGHT / LATENCY), 0.9, True)]


def _rate(hits):
    return len(hits) / (max(hit.ended for hit in hits) - hits[0].received)


SCENARIOS = {
    "compare": compare,
    "growth": growth,
    "backlog": backlog,
    "workers": workers,
    "latency": latency,
}
