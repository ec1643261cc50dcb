"""Pages that are made to exhaust a worker: it stays small, and the pages of another host are crawled meanwhile."""

import json
import re
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from cli_command import SKITTER, skitter
from sites.hostile import PAGES, XPATH
from skitter.testing import SiteProcess

MAX_MEMORY = 400 * 1024 * 1024
GOOD = 200
SPIDER = f"""
from skitter import Request, Spider


class Reader(Spider):
    async def start(self):
        for url in self.hostile.split():
            yield Request(url)
        for number in range({GOOD}):
            yield Request(f"{{self.good}}{{number}}")

    def parse(self, response):
        if response.content_type == "application/json":
            yield {{"url": response.url, "entries": len(response.json())}}
        elif "/xpath/" in response.url:
            yield {{"url": response.url, "links": len(response.xpath("//a/@href"))}}
        else:
            yield {{"url": response.url, "title": response.css("title::text").get()}}
            yield response.follow_all("a")
"""
SETTINGS = {
    "robots": "no", "delay": 0, "concurrency_per_slot": 2, "max_retries": 0, "deny": "/hub/,invalid", "timeout": 30, "max_links": 50_000,
}  # fmt: skip


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def failures(folder):
    listed = skitter("failures", "list", "job", "--json", cwd=folder)
    return json.loads(listed.stdout)


def peak_memory(process):
    """The largest resident memory of a process until it ends, in bytes.

    `ru_maxrss` does not serve: a child inherits the peak of the process that starts it.
    """
    peak = 0
    while process.poll() is None:
        with suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            if found := re.search(r"VmHWM:\s+(\d+) kB", status):
                peak = max(peak, int(found[1]) * 1024)
        time.sleep(0.02)
    return peak


def test_hostile_pages_neither_fill_the_memory_nor_hold_up_another_host(tmp_path, tests_folder):
    (tmp_path / "reader.py").write_text(SPIDER)
    with SiteProcess("sites.hostile:make_site", hosts=2, search=[tests_folder]) as site:
        paths = [f"/css/{name}" for name in PAGES] + [f"/xpath/{name}" for name in XPATH]
        arguments = {
            "hostile": " ".join(site.url_of(path) for path in paths),
            "good": site.url_of("/good/", 1),
        }
        command = [*SKITTER, "run", "reader.py", "--job", "job", "-o", "items.jsonl", "--quiet"]
        for option, pairs in (("-s", SETTINGS), ("-a", arguments)):
            for name, value in pairs.items():
                command += [option, f"{name}={value}"]
        with (tmp_path / "errors.txt").open("w") as errors:
            worker = subprocess.Popen(command, cwd=tmp_path, stdout=errors, stderr=errors)
            memory = peak_memory(worker)
        hits = site.hits()

    assert worker.returncode == 0, (tmp_path / "errors.txt").read_text()
    assert 0 < memory < MAX_MEMORY
    items = read(tmp_path / "items.jsonl")
    letters = {letter["url"]: letter["error"].partition(":")[0] for letter in failures(tmp_path)}
    reached = Counter(item["url"] for item in items)
    expected = {site.url_of(path): PAGES[Path(path).name].dead for path in paths}
    assert {url: (letters.get(url), reached[url]) for url in expected} == {
        url: (dead, int(dead is None)) for url, dead in expected.items()
    }
    assert sum(item["url"].startswith(arguments["good"]) for item in items) == GOOD
    last_hostile = max(number for number, hit in enumerate(hits) if not hit.target.startswith("/good/"))
    meanwhile = sum(hit.target.startswith("/good/") for hit in hits[:last_hostile])
    assert meanwhile > GOOD // 2, "the good host had to wait for the hostile one"
