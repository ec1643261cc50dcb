"""What a page of a slow site costs a Valkey server: a real crawl by one worker. See docs/design/capacity.md."""

import argparse
import tempfile
from pathlib import Path

from beside_scrapy_redis import server_cpu
from crawlers import Job, skitter
from measure import Failed, measure

from services.redis_servers import RedisServer  # found by way of beside_scrapy_redis
from skitter.testing import SiteProcess


def crawl(pages, latency, concurrency):
    """Return pages a second of the whole process, and microseconds of the server's CPU a page."""
    server = RedisServer("valkey", "--appendonly", "yes").start()
    site = SiteProcess("skitter.testing:GeneratedSite", {"pages": pages}, delay=latency)
    try:
        with site, tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
            job = Job(site.url, Path(name, "out.jsonl"), concurrency)
            before = server_cpu(server)
            usage = measure([*skitter(job), "--frontier", server.url], name)
            return pages / usage.wall, (server_cpu(server) - before) / pages * 1e6
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_500)
    parser.add_argument("--latency", default="0:32,1:128,0.3:32", help="seconds:concurrency, ...")
    options = parser.parse_args()
    print("| answers after | in flight | pages/s | server us a page |\n| ---: | ---: | ---: | ---: |")
    for pair in options.latency.split(","):
        latency, concurrency = pair.split(":")
        try:
            speed, cost = crawl(options.pages, float(latency), int(concurrency))
        except Failed as error:
            raise SystemExit(str(error)) from error
        print(f"| {latency} s | {concurrency} | {speed:.0f} | {cost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
