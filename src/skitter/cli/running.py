"""Runs a job in the foreground, with its progress, interruptions and result."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.cli.console import FAILED, INTERRUPTED, USAGE, VIOLATED, aligned, complain, say
from skitter.cli.options import ShowOptions
from skitter.errors import SkitterError, UsageError, is_usage
from skitter.frontier.records import JobState
from skitter.observe.progress import NoView, View, make_view
from skitter.observe.summary import Summary, job_summary, summary_of, summary_rows
from skitter.plugins import need
from skitter.run.crawl import Crawl, Progress, RunResult
from skitter.run.job import JobFolder, JobSpec
from skitter.run.process import LogOptions, apply_log_settings, run_async, set_up_logging
from skitter.run.profiling import MemoryTracer
from skitter.secrets import shown_url
from skitter.store.outputs import is_stdout

if TYPE_CHECKING:
    from skitter.observe.metrics import MetricsServer
    from skitter.run.supervisor import ForkedProcess
    from skitter.service.console.single_run import RunConsole

log = logging.getLogger("skitter.progress")


def fork_if_several(workers: int, frontier: str) -> AbstractContextManager[list[ForkedProcess]]:
    """Fork the worker processes of a job if it has several. See :func:`~skitter.run.child.forked_workers`."""
    if workers < 2:
        return nullcontext([])
    from skitter.run.child import forked_workers

    return forked_workers(workers, frontier)


class ForegroundRun:
    """One run of a job that shows its progress and that the user may interrupt.

    ``also`` is called with the crawl and each progress report. ``forked``: see :class:`~skitter.run.crawl.Crawl`.

    Raises :class:`~skitter.errors.SkitterError` if the run cannot start.
    """

    def __init__(
        self,
        spec: JobSpec,
        show: ShowOptions,
        *,
        fresh: bool = False,
        recrawl: bool = False,
        resume: bool = False,
        also: Callable[[Crawl, Progress], None] | None = None,
        forked: list[ForkedProcess] | None = None,
    ) -> None:
        if (path := show.summary) is not None:
            place = path if path.exists() else path.parent
            if path.is_dir() or not os.access(place, os.W_OK):
                remedy = "name a file in a folder that exists"
                raise UsageError(f"summary {path} cannot be written", remedy=remedy)
        set_up_logging(show.log_level, show.log_format)
        log.setLevel(logging.INFO)  # progress messages are controlled by --quiet instead
        self._spec = spec
        self._show = show
        self._view: View = NoView()
        self._first: Progress | None = None
        self._last: Progress | None = None
        self._interruptions = 0
        self._also = also
        self._crawl = Crawl(
            spec,
            watcher=self._watch,
            fresh=fresh,
            recrawl=recrawl,
            resume=resume,
            log=LogOptions(show.log_level, show.log_format),
            forked=forked,
        )
        apply_log_settings(self._crawl.settings, show.log_format)

    def run(self) -> int:
        """Run the job to its end, report the result, and return the exit status."""
        try:
            gc.freeze()  # the process ends with this run, so collections can skip the imported modules
            result = run_async(self._with_signals())
        except SkitterError as error:
            if not self._crawl.has_begun:
                raise
            return self._fail(error)
        finally:
            self._view.close()
            self._crawl.release_spider()
        return self._end(result)

    # --- interruptions -----------------------------------------------------------------------------------

    async def _with_signals(self) -> RunResult:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
                loop.add_signal_handler(number, self._interrupt)
        MemoryTracer(self._crawl.folder).listen()
        servers: list[MetricsServer | RunConsole] = []
        try:
            if self._show.metrics is not None:
                servers.append(self._serve_metrics(self._show.metrics))
            if self._show.console:
                servers.append(self._serve_console())
            return await self._crawl.run()
        finally:
            for server in servers:
                await asyncio.to_thread(server.close)  # a call in progress still needs this event loop

    def _serve_metrics(self, address: str) -> MetricsServer:
        need("prometheus_client", "metrics", "--metrics")
        from skitter.observe.metrics import CrawlReader, MetricsServer

        host, port = _metrics_address(address)
        server = MetricsServer(host, port, CrawlReader(self._crawl))
        if not self._show.quiet:
            shown = f"[{host}]" if ":" in host else host
            self._say(f"metrics are served at http://{shown}:{server.port}/metrics")
        return server

    def _serve_console(self) -> RunConsole:
        for module in ("fastapi", "uvicorn", "cronsim"):
            need(module, "service", "--console")
        from skitter.service.console.single_run import RunConsole

        server = RunConsole(JobFolder(self._spec.job, self._spec.home))
        self._say(f"console: {server.url}")
        return server

    def _interrupt(self) -> None:
        self._interruptions += 1
        if self._interruptions == 1:
            if not self._show.quiet:
                self._say("stopping after the requests in progress; press Ctrl-C again to stop immediately")
            self._crawl.stop("interrupted")
            return
        self._crawl.kill()
        self._view.close()
        complain("stopped immediately", f"everything committed is kept; {self._how_to_continue()}")
        os._exit(INTERRUPTED)

    def _how_to_continue(self) -> str:
        if self._spec.is_in_memory:
            return "a frontier in memory cannot be resumed"
        return f"`skitter resume {self._spec.job}` continues it"

    # --- progress ----------------------------------------------------------------------------------------

    def _watch(self, progress: Progress) -> None:
        if self._first is None:
            self._first = progress
            show = self._show
            # Items that are printed to the same screen would break the table.
            torn = any(map(is_stdout, self._spec.outputs)) and sys.stdout.isatty()
            logged = show.log_level in {"debug", "info"} or show.log_format == "json"
            live = sys.stderr.isatty() and not torn and not logged
            self._view = make_view(self._spec.job, sys.stderr, live=live, quiet=show.quiet)
        self._last = progress
        self._view.show(progress)
        if self._also is not None:
            self._also(self._crawl, progress)

    # --- the end -----------------------------------------------------------------------------------------

    def _end(self, result: RunResult) -> int:
        code = self._exit_code(result)
        headline = _headline(result, self._how_to_continue())
        self._tell(summary_of(result, code), headline)
        if result.fetched_nothing:
            self._explain_empty_run(result)
        elif result.state is JobState.INCOMPLETE and self._show.quiet:
            self._say(headline)  # explains the exit status
        elif result.status.failed and not self._spec.is_in_memory:
            self._hint(f"{self._letters_hint()} lists the failed requests")
        if self._has_no_items(result):
            self._explain_missing_items()
        return code

    def _hint(self, text: str) -> None:
        if not self._show.quiet and self._show.log_format == "text":
            say(text)

    def _has_no_items(self, result: RunResult) -> bool:
        """Return whether a finished crawl has fetched pages, but its outputs are empty."""
        counters = result.status.counters
        is_finished = result.state is JobState.FINISHED and not result.fetched_nothing
        return (
            is_finished
            and not all(map(is_stdout, self._spec.outputs))
            and counters.get("pages", 0) > 0
            and not counters.get("items")
        )

    def _explain_missing_items(self) -> None:
        from skitter.frontends.page_spider import PageSpider

        # This spider yields an item for each page, so only sitemaps were fetched.
        if isinstance(self._crawl.spider, PageSpider) and "sitemaps" in self._spec.arguments:
            self._hint("the sitemaps name no page that this crawl may fetch; check their URLs")
        else:
            self._hint(
                "no callback yielded an item; `skitter parse URL --spider ...` shows what a callback yields for a page"
            )

    def _explain_empty_run(self, result: RunResult) -> None:
        remedies = ["the reasons are above"] if _has_logged_reasons(result) else []
        if result.status.failed and not self._spec.is_in_memory:
            them = "them again" if remedies else "the failed requests"
            retry = f"`skitter failures retry {self._spec.job}` queues them again"
            remedies.append(f"{self._letters_hint()} lists {them}, and {retry}")
        self._complain(result.empty_because, "; ".join(remedies))

    def _complain(self, message: str, remedy: str) -> None:
        """Print an error in the format of the log."""
        self._view.close()
        if self._show.log_format == "json":
            log.error("%s", message, extra={"fields": {"remedy": remedy}})
        else:
            complain(message, remedy)

    def _letters_hint(self) -> str:
        return f"`skitter failures list {self._spec.job}`"

    def _exit_code(self, result: RunResult) -> int:
        if self._interruptions and result.state is not JobState.FINISHED:
            return INTERRUPTED
        if result.fetched_nothing or result.state is JobState.INCOMPLETE:
            return FAILED
        if result.ended_pass is not None and result.ended_pass.violated:
            return VIOLATED
        return FAILED if self._show.fail_on_errors and result.status.failed else 0

    def _fail(self, error: SkitterError) -> int:
        code = USAGE if is_usage(error) else FAILED
        if self._first is not None and self._last is not None and self._show.summary is not None:
            before, last = self._first.status.counters.get("pages", 0), self._last
            pages = last.status.counters.get("pages", 0) - before
            outputs = [shown_url(target) for target in self._spec.outputs]
            job_summary(
                self._spec.job, "failed", str(error), code, last.seconds, pages, last.status, outputs
            ).write(self._show.summary)
        self._complain(str(error), error.remedy)
        return code

    def _tell(self, summary: Summary, headline: str) -> None:
        if self._show.summary is not None:
            summary.write(self._show.summary)
        if self._show.quiet:
            return
        self._say(headline, summary=msgspec.to_builtins(summary))
        if self._show.log_format == "text":
            say(aligned([("  " + name, text) for name, text in summary_rows(summary)]))

    def _say(self, text: str, **fields: Any) -> None:
        """Print a message in the format of the log."""
        if self._show.log_format == "json":
            log.info("%s", text, extra={"fields": fields})
        else:
            say(text)


def _has_logged_reasons(result: RunResult) -> bool:
    """Return whether this run has logged why seeds have no page. A later run, or an owner that finds a lost request, has not."""
    before = result.before.counters
    return logging.getLogger("skitter.crawl").isEnabledFor(logging.WARNING) and any(
        count > before.get(name, 0)
        for name, count in result.counters.items()
        if name.startswith(("failed/", "refused/")) and name != "failed/lost"
    )


def _metrics_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"invalid address for --metrics: {text!r}",
            remedy="write it like 9410 or 0.0.0.0:9410, with a port up to 65535",
            field="metrics",
        )
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _headline(result: RunResult, how_to_continue: str) -> str:
    job = f"job {result.job}"
    if result.state is JobState.INCOMPLETE:
        parts = f".skitter/{result.job}/parts"
        return (
            f"{job} is incomplete: {result.reason}; run it again on their machine, or copy its {parts} here and run it"
            " again; if its disk is lost, crawl again with --fresh"
        )
    if result.already_finished:
        remedy = "use --fresh to start over, or --recrawl to fetch its pages again"
        if result.status.failed:
            remedy = f"`skitter failures retry {result.job}` queues its failed requests again; or {remedy}"
        return f"{job} was already finished; {remedy}"
    if result.state is JobState.FINISHED:
        return f"{job} is finished"
    if result.state is JobState.PAUSED:
        return f"{job} is paused; {how_to_continue}"
    if result.status.reason:
        return f"{job} has stopped, {result.reason}; raise the limit to continue it"
    why = "" if result.reason == "stopped" else f", {result.reason}"  # asked for by `skitter stop`
    return f"{job} has stopped{why}; {how_to_continue}"
