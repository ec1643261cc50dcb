"""Profiles of running workers: what they spend CPU time on, and which code allocates their memory.

CPU time is sampled from outside by ``py-spy``. Memory is traced by the worker itself between two signals, so neither costs
anything while no profile is taken.

The system merges a signal with an equal pending signal, and the caller may be cancelled before the worker has received
the first signal. So the signals themselves have no meaning: a signal starts the tracing if there is a request, a file that
the worker then removes. A signal without a request ends the tracing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from skitter.errors import SkitterError, UsageError

MEMORY_SIGNAL = signal.SIGUSR1
"""Signal that starts tracing the memory of a worker if there is a request, and ends it otherwise."""
_TRACED_FRAMES = 12
_MAX_STACKS = 2000
_REPLY_TIMEOUT = 60.0


class ProfileError(SkitterError):
    """A worker cannot be profiled."""


class Frame(NamedTuple):
    """A function, or a line of code."""

    name: str
    file: str
    line: int


Stack = tuple[Frame, ...]
"""Frames from the outermost call to the innermost."""


class ProfileRow(NamedTuple):
    """The share of one function or line."""

    frame: Frame
    own: float
    total: float
    """Weight of the function, including the calls that it makes."""


class StackProfile(msgspec.Struct):
    """Call stacks with weights: numbers of samples (unit ``none``) or ``bytes``."""

    stacks: list[tuple[Stack, float]] = []
    unit: str = "none"

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return sum(weight for _, weight in self.stacks)

    def rows(self, limit: int) -> list[ProfileRow]:
        """Return the functions or lines with the largest own weight."""
        own, total = Counter[Frame](), Counter[Frame]()
        for stack, weight in self.stacks:
            own[stack[-1]] += weight  # type: ignore[assignment]  # counters also add floats
            for frame in set(stack):
                total[frame] += weight  # type: ignore[assignment]
        return [ProfileRow(frame, weight, total[frame]) for frame, weight in own.most_common(limit)]

    def speedscope(self, name: str) -> bytes:
        """Return the profile in the file format of https://www.speedscope.app."""
        frames: dict[Frame, int] = {}
        samples = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack, _ in self.stacks]
        profile = {
            "type": "sampled", "name": name, "unit": self.unit, "startValue": 0, "endValue": self.total,
            "samples": samples, "weights": [weight for _, weight in self.stacks],
        }  # fmt: skip
        return msgspec.json.encode(
            {
                "$schema": "https://www.speedscope.app/file-format-schema.json",
                "name": name,
                "exporter": "skitter",
                "activeProfileIndex": 0,
                "shared": {"frames": [frame._asdict() for frame in frames]},
                "profiles": [profile],
            }
        )

    def folded(self) -> bytes:
        """Return one line per stack, in the format of tools for flame graphs."""
        lines = [
            ";".join(f"{frame.name} ({frame.file}:{frame.line})" for frame in stack) + f" {weight:.0f}\n"
            for stack, weight in self.stacks
        ]
        return "".join(lines).encode()


def joined(profiles: Iterable[StackProfile]) -> StackProfile:
    """Return one profile with the stacks of all profiles."""
    all_profiles = list(profiles)
    return StackProfile([stack for profile in all_profiles for stack in profile.stacks], all_profiles[0].unit)


# --- CPU time ----------------------------------------------------------------------------------------------------


async def cpu_profile(pid: int, seconds: float, rate: int, folder: Path) -> StackProfile:
    """Sample the stacks of a process while it uses the CPU. ``folder``: for a temporary file.

    Raises :class:`ProfileError` if the system forbids it, and :class:`~skitter.errors.UsageError` if ``py-spy`` is missing.
    """
    program = Path(sys.executable).with_name("py-spy")
    path = folder / f"profile-{pid}.json"
    options = f"--pid {pid} --duration {max(1, round(seconds))} --rate {rate} --function --full-filenames"
    command = [str(program), "record", *options.split(), "--format", "speedscope", "--output", str(path)]
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except FileNotFoundError:
        raise UsageError(
            "a profile of CPU time needs py-spy, which is not installed",
            remedy='in the clone of skitter: pip install ".[profile]"',
        ) from None
    _, said = await process.communicate()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or [f"exit status {process.returncode}"]
        raise ProfileError(
            f"py-spy cannot profile process {pid}: {lines[-1]:.300}",
            remedy="run the command as root, or allow ptrace (sysctl kernel.yama.ptrace_scope=0)",
        )
    try:
        return _of_speedscope(await asyncio.to_thread(path.read_bytes))
    finally:
        await asyncio.to_thread(path.unlink)


def _of_speedscope(data: bytes) -> StackProfile:
    read: Any = msgspec.json.decode(data)
    frames = [
        Frame(frame["name"], frame.get("file") or "", frame.get("line") or 0)
        for frame in read["shared"]["frames"]
    ]
    found = Counter[Stack]()
    for profile in read["profiles"]:
        for sample in profile["samples"]:
            found[tuple(frames[index] for index in sample)] += 1
    return StackProfile([(stack, float(count)) for stack, count in found.items() if stack])


