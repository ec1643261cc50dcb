"""The folder of a job: permissions of its socket, and reading its state."""

import asyncio
import datetime as dt
import os
import threading
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from skitter import Crawl, Spider
from skitter.errors import FrontierError, UsageError
from skitter.frontier.embedded.lock import Owned, OwnerLock
from skitter.frontier.embedded.tables import read_only_address
from skitter.frontier.options import FrontierContext
from skitter.frontier.registry import make_frontier
from skitter.run import job_access
from skitter.run.job import JobFolder, JobSpec
from skitter.run.job_access import find_job
from skitter.service.config import RunFolder


def test_a_folder_of_sockets_that_others_may_change_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    job = JobFolder("job", tmp_path / ("long" * 30))
    folder = tmp_path / f"skitter-{os.getuid()}"
    assert job.socket.parent == folder  # creates it
    assert job.socket.parent == folder
    folder.chmod(0o770)
    with pytest.raises(UsageError, match=folder.name) as caught:
        _ = job.socket
    assert caught.value.remedy
    folder.chmod(0o700)
    folder.rename(tmp_path / "real")
    folder.symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match=folder.name):
        _ = job.socket
    folder.unlink()
    folder.write_text("")
    with pytest.raises(UsageError, match=folder.name):
        _ = job.socket
    other = os.getuid() + 1
    (tmp_path / f"skitter-{other}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(UsageError, match=f"skitter-{other}"):
        _ = job.socket


async def test_a_run_without_a_folder_for_its_socket_does_not_keep_the_lock_of_its_frontier(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"skitter-{os.getuid()}").write_text("")
    home = tmp_path / ("long" * 30)
    with pytest.raises(UsageError, match="is not a folder that only you can use"):
        await Crawl(JobSpec(job="job", spider=Spider, home=home), spider_class=Spider).run()
    lock = OwnerLock(home / "job" / "frontier.db")
    await asyncio.to_thread(lock.acquire)
    await asyncio.to_thread(lock.release)


SPELLINGS = {
    "redis://h": [
        "redis://h/0",
        "redis://h/",
        "REDIS://H:6379",
        "redis://h?db=0",
        "redis://me@h?outage_timeout=5",
    ],
    "redis://h:7000/2": ["redis://h:7000?db=2", "redis://:secret@h:7000/2/"],
    "unix:///run/redis.sock": ["unix:///run/redis.sock?db=0"],
    "redis+sentinel://a,b:26379/main": ["redis+sentinel://a:26379,b/main/0"],
    "redis+cluster://h:7000": ["redis+cluster://h:7000/0", "redis+cluster://h:7000/?partitions=8"],
    "rediss+cluster://h": ["rediss+cluster://h:6379/"],
    "sqlite:frontier.db": [],
    "redis://[::1": [],  # invalid
    "other://h": [],
}


@pytest.mark.parametrize("first", SPELLINGS)
def test_a_job_continues_with_any_spelling_of_its_frontier_but_not_with_another_one(
    tmp_path, monkeypatch, first
):
    def check(frontier):
        folder.check(JobSpec(job="job", spider="shop:Shop", frontier=frontier))

    folder = JobFolder("job", tmp_path)
    folder.write(JobSpec(job="job", spider="shop:Shop", frontier=first))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "frontier.db").write_text("not empty")
    for same in [first, *SPELLINGS[first]]:
        check(same)
    others = {*SPELLINGS, "redis://h/1", "redis://i", "rediss://h", "other://h/0", "sqlite:"} - {first}
    for other in others:
        with pytest.raises(UsageError, match="another frontier"):
            check(other)


