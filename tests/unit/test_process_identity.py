"""The identity of a process proves its death, but never that of a live process or of one on another machine."""

import subprocess
import sys

import pytest

from skitter._utils.process_identity import is_provably_dead, process_identity
from skitter.frontier.workers import has_died, worker_name

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what the proof needs")


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_live_process_is_not_dead(child):
    for identity in (process_identity(), process_identity(child.pid)):
        assert not is_provably_dead(identity)


def test_a_process_that_was_killed_is_dead_before_and_after_its_parent_notices(child):
    identity = process_identity(child.pid)
    child.kill()
    child.stdout = None
    while not is_provably_dead(identity):
        assert child.returncode is None  # a zombie: its parent has not waited for it
    child.wait()
    assert is_provably_dead(identity)


def test_another_process_with_the_same_id_does_not_count(child):
    pid, started, boot = process_identity(child.pid).split("-")
    assert is_provably_dead(f"{pid}-{int(started, 16) - 1:x}-{boot}")


def test_a_process_of_another_boot_machine_or_container_is_not_declared_dead():
    pid, started, boot = process_identity().split("-")
    assert not is_provably_dead(f"{pid}-{int(started, 16) + 1:x}-{boot[::-1]}")


@pytest.mark.parametrize("name", ["", "w", "1-2", "99999999-3f2a91c0b1d2", "x-1-y", "?"])
def test_other_names_declare_no_process_dead(name):
    assert not is_provably_dead(name)


def test_a_worker_is_dead_with_its_process(child):
    name = worker_name("suffix", child.pid)
    assert name.endswith("-suffix")
    assert not has_died(name)
    child.kill()
    child.wait()
    assert has_died(name)
