"""How much hostile servers and pages slow the pages of other hosts: crawls with and without them in turn. See docs/design/limits.md.

``--turns``: the longest turn of the event loop while the hostile pages are crawled, beside the time in which selectolax parses an
ordinary page of 1 MB and reads its links.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))

import trustme  # noqa: E402 - found only after the line above
from selectolax.lexbor import LexborHTMLParser  # noqa: E402 - found only after the line above

from loop_turns import WATCH, longest_turn  # noqa: E402 - found only after the line above
from servers.tls import SocketServers, hostile_tls  # noqa: E402 - found only after the line above
from sites import hostile_web  # noqa: E402 - found only after the line above
from sites.hostile import PAGES, XPATH  # noqa: E402 - found only after the line above
from skitter.testing import SiteProcess  # noqa: E402 - found only after the line above

SPIDER = """
import itertools, json, time
from pathlib import Path
from skitter import Request, Spider


class Reader(Spider):
    async def start(self):
        self.good, hostile = (json.loads(Path(name).read_text()) for name in ("good.json", "hostile.json"))
        self.left, self.began = set(self.good), time.monotonic()
        self.began_cpu = time.process_time()
        for pair in itertools.zip_longest(hostile, self.good):
            for url in filter(None, pair):
                yield Request(url)

    def parse(self, response):
        if response.is_text:
            yield {"url": response.url, "title": response.css("title::text").get()}
            yield response.follow_all("a")
        if response.url in self.left:
            self.left.remove(response.url)
            if not self.left:
                cpu = time.process_time() - self.began_cpu
                Path("seconds").write_text(f"{time.monotonic() - self.began} {cpu}")
"""
WATCHED = f"""
{WATCH}

class WatchedReader(Reader):
    def on_start(self, worker):
        worker.start_task(watch())
