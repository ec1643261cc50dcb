"""CPU, wall time and memory of a command with all processes it starts.

As a program, ``measure.py RESULT -- COMMAND...``, it is the fresh process between the harness and the
command: its ``RUSAGE_CHILDREN`` holds that one tree and nothing else.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

_SET_CHILD_SUBREAPER = 36
_SAMPLE_EVERY = 0.1


class Failed(Exception):
    """The command ended with an error, or took too long."""


class Usage(NamedTuple):
    cpu: float
    """Seconds, user and system, of the whole tree."""
    wall: float
    """Seconds from start to exit."""
    owner_mb: float
    """Peak resident memory of the command's own process."""
    worker_mb: float
    """The largest peak among the processes that it started; 0 if it started none."""
    tree_mb: float
    """Peak of the sum."""


def measure(command, folder, time_limit=900, env=None):
    """Run a command in a folder. Raises :class:`Failed`."""
    result = Path(folder, "measured.json")
    wrapper = subprocess.Popen(
        [sys.executable, __file__, str(result), "--", *command],
        cwd=folder,
        env={**_with_compiled_modules(), **(env or {})},
        start_new_session=True,
    )
    memory = _watch(wrapper, time_limit)
    if not result.exists():
        raise Failed(f"took over {time_limit} s or could not start: {' '.join(command)}")
    numbers = json.loads(result.read_text())
    if numbers["status"] != 0:
        raise Failed(f"ended with status {numbers['status']}: {' '.join(command)}")
    return Usage(numbers["cpu"], numbers["wall"], *memory)


def _with_compiled_modules():
    """Return the environment without the variable that makes each run compile all modules again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _watch(wrapper, time_limit):
    """Sample the memory of the tree under ``wrapper`` until it ends."""
    peaks, tree_peak = {}, 0
    top = psutil.Process(wrapper.pid)
    deadline = time.monotonic() + time_limit
    owner = None
    while wrapper.poll() is None:
        now = {}
        try:
            owner = owner or next((child.pid for child in top.children()), None)
            for process in top.children(recursive=True):
                now[process.pid] = process.memory_info().rss
        except psutil.NoSuchProcess:
            pass
        for pid, size in now.items():
            peaks[pid] = max(size, peaks.get(pid, 0))
        tree_peak = max(tree_peak, sum(now.values()))
        if time.monotonic() > deadline:
            os.killpg(wrapper.pid, signal.SIGKILL)
        time.sleep(_SAMPLE_EVERY)
    owner_peak = peaks.pop(owner, 0)
    return owner_peak / 1e6, max(peaks.values(), default=0) / 1e6, tree_peak / 1e6


def resident_mb():
    """Return the resident memory of this process."""
    return psutil.Process().memory_info().rss / 1e6


def peak_mb():
    """Return the largest resident memory that this process has had (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def _run(result, command):
    # Orphans of the command become our children, so that their time is counted too.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    begin = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    wall = time.monotonic() - begin
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    numbers = {"status": status, "wall": wall, "cpu": used.ru_utime + used.ru_stime}
    Path(result).write_text(json.dumps(numbers))


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[3:])
