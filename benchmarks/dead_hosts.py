"""How much dead hosts in the queue slow good ones: crawls with and without them in turn. See docs/design/politeness.md."""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from skitter.testing import SiteProcess

ALL_ADDRESSES = "0.0.0.0"


def dead_urls(count, stack):
    """Return URLs of hosts without an address, with a closed port and with a port that never accepts, a third each."""
    closed, silent = stack.enter_context(socket.socket()), stack.enter_context(socket.socket())
    closed.bind((ALL_ADDRESSES, 0))
    silent.bind((ALL_ADDRESSES, 0))
    silent.listen(4096)
    makers = (
        lambda number: f"http://h{number}.invalid/",
        lambda number: f"http://127.1.{number // 250}.{number % 250 + 1}:{closed.getsockname()[1]}/",
        lambda number: f"http://127.2.{number // 250}.{number % 250 + 1}:{silent.getsockname()[1]}/",
    )
    return [makers[number % 3](number) for number in range(count)]


def pages_per_second(site, pages, others):
    """Crawl the good site until its last page, with other hosts in the queue. Return the rate of the good pages."""
    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as folder:
        command = [
            sys.executable, "-m", "skitter", "crawl", *others[::2], site.url, *others[1::2], "-o", "pages.jsonl",
            "--job", "dead", "--limit", pages, "--delay", 0, "--concurrency", 32, "--concurrency-per-slot", 32, "--quiet",
        ]  # fmt: skip
        subprocess.run(list(map(str, command)), cwd=folder, check=True, stderr=subprocess.DEVNULL)
        lines = Path(folder, "pages.jsonl").read_text().splitlines()
    times = sorted(datetime.fromisoformat(json.loads(line)["fetched_at"]).timestamp() for line in lines)
    if len(times) != pages:
        raise SystemExit(f"{len(times)} of {pages} pages were fetched")
    times = times[: pages * 9 // 10]  # requests in flight count toward the limit, which slows the last pages
    return (len(times) - 1) / (times[-1] - times[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=3_000)
    parser.add_argument("--dead", type=int, default=1_000)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds until the good site responds")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with ExitStack() as stack:
        dead = dead_urls(options.dead, stack)
        site = stack.enter_context(
            SiteProcess("skitter.testing:GeneratedSite", {"pages": options.pages}, delay=options.latency)
        )
        ratios = []
        print("| alone, pages/s | with dead hosts | ratio |\n| ---: | ---: | ---: |")
        for _ in range(options.rounds):
            alone = pages_per_second(site, options.pages, [])
            beside = pages_per_second(site, options.pages, dead)
            ratios.append(beside / alone)
            print(f"| {alone:.0f} | {beside:.0f} | {ratios[-1]:.3f} |", flush=True)
        print(f"median ratio: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
