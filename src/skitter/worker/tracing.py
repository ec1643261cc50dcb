"""Tracing: sends the attempts of requests as spans to an OpenTelemetry collector.

All attempts of a request, on any worker, belong to one trace, whose id is computed from the request. The spans of an
attempt are created when its commit has returned. ``docs/design/tracing.md`` gives the reasons.

This module needs the extra ``otel``. It is imported only for a job that sets ``tracing``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import threading
import time
from collections.abc import Awaitable, Mapping, Sequence

import xxhash
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from skitter._utils.redaction import Redactor
from skitter._version import VERSION
from skitter.errors import FetchError, UsageError
from skitter.fetch.contract import FetchPhases
from skitter.frontier.records import Lease, Outcome, Resolution
from skitter.request import Request
from skitter.response import Response
from skitter.secrets import shown_url
from skitter.web.urls import host_of, scheme_of, without_port

log = logging.getLogger("skitter.tracing")

FLUSH_SECONDS = 5.0
"""Maximum time in seconds that the end of a worker waits for the last spans."""
_MAX_QUEUED = 8192
"""Maximum number of spans that wait for the collector, unless ``OTEL_BSP_MAX_QUEUE_SIZE`` is set. Above it, all spans
of an attempt are dropped."""
_MAX_BATCH = 512
"""Spans in one message, unless ``OTEL_BSP_MAX_EXPORT_BATCH_SIZE`` is set."""
_MAX_REMEMBERED = 10_000
"""Maximum number of unfinished requests whose first attempt is remembered."""
_DEFAULT_ENDPOINT = "http://localhost:4318"
_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
# Parameters of signed URLs to redact, as the semantic conventions require, in addition to those of `shown_url`.
_SIGNATURE = re.compile(
    r"(?<=[?&])(AWSAccessKeyId|(?:X-(?:Amz|Goog)-)?Signature|sig|X-Amz-Credential)=[^&#]*", re.IGNORECASE
)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("skitter", VERSION)
Attributes = dict[str, str | int | float]
_PORTS = {"http": 80, "https": 443}
_REDACTOR = Redactor()


def check_environment() -> str:
    """Return the URL of the collector, for display.

    Raises :class:`~skitter.errors.UsageError` for invalid OpenTelemetry environment variables.
    """
    names = (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT)
    name, endpoint = next(
        ((name, os.environ[name]) for name in names if os.environ.get(name)), ("", _DEFAULT_ENDPOINT)
    )
    if not endpoint.startswith(("http://", "https://")):
        raise UsageError(
            f"{name} is not an http(s) URL: {shown_url(endpoint)!r}",
            remedy=f"set it to the collector's address for OTLP over HTTP, such as {_DEFAULT_ENDPOINT}",
            field=name,
        )
    for name in (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL):
        protocol = os.environ.get(name, "")
        if protocol not in {"", "http/protobuf"}:
            raise UsageError(
                f"{name} is {protocol!r}; skitter sends traces by http/protobuf only",
                remedy=f"unset {name}, and name the HTTP port of the collector (4318)",
                field=name,
            )
    _queue_limits()
    return shown_url(endpoint)


def _queue_limits() -> tuple[int, int]:
    """Return the maximum number of spans in the queue and in a batch."""
    found: list[int] = []
    for name, default in (
        (OTEL_BSP_MAX_QUEUE_SIZE, _MAX_QUEUED),
        (OTEL_BSP_MAX_EXPORT_BATCH_SIZE, _MAX_BATCH),
    ):
        text = os.environ.get(name)
        number = int(text) if text and text.isdecimal() else 0 if text else min([default, *found])
        if number < 1 or number > min(found, default=number):
            raise UsageError(
                f"{name} is {text!r}",
                remedy=f"give a number from 1{f' to {found[0]}, the size of the queue' if found else ''}",
                field=name,
            )
        found.append(number)
    return found[0], found[1]


class Tracer:
    """Collects and sends the traces of one worker.

    ``ratio``: share of the traces to send. ``seed``: the secret of the job. ``pass_number``: the current pass of the
    job. ``labels``: attributes of the resource. ``collector``: for display.
    """

    def __init__(
        self, ratio: float, seed: int, pass_number: int, labels: Mapping[str, str | int], collector: str
    ) -> None:
        self._sampler = TraceIdRatioBased(ratio)
        self._seed = seed
        self._pass = pass_number.to_bytes(8, "big")
        self.resource = (
            Resource.create()
            .merge(Resource({"service.name": "skitter", "service.version": VERSION, **labels}))
            .merge(OTELResourceDetector().detect())  # environment variables take precedence
        )
        self._delivery = _Delivery(collector)
        self._max_queued, batch = _queue_limits()
        self._processor = BatchSpanProcessor(
            self._delivery, max_queue_size=self._max_queued, max_export_batch_size=batch
        )
        self._first: dict[int, int] = {}
        """For requests that will be retried: the start of the first attempt in this process, by trace."""

    def begin(self, lease: Lease, leased_at: float, waited: float) -> AttemptTrace | None:
        """Return the trace of a new attempt; ``None`` if it is not sampled.

        ``leased_at``: monotonic time at which the frontier was asked. ``waited``: seconds of waiting before it.
        """
        identity = lease.fingerprint + self._pass + lease.record
        trace_id = xxhash.xxh3_128_intdigest(identity, self._seed) or 1
        if self._sampler.should_sample(None, trace_id, "request").decision is Decision.DROP:
            return None
        return AttemptTrace(self, trace_id, lease, leased_at, waited)

    def remember(self, trace_id: int, began: int) -> None:
        """Remember when the first attempt of an unfinished request began."""
        self._first.setdefault(trace_id, began)
        if len(self._first) > _MAX_REMEMBERED:
            del self._first[next(iter(self._first))]

    def first_began(self, trace_id: int, began: int) -> int:
        """Return when the first known attempt of a request began, and forget it: the request has ended."""
        return self._first.pop(trace_id, began)

    def send(self, spans: Sequence[ReadableSpan]) -> None:
        """Send all spans of an attempt, or drop them all if the collector is too slow."""
        delivery = self._delivery
        if delivery.queued + len(spans) > self._max_queued:
            delivery.dropped += len(spans)
            return
        delivery.accepted += len(spans)
        for span in spans:
            self._processor.on_end(span)

    async def close(self) -> None:
        """Send the waiting spans, within :data:`FLUSH_SECONDS`, and report spans that were not delivered."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(closed.set)

        # A thread of an executor would delay the exit of the process.
        threading.Thread(target=close, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await closed.wait()
        self._delivery.shutdown()  # stop waiting for another attempt
        self._delivery.report()


class _Delivery(SpanExporter):
    """The exporter, which also counts delivered spans.

    Failures are logged as one warning, with a summary at the end.
    """

    def __init__(self, collector: str) -> None:
        self._collector = collector
        self._exporter = OTLPSpanExporter()
        self._reason = _LastMessage()
        exporter_log = logging.getLogger(_EXPORTER_LOG)
        exporter_log.handlers, exporter_log.propagate = [self._reason], False
        self._has_warned = self._is_closed = False
        self._taken = 0
        self.accepted = 0
        """Number of spans passed to the processor."""
        self.delivered = 0
        self.dropped = 0
        """Number of spans that did not fit into the queue."""

    @property
    def queued(self) -> int:
        """Number of spans in the queue of the processor."""
        return self.accepted - self._taken

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch. Called in the thread of the processor."""
        result = self._exporter.export(spans)
        self._taken += len(spans)
        if result is SpanExportResult.SUCCESS:
            self.delivered += len(spans)
        elif not self._has_warned and not self._is_closed:
            self._has_warned = True
            log.warning(
                "traces cannot be delivered to %s (%s); the crawl continues without them",
                self._collector,
                self._reason.text,
            )
        return result

    def shutdown(self) -> None:
        """Send nothing more."""
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def report(self) -> None:
        """Log how many spans were not delivered, if any."""
        lost = self.accepted + self.dropped - self.delivered
        if lost:
            log.log(
                logging.INFO if self._has_warned else logging.WARNING,
                "%d of %d spans were not delivered to %s%s", lost, self.accepted + self.dropped, self._collector,
                f" ({self._reason.text})" if self._reason.text and not self._has_warned else "",
            )  # fmt: skip


class _LastMessage(logging.Handler):
    """Keeps the reason of the last failure, which the exporter logs but does not return."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message that names a cause."""
        text = record.getMessage()
        if not self.text or (record.args and "due to timeout" not in text):
            self.text = _REDACTOR.of_text(text)[:300]


class AttemptTrace:
    """The stages of one attempt, until its commit has returned. Times are those of :func:`time.monotonic`."""

    __slots__ = (
        "_ended", "_epoch", "_failure", "_lease", "_phases", "_phases_ended", "_request", "_response", "_sent", "_stages",
        "_trace_id", "_tracer",
    )  # fmt: skip

    def __init__(self, tracer: Tracer, trace_id: int, lease: Lease, leased_at: float, waited: float) -> None:
        self._tracer = tracer
        self._trace_id = trace_id
        self._lease = lease
        now = time.monotonic()
        self._epoch = time.time_ns() - int(now * 1e9)
        leased_at = min(leased_at, now)
        self._stages = [("wait", leased_at - waited, leased_at), ("lease", leased_at, now)]
        """Names, start times and end times of the stages."""
        self._request: Request | None = None
        """The request that was sent."""
        self._sent = self._ended = self._phases_ended = 0.0
        self._response: Attributes = {}
        """Attributes of the response."""
        self._failure = ""
        """Kind of the error of the fetch."""
        self._phases: FetchPhases | None = None

    def add(self, stage: str, seconds: float) -> None:
        """Add a stage that has just ended."""
        now = time.monotonic()
        self._stages.append((stage, now - seconds, now))

    def add_phases(self, phases: FetchPhases) -> None:
        """Add the phases of a transfer that has just ended."""
        self._phases, self._phases_ended = phases, time.monotonic()

    async def follow(self, request: Request, fetching: Awaitable[Response]) -> Response:
        """Return the response of a fetch. Its start and end become a span."""
        self._request, self._phases, self._sent = request, None, time.monotonic()
        try:
            response = await fetching
        except BaseException as error:
            self._failure = error.kind if isinstance(error, FetchError) else "aborted"
            raise
        else:
            self._response = _attributes_of(response)
            return response
        finally:
            self._ended = time.monotonic()

    def end(self, outcome: Outcome, *, is_late: bool) -> None:
        """Send the spans of the attempt. ``is_late``: the commit was refused, because the lease was lost."""
        tracer, lease = self._tracer, self._lease
        result = "late" if is_late else outcome.resolution.value
        error = outcome.error.partition("\n")[0]
        kind = "late" if is_late else error.partition(":")[0]
        attributes: Attributes = {
            "skitter.outcome": result,
            "skitter.lost_leases": lease.lost,
            "skitter.slot": lease.slot,
        }
        status = Status()
        if is_late or outcome.resolution is Resolution.FAILED or (error and not outcome.free):
            attributes["error.type"] = kind
            status = Status(StatusCode.ERROR, _REDACTOR.of_text(error) or "the lease was lost")
        root = self._context(xxhash.xxh3_64_intdigest(self._trace_id.to_bytes(16, "big")) or 1)
        attempt = self._context()
        began, ended = self._wall(self._stages[0][1]), self._wall(time.monotonic())
        spans = [self._span(name, attempt, start, end) for name, start, end in self._stages]
        if self._request is not None:
            spans += self._fetch_spans(self._request, attempt)
        spans.append(
            self._make(
                "attempt",
                attempt,
                root,
                began,
                ended,
                {**attributes, "skitter.attempt": lease.attempt + 1},
                status,
            )
        )
        if is_late or outcome.resolution is Resolution.RETRY:
            tracer.remember(self._trace_id, began)
        else:
            more: Attributes = {
                **attributes,
                "url.full": _url(lease.url),
                "skitter.attempts": lease.attempt + 1,
                "skitter.items": outcome.counters.get("items", 0),
                "skitter.links": outcome.counters.get("links", 0),
            }
            first = tracer.first_began(self._trace_id, began)
            spans.append(self._make("request", root, None, first, ended, more, status))
        tracer.send(spans)

    def _fetch_spans(self, request: Request, attempt: SpanContext) -> list[ReadableSpan]:
        """Return the span of the fetch and those of its new connection."""
        failure, status = self._failure, int(self._response.get("http.response.status_code", 0))
        if not failure and status >= 400:
            failure = str(status)
        host = host_of(request.url)
        name = without_port(host)
        port = host[len(name) + 1 :] or _PORTS.get(scheme_of(request.url), 0)
        attributes: Attributes = {
            "http.request.method": request.method,
            "url.full": _url(request.url),
            "server.address": name,
            "server.port": int(port),
            **self._response,
        }
        if self._lease.attempt:
            attributes["http.request.resend_count"] = self._lease.attempt
        if failure:
            attributes["error.type"] = failure
        fetch = self._context()
        phases = self._phases or FetchPhases()
        # The clock of libcurl may differ by microseconds, but the phases must not start before the fetch.
        zero = max(self._phases_ended - phases.ended, self._sent)
        spans, before = [], zero
        for name, seconds in (
            ("dns", phases.resolved),
            ("connect", phases.connected),
            ("tls", phases.secured),
        ):
            if seconds:
                end = min(max(before, zero + seconds), self._ended)
                spans.append(self._span(name, fetch, before, end))
                before = end
        if phases.answered:
            attributes["skitter.first_byte_seconds"] = phases.answered
        state = Status(StatusCode.ERROR) if failure else Status()
        start, end = self._wall(self._sent), self._wall(self._ended)
        spans.append(
            self._make(request.method, fetch, attempt, start, end, attributes, state, SpanKind.CLIENT)
        )
        return spans

    def _wall(self, moment: float) -> int:
        """Return a monotonic time as nanoseconds since 1970."""
        return self._epoch + int(moment * 1e9)

    def _context(self, span_id: int = 0) -> SpanContext:
        return SpanContext(
            self._trace_id, span_id or random.getrandbits(64) or 1, is_remote=False, trace_flags=_SAMPLED
        )

    def _span(self, name: str, parent: SpanContext, start: float, end: float) -> ReadableSpan:
        return self._make(name, self._context(), parent, self._wall(start), self._wall(end), {}, Status())

    def _make(
        self, name: str, context: SpanContext, parent: SpanContext | None, start: int, end: int,
        attributes: Attributes, status: Status, kind: SpanKind = SpanKind.INTERNAL,
    ) -> ReadableSpan:  # fmt: skip
        return ReadableSpan(
            name, context, parent, self._tracer.resource, attributes, kind=kind, status=status, start_time=start,
            end_time=end, instrumentation_scope=_SCOPE,
        )  # fmt: skip


def _attributes_of(response: Response) -> Attributes:
    found: Attributes = {
        "http.response.status_code": response.status, "http.response.body.size": len(response.body),
    }  # fmt: skip
    if response.ip:
        found["network.peer.address"] = response.ip
    if response.protocol:
        found["network.protocol.version"] = response.protocol.removeprefix("http/").removeprefix("h")
    return found


def _url(url: str) -> str:
    return _SIGNATURE.sub(r"\1=REDACTED", shown_url(url))
