"""Traces: one per request over its attempts, received by a collector that speaks OTLP."""

import asyncio
import logging
import subprocess
import sys
import threading

import pytest

from browsers import require_browser
from crawl_harness import CrawlHarness, Scripted, redirect
from servers.otlp import Collector
from skitter import Request, Spider
from skitter.errors import SettingsError, UsageError
from skitter.fetch.contract import FetchPhases
from skitter.frontier.records import Lease, Outcome, Resolution
from skitter.response import Response
from skitter.testing import Answer, WireAnswer
from skitter.worker import tracing

ATTEMPT = ["GET", "callback", "commit", "lease", "store", "wait"]
"""Spans below the attempt of a page with items."""


class Follower(Spider):
    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        if "broken" in response.url:
            raise ValueError("of the callback")
        yield {"url": response.url}
        yield response.follow_all("a")


@pytest.fixture
def collector(monkeypatch):
    with Collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setattr(tracing, "FLUSH_SECONDS", 60.0)  # a busy collector gets all spans
        yield running


@pytest.fixture
def crawl(serve, tmp_path):
    def make(pages, path="/", **settings):
        site = Scripted(pages)
        server = serve(site)
        origin = server.url.rstrip("/")
        made = CrawlHarness(Follower(url=origin + path), tmp_path, **{"delay": 0, "tracing": 1, **settings})
        made.site, made.origin = site, origin
        return made

    return make


def by_path(collector, crawl):
    return {url.removeprefix(crawl.origin): trace for url, trace in collector.traces.items()}


def check_shape(trace):
    """Check that the attempts are children of one root, that each stage lies in its attempt, and that no span is an orphan."""
    (root,) = trace.roots
    assert root.name == "request"
    ids = {span.id: span for span in trace}
    assert len(ids) == len(trace)
    for span in trace:
        assert span.start <= span.end
        if span.parent:
            parent = ids[span.parent]
            assert parent.start <= span.start and span.end <= parent.end, (span.name, parent.name)
    assert {span.parent for span in trace.named("attempt")} == {root.id}


async def test_every_request_has_one_trace_with_all_stages_over_retries_redirects_and_failures(
    crawl, collector
):
    job = crawl(
        {
            "/": ["/plain", "/moved", "/twice", "/gone", "/broken", "/unreadable"],
            "/plain": [],
            "/moved": redirect("/target"),
            "/target": [],
            "/twice": (Answer(status=500), Answer(status=500), []),
            "/broken": [],
            "/unreadable": WireAnswer([b"not HTTP\r\n\r\n"]),
        },
        max_retries=2,
    )
    ran = await job.run()
    traces = by_path(collector, job)
    assert sorted(traces) == sorted(
        ["/", "/plain", "/moved", "/target", "/twice", "/gone", "/broken", "/unreadable"]
    )
    assert len(ran.items) == 4
    for trace in traces.values():
        check_shape(trace)
    for path in ("/", "/plain", "/target"):
        (attempt,) = traces[path].named("attempt")
        assert [name for name in traces[path].below(attempt) if name != "robots"] == ATTEMPT
        assert (traces[path].roots[0].attributes["skitter.outcome"], attempt.failed) == ("done", False)
        assert traces[path].roots[0].attributes["skitter.items"] == 1
    first = traces["/"]
    assert first.named("robots")
    (fetch,) = first.named("GET")
    assert fetch.kind == 3  # CLIENT
    expected = {
        "http.request.method": "GET", "url.full": f"{job.origin}/", "http.response.status_code": 200,
        "server.address": "127.0.0.1", "server.port": int(job.origin.rpartition(":")[2]), "network.protocol.version": "1.1",
    }  # fmt: skip
    assert expected.items() <= fetch.attributes.items()
    assert 0 < fetch.attributes["skitter.first_byte_seconds"] <= (fetch.end - fetch.start) / 1e9
    opened = [span for trace in traces.values() for span in trace.named("connect")]
    assert opened and all(ids in {span.id for span in trace.named("GET")} for trace in traces.values() for ids in
                          {span.parent for span in trace.named("connect") + trace.named("dns")})  # fmt: skip

    attempts = sorted(traces["/twice"].named("attempt"), key=lambda span: span.start)
    assert [span.attributes["skitter.outcome"] for span in attempts] == ["retry", "retry", "done"]
    assert [span.attributes.get("error.type") for span in attempts] == ["status/500", "status/500", None]
    assert [span.attributes["skitter.attempt"] for span in attempts] == [1, 2, 3]
    sent = sorted(traces["/twice"].named("GET"), key=lambda span: span.start)
    assert [span.attributes.get("error.type") for span in sent] == ["500", "500", None]
    assert [span.attributes.get("http.request.resend_count") for span in sent] == [None, 1, 2]

    for path, kind in {"/gone": "status/404", "/broken": "callback", "/unreadable": "protocol"}.items():
        (root,) = traces[path].roots
        assert (root.attributes["skitter.outcome"], root.failed, root.attributes["error.type"]) == (
            "failed",
            True,
            kind,
        )
    assert "of the callback" in traces["/broken"].roots[0].message
    assert traces["/unreadable"].named("GET")[0].attributes["error.type"] == "protocol"
    resource = first.roots[0].resource
    assert {
        "service.name": "skitter",
        "skitter.job": "bench",
        "service.instance.id": "w0",
    }.items() <= resource.items()
    assert all("traceparent" not in map(str.lower, visit.headers) for visit in job.site.visits)


