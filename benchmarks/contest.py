"""Crawlers run in turn on one site: A B C A B C ..., so that a noisy minute meets them all."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from crawlers import CRAWLERS, Job, check
from measure import Usage, measure


class Entrant(NamedTuple):
    crawler: str
    concurrency: int = 32
    workers: int = 1
    limit: int = 0
    prepare: Callable[[Path], None] | None = None
    """Called with the empty folder of each run."""
    frontier: str = ""
    hosts: str = ""
    """Hosts to follow links on, besides that of the first page."""


class Run(NamedTuple):
    scenario: str
    label: str
    pages: int
    usage: Usage
    pages_per_second: float
    """By the wall clock of the whole process, or of the server where it keeps a log."""

    @property
    def cpu_us_per_page(self):
        return self.usage.cpu / self.pages * 1e6


class Summary(NamedTuple):
    """Medians over the rounds of one entrant."""

    label: str
    pages: int
    rounds: int
    cpu_us_per_page: float
    pages_per_cpu_second: float
    pages_per_second: float
    wall: float
    owner_mb: float
    worker_mb: float
    tree_mb: float


def contest(scenario, entrants, start, truth, *, rounds, served_rate=None):
    """Run every entrant ``rounds`` times. ``served_rate`` reads pages/s from the server's log."""
    runs = []
    for _round in range(rounds):
        for label, entrant in entrants.items():
            with tempfile.TemporaryDirectory(prefix="skitter-bench-") as name:
                usage, pages = _run(entrant, Path(name), start, truth)
            rate = served_rate() if served_rate else pages / usage.wall
            runs.append(Run(scenario, label, pages, usage, rate))
            print(f"  {scenario}, {label}: {usage.cpu:.2f} s CPU, {usage.wall:.2f} s", flush=True)
    return runs


def _run(entrant, folder, start, truth):
    job = Job(
        start,
        folder / "out.jsonl",
        entrant.concurrency,
        entrant.workers,
        entrant.limit,
        entrant.frontier,
        entrant.hosts,
    )
    if entrant.prepare is not None:
        entrant.prepare(folder)
    usage = measure(CRAWLERS[entrant.crawler](job), folder)
    if entrant.limit and entrant.limit < len(truth):
        return usage, entrant.limit
    check(job.output, truth)
    return usage, len(truth)


def summarize(runs, label):
    own_runs = [run for run in runs if run.label == label]
    cpu = median(run.cpu_us_per_page for run in own_runs)
    return Summary(
        label=label,
        pages=own_runs[0].pages,
        rounds=len(own_runs),
        cpu_us_per_page=cpu,
        pages_per_cpu_second=1e6 / cpu,
        pages_per_second=median(run.pages_per_second for run in own_runs),
        wall=median(run.usage.wall for run in own_runs),
        owner_mb=max(run.usage.owner_mb for run in own_runs),
        worker_mb=max(run.usage.worker_mb for run in own_runs),
        tree_mb=max(run.usage.tree_mb for run in own_runs),
    )


def copier(source, name):
    """Return a ``prepare`` that copies a file into the run's folder as ``name``."""

    def prepare(folder):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    return prepare
