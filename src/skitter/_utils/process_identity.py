"""Identity of a process on this machine, with which a later process can prove that the process is dead.

A process id alone proves nothing, because the kernel reuses ids. Together with the start time of the process, the boot of
the machine and the PID namespace (each container has its own), it identifies a process uniquely. Only Linux provides all
of them, in ``/proc``. On other systems, the death of a process cannot be proved.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import xxhash

_PROC = Path("/proc")
_START_FIELD = 18
"""Position of ``starttime`` after the state of the process in ``/proc/PID/stat``, see proc(5)."""
_DEAD_STATES = ("Z", "X", "x")


def process_identity(pid: int | None = None) -> str:
    """Return ``PID-START-BOOT`` of a running process (default: this process), or only the process id if the rest is unknown."""
    pid = os.getpid() if pid is None else pid
    started = _started(pid)
    boot = _boot()
    return str(pid) if started is None or boot is None else f"{pid}-{started:x}-{boot}"


def is_provably_dead(identity: str) -> bool:
    """Return whether the process of an identity ran on this machine, since its last boot, and has ended.

    ``identity`` may have a suffix, separated by a dash.
    """
    match identity.split("-"):
        case [pid, started, boot, *_] if pid.isdecimal() and boot == _boot():
            now = _started(int(pid))
            return now is None or f"{now:x}" != started
    return False


def is_of_this_machine(identity: str) -> bool:
    """Return whether the process of an identity runs or ran on this machine, since its last boot. ``True`` if unknown."""
    match identity.split("-"):
        case [_, _, boot, *_]:
            return boot == _boot()
    return True


def _started(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; ``None`` if it has ended, or without ``/proc``."""
    try:
        status = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    state, *fields = status.rpartition(")")[2].split()
    return None if state in _DEAD_STATES else int(fields[_START_FIELD])


@cache
def _boot() -> str | None:
    """Return a hash of the boot id and the PID namespace; ``None`` if they are unknown."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_bytes().strip()
        namespace = os.fsencode((_PROC / "self/ns/pid").readlink())
    except OSError:
        return None
    return xxhash.xxh3_64_hexdigest(boot + namespace)[:12]