async def test_the_fetch_of_a_page_in_a_browser_has_the_time_of_its_first_byte(crawl, collector):
    await asyncio.to_thread(require_browser)
    job = crawl({"/": []}, fetcher="browser", browser_sandbox=False)
    await job.run()
    (trace,) = collector.traces.values()
    check_shape(trace)
    (fetch,) = trace.named("GET")
    assert fetch.attributes["http.response.status_code"] == 200
    assert 0 < fetch.attributes["skitter.first_byte_seconds"] <= (fetch.end - fetch.start) / 1e9


async def test_secrets_of_urls_and_errors_are_not_sent(crawl, collector):
    job = crawl({}, path="/x?token=hush&X-Amz-Signature=hush&page=2", robots=False)
    await job.run()
    (trace,) = collector.traces.values()
    assert (
        trace.roots[0].attributes["url.full"] == f"{job.origin}/x?token=***&X-Amz-Signature=REDACTED&page=2"
    )
    assert not any("hush" in str(span.attributes) + span.message for span in trace)


async def test_pages_that_wait_on_disk_for_room_in_the_queue_have_complete_traces(crawl, collector):
    pages = {"/": [f"/{n}" for n in range(8)]} | {f"/{n}": [f"/{n}/{m}" for m in range(4)] for n in range(8)}
    pages |= {f"/{n}/{m}": [] for n in range(8) for m in range(4)}
    job = crawl(pages, max_queued=2)
    ran = await job.run()
    assert len(ran.items) == len(pages)
    traces = by_path(collector, job)
    assert sorted(traces) == sorted(pages)
    for trace in traces.values():
        check_shape(trace)
        assert set(ATTEMPT) <= set(trace.below(trace.named("attempt")[0]))


async def tracer(collector, ratio=1.0, pass_number=1):
    return await asyncio.to_thread(tracing.Tracer, ratio, 7, pass_number, {}, collector.url)


def lease(number, attempt=0):
    return Lease(
        number, number.to_bytes(16, "big"), "host", f"http://host/{number}", b"record", attempt, 0, 0.0
    )


async def test_all_attempts_of_a_request_are_sampled_alike_and_a_recrawl_has_other_traces(collector):
    one, other = await tracer(collector, 0.25), await tracer(collector, 0.25)
    later = await tracer(collector, 0.25, pass_number=2)
    try:
        chosen = [n for n in range(2000) if one.begin(lease(n), 0.0, 0.0)]
        assert 400 < len(chosen) < 600
        assert chosen == [n for n in range(2000) if other.begin(lease(n, attempt=3), 0.0, 0.0)]
        assert chosen != [n for n in range(2000) if later.begin(lease(n), 0.0, 0.0)]
    finally:
        for running in (one, other, later):
            await running.close()


async def test_an_unreachable_collector_is_one_warning_and_the_crawl_is_complete(crawl, monkeypatch, caplog):
    with Collector(status=401) as refusing:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        # Its answers are not late, however busy the machine is.
        monkeypatch.setattr(tracing, "FLUSH_SECONDS", 60.0)
        caplog.set_level(logging.INFO)
        job = crawl({"/": [f"/{n}" for n in range(20)]} | {f"/{n}": [] for n in range(20)}, delay=0.01)
        ran = await job.run()
    assert len(ran.items) == 21
    records = [
        record
        for record in caplog.records
        if "opentelemetry" in record.name or record.name == "skitter.tracing"
    ]
    assert [record.levelname for record in records] in (["WARNING", "INFO"], ["WARNING"])
    assert refusing.url in records[0].getMessage() and "401" in records[0].getMessage()


