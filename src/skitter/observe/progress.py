"""Shows the progress of a running crawl on standard error."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from skitter.frontier.records import FrontierStatus, JobState
from skitter.observe.figures import duration, errors, listed
from skitter.run.crawl import Progress
from skitter.run.process import ConsoleHandler

if TYPE_CHECKING:
    from rich.table import Table

log = logging.getLogger("skitter.progress")

_LINE_EVERY = 10.0
"""Seconds between two lines of progress that is not shown on a terminal."""


class View(Protocol):
    """Shows a running crawl."""

    def show(self, progress: Progress) -> None:
        """Show the current progress. Called several times per second."""

    def close(self) -> None:
        """Restore the screen. Safe to call twice."""


def make_view(job: str, stream: TextIO, *, live: bool, quiet: bool) -> View:
    """Return a suitable view: a table that is updated in place, lines in the log, or no output."""
    if quiet:
        return NoView()
    return LiveView(job, stream) if live else LineView()


class NoView:
    """Shows nothing."""

    def show(self, progress: Progress) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class LineView:
    """Writes a line to the log every ten seconds, starting after ten seconds. Implements :class:`View`."""

    def __init__(self) -> None:
        self._next = _LINE_EVERY

    def show(self, progress: Progress) -> None:
        if progress.seconds >= self._next:
            self._next = progress.seconds + _LINE_EVERY
            pace = round(progress.pages_per_second, 2)
            fields = {"status": msgspec.to_builtins(progress.status), "pages_per_second": pace}
            log.info("%s", progress_line(progress), extra={"fields": fields})

    def close(self) -> None:
        """Do nothing."""


class ProgressLine:
    """A watcher that keeps one line up to date, in a cell of a notebook or on a terminal.

    Pass it to :class:`~skitter.Crawl` or :func:`~skitter.stream`: ``watcher=skitter.ProgressLine()``.

    ``stream``: where the line is printed. Default: standard output.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._length = 0

    def __call__(self, progress: Progress) -> None:
        """Print the line again."""
        state = progress.status.state
        text = f"{state}, {duration(progress.seconds)}: {progress_line(progress)}"
        # The next output of the program starts on a new line.
        end = "\n" if state is JobState.FINISHED else ""
        self._stream.write(f"\r{text.ljust(self._length)}{end}")
        self._stream.flush()
        self._length = 0 if end else len(text)


def progress_line(progress: Progress) -> str:
    """Return the progress in one line."""
    figures = ", ".join(f"{text} {name}" for name, text in _figures(progress))
    return "; ".join([figures, *_remarks(progress.status)])


class LiveView:
    """A table on a terminal that is updated in place. Implements :class:`View`."""

    def __init__(self, job: str, stream: TextIO) -> None:
        # Imported here, so that a process without a terminal does not load it.
        from rich.console import Console  # noqa: PLC0415 - see above
        from rich.live import Live  # noqa: PLC0415 - see above

        self._job = job
        console = Console(file=stream)
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()
        _log_to(sys.stderr)  # which is above the table now

    def show(self, progress: Progress) -> None:
        self._live.update(progress_table(self._job, progress), refresh=True)

    def close(self) -> None:
        self._live.stop()
        _log_to(sys.stderr)


def _log_to(stream: TextIO) -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ConsoleHandler):
            handler.setStream(stream)


def progress_table(job: str, progress: Progress) -> Table:
    """Return the progress as a table."""
    from rich.table import Table  # noqa: PLC0415 - see LiveView

    state = f"{progress.status.state}, {duration(progress.seconds)}, workers: {progress.workers}"
    table = Table(
        title=f"{job}: {state}", title_justify="left", show_header=True, box=None, padding=(0, 2, 0, 0)
    )
    figures = _figures(progress)
    for name, _ in figures:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(*(text for _, text in figures))
    if remarks := _remarks(progress.status):
        table.caption = "\n".join(remarks)
        table.caption_justify = "left"
    return table


def _remarks(status: FrontierStatus) -> list[str]:
    """Return remarks for the user in addition to the figures."""
    failures = errors(status.counters)
    remarks = [f"failed attempts: {listed(failures)}"] if failures else []
    # A shorter wait would be over before the user has read about it.
    if status.next_due >= 1 and not (status.queued or status.leased):
        remarks.append(f"all remaining requests are delayed, the first one for {duration(status.next_due)}")
    paused = [slot for slot in status.busiest if slot.paused_for >= 1]
    if paused and not status.leased and len(paused) == status.slots:
        first = min(paused, key=lambda slot: slot.paused_for)
        remarks.append(f"all hosts are paused, {first.key} for {duration(first.paused_for)}")
    return remarks


def _figures(progress: Progress) -> list[tuple[str, str]]:
    """Return the figures of a running job with their names."""
    status, counters = progress.status, progress.status.counters
    return [
        ("pages", f"{counters.get('pages', 0):,}"),
        ("pages/s", f"{progress.pages_per_second:,.1f}"),
        ("items", f"{counters.get('items', 0):,}"),
        ("queued", f"{status.queued:,}"),
        ("delayed", f"{status.delayed:,}"),
        ("in flight", f"{status.leased:,}"),
        ("failed", f"{status.failed:,}"),
        ("hosts", f"{status.slots:,}"),
    ]
