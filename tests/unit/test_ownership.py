"""One process at a time owns a job, and whoever else comes is told which."""

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
