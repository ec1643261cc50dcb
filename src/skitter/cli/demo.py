"""``skitter demo``: a crawl that loses a worker but no page."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import painted, say
from skitter.cli.options import ShowOptions
from skitter.errors import counted

if TYPE_CHECKING:
    from skitter.run.crawl import Crawl, Progress
    from skitter.testing import SiteServer
    from skitter.testing.demo_site import DemoSite

_JOB = "demo"
_KILL_AFTER = 50
"""Number of pages after which a worker is killed: about a third of the site."""


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of the demo site. [default: a free port]",
)
def demo(port: int) -> int:
    """Crawl a small local website with two workers, and kill one.

    The web is served on this machine.
    Exits with 0 only if the output contains every page exactly once.
    """
    from skitter.testing.demo_site import DemoSite, demo_server

    site = DemoSite()
    with demo_server(site, port) as server:
        return Demo(site, server).run()


class Demo:
    """The crawl of the demo site, and the comparison of its results with the site."""

    def __init__(self, site: DemoSite, server: SiteServer) -> None:
        from skitter.run.job import HOME

        self._site = site
        self._server = server
        self._killed = 0
        self._output = Path(HOME) / _JOB / "items.jsonl"

    def run(self) -> int:
        """Crawl the site and compare the results. Return the exit status."""
        from skitter.cli.running import ForegroundRun
        from skitter.run.job import JobSpec

        shop, blog, archive = self._server.origins
        say(
            f"a book shop on http://{shop}/, its blog on http://{blog}/ and its slow archive on http://{archive}/"
        )
        say("two workers crawl them; one of them will be killed with SIGKILL during the crawl")
        spec = JobSpec(
            job=_JOB,
            spider="skitter.frontends.page_spider:PageSpider",
            arguments={"urls": [f"http://{shop}/"]},
            outputs=[str(self._output)],
            workers=2,
        )
        code = ForegroundRun(spec, ShowOptions(), fresh=True, also=self._kill_one).run()
        return code or self._compare()

    def _kill_one(self, crawl: Crawl, progress: Progress) -> None:
        if self._killed or progress.status.counters.get("pages", 0) < _KILL_AFTER:
            return
        victims = crawl.worker_pids
        if victims:
            self._killed = victims[0]
            with suppress(ProcessLookupError):
                os.kill(self._killed, signal.SIGKILL)
            say(f"killed worker {self._killed} after {progress.status.counters['pages']} pages")

    # --- comparison --------------------------------------------------------------------------------------

    def _compare(self) -> int:
        from msgspec import json

        from skitter.run.job import JobFolder
        from skitter.run.job_access import dead_letters

        origins = self._server.origins
        reachable = self._site.expected_pages(origins)
        items = [json.decode(line) for line in self._output.read_bytes().splitlines()]
        times = Counter(item["url"] for item in items)
        wrong = sum(
            1 for item in items if (page := reachable.get(item["url"])) is not None
            and (item["title"], item["links"]) != (page.title, page.links)
        )  # fmt: skip
        dead = {letter.url for letter in asyncio.run(dead_letters(JobFolder(_JOB), 0, 1_000))}
        expected = self._site.failures(origins)
        hits, forbidden = self._server.log.hits, self._site.forbidden(origins)
        trespasses = sum(f"http://{hit.host}:{hit.port}{hit.target}" in forbidden for hit in hits)
        visits = Counter((hit.host, hit.target) for hit in hits if hit.target != "/robots.txt")
        repeated = sum(count > 1 for count in visits.values())
        checks = [
            (f"{len(items)} items for the {len(reachable)} reachable pages", len(items) == len(reachable)),
            (f"{len(reachable.keys() - times)} pages lost", not reachable.keys() - times),
            (f"{sum(times.values()) - len(times)} duplicate items", len(times) == len(items)),
            (f"{len(times.keys() - reachable)} unexpected items", times.keys() <= reachable.keys()),
            (f"{wrong} incorrect items", not wrong),
            (
                f"{len(dead)} dead letters for the {len(expected)} unreachable pages",
                dead == set(expected),
            ),
            (f"{trespasses} visits to pages that robots.txt forbids", not trespasses),
            (f"worker {self._killed} was killed, and another one took over its work", bool(self._killed)),
        ]
        for text, holds in checks:
            verdict, color = ("ok     ", "green") if holds else ("WRONG  ", "red")
            click.echo(f"  {painted(verdict, color, sys.stderr)}{text}", err=True)
        say(
            f"  fetched again: {counted(repeated, 'page')}, because the killed worker held them, or their first fetch failed"
        )
        say(
            f"the items are in {self._output}; see also `skitter status demo` and `skitter failures list demo`"
        )
        return 0 if all(holds for _, holds in checks) else 1
