"""`skitter profile`: CPU time and memory of the workers of a running job."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from cli_command import Logged, skitter, usage_error
from crawl_harness import page
from skitter.errors import UsageError
from skitter.run.profiling import ProfileError, cpu_profile, memory_profile

SPIDER = """
from skitter import Spider

class Hog(Spider):
    start_urls = ["{url}"]
    kept = []

    def parse(self, response):
        self.burn()
        self.kept.append(bytes(100_000))
        yield response.follow(response.css("a")[0])
        yield response.follow(response.css("a")[1])

    def burn(self):
        return sum(n * n for n in range(30_000))
"""


@pytest.fixture
def endless(serve):
    """An endless site: each page links to two more."""
    return serve(lambda visit: page(f"{visit.target}a", f"{visit.target}b"))


def test_the_workers_of_a_running_job_are_profiled(endless, tmp_path):
    (tmp_path / "hog.py").write_text(SPIDER.format(url=endless.url))
    arguments = (
        "run",
        "hog.py",
        "--job",
        "hog",
        "--no-robots",
        "--delay",
        0,
        "--workers",
        2,
        "-o",
        "x.jsonl",
        "-q",
    )

    def workers():
        return json.loads(skitter("status", "hog", "--json", cwd=tmp_path).stdout or "{}").get("workers", ())

    with Logged(*arguments, "-s", "trap_detection=no", cwd=tmp_path) as running:
        running.wait_for(lambda: len(workers()) == 2)
        cpu = skitter("profile", "hog", "--seconds", 2, "-o", "cpu.json", cwd=tmp_path)
        memory = skitter("profile", "hog", "--memory", "--seconds", 2, "-o", "memory.txt", cwd=tmp_path)
        assert "workers here: " in usage_error("profile", "hog", "--worker", "nobody", cwd=tmp_path)
        running.wait_for(lambda: len(workers()) == 2)
    assert cpu.returncode == 0, cpu.stderr
    assert "burn" in cpu.stdout, cpu.stdout
    read = json.loads((tmp_path / "cpu.json").read_text())
    assert any("burn" in frame["name"] for frame in read["shared"]["frames"])
    [profile] = read["profiles"]
    assert profile["endValue"] == sum(profile["weights"]) > 0
    assert memory.returncode == 0, memory.stderr
    assert memory.stderr.count("MB kept of what it allocated") == 2
    assert "hog.py:10" in memory.stdout, memory.stdout
    assert "hog.py:10)" in (tmp_path / "memory.txt").read_text()
    assert "profile.svg" in usage_error("profile", "hog", "-o", "profile.svg", cwd=tmp_path)
    assert [path.name for path in (tmp_path / ".skitter" / "hog").iterdir() if path.suffix == ".json"] == [
        "job.json"
    ]


async def test_a_worker_that_cannot_be_profiled_is_reported(tmp_path, monkeypatch):
    """Other processes do not get the signal: it would end them."""
    sleeper = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
    try:
        with pytest.raises(ProfileError):
            await memory_profile(sleeper.pid, 0.1, tmp_path)
        assert sleeper.returncode is None
    finally:
        sleeper.kill()
        await sleeper.wait()
    with pytest.raises(ProfileError):
        await memory_profile(sleeper.pid, 0.1, tmp_path)
    with pytest.raises(ProfileError):
        await cpu_profile(sleeper.pid, 1, 10, tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UsageError):
        await cpu_profile(os.getpid(), 1, 10, tmp_path)


TRACED = """
import asyncio
import sys
import tracemalloc
from pathlib import Path
from skitter.run.profiling import MemoryTracer

async def main():
    MemoryTracer(Path(sys.argv[1])).listen()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(tracemalloc.is_tracing(), flush=True)

asyncio.run(main())
"""


@pytest.fixture
async def worker(tmp_path):
    """A process that handles the signal, and reports whether it traces its memory."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        TRACED,
        str(tmp_path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await worker.stdout.readline() == b"ready\n"
        yield worker
    finally:
        worker.kill()
        await worker.communicate()


async def is_tracing(worker):
    worker.stdin.write(b"?\n")
    return await worker.stdout.readline() == b"True\n"


async def test_a_worker_that_is_suspended_meanwhile_is_profiled(worker, tmp_path):
    worker.send_signal(signal.SIGSTOP)
    profiling = asyncio.create_task(memory_profile(worker.pid, 0.1, tmp_path))
    await asyncio.sleep(0.5)  # longer than the profile
    worker.send_signal(signal.SIGCONT)
    _, peak = await profiling
    assert peak > 0
    assert not await is_tracing(worker)


def has_pending_signal(worker):
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    return any(line.startswith("ShdPnd") and int(line.split()[1], 16) for line in lines)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show pending signals")
async def test_a_profile_that_is_cancelled_before_the_worker_reacts_leaves_it_as_it_was(worker, tmp_path):
    worker.send_signal(signal.SIGSTOP)
    profiling = asyncio.create_task(memory_profile(worker.pid, 60, tmp_path))
    while not await asyncio.to_thread(has_pending_signal, worker):
        await asyncio.sleep(0.01)
    profiling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await profiling
    worker.send_signal(signal.SIGCONT)
    await is_tracing(worker)  # its event loop has had a turn since
    assert not await is_tracing(worker)
    _, peak = await memory_profile(worker.pid, 0.1, tmp_path)
    assert peak > 0
    assert not list(tmp_path.glob("memory-*"))


async def test_a_profile_that_is_cancelled_ends_the_tracing(worker, tmp_path):
    profiling = asyncio.create_task(memory_profile(worker.pid, 60, tmp_path))
    while not await is_tracing(worker):
        await asyncio.sleep(0.01)
    profiling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await profiling
    while await is_tracing(worker):
        await asyncio.sleep(0.01)


def test_a_job_that_does_not_run_has_nothing_to_profile(tmp_path, endless):
    run = skitter("crawl", endless.url, "--job", "x", "-s", "max_pages=1", "-o", "x.jsonl", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "'x'" in usage_error("profile", "x", cwd=tmp_path)
