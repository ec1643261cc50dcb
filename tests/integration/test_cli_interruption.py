"""Interruptions: the first one drains, the second one stops at once, and the job can be resumed after both."""

import contextlib
import json
import signal
import time

import psutil

from cli_command import Running, SlowingSite, expected_urls, skitter, urls_of
from skitter.testing import GeneratedSite

BLOCKING = """
import time
from pathlib import Path
from skitter import Spider

class Blocking(Spider):
    start_urls = ["{url}"]

    def parse(self, response):
        Path("blocked").touch()
        time.sleep(10_000)
"""


TERMINATING = """
import multiprocessing
import time
from skitter import Spider

fork = multiprocessing.get_context("fork")

class Terminating(Spider):
    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        begun = fork.Event()
        child = fork.Process(target=work, args=(begun,))
        child.start()
        begun.wait()
        child.terminate()
        child.join()
        yield {{"url": response.url, "status": child.exitcode}}
        yield response.follow_all("a")

def work(begun):
    begun.set()
    time.sleep(100)
"""


def counts(path):
    return json.loads(path.read_text())


def test_the_first_interruption_drains_and_the_output_has_all_committed_items(serve, tmp_path):
    site = GeneratedSite(pages=80, links_per_page=12)
    slow = SlowingSite(site, after=20, delay=2.0)  # the other pages take half a minute
    server = serve(slow)
    command = ("crawl", server.url, "--delay", 0, "-o", "items.jsonl", "--summary", "sum.json")
    with Running(*command, cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        running.interrupt()
        code, _, stderr = running.end()
    assert code == 130, stderr
    assert "interrupted; `skitter resume" in stderr
    first = urls_of(tmp_path / "items.jsonl")
    assert len(first) == len(set(first)) == counts(tmp_path / "sum.json")["pages"]
    assert 15 <= len(first) < 80
    slow.released.set()
    assert skitter("resume", json_name(tmp_path), cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_a_fleet_is_interrupted_as_a_whole_and_a_rerun_resumes(serve, tmp_path):
    site = GeneratedSite(pages=80, links_per_page=12)
    slow = SlowingSite(site, after=20, delay=2.0)  # the other pages take half a minute
    server = serve(slow)
    command = ("crawl", server.url, "--delay", 0, "-o", "items.jsonl", "--workers", 2)
    with Running(*command, cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        running.process.send_signal(signal.SIGTERM)
        code, _, stderr = running.end()
    assert code == 130, stderr
    assert len(urls_of(tmp_path / "items.jsonl")) < 80
    slow.released.set()
    assert skitter(*command, cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)
    twice = len(server.log.hits) - len({hit.target for hit in server.log.hits})
    assert twice <= 1, "what was in flight was finished, not fetched again (robots.txt is asked for twice)"


def test_the_second_interruption_stops_at_once_and_a_rerun_resumes(serve, tmp_path):
    site = GeneratedSite(pages=60, links_per_page=12)
    slow = SlowingSite(site, after=20, delay=120)
    server = serve(slow)
    command = ("crawl", server.url, "--delay", 0, "-o", "items.jsonl", "--workers", 2)
    with Running(*command, cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        running.interrupt()
        while "press Ctrl-C again" not in (line := running.process.stderr.readline()):
            assert "pages" in line, line  # progress, logged every ten seconds
        running.interrupt()
        code, _, stderr = running.end()
    assert code == 130
    assert "stopped immediately; everything committed is kept" in stderr
    slow.released.set()
    assert skitter(*command, cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_workers_end_after_their_owner_even_if_a_callback_blocks(serve, tmp_path):
    url = serve(GeneratedSite(pages=13, links_per_page=12)).url
    (tmp_path / "blocking.py").write_text(BLOCKING.format(url=url))
    with Running("run", "blocking.py", "--no-robots", "--workers", 2, cwd=tmp_path) as running:
        owner = psutil.Process(running.process.pid)
        while not (tmp_path / "blocked").exists():
            assert running.process.poll() is None
            time.sleep(0.05)
        workers = owner.children()
        assert len(workers) == 2
        try:
            owner.kill()
            for worker in workers:
                worker.wait(60)
        finally:
            for worker in workers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()


def json_name(folder):
    (note,) = (folder / ".skitter").glob("*/job.json")
    return note.parent.name


def test_a_spider_may_terminate_a_process_that_it_forked(serve, tmp_path):
    site = GeneratedSite(pages=20, links_per_page=12)
    server = serve(site)
    (tmp_path / "terminating.py").write_text(TERMINATING.format(url=server.url))
    result = skitter("run", "terminating.py", "-o", "items.jsonl", "--delay", 0, "--no-robots", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    items = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert {item["status"] for item in items} == {-signal.SIGTERM}
    assert sorted(item["url"] for item in items) == sorted(expected_urls(site, server))
