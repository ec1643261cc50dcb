"""One process at a time owns a job, and other processes get an error that names it."""

import errno
import os
import socket

import pytest

from skitter.errors import FrontierError
from skitter.frontier.embedded.lock import OwnerLock


def test_the_owner_is_named_and_its_machine_if_it_is_another(tmp_path, monkeypatch):
    first, second = (OwnerLock(tmp_path / "job") for _ in range(2))
    first.acquire()
    with pytest.raises(FrontierError) as refusal:
        second.acquire()
    assert str(refusal.value).endswith(f"by process {os.getpid()}")
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    with pytest.raises(FrontierError, match=rf"by process {os.getpid()} on .+") as refusal:
        second.acquire()
    assert "elsewhere" not in str(refusal.value)
    first.release()
    second.acquire()
    second.release()


def test_on_a_full_disk_a_lock_holds_without_the_name_of_its_owner(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    first, second = (OwnerLock(tmp_path / "job") for _ in range(2))
    first.acquire()
    with pytest.raises(FrontierError, match="by process unknown"):
        second.acquire()
    first.release()


def test_a_process_that_was_forked_by_the_owner_does_not_keep_the_lock(tmp_path):
    first, second = (OwnerLock(tmp_path / "job") for _ in range(2))
    first.acquire()
    begun, begun_pipe = os.pipe()
    end, end_pipe = os.pipe()
    child = os.fork()
    if child == 0:  # like a worker of a process pool, which waits for work when its parent is killed
        os.close(end_pipe)
        os.write(begun_pipe, b".")
        os.read(end, 1)
        os._exit(0)
    try:
        os.read(begun, 1)
        with pytest.raises(FrontierError):
            second.acquire()
        os.close(first._descriptor)  # as the kernel does when the owner ends
        second.acquire()
        second.release()
    finally:
        first._descriptor = None
        first.release()
        os.close(end_pipe)
        os.waitpid(child, 0)
        for pipe in (begun, begun_pipe, end):
            os.close(pipe)
