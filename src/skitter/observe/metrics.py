"""Prometheus metrics of jobs.

Counters are the committed counters of the frontier. They cover the whole job with all its workers and runs, so they
never decrease and never count a request twice. ``docs/design/metrics.md`` explains the choice of series.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from skitter.errors import SkitterError, UsageError
from skitter.frontier.records import FrontierStatus
from skitter.observe.figures import kinds
from skitter.run.crawl import Crawl
from skitter.worker.timings import BOUNDS, CALLBACK, COMMIT, FETCH, STORE, WAIT

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from skitter.frontier.workers import WorkerStatus

_READ_TIMEOUT = 5.0
"""Maximum time that a scrape waits for the frontier, in seconds."""
MAX_LABEL_VALUES = 24
"""Maximum number of values of the labels ``kind``, ``reason`` and ``name``. The remaining values are added up as ``other``."""
STATES = (
    "running",
    "paused",
    "stopping",
    "finished",
    "incomplete",
    "pausing",
    "stopped",
    "waiting",
    "failed",
)
"""States of a job. ``pausing`` and the states after it exist only in a service."""
_COUNTERS = {
    "pages": ("skitter_pages", "Pages that were passed to a callback."),
    "items": ("skitter_items", "Items that were committed."),
    "bytes": ("skitter_response_bytes", "Size of the response bodies, uncompressed, in bytes."),
    "links": ("skitter_links", "Links that callbacks returned, known ones included."),
    "invalid": ("skitter_items_invalid", "Items that violate the schema."),
    "redirects": ("skitter_redirects", "Redirects that were followed."),
}
_GROUPS = {
    "status": ("skitter_responses", "Responses by class of their HTTP status.", "status"),
    "failed": ("skitter_requests_failed", "Requests that became dead letters, by kind of error.", "kind"),
    "retried": ("skitter_requests_retried", "Failed attempts that were retried, by kind of error.", "kind"),
    "refused": ("skitter_requests_refused", "URLs that were refused, by reason.", "reason"),
    "user": ("skitter_user", "Counters of callbacks (self.stats), by name.", "name"),
}

_HISTOGRAMS = {
    "skitter_wait_seconds": (
        WAIT,
        "Time for which a worker with free capacity waited until it could fetch from a host.",
    ),
    "skitter_fetch_seconds": (FETCH, "Time to the first byte of a response."),
    "skitter_callback_seconds": (CALLBACK, "Time that a callback took to yield its results."),
    "skitter_store_seconds": (
        STORE,
        "Time that it took to write the items of a page, together with those of other pages.",
    ),
    "skitter_commit_seconds": (COMMIT, "Time of a commit of one or more pages."),
}


class JobSample(NamedTuple):
    """The state of one job at the time of a scrape."""

    job: str
    state: str
    status: FrontierStatus
    workers: Sequence[WorkerStatus]
    """The live workers on all machines."""
    violated: int = 0
    """Number of violated monitors of the current pass or, if none is running, of the last pass."""


def expose(samples: Sequence[JobSample], accept: str) -> tuple[bytes, str]:
    """Return metrics and their content type: OpenMetrics if the ``Accept`` header asks for it, else Prometheus text."""
    encode, content_type = choose_encoder(accept)
    return encode(_registry(lambda: samples)), content_type


_PATH = "/metrics"


class MetricsServer:
    """Serves the metrics of one run at ``/metrics`` over HTTP. Other paths do not exist.

    ``read``: returns the samples at each scrape. It is called in a thread of the server.
    Raises :class:`~skitter.errors.UsageError` if the address cannot be used.
    """

    def __init__(self, host: str, port: int, read: Callable[[], Sequence[JobSample]]) -> None:
        self._server: WSGIServer
        self._thread: threading.Thread
        try:
            self._server, self._thread = start_http_server(port, host, _registry(read))
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics on {host} port {port}: {error.strerror or error}",
                remedy="choose another address for --metrics",
                field="metrics",
            ) from None
        self._server.set_app(_at_path(self._server.get_app()))
        self.port: int = self._server.server_port
        """The port. Differs from the requested port if that was 0."""

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _at_path(application: WSGIApplication | None) -> WSGIApplication:
    """Return an application that passes the requests for ``/metrics`` on. That of prometheus_client serves every path."""
    assert application is not None

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == _PATH:
            return application(environ, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"not found; the metrics are at {_PATH}\n".encode()]

    return respond


class CrawlReader:
    """Reads the job of a running crawl from another thread. Create it in the event loop of the crawl.

    While the frontier does not respond, and after the run, the last sample is repeated.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._loop = asyncio.get_running_loop()
        self._last: list[JobSample] = []

    def __call__(self) -> list[JobSample]:
        """Return the sample of the job; nothing before its frontier is open."""
        reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)
        try:
            self._last = reading.result(_READ_TIMEOUT) or self._last
        except (SkitterError, TimeoutError, CancelledError):
            reading.cancel()
        return self._last

    async def _read(self) -> list[JobSample]:
        crawl = self._crawl
        status = await crawl.status()
        if status is None:
            return []
        workers, violated = await crawl.fleet(), len(await crawl.violated())
        return [JobSample(crawl.spec.job, status.state.value, status, workers, violated)]


