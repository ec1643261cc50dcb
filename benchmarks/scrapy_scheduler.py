"""CPU per page of a Scrapy project with Scrapy's own queues and with skitter's scheduler. See README.md.

The crawls alternate, on the same site; each has to write exactly the pages of the site. The kill comparison runs each
scheduler once more, kills it after a quarter of the pages, and runs the same command again.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from crawlers import HERE
from measure import measure
from webserver import nginx, site_files

CACHE = HERE.parent / ".cache" / "bench-data"
SCHEDULERS = ("memory", "jobdir", "skitter")
GOAL = 1.1
"""CPU per page in relation to Scrapy's queue in memory."""


def command_of(scheduler, start, folder):
    driver = str(HERE / "scrapy_driver.py")
    return [sys.executable, driver, start, str(folder / "items.jsonl"), "32", scheduler]


def read_items(folder):
    """Count items by URL; a line that was cut off does not count."""
    found = Counter()
    path = folder / "items.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found[json.loads(line)["url"]] += 1
        except ValueError:
            continue
    return found


def cost(scheduler, start, truth):
    """Return CPU and wall time per page, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
        folder = Path(name)
        used = measure(command_of(scheduler, start, folder), folder)
        if read_items(folder) != Counter(truth):
            sys.exit(f"{scheduler}: the items are not those of the site")
    return used.cpu / len(truth) * 1e6, used.wall / len(truth) * 1e6


def killed(scheduler, start, truth, log):
    """Kill the crawl after a quarter of the pages, run it again, and return what is missing and doubled."""
    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
        folder = Path(name)
        log.write_bytes(b"")
        command = command_of(scheduler, start, folder)
        with subprocess.Popen(command, cwd=folder) as crawl:
            while log.read_bytes().count(b"\n") < len(truth) // 4:
                if crawl.poll() is not None:
                    sys.exit(f"{scheduler}: it ended before it was killed")
                time.sleep(0.01)
            crawl.kill()
        before = read_items(folder)
        status = subprocess.run(command, cwd=folder, check=False, timeout=900).returncode
        # Scrapy's feed is overwritten by the second run, as configured: the items of both runs count for it.
        items = read_items(folder) if scheduler == "skitter" else before + read_items(folder)
        served = {f"{start}{line.decode()[1:]}" for line in log.read_bytes().splitlines()}
    return {
        "scheduler": scheduler, "never fetched": len(truth - served), "items missing": len(truth - items.keys()),
        "items doubled": sum(count - 1 for count in items.values()), "exit status": status,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["cost", "kill"], help="one of the two comparisons")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    site, files, port = site_files(CACHE, options.pages)
    start, truth = f"http://127.0.0.1:{port}/", set(site.expected_pages([f"127.0.0.1:{port}"]))
    costs = {scheduler: [] for scheduler in SCHEDULERS}
    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
        log = Path(name) / "served.log"
        with nginx(Path(name), files, port, log):
            if options.only != "kill":
                for _ in range(options.rounds):
                    for scheduler in SCHEDULERS:
                        costs[scheduler].append(cost(scheduler, start, truth))
                        print(
                            scheduler,
                            "{:.0f} us of CPU, {:.0f} us of time per page".format(*costs[scheduler][-1]),
                            flush=True,
                        )
            if options.only != "cost":
                for scheduler in SCHEDULERS:
                    print(killed(scheduler, start, truth, log), flush=True)
    if options.only == "kill":
        return
    print(
        "| scheduler | CPU per page, least | median | in relation to memory |\n| --- | ---: | ---: | ---: |"
    )
    least = {scheduler: min(cpu for cpu, _ in costs[scheduler]) for scheduler in SCHEDULERS}
    for scheduler in SCHEDULERS:
        median = statistics.median(cpu for cpu, _ in costs[scheduler])
        ratio = least[scheduler] / least["memory"]
        print(f"| {scheduler} | {least[scheduler]:.0f} us | {median:.0f} us | {ratio:.2f} |")
    sys.exit(least["skitter"] > GOAL * least["memory"])


if __name__ == "__main__":
    main()
