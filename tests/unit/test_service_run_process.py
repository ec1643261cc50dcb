"""The process of a run, as a node starts it."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from skitter.run.job import JobSpec
from skitter.service.run_process import RunProcess
from skitter.service.runner import RunCommand


def open_files():
    return sorted(Path("/dev/fd").iterdir())


async def test_a_start_that_is_cancelled_leaves_neither_a_process_nor_an_open_file(tmp_path, monkeypatch):
    started = asyncio.get_running_loop().create_future()
    original = asyncio.create_subprocess_exec

    async def start_sleeping(*command, **options):
        process = await original(sys.executable, "-c", "import time; time.sleep(600)", **options)
        started.set_result(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_sleeping)
    # More than a pipe holds, so that the call waits for the process, which reads nothing.
    spec = JobSpec(job="job", spider="spider", home=str(tmp_path), arguments={"text": "x" * 1_000_000})
    before = open_files()
    starting = asyncio.create_task(RunProcess.start("job", 1, RunCommand(spec, os.getpid()), "", print))
    process = await started
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    try:
        assert process.returncode is not None
        assert open_files() == before
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
