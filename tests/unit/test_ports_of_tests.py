"""Ports for tests: each belongs to one test process only, even while no process listens on it."""

import random
import socket
import subprocess
import sys

from services import processes

HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from services.processes import free_port
print(free_port(), flush=True)
sys.stdin.read()
"""


class ScriptedRandom:
    """Draws given numbers first."""

    def __init__(self, *ports):
        self._ports = list(ports)

    def randrange(self, first, end):
        return self._ports.pop(0) if self._ports else random.randrange(first, end)


def test_a_port_of_another_test_process_is_not_reused_until_that_process_has_ended(monkeypatch, tests_folder):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tests_folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        held = int(holder.stdout.readline())
        monkeypatch.setattr(processes, "_PORTS", ScriptedRandom(held))
        assert processes.free_port() != held
        holder.communicate()
    monkeypatch.setattr(processes, "_PORTS", ScriptedRandom(held))
    assert processes.free_port() == held


def test_an_occupied_port_is_not_used(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        taken = foreign.getsockname()[1]
        monkeypatch.setattr(processes, "_PORTS", ScriptedRandom(taken))
        assert processes.free_port() != taken
