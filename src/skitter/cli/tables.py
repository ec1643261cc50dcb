"""Formats the results of the control commands as text tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skitter._utils.visible import visible
from skitter.cli.console import aligned, fitted
from skitter.errors import counted
from skitter.frontier.records import DeadLetter, FrontierStatus, SlotStatus
from skitter.frontier.stats import StatsRow
from skitter.frontier.workers import WorkerStatus, queues_without_workers
from skitter.monitors import describe
from skitter.observe.dead_letters import letter_fields, moment
from skitter.observe.figures import amount, describe_elsewhere, duration, failures, kinds, listed, with_kinds
from skitter.run.job_access import JobStatus


def to_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return visible(msgspec.json.format(msgspec.json.encode(value)).decode())


def to_json_line(value: Any) -> str:
    """Return a value as JSON on one line."""
    return visible(msgspec.json.encode(value).decode())


def status_lines(job: JobStatus, width: int = 0) -> str:
    """Return the status of one job as lines, one figure per line, followed by its workers.

    ``width``: leave out columns of the workers that do not fit into this number of characters; 0: show all.
    """
    rows = [
        ("job", job.job),
        ("state", job.state),
        ("spider", job.spider),
        ("output", ", ".join(job.outputs)),
    ]
    if job.counts is not None:
        rows += _counts(job.counts, live=job.live)
    rows += [
        ("changed", ", ".join(change_texts(job.changes))),
        ("banned", ", ".join(job.banned)),
    ]
    rows += [("violated", visible(describe(verdict))) for verdict in job.violated]
    if job.counts is not None and job.workers:
        for queue, count in queues_without_workers(job.counts, job.workers).items():
            rows.append(
                ("waits", f"no worker serves queue {queue}, which has {counted(count, 'waiting request')}")
            )
    reasons = dict.fromkeys(worker.report.waits for worker in job.workers)
    rows += [("waits", visible(reason)) for reason in reasons]
    if job.unwritten:
        rows.append(("unwritten", f"{job.unwritten:,} bytes of items are in no output yet"))
    rows.append(("elsewhere", describe_elsewhere(job.elsewhere)))
    text = aligned([row for row in rows if row[1]])
    return f"{text}\n\n{worker_lines(job.workers, width)}" if job.workers else text


def worker_lines(workers: Sequence[WorkerStatus], width: int = 0) -> str:
    """Return the workers of a job as a table. ``width``: see :func:`status_lines`."""
    rows = [["WORKER", "MACHINE", "PID", "AGE", "PAGES/S", "PAGES", "ITEMS", "IN FLIGHT", "LEASES", "HEARD"]]
    for worker in workers:
        report = worker.report
        rows.append([
            report.name, report.host, str(report.pid), duration(report.age), f"{report.pages_per_second:,.1f}",
            f"{report.pages:,}", f"{report.items:,}", f"{report.fetching}/{report.concurrency}", f"{report.held}",
            f"{worker.heard:.0f} s ago",
        ])  # fmt: skip
    if width:
        rows = fitted(rows, width, ("MACHINE", "LEASES", "AGE", "PID", "ITEMS", "HEARD"))
    return aligned(rows, right=frozenset(range(1, len(rows[0]))))


def change_texts(changes: Mapping[str, Any]) -> list[str]:
    """Return changed settings in the format of the command line, such as ``delay=2``."""
    return [f"{name}={_setting(value)}" for name, value in changes.items()]


def _setting(value: Any) -> str:
    if isinstance(value, dict):  # first by domain, then by limit
        return "; ".join(
            f"{domain} "
            + " ".join(
                f"{name}={_setting(limit)}" for name, limit in limits.items() if limit not in (None, [])
            )
            for domain, limits in value.items()
        )
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return str(value) if isinstance(value, int) else f"{value:.15g}"


def top_lines(jobs: Sequence[JobStatus]) -> str:
    """Return all jobs as a table, with the current activity of their workers."""
    return aligned(top_rows(jobs), right=frozenset(range(2, 10)))


def problem_lines(jobs: Sequence[JobStatus]) -> list[str]:
    """Return a line for each job that could not be read."""
    return [f"job {job.job}: {job.problem}" for job in jobs if job.problem]


TOP_COLUMNS = (
    "JOB", "STATE", "WORKERS", "PAGES/S", "PAGES", "ITEMS", "QUEUED", "IN FLIGHT", "FAILED", "HOSTS", "OLDEST LEASE",
)  # fmt: skip


def top_rows(jobs: Sequence[JobStatus], width: int = 0) -> list[list[str]]:
    """Return the rows of :func:`top_lines` with their header. ``width``: see :func:`status_lines`."""
    rows = [[*TOP_COLUMNS], *map(_top_row, jobs)]
    less_important = ("OLDEST LEASE", "HOSTS", "WORKERS", "ITEMS", "IN FLIGHT", "PAGES/S", "FAILED")
    return fitted(rows, width, less_important) if width else rows


def _top_row(job: JobStatus) -> list[str]:
    counts = job.counts
    if counts is None:
        return [job.job, job.state, *["-"] * (len(TOP_COLUMNS) - 2)]
    pace = sum(worker.report.pages_per_second for worker in job.workers)
    figures = (counts.counters.get("pages", 0), counts.counters.get("items", 0), counts.queued + counts.delayed,
               counts.leased, counts.failed, counts.slots)  # fmt: skip
    oldest = duration(counts.oldest_lease) if counts.oldest_lease else "-"
    return [job.job, job.state, str(len(job.workers)), f"{pace:,.1f}", *(f"{n:,}" for n in figures), oldest]


def tally_lines(by: str, tallies: Sequence[StatsRow]) -> str:
    """Return the statistics per worker, host or task as a table."""
    rows = [[by.upper(), "PAGES", "ITEMS", "RECEIVED", "FAILED", "RETRIED", "FETCH TIME"]]
    rows += [
        [tally.key or "(others)", f"{tally.pages:,}", f"{tally.items:,}", amount(tally.bytes), f"{tally.failed:,}",
         f"{tally.retried:,}", "-" if tally.fetch_time is None else f"{tally.fetch_time:.3f} s"]
        for tally in tallies
    ]  # fmt: skip
    return aligned(rows, right=frozenset(range(1, 7)))


def counter_lines(counters: Mapping[str, int]) -> str:
    """Return counters, one per line."""
    return aligned([(name, f"{value:,}") for name, value in counters.items()]) if counters else ""


def _counts(counts: FrontierStatus, *, live: bool) -> list[tuple[str, str]]:
    counters = counts.counters
    in_hand = f"{counts.leased:,}" + ("" if live or not counts.leased else " (go back to the queue)")
    wait = f" (the first one for {duration(counts.next_due)})" if counts.next_due else ""
    return [
        ("limit", counts.reason),
        ("pages", f"{counters.get('pages', 0):,}"),
        ("items", f"{counters.get('items', 0):,}"),
        ("received", amount(counters.get("bytes", 0))),
        ("queued", f"{counts.queued:,}" + (" and seeds still to be loaded" if counts.seeds_loading else "")),
        ("delayed", f"{counts.delayed:,}{wait}"),
        ("in flight", in_hand),
        ("done", f"{counts.done:,}"),
        ("failed", with_kinds(counts.failed, failures(counters)) or "0"),
        ("retried", listed(kinds(counters, "retried"))),
        ("oldest lease", duration(counts.oldest_lease) if counts.oldest_lease else ""),
        ("active hosts", f"{counts.slots:,}" if counts.slots else ""),
        ("queues", ", ".join(f"{queue} ({waiting:,})" for queue, waiting in counts.queues.items())),
        ("busiest", ", ".join(map(_slot_text, counts.busiest[:5]))),
        ("refused", listed(kinds(counters, "refused"))),
    ]


def _slot_text(slot: SlotStatus) -> str:
    pause = f", paused for {duration(slot.paused_for)}" if slot.paused_for >= 1 else ""
    return f"{slot.key} ({slot.queued:,}{pause})"


def job_lines(jobs: Sequence[JobStatus]) -> str:
    """Return jobs as a table."""
    rows = [["JOB", "STATE", "PAGES", "ITEMS", "WAITING", "FAILED", "SPIDER"]]
    for job in jobs:
        figures = ["-"] * 4
        if (counts := job.counts) is not None:
            numbers = (counts.counters.get("pages", 0), counts.counters.get("items", 0),
                       counts.queued + counts.delayed + counts.leased, counts.failed)  # fmt: skip
            figures = [f"{number:,}" for number in numbers]
        rows.append([job.job, job.state, *figures, job.spider])
    return aligned(rows, right=frozenset({2, 3, 4, 5}))


_MAX_VALUE = 40
"""Maximum characters of a value in the table of items."""


def item_lines(items: Sequence[msgspec.Raw]) -> str:
    """Return items as a table with a column for each of their fields. Long values are cut."""
    fields = [msgspec.json.decode(item, type=dict[str, msgspec.Raw]) for item in items]
    names = list(dict.fromkeys(name for values in fields for name in values))
    rows = [[name.upper() for name in names]]
    rows += [[_short(values[name]) if name in values else "-" for name in names] for values in fields]
    return aligned(rows)


def _short(value: msgspec.Raw) -> str:
    found = msgspec.json.decode(value)
    text = found if isinstance(found, str) else bytes(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def letter_lines(letters: Sequence[DeadLetter]) -> str:
    """Return dead letters as a table."""
    rows = [["ID", "FAILED AT (UTC)", "ATTEMPTS", "URL", "ERROR"]]
    rows += [
        [str(letter.id), moment(letter.failed_at), str(letter.attempts), letter.url, letter.reason]
        for letter in letters
    ]
    return aligned(rows, right=frozenset({0, 2}))


def letter_texts(letters: Sequence[DeadLetter]) -> str:
    """Return all details of dead letters, one field per line."""
    return "\n\n".join(_letter_text(letter) for letter in letters)


def _letter_text(letter: DeadLetter) -> str:
    fields = letter_fields(letter)
    request = fields.pop("request") or {}
    traceback = fields.pop("traceback", "")
    rows = [(name, str(value)) for name, value in fields.items()]
    rows += [(name.replace("_", " "), str(value)) for name, value in request.items() if name != "url"]
    text = aligned(rows)
    return "\n".join([text, *map(visible, traceback.splitlines())])
