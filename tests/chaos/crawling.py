"""A crawl in separate processes, started as a user starts it, with methods to kill them."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil

from services.store_items import read_file, read_served

ROUNDS = range(int(os.environ.get("SKITTER_CHAOS_ROUNDS", "1")))
"""Seeds of the tests that kill at random moments."""
kills = Counter()
"""Number of killed processes by kind."""
SPIDERS = Path(__file__).with_name("spiders.py")
PATIENCE = 200.0
"""Seconds to wait for an event, however busy the machine is. A whole test has somewhat more time."""
CONCURRENCY = 8
FAST = {
    "robots": "no", "delay": 0, "concurrency_per_slot": CONCURRENCY, "concurrency": CONCURRENCY,
    "deny": "outside.invalid", "max_worker_crashes": 100,
}  # fmt: skip
"""Settings of a crawl that is limited only by its servers, and that survives the death of any number of workers."""
AHEAD = 30
"""Number of requests that a site answers beyond a moment while the test waits for the processor."""
TICK = 0.02
"""Seconds by which a site may record a request too late: two ticks of the kernel, which timestamps it."""
_STEP = 0.002
_read: dict[Path, tuple[int, int]] = {}
"""Bytes and lines that were read from each log."""


class Crawling:
    """A job: the command that runs it, its processes, its frontier file and its output.

    ``settings`` and ``arguments`` are passed as ``-s`` and ``-a``.
    """

    def __init__(
        self,
        folder,
        spider,
        *,
        output="items.jsonl",
        workers=1,
        settings=(),
        arguments=(),
        prefix=(),
        limits=None,
    ):
        self.folder = folder
        self.output = output if "://" in output else folder / output
        self._limits = limits
        self.errors_file = folder / "stderr.txt"
        self.command = [
            *prefix, sys.executable, "-c", "from skitter.cli.main import main; main()",
            "run", f"{SPIDERS}:{spider}", "--job", "job", "-o", str(self.output), f"--workers={workers}",
        ]  # fmt: skip
        for option, pairs in (("-s", dict(settings)), ("-a", dict(arguments))):
            for name, value in pairs.items():
                self.command += [option, f"{name}={value}"]
        self.process = None

    def start(self):
        """Run the command, for the first time or again."""
        with self.errors_file.open("ab") as errors:
            self.process = psutil.Popen(
                self.command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=errors, preexec_fn=self._limits,
            )  # fmt: skip
        return self

    def run(self):
        """Run the command to its end. Return its exit status."""
        return self.start().wait()

    def wait(self):
        """Wait for the end of the run and its workers. Return the exit status."""
        try:
            return self.process.wait(PATIENCE)
        except psutil.TimeoutExpired:
            raise AssertionError(f"it has not ended after {PATIENCE:g} s:\n{self.errors}") from None

    @property
    def has_ended(self):
        return self.process.poll() is not None

    @property
    def errors(self):
        """The standard error of all runs."""
        return self.errors_file.read_text()

    def workers(self):
        """The running workers without those that wait for their command, which have a single thread."""
        return [child for child in self._children() if _threads(child) > 1]

    def _children(self):
        """The worker processes that are alive. Empty before the start."""
        if self.process is None:
            return []
        try:
            children = self.process.children()
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if _lives(child)]  # a child may end at any time

    def wait_for(self, fact, what):
        """Wait until ``fact()`` is true. Return false if the run ends first, and fail after a timeout."""
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if self.has_ended:
                return False
            assert time.monotonic() < deadline, f"never came: {what}\n{self.errors}"
            time.sleep(_STEP)
        return True

    # --- kills ----------------------------------------------------------------------------------------

    def kill_worker(self, rng=random):
        """SIGKILL a worker. Return false if the run has ended."""
        if not self.wait_for(self.workers, "a worker"):
            return False
        victims = self.workers()
        return bool(victims) and _kill(rng.choice(victims), "worker")

    def kill_owner(self):
        """SIGKILL the parent. Its workers must end by themselves."""
        workers = self._children()
        _kill(self.process, "owner")
        self.wait()
        _, alive = psutil.wait_procs([w for w in workers if _lives(w)], timeout=PATIENCE)
        left = [worker for worker in alive if _lives(worker)]
        for worker in left:
            worker.kill()
        assert not left, f"workers outlived their owner: {left}"
        return True

    def kill_all(self):
        """SIGKILL the parent and its workers together."""
        self._kill_family("everything")
        return True

    def _kill_family(self, kind=""):
        family = [self.process, *self._children()]
        for process in family:
            _kill(process, kind)
        self.wait()
        psutil.wait_procs([process for process in family[1:] if _lives(process)], timeout=10)

    def end(self):
        """Kill all processes that are left."""
        if self.process is not None and not self.has_ended:
            self._kill_family()

    # --- results --------------------------------------------------------------------------------------

    def items(self):
        """The items in the current output."""
        if isinstance(self.output, str):
            return read_served(self.output)
        if self.output.suffix == ".db":
            return _read_sqlite(self.output)
        return read_file(self.output.name, self.output.read_bytes())

    def urls(self):
        """Number of items by URL."""
        return Counter(item["url"] for item in self.items())

    def dead_letters(self):
        """URL and error of each dead letter in the frontier file."""
        return dict(self._ask("SELECT url, error FROM dead"))

    def counters(self):
        return dict(self._ask("SELECT entry.key, entry.value FROM job, json_each(job.counters) AS entry"))

    def counts(self):
        """Number of requests by state, and the number of added ones."""
        ((added, done),) = self._ask("SELECT added, done FROM job")
        numbers = {
            table: self._ask(f"SELECT count(*) FROM {table}")[0][0] for table in ("queue", "delayed", "dead")
        }
        return {"added": added, "done": done, **numbers}

    def _ask(self, query):
        with closing(sqlite3.connect(self.folder / ".skitter/job/frontier.db")) as file:
            return file.execute(query).fetchall()


def check_items(crawling, pages, dead=()):
    """Check that the output contains each page once and nothing else, and that the dead letters are the dead links."""
    urls = crawling.urls()
    missing, strange = set(pages) - set(urls), set(urls) - set(pages)
    assert not missing, f"{len(missing)} of {len(pages)} pages are missing: {sorted(missing)[:5]}"
    assert not strange, f"{len(strange)} items are of no page: {sorted(strange)[:5]}"
    doubled = {url: count for url, count in urls.items() if count > 1}
    assert not doubled, f"{len(doubled)} items are doubled: {list(doubled.items())[:5]}"
    letters = crawling.dead_letters()
    assert set(letters) == set(dead), (
        f"missing: {sorted(set(dead) - set(letters))}, strange: {[(u, e) for u, e in letters.items() if u not in dead]}"
    )


def check_exact(crawling, pages, dead=()):
    """Like :func:`check_items`, and check that each page and dead link was one request."""
    check_items(crawling, pages, dead)
    counts = crawling.counts()
    assert counts == {
        "added": len(pages) + len(dead), "done": len(pages), "queue": 0, "delayed": 0, "dead": len(dead),
    }  # fmt: skip


def hold(site, number):
    """Limit the number of requests to which a site responds, including earlier ones."""
    draft = site.bound.with_suffix(".new")
    draft.write_text(str(number))
    draft.rename(site.bound)


def at_moments(crawl, site, moments, ahead=AHEAD):
    """Yield each moment (a number of served requests) when it is reached. The crawl hardly advances meanwhile.

    Stops early if the crawl ends. ``ahead``: number of requests that are answered beyond a moment.
    """
    try:
        for moment in moments:
            hold(site, moment + ahead)
            if not crawl.wait_for(lambda moment=moment: served(site) >= moment, f"{moment} requests"):
                return
            yield moment
    finally:
        site.bound.unlink(missing_ok=True)


def served(site):
    """Return how many requests a site process has answered."""
    size, lines = _read.get(site._log, (0, 0))
    with site._log.open("rb") as log:
        log.seek(size)
        news = log.read()
    _read[site._log] = size + len(news), lines + news.count(b"\n")
    return _read[site._log][1]


def visits(site):
    """Return the number of visits by URL."""
    return Counter(f"http://{hit.host}:{hit.port}{hit.target}" for hit in site.hits())


def _threads(process):
    try:
        return process.num_threads()
    except psutil.NoSuchProcess:
        return 0


def _lives(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(process, kind):
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    if kind:
        kills[kind] += 1
    return True


def _read_sqlite(path):
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        return [dict(row) for row in file.execute("SELECT * FROM items")]
