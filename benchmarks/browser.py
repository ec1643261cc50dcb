"""Browser pages: CPU of skitter, scrapy-playwright and crawlee on the same Chromium and pages; memory; adaptive fetching.

    python benchmarks/browser.py compare --rounds 3      # needs .cache/bench with benchmarks/browser-requirements.txt
    python benchmarks/browser.py memory                  # 2,000 pages in one worker
    python benchmarks/browser.py adaptive                # 10 % of the pages need JavaScript

CPU time is that of all processes of a crawl: this process is their reaper, so none of them is missed.
"""

import argparse
import contextlib
import ctypes
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from skitter.testing import SiteProcess

HERE = Path(__file__).parent
BENCH = Path(os.environ.get("SKITTER_BENCH_PYTHON", HERE.parent / ".cache/bench/bin/python"))
CONCURRENCY = 4
_PR_SET_CHILD_SUBREAPER = 36

SKITTER = """
from skitter import Request, Spider

class Shop(Spider):
    custom_settings = {{"fetcher": "{fetcher}", "robots": False, "delay": 0, "concurrency_per_slot": {concurrency},
                        "browser_pages": {concurrency}, "browser_executable": "{browser}"}}

    async def start(self):
        for number in range({pages}):
            kind = "product" if number % {every} == 0 else "plain"
            browsing = {{"wait_for": "h1"}} if kind == "product" else None
            yield Request(f"{url}{{kind}}/{{number}}", browsing=browsing)

    def parse(self, response):
        yield {{"name": response.css("h1::text").get()}}
"""
SCRAPY = """
import scrapy
from scrapy_playwright.page import PageMethod

class Shop(scrapy.Spider):
    name = "shop"
    custom_settings = {{
        "DOWNLOAD_HANDLERS": {{"http": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"}},
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "PLAYWRIGHT_LAUNCH_OPTIONS": {{"executable_path": "{browser}", "args": ["--no-sandbox"]}},
        "PLAYWRIGHT_MAX_PAGES_PER_CONTEXT": {concurrency}, "CONCURRENT_REQUESTS": {concurrency},
        "CONCURRENT_REQUESTS_PER_DOMAIN": {concurrency}, "ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0,
        "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False,
    }}

    async def start(self):
        for number in range({pages}):
            meta = {{"playwright": True, "playwright_page_methods": [PageMethod("wait_for_selector", "h1", state="attached")]}}
            yield scrapy.Request(f"{url}product/{{number}}", meta=meta)

    def parse(self, response):
        yield {{"name": response.css("h1::text").get()}}
"""
CRAWLEE = """
import asyncio, json, logging
from crawlee import ConcurrencySettings
from crawlee.crawlers import PlaywrightCrawler
from crawlee.storage_clients import MemoryStorageClient

async def main():
    crawler = PlaywrightCrawler(
        headless=True, browser_launch_options={{"executable_path": "{browser}", "args": ["--no-sandbox"]}},
        concurrency_settings=ConcurrencySettings(
            min_concurrency={concurrency}, desired_concurrency={concurrency}, max_concurrency={concurrency}
        ),
        storage_client=MemoryStorageClient(), configure_logging=False,
    )
    out = open("items.jsonl", "w")

    @crawler.router.default_handler
    async def handle(context):
        await context.page.wait_for_selector("h1", state="attached")
        out.write(json.dumps({{"name": await context.page.text_content("h1")}}) + "\\n")

    await crawler.run([f"{url}product/{{number}}" for number in range({pages})])
    out.close()

logging.disable(logging.WARNING)
asyncio.run(main())
"""
COMMANDS = {
    "skitter": (SKITTER, lambda: [sys.executable, "-m", "skitter", "run", "shop.py", "-o", "items.jsonl", "--quiet",
                                  "--log-level", "error"]),
    "scrapy-playwright": (SCRAPY, lambda: [str(BENCH), "-m", "scrapy", "runspider", "shop.py", "-O", "items.jsonl"]),
    "crawlee": (CRAWLEE, lambda: [str(BENCH), "shop.py"]),
}  # fmt: skip