async def test_a_collector_that_does_not_answer_holds_up_the_end_no_longer_than_the_bound(
    crawl, monkeypatch, caplog
):
    with Collector(silent=True) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", silent.url)
        monkeypatch.setattr(tracing, "FLUSH_SECONDS", 0.2)
        ran = await crawl({"/": ["/a"], "/a": []}).run()
        assert not silent.released.is_set()
    assert len(ran.items) == 2
    assert any("were not delivered" in record.getMessage() for record in caplog.records)


async def test_an_attempt_that_does_not_fit_into_the_queue_is_dropped_as_a_whole(
    collector, monkeypatch, caplog
):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    holding = threading.Event()
    export = tracing.OTLPSpanExporter.export
    monkeypatch.setattr(
        tracing.OTLPSpanExporter, "export", lambda self, spans: holding.wait(60) and export(self, spans)
    )
    full = await tracer(collector)
    for number in range(10):
        full.begin(lease(number), 0.0, 0.0).end(Outcome(number, Resolution.DONE), is_late=False)
    holding.set()
    await full.close()
    assert 0 < len(collector.traces) < 10
    assert all(
        sorted(span.name for span in trace) == ["attempt", "lease", "request", "wait"]
        for trace in collector.traces.values()
    )
    assert any(f"of {10 * 4} spans were not delivered" in record.getMessage() for record in caplog.records)


async def test_phases_of_a_clock_that_runs_faster_lie_within_their_fetch(collector):
    """libcurl reads another clock of the system, which runs up to 0.05 % faster or slower."""
    own = await tracer(collector)
    attempt = own.begin(lease(1), 0.0, 0.0)

    async def fetching():
        attempt.add_phases(
            FetchPhases(resolved=1.0, connected=60.0, secured=90.0, answered=95.0, ended=100.0)
        )
        return Response("http://h/")

    await attempt.follow(Request("http://h/"), fetching())
    attempt.end(Outcome(1, Resolution.DONE), is_late=False)
    await own.close()
    (trace,) = collector.traces.values()
    check_shape(trace)
    assert {"dns", "connect", "tls"} <= {span.name for span in trace}


@pytest.mark.parametrize(
    "url, address, port",
    [
        ("https://[2001:db8::1]/", "[2001:db8::1]", 443),
        ("http://[2001:db8::1]:8080/", "[2001:db8::1]", 8080),
        ("http://h/", "h", 80),
        ("http://h:8080/", "h", 8080),
    ],
)
async def test_a_fetch_has_the_address_and_the_port_of_its_server(collector, url, address, port):
    own = await tracer(collector)
    attempt = own.begin(lease(1), 0.0, 0.0)

    async def fetching():
        return Response(url)

    await attempt.follow(Request(url), fetching())
    attempt.end(Outcome(1, Resolution.DONE), is_late=False)
    await own.close()
    (trace,) = collector.traces.values()
    (fetch,) = trace.named("GET")
    assert (fetch.attributes["server.address"], fetch.attributes["server.port"]) == (address, port)


@pytest.mark.parametrize(
    "variables, field",
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "OTEL_BSP_MAX_QUEUE_SIZE"),
        (
            {"OTEL_BSP_MAX_QUEUE_SIZE": "9", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"},
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        ),
    ],
)
def test_wrong_variables_are_refused_before_the_crawl(crawl, monkeypatch, variables, field):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as refused:
        crawl({}).check_plugins()
    assert refused.value.field == field


async def test_the_standard_switch_turns_tracing_off(crawl, collector, monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    await crawl({"/": []}).run()
    assert collector.spans == []


def test_a_ratio_above_1_is_refused(crawl):
    with pytest.raises(SettingsError) as refused:
        crawl({}, tracing=2)
    assert refused.value.field == "tracing"


def test_a_missing_package_is_named_with_its_extra(crawl, monkeypatch):
    monkeypatch.delitem(sys.modules, "skitter.worker.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UsageError) as refused:
        crawl({}).check_plugins()
    assert 'pip install ".[otel]"' in refused.value.remedy


def test_a_worker_without_tracing_does_not_load_the_sdk():
    program = (
        "import sys, skitter.run.child, skitter.worker.worker, skitter.fetch.http, skitter.cli.main;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