def test_a_job_on_a_server_is_that_of_the_folder_with_any_spelling_of_its_frontier(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    JobFolder("job").write(JobSpec(job="job", spider="shop:Shop", frontier="redis://h"))
    assert job_access.find_job("job", "redis://h:6379/0").read().spider == "shop:Shop"
    assert job_access.find_job("job", "redis://h/1").read().spider == ""


@pytest.mark.parametrize("spelling", ["sqlite:", "SQLite:", "sqlite"])
async def test_a_frontier_in_a_file_is_in_a_file_with_any_spelling(tmp_path, spelling):
    spec = JobSpec(job="job", spider="shop:Shop", frontier=spelling)
    frontier = make_frontier(spec.frontier, FrontierContext("job", str(tmp_path)))
    await frontier.open()
    await frontier.close()
    assert (tmp_path / "frontier.db").exists()
    with pytest.raises(UsageError, match="not shared"):
        find_job("job", spelling)


@pytest.mark.parametrize("spelling", ["memory:", "Memory:", "memory"])
def test_a_frontier_in_memory_is_known_with_any_spelling(spelling):
    assert JobSpec(job="job", spider="shop:Shop", frontier=spelling).is_in_memory


async def test_the_file_of_an_idle_job_is_not_read_on_the_event_loop(tmp_path, monkeypatch):
    threads = set()

    def recording_thread(read):
        def recorded(*arguments):
            threads.add(threading.current_thread())
            return read(*arguments)

        return recorded

    for name in ("read_status", "read_changes", "read_note"):
        monkeypatch.setattr(job_access, name, recording_thread(getattr(job_access, name)))
    monkeypatch.setattr(job_access, "live_frontier", lambda _: nullcontext())
    folder = RunFolder(JobSpec(job="job", spider="shop:Shop", home=str(tmp_path)))
    assert (await job_access.job_status(folder)).state == "new"
    assert threads
    assert threading.current_thread() not in threads


@pytest.fixture
def idle_job(tmp_path, monkeypatch):
    monkeypatch.setattr(job_access, "live_frontier", lambda _: nullcontext())
    return RunFolder(JobSpec(job="job", spider="skitter:Spider", home=str(tmp_path)))


async def test_the_changed_settings_of_an_idle_job_are_read_while_another_process_changes_the_job(idle_job):
    lock = idle_job.lock()
    await asyncio.to_thread(lock.acquire)
    try:
        assert (await job_access.settings_changes(idle_job)).to_dict() == {}
    finally:
        await asyncio.to_thread(lock.release)
    assert not await asyncio.to_thread((idle_job.path / "frontier.db").exists)


class StopHere(Exception):
    """The lock was taken. Opening the frontier would block the event loop of the test."""


@pytest.fixture
def attempts(monkeypatch):
    """Attempts to take the lock of a job. The last one succeeds."""
    left = [
        Owned("the job is being run by process 1"),
        Owned("the job is being run by process 1"),
        StopHere(),
    ]

    def acquire(_):
        raise left.pop(0)

    monkeypatch.setattr(OwnerLock, "acquire", acquire)
    monkeypatch.setattr(job_access, "_RETRY_INTERVAL", 0)
    return left


async def test_a_command_waits_for_another_one_that_changes_the_same_idle_job(idle_job, attempts):
    with pytest.raises(StopHere):
        await job_access.open_frontier(idle_job).__aenter__()
    assert attempts == []


async def test_a_command_that_waits_reaches_a_run_that_begins_meanwhile(idle_job, attempts, monkeypatch):
    @asynccontextmanager
    async def live_after_one_attempt(_):
        yield "live" if len(attempts) == 2 else None

    monkeypatch.setattr(job_access, "live_frontier", live_after_one_attempt)
    async with job_access.open_frontier(idle_job) as reached:
        assert reached == "live"


async def test_a_command_does_not_wait_long_for_a_run_that_begins(idle_job, attempts, monkeypatch):
    monkeypatch.setattr(job_access, "_MAX_WAIT", 0)
    with pytest.raises(Owned):
        await job_access.open_frontier(idle_job).__aenter__()
    assert len(attempts) == 2


def test_a_frontier_file_with_an_empty_log_is_read_without_space_on_the_disk(tmp_path):
    (tmp_path / "frontier.db-wal").touch()
    assert read_only_address(tmp_path / "frontier.db").endswith("&immutable=1")
    (tmp_path / "frontier.db-wal").write_bytes(b"log")
    assert read_only_address(tmp_path / "frontier.db").endswith("?mode=ro")


@pytest.mark.parametrize(
    ("title", "expected"),
    [("", "`skitter resume job`"), ("books (Scrapy)", "the next run of books (Scrapy)")],
)
def test_a_job_of_another_program_is_continued_by_its_next_run(tmp_path, title, expected):
    folder = JobFolder("job", tmp_path)
    folder.path.mkdir()
    folder.write(JobSpec(job="job", spider="m:S", spider_title=title))
    assert folder.how_to_continue() == expected


def test_a_job_of_another_machine_is_continued_on_its_frontier(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = find_job("job", "redis://:secret@cache/0")
    assert job.how_to_continue() == "`skitter resume job --frontier redis://:***@cache/0`"


def test_a_specification_takes_paths(tmp_path):
    spec = JobSpec(
        job="x", spider=tmp_path / "shop.py", outputs=[tmp_path / "a.jsonl", "b.csv"], home=tmp_path
    )
    assert (spec.spider, spec.home) == (f"{tmp_path}/shop.py", str(tmp_path))
    assert spec.outputs == [f"{tmp_path}/a.jsonl", "b.csv"]


def test_a_job_with_a_date_and_a_tuple_as_arguments_can_be_continued(tmp_path):
    folder = JobFolder("job", tmp_path)

    def spec(day):
        arguments = {"since": dt.date(2026, 1, day), "kinds": ("new", "old")}
        return JobSpec(job="job", spider="shop:Shop", frontier="memory:", arguments=arguments)

    folder.write(spec(1))
    folder.check(spec(1))
    with pytest.raises(UsageError, match=r"started with other arguments.*2026-01-01"):
        folder.check(spec(2))


@pytest.mark.parametrize("output", ["a.jsonl", Path("a.jsonl")])
def test_an_output_in_place_of_a_list_is_refused(output):
    with pytest.raises(UsageError, match=r"outputs of job 'x' is not a list: 'a.jsonl'") as caught:
        JobSpec(job="x", spider="shop.py", outputs=output)
    assert caught.value.remedy == "write outputs=['a.jsonl']"


@pytest.mark.parametrize("workers", [0, -1, "2", 1.5, None])
def test_a_job_without_a_whole_number_of_workers_is_refused(workers):
    with pytest.raises(UsageError, match=f"workers of job 'x' is {workers!r}") as caught:
        JobSpec(job="x", spider="shop.py", workers=workers)
    assert caught.value.field == "workers"


def test_a_job_folder_that_cannot_be_created_is_not_explained_by_the_frontier(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FrontierError) as caught:
        JobFolder("job", tmp_path / "file").lock().acquire()
    assert "--frontier" not in caught.value.remedy
    assert "start the job in a folder that you may write" in caught.value.remedy
