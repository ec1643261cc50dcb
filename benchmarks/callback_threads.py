"""Ten callbacks that block for half a second each: one after the other, and in ten threads. Goal: under one second.

python benchmarks/callback_threads.py
"""

import sys
import tempfile
import time

from skitter import Collector
from skitter.testing import Answer, SiteServer

CALLBACKS = 10
BLOCKED = 0.5
GOAL = 1.0


def run(url: str, threads: int) -> float:
    """Return the seconds from the beginning of the first callback to the end of the last one."""
    crawler = Collector(callback_threads=threads, settings={"robots": False, "delay": 0})
    moments = []

    @crawler.on_response
    def block(_response):
        moments.append(time.monotonic())
        time.sleep(BLOCKED)
        moments.append(time.monotonic())

    for number in range(CALLBACKS):
        crawler.visit(f"{url}{number}")
    with tempfile.TemporaryDirectory() as home:
        crawler.run(home=home)
    assert len(moments) == 2 * CALLBACKS
    return max(moments) - min(moments)


def main() -> None:
    """Print both times and their ratio. The exit status is 1 if the goal is missed."""
    with SiteServer(lambda _visit: Answer(b"<p>page")) as site:
        alone, together = run(site.url, 0), run(site.url, CALLBACKS)
    print(
        f"on the event loop: {alone:.2f} s, in {CALLBACKS} threads: {together:.2f} s, {alone / together:.1f} times as fast"
    )
    sys.exit(together >= GOAL)


if __name__ == "__main__":
    main()
