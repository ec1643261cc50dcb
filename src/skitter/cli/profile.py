"""``skitter profile``: shows what the workers of a running job use CPU time or memory for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import aligned, say, write_file
from skitter.cli.options import with_job
from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.run.job import JobFolder
    from skitter.run.profiling import StackProfile

_MEGABYTE = 1024 * 1024


@click.command()
@with_job
@click.option(
    "--worker",
    default="",
    metavar="NAME",
    help="Name or process id of the worker to profile. [default: all]",
)
@click.option("--seconds", type=click.FloatRange(min=1), default=10.0, show_default=True, help="Duration.")
@click.option(
    "--rate",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Samples of the CPU per second.",
)
@click.option(
    "--memory", is_flag=True, help="Show which code allocates memory and keeps it, instead of CPU time."
)
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Number of rows.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False),
    help="File for the whole profile: .json for https://www.speedscope.app, or .txt with folded stacks for flame graphs.",
)  # fmt: skip
async def profile(
    folder: JobFolder,
    worker: str,
    seconds: float,
    rate: int,
    memory: bool,
    top: int,
    output: Path | None,
) -> None:
    """Profile the workers of a running job on this machine. CPU time needs the extra `profile`."""
    if output is not None and output.suffix not in {".json", ".txt"}:
        raise UsageError(
            f"unknown kind of profile: {output}", remedy="end its name with .json or .txt", field="output"
        )
    found, notes = await _profile(folder, worker, seconds, rate, memory=memory)
    for note in notes:
        say(note)
    if not found.stacks:
        say("no samples: the workers were idle")
    else:
        click.echo(_memory_table(found, top) if memory else _cpu_table(found, top))
    if output is not None:
        write_file(output, found.speedscope(folder.job) if output.suffix == ".json" else found.folded())
        say(f"wrote {output}")


async def _profile(
    folder: JobFolder, worker: str, seconds: float, rate: int, *, memory: bool
) -> tuple[StackProfile, list[str]]:
    from skitter.run.profiling import cpu_profile, joined, memory_profile

    pids = await _local_workers(folder, worker)
    if memory:
        traced = await asyncio.gather(*(memory_profile(pid, seconds, folder.path) for pid in pids))
        notes = [
            f"process {pid}: {profile.total / _MEGABYTE:.1f} MB kept of what it allocated in {seconds:g} s; peak {peak / _MEGABYTE:.0f} MB"
            for pid, (profile, peak) in zip(pids, traced, strict=True)
        ]
        return joined(profile for profile, _ in traced), notes
    sampled = await asyncio.gather(*(cpu_profile(pid, seconds, rate, folder.path) for pid in pids))
    notes = [
        f"process {pid}: busy in {profile.total:.0f} of about {seconds * rate:.0f} samples"
        for pid, profile in zip(pids, sampled, strict=True)
    ]
    return joined(sampled), notes


async def _local_workers(folder: JobFolder, name_or_pid: str) -> list[int]:
    """Return the process ids of the workers of a job on this machine. Raises :class:`~skitter.errors.UsageError`."""
    from skitter.run.job_access import job_status

    workers = (await job_status(folder)).workers
    local = [worker.report for worker in workers if worker.report.host == os.uname().nodename]
    chosen = [worker for worker in local if name_or_pid in {"", worker.name, str(worker.pid)}]
    if not chosen:
        if not local:
            raise UsageError(
                f"no worker of job {folder.job!r} runs on this machine",
                remedy="profile a job while it runs, on the machine of its workers",
            )
        names = ", ".join(f"{worker.name} (process {worker.pid})" for worker in local)
        raise UsageError(
            f"job {folder.job!r} has no such worker on this machine",
            remedy=f"workers here: {names}",
            field="worker",
        )
    return sorted({worker.pid for worker in chosen})


def _cpu_table(found: StackProfile, top: int) -> str:
    rows = [
        (f"{100 * row.own / found.total:.1f}", f"{100 * row.total / found.total:.1f}", row.frame.name, _short_location(row.frame.file, row.frame.line))
        for row in found.rows(top)
    ]  # fmt: skip
    return aligned([("SELF %", "TOTAL %", "FUNCTION", "FILE"), *rows], right=frozenset({0, 1}))


def _memory_table(found: StackProfile, top: int) -> str:
    rows = [
        (
            f"{row.own / 1024:.0f}",
            f"{100 * row.own / found.total:.1f}",
            _short_location(row.frame.file, row.frame.line),
        )
        for row in found.rows(top)
    ]
    return aligned([("KB", "%", "FILE"), *rows], right=frozenset({0, 1}))


def _short_location(file: str, line: int) -> str:
    """Return the path of a file with a line number, without the folders of installed packages."""
    for folder in ("/site-packages/", "/src/"):
        file = file.rpartition(folder)[2]
    return f"{file}:{line}" if line else file
