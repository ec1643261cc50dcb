"""The worker processes that a command forks."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from cli_command import SHOP, Logged, expected_urls, lines_of, skitter, urls_of, usage_error
from sites.gated import GatedSite
from skitter.cli.running import fork_if_several
from skitter.run import child
from skitter.run.supervisor import HAD_WORK, READY, WorkerProcess
from skitter.testing import GeneratedSite

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

PAGES = 90
SPIDER = """
import atexit
import os
import sys
from pathlib import Path

from skitter import Spider

here = Path(__file__).parent
loaded_by = os.getpid()  # what a module opens belongs to the process that has loaded it
with (here / "loads").open("a") as file:
    file.write(f"{{loaded_by}}\\n")
atexit.register(lambda: (here / f"ended-{{os.getpid()}}").touch())


class Shop(Spider):
    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        yield {{
            "url": response.url, "worker": os.getpid(), "loaded_by": loaded_by, "stdin": sys.stdin.read(),
            "session": os.getsid(0), "files": sorted(os.listdir("/proc/self/fd")), "path": sys.path[0],
        }}
        yield response.follow_all("a")
"""
WORDS = (
    "run",
    "shop.py",
    "-o",
    "items.jsonl",
    "--workers",
    2,
    "--no-robots",
    "--delay",
    0,
    "-s",
    "concurrency=2",
)


class Shop(Logged):
    """A crawl of a site by two workers. The site stops answering until the test releases it."""

    def __init__(self, folder, serve):
        super().__init__(*WORDS, cwd=folder)
        web = GeneratedSite(pages=PAGES, links_per_page=12, page_bytes=2000)
        self.site = GatedSite(web, answers=20)
        server = serve(self.site)
        self.truth = expected_urls(web, server)
        (folder / "shop.py").write_text(SPIDER.format(url=server.url))

    @property
    def owner(self):
        return psutil.Process(self.process.pid)

    def workers(self):
        return self.owner.children()

    def wait_for_both_workers(self):
        """Wait until the owner and both workers have loaded the spider, in the middle of the crawl."""
        self.wait_for(self.site.reached.is_set)
        self.wait_for(lambda: len({*(self._cwd / "loads").read_text().split()}) == 3)


@pytest.fixture
def shop(tmp_path, serve):
    return Shop(tmp_path, serve)


def is_forked(process):
    with contextlib.suppress(psutil.Error):
        return "skitter.run.child" not in process.cmdline()
    return False


def wait_until(fact):
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_forked_workers_load_the_spider_themselves_and_a_replacement_is_not_forked(shop, tmp_path):
    with shop:
        shop.wait_for_both_workers()
        first = shop.workers()
        assert [is_forked(worker) for worker in first] == [True, True]
        first[0].kill()
        shop.wait_for(lambda: any(not is_forked(worker) for worker in shop.workers()))
        shop.site.released.set()
        assert shop.end() == 0, shop.log
    assert urls_of(tmp_path / "items.jsonl") == shop.truth
    items = lines_of(tmp_path / "items.jsonl")
    assert all(item["worker"] == item["loaded_by"] == item["session"] for item in items)
    assert {item["stdin"] for item in items} == {""}
    assert {item["path"] for item in items} == {str(tmp_path)}
    # The owner and three workers. The killed one could not report its end.
    loads = {int(line) for line in (tmp_path / "loads").read_text().split()}
    ended = {int(path.name.removeprefix("ended-")) for path in tmp_path.glob("ended-*")}
    assert len(loads) == 4
    assert ended == loads - {first[0].pid}


def test_forked_workers_have_no_pipe_of_each_other_open(shop):
    with shop:
        shop.wait_for_both_workers()
        of_owner, first, second = map(open_pipes, (shop.owner, *shop.workers()))
        shop.site.released.set()
        assert shop.end() == 0, shop.log
    assert (len(first & of_owner), len(second & of_owner)) == (1, 1), "the pipe for reports"
    assert not first & second


def open_pipes(process):
    found = set()
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            found.add(str(path.readlink()))
    return {name for name in found if name.startswith("pipe:")}


def test_workers_end_with_their_owner(shop, tmp_path):
    with shop:
        shop.wait_for(shop.site.reached.is_set)
        workers = shop.workers()
        os.kill(shop.process.pid, signal.SIGKILL)
        wait_until(lambda: not any(worker.is_running() for worker in workers))
    shop.site.released.set()
    result = skitter(*WORDS, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert urls_of(tmp_path / "items.jsonl") == shop.truth


def test_workers_without_a_command_end_when_their_owner_is_killed(tmp_path):
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "shop.py").write_text("open('gate').read()")  # no process writes to the pipe
    with Logged(*WORDS, cwd=tmp_path) as command:
        owner = psutil.Process(command.process.pid)
        command.wait_for(lambda: len(owner.children()) == 2)
        waiting = owner.children()
        os.kill(owner.pid, signal.SIGKILL)
        wait_until(lambda: not any(worker.is_running() for worker in waiting))
    assert command.log == ""


def test_a_run_that_cannot_start_leaves_no_worker(tmp_path):
    (tmp_path / "shop.py").write_text(
        "import json, psutil\n"
        "open('workers', 'w').write(json.dumps([child.pid for child in psutil.Process().children()]))\n"
        "raise ValueError('no spider today')"
    )
    assert "no spider today" in usage_error(*WORDS, cwd=tmp_path)
    workers = json.loads((tmp_path / "workers").read_text())
    assert len(workers) == 2
    assert not any(psutil.pid_exists(worker) for worker in workers)


def test_a_process_that_the_spider_forks_does_not_keep_the_workers_waiting(tmp_path, serve):
    fork = (
        "import multiprocessing, time\n"
        "multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,), daemon=True).start()\n"
    )
    web = GeneratedSite(pages=20, links_per_page=12, page_bytes=500)
    server = serve(web)
    (tmp_path / "shop.py").write_text(fork + SHOP.format(url=server.url))
    result = skitter(*WORDS, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(web, server)


def test_leases_of_a_killed_worker_return_although_a_process_of_its_spider_lives_on(tmp_path, serve):
    pool = """

    def on_start(self, worker):
        import os, time
        from pathlib import Path
        child = os.fork()  # it has the connection of the worker open
        if child == 0:
            time.sleep(1000)
            os._exit(0)
        with Path("forked").open("a") as file:
            file.write(f"{os.getpid()} {child}\\n")
