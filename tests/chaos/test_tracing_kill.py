"""Traces during a kill: every committed page has exactly one complete trace, whichever worker has fetched it."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli_command import Logged, lines_of
from servers.otlp import Collector, OpenTelemetryCollector
from skitter.testing import Answer, WireAnswer

pytestmark = pytest.mark.chaos

SPIDER = """
import os
from pathlib import Path
from skitter import Spider

class Traced(Spider):
    start_urls = ["{url}"]
    custom_settings = {{"robots": False, "delay": 0, "concurrency": 2, "concurrency_per_slot": 4, "retry_delay": 0.01}}

    def before_request(self, request):
        if request.url.endswith("/slow"):
            with open("holders", "a") as file:
                file.write(f"{{os.getpid()}}\\n")

    def parse(self, response):
        yield {{"url": response.url}}
        yield response.follow_all("a")
"""
PAGES = 60
PROGRAM = os.environ.get("SKITTER_OTELCOL")
"""Path of an OpenTelemetry Collector through which to send the traces. ``make otelcol`` builds it."""


@contextmanager
def endpoint(collector):
    """Yield the URL to which workers send their traces for a collector."""
    if PROGRAM is None:
        yield collector.url
        return
    server = OpenTelemetryCollector(Path(PROGRAM).resolve(), collector).start()
    try:
        yield server.url
    finally:
        server.stop()


def test_every_page_has_one_trace_after_a_worker_was_killed(serve, tmp_path, monkeypatch):
    held = []
    links = (
        "".join(f'<a href="/{n}">x</a>' for n in range(PAGES)) + '<a href="/slow">x</a><a href="/gone">x</a>'
    )

    def site(visit):
        if visit.path == "/slow" and not held:
            held.append(visit)
            return WireAnswer([], end="stall")
        if visit.path == "/gone":
            return Answer(status=404)
        return Answer(links.encode(), delay=0.02)

    server = serve(site)
    (tmp_path / "traced.py").write_text(SPIDER.format(url=server.url))
    with Collector() as collector, endpoint(collector) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        arguments = ["run", "traced.py", "--workers", "2", "-o", "x.jsonl", "--tracing", "1", "--quiet"]
        with Logged(*arguments, cwd=tmp_path) as running:
            # Spans that a worker has not delivered are lost when it is killed. So kill when all but one
            # request have their spans.
            running.wait_for(lambda: len(collector.traces) == PAGES + 2 and (tmp_path / "holders").exists())
            victim = int((tmp_path / "holders").read_text().split()[0])
            assert victim != running.process.pid
            os.kill(victim, signal.SIGKILL)
            assert running.end() == 0, running.log
        traces = collector.traces
    urls = sorted(item["url"] for item in lines_of(tmp_path / "x.jsonl"))
    assert len(urls) == len(set(urls)) == PAGES + 2
    assert sorted(traces) == sorted([*urls, f"{server.url}gone"])
    assert sum(map(len, traces.values())) == len(collector.spans), "spans without a root"
    workers = set()
    for url, trace in traces.items():
        (root,) = trace.roots
        (attempt,) = trace.named("attempt")
        assert attempt.parent == root.id
        workers.add(root.resource["process.pid"])
        if not url.endswith("/gone"):
            below = trace.below(attempt)
            assert below == ["GET", "callback", "commit", "lease", "store", "wait"]
            assert root.attributes["skitter.outcome"] == "done"
    slow = traces[f"{server.url}slow"].roots[0]
    assert slow.attributes["skitter.lost_leases"] == 1
    assert slow.resource["process.pid"] != victim
    assert victim in workers and len(workers) >= 2