def _registry(read: Callable[[], Sequence[JobSample]]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(read))
    return registry


_BOUNDS = [*(str(bound) for bound in BOUNDS), "+Inf"]


class _Jobs:
    """A collector of ``prometheus_client`` that converts samples to metric families."""

    def __init__(self, read: Callable[[], Sequence[JobSample]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        samples = self._read()
        for name, (metric, text) in _COUNTERS.items():
            counter = CounterMetricFamily(metric, text, labels=["job"])
            for sample in samples:
                counter.add_metric([sample.job], sample.status.counters.get(name, 0))
            yield counter
        for group, (metric, text, label) in _GROUPS.items():
            counter = CounterMetricFamily(metric, text, labels=["job", label])
            for sample in samples:
                for value, count in _by_label(sample.status.counters, group).items():
                    counter.add_metric([sample.job, value], count)
            yield counter
        for metric, (histogram, text) in _HISTOGRAMS.items():
            times = HistogramMetricFamily(metric, text, labels=["job"])
            for sample in samples:
                counters = sample.status.counters
                buckets = list(zip(_BOUNDS, accumulate(histogram.read(counters)), strict=True))
                times.add_metric([sample.job], buckets, histogram.seconds(counters))
            yield times
        yield from _gauges(samples)


def _by_label(counters: dict[str, int], group: str) -> dict[str, int]:
    """Add up the counters of a group by the first part of their names, or by status class."""
    found: dict[str, int] = {}
    for name, count in sorted(kinds(counters, group).items()):
        value = f"{name[0]}xx" if group == "status" else name if group == "user" else name.partition("/")[0]
        if value not in found and len(found) >= MAX_LABEL_VALUES:
            value = "other"
        found[value] = found.get(value, 0) + count
    return found


def _gauges(samples: Sequence[JobSample]) -> Iterable[Metric]:
    requests = GaugeMetricFamily(
        "skitter_requests",
        "Requests by state: queued, delayed, leased, done and failed (dead letters).",
        labels=["job", "state"],
    )
    states = GaugeMetricFamily(
        "skitter_job_state", "1 for the state of the job, else 0.", labels=["job", "state"]
    )
    hosts = GaugeMetricFamily("skitter_hosts", "Hosts with queued or leased requests.", labels=["job"])
    fetchable = GaugeMetricFamily(
        "skitter_fetchable_hosts", "Hosts from which a request may be fetched now.", labels=["job"]
    )
    violated = GaugeMetricFamily(
        "skitter_monitors_violated",
        "Violated monitors of the current pass, or else of the last one.",
        labels=["job"],
    )
    oldest = GaugeMetricFamily("skitter_oldest_lease_seconds", "Age of the oldest lease.", labels=["job"])
    workers = GaugeMetricFamily("skitter_workers", "Live workers on all machines.", labels=["job"])
    fetching = GaugeMetricFamily("skitter_fetches", "Fetches in progress on all machines.", labels=["job"])
    for job, current, status, alive, broken in samples:
        for state in ("queued", "delayed", "leased", "done", "failed"):
            requests.add_metric([job, state], getattr(status, state))
        for state in STATES:
            states.add_metric([job, state], state == current)
        hosts.add_metric([job], status.slots)
        fetchable.add_metric([job], status.fetchable)
        violated.add_metric([job], broken)
        oldest.add_metric([job], status.oldest_lease)
        workers.add_metric([job], len(alive))
        fetching.add_metric([job], sum(worker.report.fetching for worker in alive))
    return [requests, states, hosts, fetchable, violated, oldest, workers, fetching]
