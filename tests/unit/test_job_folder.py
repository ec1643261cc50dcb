"""The folder of a job: who may use its socket, and where its state is read."""

import os
import threading
from contextlib import nullcontext

import pytest

from skitter.errors import UsageError
from skitter.run import job_access
from skitter.run.job import JobFolder, JobSpec
from skitter.service.config import RunFolder


def test_a_folder_of_sockets_that_others_may_change_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    job = JobFolder("job", tmp_path / ("long" * 30))
    folder = tmp_path / f"skitter-{os.getuid()}"
    assert job.socket.parent == folder  # makes it
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


async def test_the_file_of_an_idle_job_is_not_read_on_the_event_loop(tmp_path, monkeypatch):
    threads = set()

    def noting(read):
        def noted(*arguments):
            threads.add(threading.current_thread())
            return read(*arguments)

        return noted

    for name in ("read_status", "read_changes", "read_note"):
        monkeypatch.setattr(job_access, name, noting(getattr(job_access, name)))
    monkeypatch.setattr(job_access, "live_frontier", lambda _: nullcontext())
    folder = RunFolder(JobSpec(job="job", spider="shop:Shop", home=str(tmp_path)))
    assert (await job_access.job_status(folder)).state == "new"
    assert threads
    assert threading.current_thread() not in threads
