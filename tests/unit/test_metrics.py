"""The metrics of jobs: their figures, formats and number."""

from collections import Counter
from http.client import HTTPConnection

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from skitter.errors import UsageError
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import Entry, FrontierStatus, JobState, Outcome, Resolution
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.observe.metrics import MAX_LABEL_VALUES, JobSample, MetricsServer, expose
from skitter.politeness import Politeness
from skitter.service.inspection import FigureHistory
from skitter.worker.timings import BOUNDS, FETCH, quantile

STATUS = FrontierStatus(
    state=JobState.RUNNING, added=30, queued=11, delayed=2, leased=3, done=10, failed=4, seeds_loading=False,
    counters={
        "pages": 9, "items": 18, "bytes": 900, "links": 70, "status/200": 8, "status/204": 1, "status/404": 4,
        "time/fetch/0": 2, "time/fetch/4": 5, "time/fetch/14": 1, "time/fetch/us": 61_500_000, "user/sold_out": 6,
        "failed/status/404": 3, "failed/status/500": 1, "retried/timeout": 2, "refused/duplicate": 55,
    },
    slots=5, busiest=[], oldest_lease=1.5, fetchable=2,
)  # fmt: skip
WORKER = WorkerStatus(WorkerReport("w1", "here", 1, "0", 9.0, 16, 7, 8, 9, 18, 900, 1.0), 0.5)


