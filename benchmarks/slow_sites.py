"""What a page of a slow site costs a Valkey server: a real crawl by one worker. See docs/design/capacity.md."""

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

from beside_scrapy_redis import server_cpu
from crawlers import Job, skitter
from measure import Failed, measure

from services.redis_servers import RedisServer  # found by way of beside_scrapy_redis
from skitter.testing import SiteProcess

SCRIPTS = ("eval", "evalsha")


class Figures(NamedTuple):
    """What one crawl cost."""

    pages_per_second: float
    """Of the whole process."""
    server_us: float
    """CPU of the server per page, as are the following figures."""
    calls: float
    """Scripts that the server ran."""
    commands: float
    """Commands in these scripts."""


def commands_of(server):
    """Return the numbers of scripts, and of other commands, that the server has run."""
    lines = server.ask("INFO", "commandstats").decode().split()
    counts = {
        name.removeprefix("cmdstat_"): int(fields.partition("calls=")[2].partition(",")[0])
        for name, _, fields in (line.partition(":") for line in lines)
        if name.startswith("cmdstat_")
    }
    calls = sum(counts.get(name, 0) for name in SCRIPTS)
    return calls, sum(counts.values()) - calls


def crawl(pages, latency, concurrency):
    """Return what a crawl of a site costs that responds after ``latency`` seconds."""
    server = RedisServer("valkey", "--appendonly", "yes").start()
    site = SiteProcess("skitter.testing:GeneratedSite", {"pages": pages}, delay=latency)
    try:
        with site, tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
            job = Job(site.url, Path(name, "out.jsonl"), concurrency)
            before = server_cpu(server)
            usage = measure([*skitter(job), "--frontier", server.url], name)
            used = (server_cpu(server) - before) / pages * 1e6
            calls, commands = commands_of(server)
            return Figures(pages / usage.wall, used, calls / pages, commands / pages)
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_500)
    parser.add_argument("--latency", default="0:32,1:128,0.3:32", help="seconds:concurrency, ...")
    options = parser.parse_args()
    print("| responds after | in flight | pages/s | server us a page | scripts a page | commands a page |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for pair in options.latency.split(","):
        latency, concurrency = pair.split(":")
        try:
            found = crawl(options.pages, float(latency), int(concurrency))
        except Failed as error:
            raise SystemExit(str(error)) from error
        print(
            f"| {latency} s | {concurrency} | {found.pages_per_second:.0f} | {found.server_us:.0f}"
            f" | {found.calls:.2f} | {found.commands:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