def run_one(crawler, folder, watch):
    """Run one crawl as the reaper of all its processes; print what it cost."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    started = time.monotonic()
    crawl = subprocess.Popen(COMMANDS[crawler][1](), cwd=folder, stdout=subprocess.DEVNULL)
    curve = watched(crawl, folder) if watch else []
    status = crawl.wait()
    seconds = time.monotonic() - started
    while True:  # reap the processes that outlive the crawl
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = len(names(folder))
    print(
        json.dumps(
            {
                "cpu": used.ru_utime + used.ru_stime,
                "wall": seconds,
                "status": status,
                "items": found,
                "curve": curve,
            }
        )
    )


def watched(crawl, folder):
    """Measure the memory of the driver and the browser while the crawl runs: (items, bytes)."""
    curve = []
    while crawl.poll() is None:
        time.sleep(0.5)
        parts = list(Path(folder).glob(".skitter/jobs/*/parts/**/*.jsonl")) or list(
            Path(folder).rglob("*.jsonl*")
        )
        items = sum(path.read_bytes().count(b"\n") for path in parts)
        curve.append((items, memory_below(crawl.pid)))
    return curve


def memory_below(pid):
    """The proportional memory of the processes below one: driver, watchdog and browser."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    below = {pid}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    total = 0
    for process in below - {pid}:
        with contextlib.suppress(OSError, StopIteration):
            rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += next(int(row.split()[1]) * 1024 for row in rows if row.startswith("Pss:"))
    return total


def names(folder):
    text = (Path(folder) / "items.jsonl").read_text()
    return [
        json.loads(line.rstrip(",").strip("[]") or "{}").get("name")
        for line in text.splitlines()
        if "name" in line
    ]


def measure(crawler, url, pages, *, fetcher="browser", every=1, watch=False):
    """Run a crawl in a process of its own. Return its figures; raise an error for a wrong result."""
    browser = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder:
        text = COMMANDS[crawler][0].format(
            fetcher=fetcher, url=url, pages=pages, every=every, concurrency=CONCURRENCY, browser=browser
        )
        (Path(folder) / "shop.py").write_text(text)
        command = [
            sys.executable,
            __file__,
            "one",
            "--crawler",
            crawler,
            "--folder",
            folder,
            *(["--watch"] if watch else []),
        ]
        result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        if result["status"] or sorted(names(folder)) != sorted(
            f"Product {number}" for number in range(pages)
        ):
            raise SystemExit(f"{crawler}: status {result['status']}, {result['items']} of {pages} items")
    return result


def compare(url, pages, rounds, crawlers):
    rates = {crawler: [] for crawler in crawlers}
    for number in range(rounds):
        for crawler in crawlers:
            result = measure(crawler, url, pages)
            rates[crawler].append(pages / result["cpu"])
            print(
                f"round {number + 1}  {crawler:18} {pages / result['cpu']:6.2f} pages per CPU second, {result['wall']:.0f} s"
            )
    medians = {crawler: statistics.median(values) for crawler, values in rates.items()}
    ratios = {other: medians["skitter"] / medians[other] for other in crawlers if other != "skitter"}
    for other, ratio in ratios.items():
        print(f"skitter / {other}: {ratio:.2f} (goal 1.2)")
    return all(ratio >= 1.2 for ratio in ratios.values())


def memory(url, pages):
    curve = measure("skitter", url, pages, watch=True)["curve"]
    early, late = (
        statistics.median(size for items, size in curve if abs(items - page) <= 50 and size)
        for page in (pages // 10, pages - 50)
    )
    highest = max(size for _, size in curve)
    for items, size in curve[:: max(1, len(curve) // 20)]:
        print(f"{items:6} pages  {size / 1e6:6.0f} MB")
    print(
        f"medians over 100 pages: {early / 1e6:.0f} MB around page {pages // 10}, {late / 1e6:.0f} MB around page {pages - 50}"
    )
    print(f"ratio {late / early:.2f} (goal 1.10), highest {highest / 1e6:.0f} MB (goal 900)")
    return late <= 1.1 * early and highest < 900e6


def adaptive(url, pages):
    rates = {}
    for fetcher in ("browser", "adaptive"):
        result = measure("skitter", url, pages, fetcher=fetcher, every=10)
        rates[fetcher] = pages / result["cpu"]
        print(f"{fetcher:10} {rates[fetcher]:7.2f} pages per CPU second")
    ratio = rates["adaptive"] / rates["browser"]
    print(f"adaptive / browser: {ratio:.1f} (goal 6)")
    return ratio >= 6


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["compare", "memory", "adaptive", "one"])
    parser.add_argument("--pages", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--crawlers", default="skitter,scrapy-playwright,crawlee")
    parser.add_argument("--crawler", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "one":
        run_one(options.crawler, options.folder, options.watch)
        return
    pages = options.pages or {"compare": 200, "memory": 2000, "adaptive": 2000}[options.what]
    with SiteProcess("skitter.testing.javascript_site:JavaScriptSite", {"products": 100_000}) as site:
        if options.what == "compare":
            ok = compare(site.url, pages, options.rounds, options.crawlers.split(","))
        else:
            ok = {"memory": memory, "adaptive": adaptive}[options.what](site.url, pages)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