def values(body, parse=parse_text):
    """Each sample by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize(
    "accept, parse", [("", parse_text), ("application/openmetrics-text; version=1.0.0", parse_openmetrics)]
)
def test_metrics_hold_the_committed_figures_in_both_formats(accept, parse):
    body, content_type = expose([JobSample("shop", "running", STATUS, [WORKER])], accept)
    assert content_type.startswith(accept.partition(";")[0] or "text/plain")
    found = values(body, parse)
    job = ("job", "shop")
    assert found["skitter_pages_total", job] == 9
    assert found["skitter_items_total", job] == 18
    assert found["skitter_responses_total", job, ("status", "2xx")] == 9
    assert found["skitter_requests_failed_total", job, ("kind", "status")] == 4
    assert found["skitter_requests_retried_total", job, ("kind", "timeout")] == 2
    assert found["skitter_requests_refused_total", job, ("reason", "duplicate")] == 55
    assert found["skitter_requests", job, ("state", "queued")] == 11
    assert found["skitter_job_state", job, ("state", "running")] == 1
    assert found["skitter_job_state", job, ("state", "finished")] == 0
    assert found["skitter_user_total", job, ("name", "sold_out")] == 6
    buckets = {
        bound: found["skitter_fetch_seconds_bucket", job, ("le", bound)]
        for bound in ("0.001", "0.025", "30.0", "+Inf")
    }
    assert buckets == {"0.001": 2, "0.025": 7, "30.0": 7, "+Inf": 8}
    assert (found["skitter_fetch_seconds_count", job], found["skitter_fetch_seconds_sum", job]) == (8, 61.5)
    assert found["skitter_commit_seconds_count", job] == 0
    assert found["skitter_fetchable_hosts", job] == 2
    assert found["skitter_monitors_violated", job] == 0
    assert found["skitter_workers", job] == 1
    assert found["skitter_fetches", job] == 7
    assert found["skitter_oldest_lease_seconds", job] == 1.5


def test_hostile_names_are_escaped():
    name = 'a"b\\c\n# TYPE x counter'
    body, _ = expose([JobSample(name, "running", STATUS, [])], "")
    assert values(body)["skitter_pages_total", ("job", name)] == 9


def test_the_number_of_series_is_bounded_and_no_count_is_dropped():
    counters = (
        {f"failed/kind{n}/detail": n for n in range(500)}
        | {f"refused/reason{n}": 1 for n in range(500)}
        | {f"user/name{n}": 1 for n in range(500)}
        | {f"values/field/{n}": 1 for n in range(500)}
    )
    status = msgspec.structs.replace(
        STATUS, slots=10_000, counters=counters | {f"status/{n}": 1 for n in range(100, 1000)}
    )
    found = values(expose([JobSample("shop", "running", status, [WORKER] * 8)], "")[0])
    assert len(found) <= 300
    failed = [value for name, value in found.items() if name[0] == "skitter_requests_failed_total"]
    assert len(failed) == MAX_LABEL_VALUES + 1
    assert sum(failed) == sum(range(500))


async def test_a_job_with_10000_hosts_and_8_workers_has_at_most_300_series():
    frontier = EmbeddedFrontier(Politeness())
    await frontier.open()
    hosts = [f"h{number}.test" for number in range(10_000)]
    await frontier.add(
        [Entry(n.to_bytes(16, "big"), host, f"http://{host}/", b"x") for n, host in enumerate(hosts)]
    )
    for number in range(8):
        report = msgspec.structs.replace(WORKER.report, name=f"w{number}")
        await frontier.reports.announce(report, 60.0)
        leases = (await frontier.lease(report.name, 20)).leases
        counters = {"pages": 1, "status/200": 1, "items": 3} | {
            f"time/{name}/{number}": 1 for name in ("fetch", "store")
        }
        await frontier.commit(
            [Outcome(lease.id, Resolution.DONE, counters=dict(counters)) for lease in leases]
        )
    sample = JobSample("shop", "running", await frontier.status(), await frontier.reports.workers())
    found, job = values(expose([sample], "")[0]), ("job", "shop")
    assert (found["skitter_hosts", job], found["skitter_workers", job]) == (10_000 - 160, 8)
    assert found["skitter_pages_total", job] == found["skitter_fetch_seconds_count", job] == 160
    assert len(found) <= 300
    await frontier.close()


def test_an_address_that_is_taken_is_a_usage_error():
    server = MetricsServer("127.0.0.1", 0, list)
    try:
        with pytest.raises(UsageError) as refused:
            MetricsServer("127.0.0.1", server.port, list)
        assert refused.value.field == "metrics"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics?a=1", 200), ("/", 404), ("/metrics/x", 404), ("/x", 404)]
)
def test_the_metrics_are_at_one_path(path, status):
    server = MetricsServer("127.0.0.1", 0, lambda: [JobSample("shop", "running", STATUS, [])])
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
        server.close()
    assert response.status == status
    assert (b"skitter_pages_total" in body) is (status == 200)
    assert status == 200 or b"the metrics are at /metrics" in body


def add_page(counters, seconds):
    """Add the counters of one page, which was fetched in ``seconds``."""
    page = {}
    FETCH.observe(page, seconds)
    counters.update(page)


def test_quantiles_are_within_the_bucket_that_holds_them():
    counters = Counter()
    for seconds in [0.003] * 50 + [0.3] * 45 + [700.0] * 5:
        add_page(counters, seconds)
    buckets = FETCH.read(counters)
    assert sum(buckets) == 100
    assert 0.0025 < quantile(buckets, 0.5) <= 0.005
    assert 0.25 < quantile(buckets, 0.9) <= 0.5
    assert quantile(buckets, 0.99) == BOUNDS[-1]
    assert quantile([0] * len(buckets), 0.5) is None


def test_the_percentiles_of_a_point_are_those_of_the_last_seconds(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("skitter.service.inspection.time.time", lambda: now)
    history, counters = FigureHistory(), Counter()
    for _ in range(100):
        add_page(counters, 0.003)

    def latency():
        return history.add(msgspec.structs.replace(STATUS, counters=dict(counters)), [])["latency"]

    assert latency() is None, "of earlier fetches nobody knows when they were"
    for second in range(1, 31):
        now = 1000.0 + second
        add_page(counters, 0.003 if second < 15 else 7.0)
        found = latency()
        if second == 14:
            assert found["p99"] <= 0.005
    assert 5.0 < found["p50"] <= found["p95"] <= found["p99"] <= 10.0
    now += 20.0
    assert latency() is None
    assert len(history.points) == 32