"""


def choose(kinds, amount):
    """Return some of the URLs of each kind, in proportion, and the same ones in each run. ``None``: all."""
    total = sum(map(len, kinds.values()))
    if amount is None or amount >= total:
        return [url for urls in kinds.values() for url in urls]
    shares = {kind: amount * len(urls) / total for kind, urls in kinds.items()}
    sizes = {kind: max(1, int(share)) for kind, share in shares.items()}
    left = amount - sum(sizes.values())
    for kind in sorted(kinds, key=lambda kind: shares[kind] % 1, reverse=True)[: max(0, left)]:
        sizes[kind] += 1
    draw = random.Random(12)
    return [url for kind, urls in kinds.items() for url in draw.sample(urls, sizes[kind])]


def command_of(folder, spider, good, hostile, *options):
    """Return the command that crawls the pages in a folder."""
    (folder / "reader.py").write_text(SPIDER + WATCHED)
    (folder / "good.json").write_text(json.dumps(good))
    (folder / "hostile.json").write_text(json.dumps(hostile))
    return [
        sys.executable, "-m", "skitter", "run", f"reader.py:{spider}", "--job", "hostile", "-o", "items.jsonl", "--quiet",
        "-s", "depth_limit=1", *options,
    ]  # fmt: skip


def turn_of_crawl(hostile):
    """Crawl the pages to the end. Return the longest turn of the event loop, in seconds of CPU time of its thread."""
    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
        folder = Path(name)
        settings = (
            "deny=/hub/,invalid",
            "robots=no",
            "delay=0",
            "concurrency_per_slot=2",
            "max_retries=0",
            "timeout=30",
        )
        options = [word for setting in settings for word in ("-s", setting)]
        command = command_of(folder, "WatchedReader", [], hostile, *options)
        subprocess.run(command, cwd=folder, stderr=subprocess.DEVNULL, check=True)
        return longest_turn(folder)[0]


def ordinary_page():
    """Return the seconds of CPU time in which selectolax parses a page of 1 MB and reads its links."""
    link = '<li><a class="title" href="/articles/2026/{0}.html">Article {0}</a></li>'
    body = "".join(map(link.format, range(14_000))).encode()
    began = time.thread_time()
    assert len([node.attributes.get("href") for node in LexborHTMLParser(body).tags("a")]) == 14_000
    return time.thread_time() - began


def compare_turns(rounds):
    """Print the longest turns of crawls of the hostile pages."""
    ratios = []
    print("| longest turn, ms | ordinary page, ms | ratio |\n| ---: | ---: | ---: |")
    with SiteProcess("sites.hostile:make_site", search=[TESTS]) as pages:
        hostile = [pages.url_of(f"/css/{name}") for name in PAGES] + [
            pages.url_of(f"/xpath/{name}") for name in XPATH
        ]
        for _ in range(rounds):
            longest, ordinary = turn_of_crawl(hostile), statistics.median(ordinary_page() for _ in range(9))
            ratios.append(longest / ordinary)
            print(f"| {longest * 1000:.0f} | {ordinary * 1000:.1f} | {ratios[-1]:.1f} |", flush=True)
    print(f"median ratio: {statistics.median(ratios):.1f}; load of the machine: {os.getloadavg()[0]:.0f}")


def seconds_for_good_pages(good, hostile, concurrency, ca_file):
    """Crawl until all good pages are done. Return the seconds since the start of the spider, and those of CPU."""
    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
        folder = Path(name)
        options = "-s", "deny=/hub/", "--concurrency", str(concurrency), "-s", f"ca_file={ca_file}"
        command = command_of(folder, "Reader", good, hostile, *options)
        worker = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
        while not (folder / "seconds").exists() and worker.poll() is None:
            time.sleep(0.1)
        if worker.poll() is None:
            worker.send_signal(signal.SIGINT)  # the rest of the hostile servers does not count
            time.sleep(1)
            worker.send_signal(signal.SIGINT)
        worker.wait()
        elapsed, cpu = map(float, (folder / "seconds").read_text().split())
        return elapsed, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=8, help="good hosts")
    parser.add_argument("--pages", type=int, default=150, help="pages of each good host")
    parser.add_argument("--latency", type=float, default=0.1, help="seconds until a good host responds")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hostile", default="200", help="number of hostile servers and pages, or: all")
    parser.add_argument("--only", choices=["servers", "pages"], help="leave the other kind out")
    parser.add_argument(
        "--turns", action="store_true", help="measure the longest turn of the event loop instead"
    )
    options = parser.parse_args()
    if options.turns:
        compare_turns(options.rounds)
        return
    cases = len(hostile_web.CASES)
    authority = trustme.CA()
    tls = [server for server, _ in hostile_tls(authority).values()]
    kinds = "sites.hostile_web:HostileWeb", "sites.hostile_web:HostileWeb", "sites.hostile:make_site"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        # The good hosts have other addresses than the hostile ones, because they must not share their slots.
        SiteProcess(
            kinds[0], hosts=cases + options.hosts, search=[TESTS], delay=options.latency
        ) as good_site,
        SiteProcess(kinds[1], hosts=cases, search=[TESTS]) as servers,
        SiteProcess(kinds[2], search=[TESTS]) as pages,
        SocketServers(tls) as tls_servers,
        authority.cert_pem.tempfile() as ca_file,
    ):
        good = [
            good_site.url_of(f"/good/{number}", cases + host)
            for number in range(options.pages)
            for host in range(options.hosts)
        ]
        by_kind = {} if options.only == "pages" else {"tls": tls_servers.urls}
        if options.only != "pages":
            for number, name in enumerate(hostile_web.CASES):
                by_kind.setdefault(name.partition(":")[0], []).append(servers.url_of("/", number))
        if options.only != "servers":
            by_kind |= {"pages": [pages.url_of(f"/css/{name}") for name in PAGES]}
            by_kind |= {"pages by XPath": [pages.url_of(f"/xpath/{name}") for name in XPATH]}
        hostile = choose(by_kind, None if options.hostile == "all" else int(options.hostile))
        total = sum(map(len, by_kind.values()))
        ratios = []
        print(
            f"{len(good)} good pages on {options.hosts} hosts, {len(hostile)} of {total} hostile servers and pages"
        )
        print("| alone, s (of CPU) | beside hostile ones, s (of CPU) | ratio |\n| ---: | ---: | ---: |")
        for _ in range(options.rounds):
            alone, beside = (
                seconds_for_good_pages(good, others, options.concurrency, ca_file) for others in ([], hostile)
            )
            ratios.append(beside[0] / alone[0])
            figures = [f"{seconds:.1f} ({cpu:.1f})" for seconds, cpu in (alone, beside)]
            print(f"| {figures[0]} | {figures[1]} | {ratios[-1]:.2f} |", flush=True)
        print(f"median ratio: {statistics.median(ratios):.2f}; load of the machine: {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
