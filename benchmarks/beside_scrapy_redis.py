"""Two workers on one crawl, one of them killed: skitter, and Scrapy with its scheduler, beside Scrapy-Redis. See README.md.

Each worker is a machine of its own: a process in a folder of its own, joined with the other by a Valkey server only. The
web server's log says which pages were asked for; the items are those that the two have left for good.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
from crawlers import BENCH_PYTHON, HERE, Job, skitter
from measure import Failed, measure
from webserver import NotStarted, nginx, site_files

sys.path.insert(0, str(HERE.parent / "tests"))  # its server fixtures

from services.redis_servers import RedisServer

CACHE = HERE.parent / ".cache" / "bench-data"
LEASE_SECONDS = 5
"""Time after which the survivor receives the requests of the dead worker. The default is a minute."""
IDLE_SECONDS = 10
"""Scrapy-Redis does not know when a crawl is done: its spiders end after this number of seconds without work."""
PATIENCE = 900


class Place(NamedTuple):
    """What a crawl has to itself."""

    folder: Path
    server: RedisServer
    start: str

    def worker(self, number):
        folder = self.folder / f"machine{number}"
        folder.mkdir(exist_ok=True)
        return folder


class Skitter:
    name = "skitter"
    job = "bench"

    def prepare(self, place):
        pass

    def command(self, place, number):
        base = skitter(Job(place.start, place.worker(number) / "out.jsonl"))
        return [*base, "--frontier", place.server.url, "-s", f"lease_seconds={LEASE_SECONDS}"]

    def items(self, place):
        """Merge what both machines have, the dead one's disk included, as a user would."""
        exported = place.folder / "all.jsonl"
        command = [str(Path(sys.executable).with_name("skitter")), "export", self.job, "-o", str(exported)]
        command += ["--frontier", place.server.url]
        for number in (1, 2):
            command += ["--parts", str(place.worker(number) / f".skitter/{self.job}/parts")]
        subprocess.run(command, cwd=place.folder, check=True, stderr=subprocess.DEVNULL)
        return read_items(exported.read_bytes().splitlines())


class SkitterScheduler(Skitter):
    name = "Scrapy with skitter"
    job = "titles"

    def command(self, place, number):
        words = [place.start, place.worker(number) / "out.jsonl", 32, "skitter", place.server.url]
        return [sys.executable, str(HERE / "scrapy_driver.py"), *map(str, words)]


class ScrapyRedis:
    def __init__(self, items):
        self._items = items
        self.name = f"scrapy-redis, {items}"

    def prepare(self, place):
        place.server.ask("RPUSH", "titles:start_urls", place.start)

    def command(self, place, number):
        out = place.worker(number) / "out.jsonl"
        words = [out, place.server.url, self._items, place.start, IDLE_SECONDS]
        return [str(BENCH_PYTHON), str(HERE / "scrapy_redis_driver.py"), *map(str, words)]

    def items(self, place):
        if self._items == "pipeline":
            return read_items(place.server.ask("LRANGE", "titles:items", 0, -1))
        files = [place.worker(number) / "out.jsonl" for number in (1, 2)]
        return read_items(line for file in files if file.exists() for line in file.read_bytes().splitlines())


def read_items(lines):
    """Count items by URL and title; a line that was cut off does not count."""
    found = Counter()
    for line in lines:
        try:
            item = json.loads(line)
        except ValueError:
            continue
        found[item["url"], item["title"]] += 1
    return found


class Outcome(NamedTuple):
    """What became of one crawl."""

    crawler: str
    killed_at: int
    """Pages served when one of the workers was to be killed; it is later if the victim had nothing in work; 0: none was."""
    never_fetched: int
    fetched_twice: int
    items_missing: int
    items_twice: int
    exit: int
    seconds: float
    pages_per_cpu_second: float
    """Of both workers, startup included; 0 where one was killed."""
    server_us_per_page: float
    """CPU of the Valkey server."""


class Site(NamedTuple):
    truth: dict
    start: str
    log: Path

    def served(self):
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0


