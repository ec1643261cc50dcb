"""Summary: the result of a run, for display and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from skitter._utils.visible import visible_line
from skitter.errors import UsageError
from skitter.frontier.records import FrontierStatus, JobState
from skitter.monitors import Verdict, describe
from skitter.observe.figures import amount, describe_elsewhere, duration, failures, kinds, listed, with_kinds
from skitter.run.crawl import RunResult

SummaryState = Literal["finished", "incomplete", "stopped", "paused", "failed"]
_STATES: dict[JobState, SummaryState] = {
    JobState.FINISHED: "finished", JobState.INCOMPLETE: "incomplete", JobState.PAUSED: "paused",
}  # fmt: skip


class Summary(msgspec.Struct, kw_only=True):
    """The content of ``--summary FILE``, as one JSON object. Counts belong to the job and include all its runs."""

    job: str
    state: SummaryState
    """``finished``: nothing is left to do. ``failed``: an error ended this run. A ``failed`` or ``stopped`` job can be
    resumed."""
    reason: str
    """Reason why the job is not finished; empty for a finished job."""
    exit_code: int
    seconds: float
    """Duration of this run. ``pages_this_run`` and ``pages_per_second`` also belong to this run."""
    pages_this_run: int
    pages_per_second: float
    pages: int
    """Number of pages that were passed to a callback."""
    items: int
    bytes: int
    """Size of all bodies, uncompressed."""
    added: int
    """Number of requests ever added. Always equal to queued + delayed + in_flight + done + failed."""
    queued: int
    delayed: int
    in_flight: int
    done: int
    failed: int
    """Dead letters."""
    failed_by_kind: dict[str, int]
    """Dead letters by the kind of their error, such as ``status/404`` or ``timeout``."""
    retried_by_kind: dict[str, int]
    """Number of failed attempts that were retried."""
    refused_by_reason: dict[str, int]
    """Number of URLs that were refused, by reason: ``duplicate``, ``host``, ``depth``, ``robots`` and so on."""
    dropped_items: dict[str, int]
    """Number of items that callbacks yielded but that are not in any output, by reason: ``invalid``, ``hook``, ``noindex``,
    ``tdm``."""
    statuses: dict[str, int]
    """Number of responses by HTTP status."""
    outputs: list[str]
    elsewhere: int = 0
    """Bytes of committed items in part files of other machines, which the files of this machine do not hold."""
    violated: list[Verdict] = []
    """Violated monitors of the pass that ended with this run."""
    pass_number: int = 1
    """1 for the first crawl, one more for each recrawl."""
    changes: dict[str, int] = {}
    """With the setting ``changes``: number of pages that this pass found ``new``, ``changed``, ``unchanged``, ``gone`` or
    ``unchecked``, or ``skipped``. ``unlinked`` pages are among those that are gone."""

    def write(self, path: Path) -> None:
        """Write the summary as JSON. Raises :class:`~skitter.errors.UsageError`."""
        try:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        except OSError as error:
            raise UsageError(
                f"cannot write summary {path}: {error.strerror}",
                remedy="choose another file",
                field="summary",
            ) from error


def summary_of(result: RunResult, exit_code: int) -> Summary:
    """Return the summary of a run that ended without an error."""
    pages = result.counters.get("pages", 0) - result.before.counters.get("pages", 0)
    state = _STATES.get(result.state, "stopped")
    summary = job_summary(
        result.job, state, result.reason, exit_code, result.seconds, pages, result.status, result.outputs
    )
    summary.elsewhere = result.elsewhere
    summary.changes = result.changes
    if result.ended_pass is not None:
        summary.violated = result.ended_pass.violated
    return summary


def job_summary(
    job: str,
    state: SummaryState,
    reason: str,
    exit_code: int,
    seconds: float,
    pages: int,
    status: FrontierStatus,
    outputs: list[str],
) -> Summary:
    """Return the summary of a job from its status. ``pages``: number of pages of this run."""
    counters = status.counters
    return Summary(
        job=job, state=state, reason=reason, exit_code=exit_code, seconds=round(seconds, 3), pages_this_run=pages,
        pages_per_second=round(pages / seconds, 2) if seconds else 0.0,
        pages=counters.get("pages", 0), items=counters.get("items", 0), bytes=counters.get("bytes", 0),
        added=status.added, queued=status.queued, delayed=status.delayed, in_flight=status.leased,
        done=status.done, failed=status.failed, failed_by_kind=failures(counters),
        retried_by_kind=kinds(counters, "retried"), refused_by_reason=kinds(counters, "refused"),
        dropped_items=kinds(counters, "dropped_items"),
        statuses=kinds(counters, "status"), outputs=outputs, pass_number=status.pass_number,
    )  # fmt: skip


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """Return the summary as named lines for display, without empty lines."""
    total, here = summary.pages, summary.pages_this_run
    waiting = summary.queued + summary.delayed + summary.in_flight
    rows = [
        ("pages", f"{total:,}" if here == total else f"{total:,} ({here:,} in this run)"),
        ("items", f"{summary.items:,}{' on all machines' if summary.elsewhere else ''}"),
        ("dropped", with_kinds(sum(summary.dropped_items.values()), summary.dropped_items)),
        ("received", amount(summary.bytes)),
        ("time", f"{duration(summary.seconds)}, {summary.pages_per_second:,.1f} pages/s"),
        (f"pass {summary.pass_number}", _changes(summary.changes)),
        ("left", f"{waiting:,} waiting" if waiting else ""),
        ("failed", with_kinds(summary.failed, summary.failed_by_kind)),
        ("retried", listed(summary.retried_by_kind)),
        ("refused", listed(summary.refused_by_reason)),
        *(("violated", visible_line(describe(verdict))) for verdict in summary.violated),
        ("output", ", ".join(map(_display_name, summary.outputs))),
        ("elsewhere", describe_elsewhere(summary.elsewhere)),
    ]
    return [(name, text) for name, text in rows if text]


def _display_name(output: str) -> str:
    return "standard output" if output.partition("?")[0] == "-" else output


def _changes(totals: dict[str, int]) -> str:
    shown = {name: number for name, number in totals.items() if number and name != "unlinked"}
    unlinked = totals.get("unlinked", 0)
    return listed(shown) + (f" ({unlinked:,} of those gone are no longer linked)" if unlinked else "")
