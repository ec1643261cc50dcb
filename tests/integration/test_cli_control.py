"""`skitter status`, `pause`, `resume`, `stop` and `jobs`, with jobs that run and jobs that do not."""

import hashlib
import json
import sqlite3
import time
from contextlib import closing

import pytest

from cli_command import Running, SlowingSite, expected_urls, skitter, urls_of
from skitter.cli.main import run
from skitter.testing import GeneratedSite

PAGES = 60


@pytest.fixture
def site():
    return GeneratedSite(pages=PAGES, links_per_page=12)


@pytest.fixture
def slow(site):
    return SlowingSite(site, after=20, delay=4.0)


@pytest.fixture
def server(slow, serve):
    return serve(slow)


def crawl(server, *more):
    return ("crawl", server.url, "--delay", 0, "--job", "shop", "-o", "items.jsonl", *more)


def status(folder, job="shop"):
    result = skitter("status", job, "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def adds_up(counts):
    states = ("queued", "delayed", "leased", "done", "failed")
    return counts["added"] == sum(counts[state] for state in states)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_running_job_is_shown_paused_resumed_and_stopped_by_other_processes(
    workers, site, slow, server, tmp_path
):
    # Two slow pages at a time: the crawl takes longer than the commands, also on a busy machine.
    with Running(*crawl(server, "--workers", workers, "--concurrency-per-slot", 2), cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        seen = status(tmp_path)
        assert (seen["state"], seen["live"]) == ("running", True)
        assert adds_up(seen["counts"])
        assert skitter("pause", "shop", cwd=tmp_path).stderr.startswith("job shop is paused; `skitter resume")
        assert status(tmp_path)["state"] == "paused"
        assert skitter("resume", "shop", cwd=tmp_path).stderr == "job shop is running\n"
        stopped = skitter("stop", "shop", cwd=tmp_path)
        assert stopped.stderr == "job shop is stopped; `skitter resume shop` continues it\n"
        seen = status(tmp_path)
        assert (seen["state"], seen["live"], seen["counts"]["leased"]) == ("stopped", False, 0)
        assert len(urls_of(tmp_path / "items.jsonl")) == seen["counts"]["counters"]["items"]
        code, _, stderr = running.end()
    assert code == 0
    # After progress lines.
    assert "job shop has stopped; `skitter resume shop` continues it" in stderr.splitlines()
    slow.released.set()
    assert skitter("resume", "shop", "--workers", 2, cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_a_job_that_is_being_stopped_is_not_paused_instead(
    site, serve, tmp_path, monkeypatch, capsys, no_blocking_calls
):
    slow = SlowingSite(site, after=20, delay=60.0)  # no test waits for the end of this delay
    monkeypatch.chdir(tmp_path)
    no_blocking_calls.deactivate()  # commands may block their event loop
    with Running(*crawl(serve(slow)), cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        running.interrupt()
        # Run the commands in this process: on a busy machine, the crawl would end before two new processes
        # have started.
        while True:
            assert run(["status", "shop", "--json"]) == 0
            if (state := json.loads(capsys.readouterr().out)["state"]) != "running":
                break
        assert state == "stopping"
        assert run(["pause", "shop"]) == 2
        assert "is being stopped; wait for its end" in capsys.readouterr().err
        running.interrupt()
        code, _, _ = running.end()
    assert code == 130
    assert status(tmp_path)["state"] == "stopped"
    assert skitter("pause", "shop", cwd=tmp_path).returncode == 0


def contents(folder):
    """Return every row of a frontier, read separately."""
    address = f"file:{folder / '.skitter/shop/frontier.db'}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: file.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def wait_for_written_leases(folder):
    """Wait until the leases are written, which the crawl does not. Row 0 says only that the file has an owner."""
    deadline = time.monotonic() + 30
    while not any(number for number, _ in contents(folder)["leases"]):
        assert time.monotonic() < deadline, "nothing is in hand: this test has nothing to see"
        time.sleep(0.01)


def test_the_status_of_a_killed_job_changes_nothing_and_loses_no_lease(site, slow, server, tmp_path):
    with Running(*crawl(server), cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        wait_for_written_leases(tmp_path)
        running.process.kill()
        running.process.wait()
        before = contents(tmp_path)
        for _ in range(2):
            seen = status(tmp_path)
            assert (seen["state"], seen["live"]) == ("stopped", False)
            assert seen["counts"]["leased"] > 0
            assert adds_up(seen["counts"])
            assert "go back to the queue" in skitter("status", "shop", cwd=tmp_path).stdout
            assert skitter("jobs", cwd=tmp_path).returncode == 0
            assert skitter("failures", "list", "shop", cwd=tmp_path).returncode == 0
        assert contents(tmp_path) == before
    slow.released.set()
    assert skitter(*crawl(server), cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_the_status_of_an_ended_job_does_not_change_its_folder(site, serve, tmp_path):
    assert skitter(*crawl(serve(site)), cwd=tmp_path).returncode == 0
    folder = tmp_path / ".skitter" / "shop"

    def digests():
        return {
            path: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file()
        }  # fmt: skip

    before = digests()
    assert status(tmp_path)["state"] == "finished"
    assert digests() == before


def test_a_paused_job_reports_its_pause_and_continues_when_it_is_resumed(site, slow, server, tmp_path):
    with Running(*crawl(server), cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        running.interrupt()
        running.end()
    assert skitter("pause", "shop", cwd=tmp_path).returncode == 0
    assert status(tmp_path)["state"] == "paused"
    hits = len(server.log.hits)
    result = skitter(*crawl(server), cwd=tmp_path)
    assert result.returncode == 0
    assert result.stderr.startswith("job shop is paused; `skitter resume shop` continues it")
    assert len(server.log.hits) == hits
    slow.released.set()
    assert skitter("resume", "shop", cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_jobs_lists_every_job_with_its_state(serve, tmp_path):
    assert "there are no jobs" in skitter("jobs", cwd=tmp_path).stderr
    server = serve(GeneratedSite(pages=3, links_per_page=12))
    skitter("crawl", server.url, "--job", "one", "--quiet", "-o", "one.jsonl", cwd=tmp_path)
    skitter("crawl", server.url, "--job", "two", "--limit", 1, "--quiet", "-o", "two.jsonl", cwd=tmp_path)
    found = json.loads(skitter("jobs", "--json", cwd=tmp_path).stdout)
    assert [(job["job"], job["state"]) for job in found] == [("one", "finished"), ("two", "stopped")]
    lines = skitter("jobs", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["one", "finished", "3"], ["two", "stopped", "1"]]
    pausing = skitter("pause", "two", cwd=tmp_path)
    assert pausing.stderr == "job two is paused, at its limit of 1 pages; `skitter resume two` continues it\n"
    assert skitter("pause", "one", cwd=tmp_path).stderr == "job one is finished\n"


def test_a_job_in_memory_that_is_over_is_listed_but_cannot_be_controlled(serve, tmp_path):
    server = serve(GeneratedSite(pages=3, links_per_page=12))
    skitter("crawl", server.url, "--job", "m", "--frontier", "memory:", "-o", "m.jsonl", cwd=tmp_path)
    assert status(tmp_path, "m")["state"] == "new"
    result = skitter("pause", "m", cwd=tmp_path)
    assert result.returncode == 2
    assert "in memory" in result.stderr


def test_stopping_or_pausing_a_job_that_is_not_running_says_its_state(serve, tmp_path):
    server = serve(GeneratedSite(pages=3, links_per_page=12))
    skitter(*crawl(server, "--limit", 1), cwd=tmp_path)
    stopping = skitter("stop", "shop", cwd=tmp_path)
    assert (stopping.returncode, stopping.stderr) == (0, "job shop is not running\n")
    skitter(*crawl(server), cwd=tmp_path)
    for command in ("stop", "pause"):
        answer = skitter(command, "shop", cwd=tmp_path)
        assert (answer.returncode, answer.stderr) == (0, "job shop is finished\n")


def test_a_job_that_is_paused_can_be_stopped(site, slow, server, tmp_path):
    with Running(*crawl(server, "--workers", 2), cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        skitter("pause", "shop", cwd=tmp_path)
        assert skitter("stop", "shop", cwd=tmp_path).stderr.startswith("job shop is stopped")
        assert running.end()[0] == 0
    slow.released.set()
    assert skitter(*crawl(server), cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)