"""
    web = GeneratedSite(pages=PAGES, links_per_page=12, page_bytes=2000)
    site = GatedSite(web, answers=20)
    server = serve(site)
    (tmp_path / "shop.py").write_text(SHOP.format(url=server.url) + pool)
    with Logged(*WORDS, "-s", "lease_seconds=100000", cwd=tmp_path) as command:
        command.wait_for(site.reached.is_set)
        os.kill(int((tmp_path / "forked").read_text().split()[0]), signal.SIGKILL)
        site.released.set()
        try:
            assert command.end() == 0, command.log
        finally:
            for child in (tmp_path / "forked").read_text().split()[1::2]:
                os.kill(int(child), signal.SIGKILL)
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(web, server)


def test_a_crawl_ends_if_its_parent_ignores_the_end_of_processes(tmp_path, serve):
    web = GeneratedSite(pages=20, links_per_page=12, page_bytes=500)
    server = serve(web)
    (tmp_path / "shop.py").write_text(SHOP.format(url=server.url))
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # new processes inherit it
    try:
        command = Logged(*WORDS, cwd=tmp_path)
        with command:
            signal.signal(signal.SIGCHLD, ignored)
            assert command.end() == 0, command.log
    finally:
        signal.signal(signal.SIGCHLD, ignored)
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(web, server)


def test_output_that_waits_in_a_buffer_is_written_once(tmp_path, serve):
    (tmp_path / "sitecustomize.py").write_text("print('hello')")
    server = serve(GeneratedSite(pages=20, links_per_page=12, page_bytes=500))
    (tmp_path / "shop.py").write_text(SHOP.format(url=server.url))
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": ""}
    result = skitter(*WORDS, cwd=tmp_path, environment=environment)
    assert result.stdout.count("hello") == 1


async def test_half_a_report_of_a_killed_worker_counts_as_no_report():
    pipe, report = os.pipe()
    os.set_blocking(pipe, False)
    process = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    os.write(report, READY + HAD_WORK + b'{"failure": "the di')
    os.close(report)
    worker = WorkerProcess("w", process, pipe, lambda: None)
    assert await worker.work(b"") is None


def test_a_fork_that_fails_leaves_no_pipe_open(monkeypatch):
    def fork():
        raise BlockingIOError("no more processes")

    before = psutil.Process().num_fds()
    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(BlockingIOError):
        child._fork([])
    assert psutil.Process().num_fds() == before


def test_one_worker_and_a_program_with_threads_fork_nothing():
    with fork_if_several(1, "sqlite:") as processes:
        assert processes == []
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with fork_if_several(2, "sqlite:") as processes:
            assert processes == []
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize(
    ("url", "loaded"),
    [
        ("redis://h.test/0", {"skitter.frontier.redis.frontier"}),
        ("redis+cluster://h.test/", {"skitter.frontier.redis.cluster_frontier"}),
        (
            "nsq://h.test/topic?state=redis://h.test",
            {"skitter.brokers.nsq", "skitter.frontier.redis.frontier"},
        ),
        ("redis://h.test/0?colour=red", {"skitter.frontier.redis.frontier"}),  # refused when it is opened
        ("sqlite:", set()),
        ("own_frontier:Own", set()),
        ("unknown://h.test", set()),
    ],
)
def test_only_modules_of_skitter_are_imported_for_a_frontier_before_the_fork(url, loaded, tmp_path):
    (tmp_path / "own_frontier.py").write_text("class Own: pass")
    modules = "skitter.frontier.redis.frontier skitter.frontier.redis.cluster_frontier skitter.brokers.nsq own_frontier"
    code = (
        "import sys; from skitter.frontier.registry import load_frontier_modules; load_frontier_modules(sys.argv[1])\n"
        "print(*({*sys.argv[2].split()} & {*sys.modules}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, url, modules], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert {*told.stdout.split()} >= loaded
    assert bool(told.stdout.split()) == bool(loaded)
