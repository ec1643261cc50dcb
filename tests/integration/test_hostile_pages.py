"""Pages and servers that try to exhaust or crash a worker: it stays small and crawls the other hosts meanwhile."""

import json
import re
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import trustme

from cli_command import SKITTER, skitter
from loop_turns import MAX_SHARE, WATCH, longest_turn
from servers.tls import SocketServers, hostile_tls
from sites import hostile_web
from sites.hostile import PAGES, XPATH
from skitter.testing import SiteProcess

MAX_MEMORY = 400 * 1024 * 1024
GOOD = 200
SPIDER = f"""
from skitter import Request, Spider
{WATCH}

class Reader(Spider):
    async def start(self):
        yield Request(f"{{self.good}}0", callback=self.begin)

    async def begin(self, response):  # by now, the worker has imported what it needs
        self.watch = asyncio.create_task(watch())
        for result in self.parse(response):
            yield result
        for url in self.hostile.split():
            yield Request(url)
        for number in range(1, {GOOD}):
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
    """Return the largest resident memory of a process until it ends, in bytes.

    `ru_maxrss` is unsuitable: a child inherits the peak of the process that starts it.
    """
    peak = 0
    while process.poll() is None:
        with suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            if found := re.search(r"VmHWM:\s+(\d+) kB", status):
                peak = max(peak, int(found[1]) * 1024)
        time.sleep(0.02)
    return peak


def crawl(folder, spider, settings, arguments):
    """Run the spider in the file to its end, as the job ``job``. Return the peak memory of the worker."""
    command = [*SKITTER, "run", spider, "--job", "job", "-o", "items.jsonl", "--quiet"]
    for option, pairs in (("-s", settings), ("-a", arguments)):
        for name, value in pairs.items():
            command += [option, f"{name}={value}"]
    with (folder / "errors.txt").open("w") as errors:
        worker = subprocess.Popen(command, cwd=folder, stdout=errors, stderr=errors)
        memory = peak_memory(worker)
    assert worker.returncode == 0, (folder / "errors.txt").read_text()
    return memory


def test_hostile_pages_neither_fill_the_memory_nor_delay_another_host(tmp_path, tests_folder):
    (tmp_path / "reader.py").write_text(SPIDER)
    with SiteProcess("sites.hostile:make_site", hosts=2, search=[tests_folder]) as site:
        paths = [f"/css/{name}" for name in PAGES] + [f"/xpath/{name}" for name in XPATH]
        arguments = {
            "hostile": " ".join(site.url_of(path) for path in paths),
            "good": site.url_of("/good/", 1),
        }
        memory = crawl(tmp_path, "reader.py", SETTINGS, arguments)
        hits = site.hits()

    assert 0 < memory < MAX_MEMORY
    assert 0.0 < longest_turn(tmp_path)[1] < MAX_SHARE
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


READER = """
import json
from pathlib import Path
from skitter import Spider, Request


class Reader(Spider):
    async def start(self):
        for url, timeout in json.loads(Path("seeds.json").read_text()).items():
            yield Request(url, timeout=timeout)

    def parse(self, response):
        kind = response.content_type
        if kind == "application/json":
            title = response.json()["title"]
        elif kind.endswith("/xml"):
            title = response.xpath("//title/text()").get()
        else:
            title = response.css("title::text").get()
            yield response.follow_all("a[href]")
        yield {"url": response.url, "title": title or "-"}
"""
WEB_SETTINGS = {
    "connect_timeout": 60, "read_timeout": 60, "timeout": 20, "unreachable_timeout": 5, "crawl_delay_cap": 0.2,
    "max_retries": 1, "max_throttled": 1, "retry_delay": 0.1, "ca_file": "ca.pem",
}  # fmt: skip
SILENCE, PATIENCE = 7, 100
"""Timeouts in seconds: for servers that never answer, and for those that do, however slow the machine is. That of the
settings is for robots.txt, which a server may never answer either.
"""
GOOD_HOSTS, GOOD_PAGES = 5, 20


def refusals(folder):
    status = json.loads(skitter("status", "job", "--json", cwd=folder).stdout)
    counters = status["counts"]["counters"].items()
    return {name.removeprefix("refused/"): count for name, count in counters if name.startswith("refused/")}


def actual_outcomes(items, letters, case_of, urls_of_cases):
    """Return the outcomes of each case in the form of the list of cases: by path, or by URL outside of the case's address."""
    found = {name: [] for name in urls_of_cases}
    for url, outcome in (
        *((item["url"], item["title"]) for item in items),
        *((letter["url"], hostile_web.dead(letter["error"].partition(":")[0])) for letter in letters),
    ):
        name = case_of(url)
        found[name].append((url.removeprefix(urls_of_cases[name].rstrip("/")), outcome))
    return {name: sorted(outcomes) for name, outcomes in found.items()}


def test_each_hostile_server_has_its_outcome_and_the_others_are_crawled(tmp_path, tests_folder):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "reader.py").write_text(READER)
    cases, tls = hostile_web.CASES, hostile_tls(authority)
    with (
        SiteProcess(
            "sites.hostile_web:HostileWeb", hosts=len(cases) + GOOD_HOSTS, search=[tests_folder]
        ) as site,
        SocketServers([server for server, _ in tls.values()]) as tls_servers,
    ):
        urls = {name: site.url_of("/", number) for number, name in enumerate(cases)}
        urls |= {f"tls: {name}": url for name, url in zip(tls, tls_servers.urls, strict=True)}
        good = [
            site.url_of(f"/good/{number}", len(cases) + number % GOOD_HOSTS)
            for number in range(GOOD_PAGES * GOOD_HOSTS)
        ]
        limits = {
            urls[name]: SILENCE
            for name, case in cases.items()
            if hostile_web.TIMEOUT in case.outcomes().values()
        }
        seeds = dict.fromkeys([*urls.values(), *good], PATIENCE) | limits
        (tmp_path / "seeds.json").write_text(json.dumps(seeds))
        memory = crawl(tmp_path, "reader.py", WEB_SETTINGS, {})
        hits = site.hits()
        origins = site.origins

    items = read(tmp_path / "items.jsonl")
    good_items = [item["url"] for item in items if item["url"] in set(good)]
    assert sorted(good_items) == sorted(good)
    names = {url.partition("://")[2].rpartition(":")[0]: name for name, url in urls.items()}
    numbered = list(cases)

    def case_of(url):
        host, _, path = url.partition("://")[2].partition("/")
        return names.get(host.rpartition(":")[0]) or numbered[int(path.partition("/")[0])]

    others = [item for item in items if item["url"] not in set(good)]
    actual = actual_outcomes(others, failures(tmp_path), case_of, urls)
    expected = {
        name: sorted(
            (hostile_web.placed(where, origins[number], number), outcome)
            for where, outcome in case.outcomes().items()
        )
        for number, (name, case) in enumerate(cases.items())
    }
    expected |= {
        f"tls: {name}": [("/", hostile_web.dead(kind) if kind else "ok")] for name, (_, kind) in tls.items()
    }
    wrong = [
        f"{name}: {actual[name]} and not {expected[name]}"
        for name in expected
        if actual[name] != expected[name]
    ]
    assert not wrong, "\n".join(wrong)
    expected_refusals = sum((Counter(case.refused) for case in cases.values()), Counter())
    actual_refusals = refusals(tmp_path)
    assert actual_refusals.pop("duplicate") >= 2_999
    assert actual_refusals == expected_refusals
    assert not [hit.target for hit in hits if hit.target.startswith("/decoy")]
    assert 0 < memory < MAX_MEMORY
