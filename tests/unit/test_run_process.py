"""Effects of a run on its process."""

import asyncio
import gc
import os
import subprocess
import sys

import msgspec
import pytest

from skitter.run import supervisor
from skitter.run.job import JobSpec
from skitter.run.process import run_async
from skitter.run.supervisor import WorkerCommand, WorkerProcess


def test_a_run_keeps_nothing_from_the_collector_in_a_program_that_continues():
    """A program may run many crawls. Objects that each of them froze would never be collected."""
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        run_async(asyncio.sleep(0))
        assert gc.get_freeze_count() == frozen
    finally:
        gc.set_threshold(*threshold)


@pytest.mark.parametrize("kept", [0, 1, 40, -1], ids=["nothing", "one byte", "a part", "all but one byte"])
def test_a_worker_whose_owner_is_killed_while_it_writes_the_command_ends_without_a_traceback(kept):
    command = msgspec.json.encode(WorkerCommand(JobSpec(job="shop", spider="-"), os.getpid(), shared=False))
    read_end, write_end = os.pipe()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "skitter.run.child", str(write_end), "suffix"],
            input=command[:kept], pass_fds=(write_end,), capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        os.close(write_end)
        assert (ended.returncode, ended.stdout, ended.stderr, os.read(read_end, 1)) == (1, b"", b"", b"")
    finally:
        os.close(read_end)


async def test_a_worker_whose_start_is_cancelled_leaves_neither_a_process_nor_a_pipe(monkeypatch):
    processes, pipes, closed = [], [], []
    start, make_pipe, close = asyncio.create_subprocess_exec, os.pipe, os.close

    async def recorded_start(*arguments, **options):
        processes.append(await start(*arguments, **options))
        return processes[-1]

    def recorded_pipe():
        pipes.append(make_pipe())
        return pipes[-1]

    def recorded_close(descriptor):
        closed.append(descriptor)
        close(descriptor)

    def cancelled(*_):
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded_start)
    monkeypatch.setattr(os, "pipe", recorded_pipe)
    monkeypatch.setattr(os, "close", recorded_close)
    monkeypatch.setattr(supervisor, "worker_name", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await WorkerProcess.start(lambda: None)
    assert processes[0].returncode is not None
    assert set(pipes[0]) <= set(closed)