# --- memory ------------------------------------------------------------------------------------------------------


class MemoryReport(msgspec.Struct):
    """The memory that a worker has allocated while it was traced, and still held at the end."""

    seconds: float
    peak: int
    """Largest resident size of the process so far, in bytes."""
    stacks: list[tuple[list[tuple[str, str, int]], int]]
    """Each stack with its size in bytes."""


class MemoryTracer:
    """Traces the memory of this process from a requested :data:`MEMORY_SIGNAL` to the next.

    While it is idle, it costs nothing.

    ``folder``: the report is written there, as ``memory-PID.json``.
    """

    def __init__(self, folder: Path) -> None:
        self._path = report_path(folder, os.getpid())
        self._request = request_path(folder, os.getpid())
        self._began = 0.0
        self._writing: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """React to the signal, in the running event loop."""
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            asyncio.get_running_loop().add_signal_handler(MEMORY_SIGNAL, self._react)

    def _react(self, _: object = None) -> None:
        if self._writing is not None and not self._writing.done():
            return
        import tracemalloc  # noqa: PLC0415 - few workers are ever profiled

        if self._request.exists():
            self._request.unlink(missing_ok=True)
            self._began = time.monotonic()
            tracemalloc.start(_TRACED_FRAMES)
        elif tracemalloc.is_tracing():
            self._writing = asyncio.get_running_loop().create_task(asyncio.to_thread(self._write))
            # Another profile may have been requested in the meantime.
            self._writing.add_done_callback(self._react)

    def _write(self) -> None:
        import tracemalloc  # noqa: PLC0415 - few workers are ever profiled

        snapshot = tracemalloc.take_snapshot()
        tracemalloc.stop()
        stacks = [
            ([("", frame.filename, frame.lineno) for frame in trace.traceback], trace.size)
            for trace in snapshot.statistics("traceback")[:_MAX_STACKS]
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = MemoryReport(
            time.monotonic() - self._began, peak * (1 if sys.platform == "darwin" else 1024), stacks
        )
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(report))
        temporary.replace(self._path)


def report_path(folder: Path, pid: int) -> Path:
    """Return the path of the memory report of a process."""
    return folder / f"memory-{pid}.json"


def request_path(folder: Path, pid: int) -> Path:
    """Return the path of the file that requests a memory report of a process."""
    return folder / f"memory-{pid}.request"


async def memory_profile(pid: int, seconds: float, folder: Path) -> tuple[StackProfile, int]:
    """Trace the memory that a worker allocates and keeps. Return it with the peak size of the process, in bytes.

    ``folder``: the folder of the job. Raises :class:`ProfileError`.
    """
    path, request = report_path(folder, pid), request_path(folder, pid)
    await asyncio.to_thread(path.unlink, missing_ok=True)
    if not await asyncio.to_thread(_listens, pid):
        raise ProfileError(
            f"process {pid} does not trace its memory",
            remedy="start the job with `skitter run`, `crawl` or `resume`",
        )
    try:
        await asyncio.to_thread(request.touch)
        _signal(pid)
        await _wait_until(lambda: not request.exists(), pid, f"process {pid} does not react")
        await asyncio.sleep(seconds)
    finally:
        # Remove the request first, so that no signal starts the tracing.
        await asyncio.to_thread(request.unlink, missing_ok=True)
        _signal(pid)
    await _wait_until(path.exists, pid, f"process {pid} wrote no memory profile")
    report = msgspec.json.decode(await asyncio.to_thread(path.read_bytes), type=MemoryReport)
    await asyncio.to_thread(path.unlink)
    stacks = [(tuple(Frame(*frame) for frame in stack), float(size)) for stack, size in report.stacks]
    return StackProfile(stacks, "bytes"), report.peak


async def _wait_until(has_happened: Callable[[], bool], pid: int, problem: str) -> None:
    """Wait for something that a process does. Raises :class:`ProfileError` with ``problem`` if it takes too long."""
    deadline = time.monotonic() + _REPLY_TIMEOUT
    while not await asyncio.to_thread(has_happened):
        _check_alive(pid)
        if time.monotonic() > deadline:
            raise ProfileError(problem, remedy="try again")
        await asyncio.sleep(0.05)


def _listens(pid: int) -> bool:
    """Return whether a process handles the signal, which would end any other process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:  # not Linux
        _check_alive(pid)
        return sys.platform != "linux"
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (MEMORY_SIGNAL - 1) & 1)


def _signal(pid: int) -> None:
    try:
        os.kill(pid, MEMORY_SIGNAL)
    except ProcessLookupError:
        _check_alive(pid)
    except PermissionError:
        raise ProfileError(
            f"process {pid} belongs to another user", remedy="run the command as that user"
        ) from None


def _check_alive(pid: int) -> None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        raise ProfileError(f"process {pid} has ended", remedy="profile a job that runs") from None
    except PermissionError:
        return