def crawl(contender, site, place, kill_at):
    """Run two workers to their ends; kill the second when ``kill_at`` pages are served, if that is not 0."""
    site.log.write_bytes(b"")  # nginx appends
    contender.prepare(place)
    cpu, began = server_cpu(place.server), time.monotonic()
    status, used = (with_kill if kill_at else in_peace)(contender, site, place, kill_at)
    seconds = time.monotonic() - began
    pages = len(site.truth)
    served = Counter(f"{site.start}{line.decode()[1:]}" for line in site.log.read_bytes().splitlines())
    items = contender.items(place)
    return Outcome(
        contender.name, kill_at,
        never_fetched=len(site.truth.keys() - served.keys()),
        fetched_twice=sum(count - 1 for url, count in served.items() if url in site.truth),
        items_missing=len(site.truth.items() - items.keys()),
        items_twice=sum(count - 1 for count in items.values()),
        exit=status, seconds=seconds,
        pages_per_cpu_second=pages / used if used else 0.0,
        server_us_per_page=(server_cpu(place.server) - cpu) / pages * 1e6,
    )  # fmt: skip


def in_peace(contender, _site, place, _kill_at):
    """Return the exit status, and the CPU seconds of both workers."""
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(measure, contender.command(place, number), place.worker(number), PATIENCE)
            for number in (1, 2)
        ]
        return 0, sum(run.result().cpu for run in runs)


def with_kill(contender, site, place, kill_at):
    """Return the survivor's exit status, and no CPU seconds."""
    workers = []
    try:
        for number in (1, 2):
            command = contender.command(place, number)
            workers.append(subprocess.Popen(command, cwd=place.worker(number), stdin=subprocess.DEVNULL))
        survivor, victim = workers
        deadline = time.monotonic() + PATIENCE
        while site.served() < kill_at or not is_fetching(victim.pid, site.start):
            if victim.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{contender.name}: nothing was left to kill after {site.served()} pages")
            time.sleep(0.01)
        victim.kill()
        return survivor.wait(PATIENCE), 0.0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def is_fetching(pid, start):
    """Return whether a process is connected to the site. Killing one that has not started proves nothing."""
    port = urlsplit(start).port
    try:
        links = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:  # it has ended
        return False
    return any(link.raddr and link.raddr.port == port for link in links)


def server_cpu(server):
    lines = server.ask("INFO", "cpu").decode().splitlines()
    return sum(
        float(line.partition(":")[2])
        for line in lines
        if line.startswith(("used_cpu_user:", "used_cpu_sys:"))
    )


def compare(contenders, pages, rounds, cache):
    """Give an outcome for each contender and round: first without a kill, then with one."""
    cache.mkdir(parents=True, exist_ok=True)
    site, files, port = site_files(cache, pages)
    origin = f"127.0.0.1:{port}"
    truth = {url: page.title for url, page in site.expected_pages([origin]).items()}
    for _ in range(rounds):
        for kill_at in (0, pages // 3):
            for contender in contenders:
                with tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
                    folder = Path(name)
                    web = Site(truth, f"http://{origin}/", folder / "served.log")
                    server = RedisServer("valkey", "--appendonly", "yes").start()
                    try:
                        with nginx(folder, files, port, web.log):
                            yield crawl(contender, web, Place(folder, server, web.start), kill_at)
                    finally:
                        server.stop()


def print_table(outcomes):
    print("| " + " | ".join(name.replace("_", " ") for name in Outcome._fields) + " |")
    print("| --- |" + " ---: |" * (len(Outcome._fields) - 1))
    for outcome in outcomes:
        cells = [f"{value:.0f}" if isinstance(value, float) else str(value) for value in outcome]
        print("| " + " | ".join(cells) + " |")


def main():
    contenders = {
        contender.name: contender
        for contender in (Skitter(), SkitterScheduler(), ScrapyRedis("feed"), ScrapyRedis("pipeline"))
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=contenders, help="one of them")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = [contenders[options.only]] if options.only else list(contenders.values())
    if not options.only and not BENCH_PYTHON.exists():
        sys.exit(f"no Scrapy-Redis in {BENCH_PYTHON}: see benchmarks/README.md, or --only skitter")
    outcomes = []
    try:
        for outcome in compare(chosen, options.pages, options.rounds, options.cache):
            print(outcome, flush=True)
            outcomes.append(outcome)
    except (Failed, NotStarted) as error:
        sys.exit(str(error))
    print_table(outcomes)
    if options.json:
        options.json.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=1))


if __name__ == "__main__":
    main()
