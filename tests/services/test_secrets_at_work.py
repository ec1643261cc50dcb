"""Passwords of outputs and frontiers in real runs: they are in no note, log, process list or command output."""

import os
import signal
import time

import psutil
import pytest
from redis import Redis

from cli_command import SHOP, Running, SlowingSite, expected_urls, skitter, usage_error
from services.redis_servers import RedisServer
from services.store_servers import running
from skitter.run.job import JobFolder, JobSpec
from skitter.testing import GeneratedSite

HIDDEN = "hidden/word"
QUOTED = "hidden%2Fword"


@pytest.fixture
def server():
    server = RedisServer("valkey", "--requirepass", HIDDEN).start()
    yield server
    server.stop()


@pytest.fixture
def crawl(serve, tmp_path):
    """The words of a command that crawls a site, without output and frontier."""
    site = GeneratedSite(pages=60, links_per_page=12, page_bytes=2000)
    slowing = SlowingSite(site, after=20, delay=1.0)
    server = serve(slowing)
    (tmp_path / "shop.py").write_text(SHOP.format(url=server.url))
    return Crawl(tmp_path, slowing, expected_urls(site, server))


class Crawl:
    def __init__(self, folder, site, truth):
        self.folder = folder
        self.site = site
        self.truth = truth

    def words(self, *more):
        return ("run", "shop.py", "--no-robots", "--delay", 0, "-s", "concurrency_per_slot=4", *more)


def in_list(server):
    with Redis(port=server.port, password=HIDDEN) as client:
        return sorted(item.decode() for item in client.lrange("items", 0, -1))


def wait_for(fact):
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # polls other processes


def is_hidden(text):
    return HIDDEN not in text and QUOTED not in text and "hidden" not in text


def notes_of(folder):
    return [
        path for path in (folder / ".skitter").rglob("*") if path.is_file() and b"hidden" in path.read_bytes()
    ]


def test_a_password_in_a_url_is_seen_in_no_worker_and_kept_in_no_file(crawl, server):
    place = f"redis://:{QUOTED}@127.0.0.1:{server.port}/0"
    words = crawl.words("-o", f"{place}/items", "--frontier", place, "--workers", 2, "--summary", "sum.json")
    with Running(*words, cwd=crawl.folder) as run:
        owner = psutil.Process(run.process.pid)
        wait_for(lambda: len(owner.children()) == 2 and server_pages(server) > 5)
        for worker in owner.children():
            assert is_hidden(" ".join(worker.cmdline()))
            assert is_hidden(" ".join(worker.environ().values()))
        crawl.site.released.set()
        status, out, err = run.end()
    assert status == 0, err
    assert is_hidden(out + err + (crawl.folder / "sum.json").read_text())
    assert notes_of(crawl.folder) == []
    assert [line.partition('"url":')[2].strip('"}') for line in in_list(server)] == crawl.truth
    for command in (("status", "shop"), ("jobs",), ("failures", "list", "shop")):
        result = skitter(*command, cwd=crawl.folder, environment={"SKITTER_FRONTIER_PASSWORD": HIDDEN})
        assert result.returncode == 0, result.stderr
        assert is_hidden(result.stdout + result.stderr)


def server_pages(server):
    with Redis(port=server.port, password=HIDDEN) as client:
        return client.llen("items")


def test_a_resumed_run_reads_the_password_from_a_file_and_reports_a_missing_one(crawl, server):
    place = f"127.0.0.1:{server.port}/0/items"
    with Running(*crawl.words("-o", f"redis://:{QUOTED}@{place}", "--workers", 2), cwd=crawl.folder) as run:
        wait_for(lambda: server_pages(server) > 5)
        run.process.send_signal(signal.SIGINT)
        status, _, err = run.end()
    crawl.site.released.set()
    assert status == 130, err
    started = in_list(server)
    for words in (crawl.words("-o", f"redis://{place}"), ("resume", "shop")):
        line = usage_error(*words, cwd=crawl.folder)
        assert f"127.0.0.1:{server.port}/0 refuses the user or the password" in line
        assert "set SKITTER_OUTPUT_REDIS_PASSWORD" in line
    (crawl.folder / "word").write_text(f"{HIDDEN}\n")
    outside = {"SKITTER_OUTPUT_REDIS_PASSWORD_FILE": str(crawl.folder / "word")}
    result = skitter("resume", "shop", cwd=crawl.folder, environment=outside)
    assert result.returncode == 0, result.stderr
    # The output is the same, though its URL lacks the password now.
    assert "is a new output of job" not in result.stderr
    assert set(started) <= set(in_list(server))
    assert [line.partition('"url":')[2].strip('"}') for line in in_list(server)] == crawl.truth


@pytest.mark.parametrize(("kind", "of_client"), [("postgresql", "PGPASSWORD"), ("mysql", "MYSQL_PWD")])
def test_databases_take_the_password_from_the_environment(kind, of_client, crawl):
    crawl.site.released.set()
    server = running(kind)
    place = server.url.replace(f":{server.password}@", "@") + "?table=secrets_at_work"
    assert of_client not in os.environ
    line = usage_error(*crawl.words("-o", place), cwd=crawl.folder)
    assert "refuses the user or the password" in line
    assert f"set SKITTER_OUTPUT_{kind.upper()}_PASSWORD or {of_client}" in line
    outside = {f"SKITTER_OUTPUT_{kind.upper()}_PASSWORD": server.password}
    result = skitter(*crawl.words("-o", place), cwd=crawl.folder, environment=outside)
    assert result.returncode == 0, result.stderr
    assert server.password not in (crawl.folder / ".skitter/shop/job.json").read_text()
    wrong = usage_error(*crawl.words("-o", place.replace("crawler@", "crawler:wrong@")), cwd=crawl.folder)
    assert "refuses the user or the password" in wrong


def test_a_job_whose_proxies_had_passwords_is_not_resumed_without_them(tmp_path):
    settings = {"proxies": "http://me:hidden@127.0.0.1:9"}
    JobFolder("shop", tmp_path / ".skitter").write(JobSpec(job="shop", spider="shop.py", settings=settings))
    assert notes_of(tmp_path) == []
    line = usage_error("resume", "shop", cwd=tmp_path)
    assert "job 'shop' was started with passwords in proxies, which are not stored" in line
