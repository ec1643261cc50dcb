"""The Prometheus files in ``deploy``: rules that fire and recover, a real Prometheus that scrapes a run, the dashboard."""

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import psutil
import pytest
import yaml

from cli_command import SHOP, Running
from services.processes import free_port
from services.service_nodes import TOKEN, ServiceNode
from sites.gated import gated
from skitter.testing import Answer

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus and promtool are not installed (Debian package prometheus)",
)


def promtool(*arguments, cwd=None):
    result = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_configuration_is_valid(tmp_path):
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    (tmp_path / "token").write_text("a token")
    promtool("check", "config", str(tmp_path / "prometheus.yml"))


FAULTS = [
    (
        "SkitterJobStuck",
        {
            'requests{state="queued"}': "50x120",
            "pages_total": "0+1x10 10x20 10+5x120",
            "workers": "1x120",
        },
    ),
    ("SkitterNoWorkers", {"workers": "2x10 0x20 2x120"}),
    (
        "SkitterNoWorkers",  # the node of a service is lost, and no other one has room
        {
            "workers": "2x10 0x20 2x120",
            'job_state{state="running"}': "1x10 0x20 1x120",
            'job_state{state="waiting"}': "0x10 1x20 0x120",
        },
    ),
    (
        "SkitterManyFailures",
        {"pages_total": "0+10x160", 'requests_failed_total{kind="dns"}': "0x5 0+5x30 150x160"},
    ),
    (
        "SkitterThrottled",
        {"pages_total": "0+10x160", 'requests_retried_total{kind="status"}': "0x5 0+9x30 270x160"},
    ),
    ("SkitterOldLease", {"oldest_lease_seconds": "0+60x30 0x120"}),
    ("SkitterMonitorViolated", {"monitors_violated": "0x10 2x20 0x120"}),
    ("SkitterJobFailed", {'job_state{state="failed"}': "0x10 1x20 0x120"}),
]
"""Alerts, and series by the minute at which their fault starts and ends."""
ALERTS = {alert for alert, _ in FAULTS}


def test_each_alert_has_a_fault():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    assert {rule["alert"] for group in groups for rule in group["rules"]} == ALERTS


@pytest.mark.parametrize(("alert", "fault"), FAULTS)
def test_each_alert_fires_for_its_fault_and_recovers(tmp_path, alert, fault):
    series = {'job_state{state="running"}': "1x160", "workers": "1x160", "pages_total": "0+10x160"} | fault
    values = [
        {"series": "skitter_" + _labelled(name), "values": shape} for name, shape in series.items()
    ]  # fmt: skip
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": values,
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": 1}]
                        if name == alert and at == "29m"
                        else [],
                    }
                    for name in sorted(ALERTS)
                    for at in ("4m", "29m", "118m")
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(tmp_path / "test.yml"))


def _labelled(name):
    metric, brace, labels = name.partition("{")
    return f'{metric}{{job="shop",instance="host:1"{"," + labels if brace else "}"}'


def with_short_durations(rules):
    """Return alert rules whose durations of minutes are replaced by half a second to two."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[\d+m\]", "[2s]", rule["expr"]).replace("> 900", "> 1")
            if "for" in rule:
                rule["for"] = "500ms"
    return rules


class Prometheus:
    """A Prometheus server on a free port, with the configuration of ``deploy`` and shorter intervals."""

    def __init__(self, folder, target, *, service=False):
        self._folder = folder
        self._port = free_port()
        rules = with_short_durations(yaml.safe_load(RULES.read_text()))
        (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        # A scrape that takes longer than the interval fails, and then there are no series.
        config["global"] = {"scrape_interval": "250ms", "evaluation_interval": "100ms"}
        config["scrape_configs"] = [config["scrape_configs"][0 if service else 1]]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{target}"]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self):
        self._process = subprocess.Popen(
            ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
             f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=error"], cwd=self._folder,
        )  # fmt: skip
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(30)

    def query(self, expression):
        """Return the samples of an instant query."""
        url = f"http://127.0.0.1:{self._port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]["result"]

    def wait_for_alert(self, name, *, firing=True):
        """Wait until an alert fires, or no longer fires."""
        expression = f'ALERTS{{alertname="{name}",alertstate="firing",job="shop"}}'
        self.wait_for(expression if firing else f"absent({expression})")

    def wait_for(self, expression):
        """Return the samples of a query as soon as there are any."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                if found := self.query(expression):
                    return found
            time.sleep(0.1)
        raise AssertionError(f"no result of {expression}")


def test_prometheus_scrapes_a_run_and_every_panel_of_the_dashboard_has_data(tmp_path, serve):
    links = (
        b"".join(b'<a href="/%d">x</a>' % n for n in range(60))
        + b'<a href="/gone">x</a><a href="/moved">y</a>'
    )
    pages = {"/gone": Answer(b"", status=404), "/broken": Answer(b"", status=500)}
    site = serve(lambda visit: pages.get(visit.path) or Answer(links + b'<a href="/broken">z</a>'))
    (tmp_path / "shop.py").write_text(SHOP.format(url=site.url))
    port = free_port()
    arguments = ["run", "shop.py", "--job", "shop", "-o", "x.jsonl", "--metrics", port, "-s", "wait_for_seeds=yes",
                 "-s", "robots=no", "-s", "delay=0.05"]  # fmt: skip
    with Running(*arguments, cwd=tmp_path), Prometheus(tmp_path, port) as prometheus:
        prometheus.wait_for('skitter_pages_total{job="shop"} > 60 and rate(skitter_pages_total[30s]) >= 0')
        prometheus.wait_for('rate(skitter_requests_failed_total{kind="status"}[30s]) >= 0')
        prometheus.wait_for('rate(skitter_requests_retried_total{kind="status"}[30s]) >= 0')
        prometheus.wait_for('rate(skitter_requests_refused_total{reason="duplicate"}[30s]) >= 0')
        dashboard = json.loads((DEPLOY / "grafana" / "skitter.json").read_text())
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$job", ".*").replace("$__rate_interval", "30s")
                prometheus.wait_for(expression)
        series = prometheus.wait_for('count({__name__=~"skitter_.*"})')
        assert int(series[0]["value"][1]) <= 300


class FaultySite:
    """An endless site. ``fault``: ``good``, ``gone`` or ``busy`` (half of its pages), or ``silent`` (it does not respond)."""

    def __init__(self):
        self.fault = "good"

    def __call__(self, visit):
        number = int(visit.path[1:] or 0)
        links = "".join(f'<a href="/{4 * number + n}">x</a>' for n in range(1, 5))
        answer = Answer(links.encode(), delay=0.03)
        if self.fault == "silent":
            return gated(answer, lambda: self.fault != "silent")
        if number % 2 and self.fault in {"gone", "busy"}:
            return Answer(b"", status={"gone": 404, "busy": 503}[self.fault])
        return answer


def test_the_alerts_of_a_real_run_fire_and_recover(tmp_path, serve):
    """The shipped rules, with shorter durations, in Debian's Prometheus."""
    faulty = FaultySite()
    site = serve(faulty)
    (tmp_path / "shop.py").write_text(SHOP.format(url=site.url))
    port = free_port()
    rule = {"name": "few", "rule": "failed <= 3", "during": "warn", "after": 1}
    arguments = ["run", "shop.py", "--job", "shop", "-o", "x.jsonl", "--metrics", port, "-s", "robots=no", "-s", "delay=0", "-s", "concurrency=4",
                 "-s", "max_retries=1000", "-s", "retry_delay=0.1", "-s", f"monitors={json.dumps([rule])}"]  # fmt: skip
    with Running(*arguments, cwd=tmp_path) as run, Prometheus(tmp_path, port) as prometheus:
        prometheus.wait_for('skitter_pages_total{job="shop"} > 20')
        # After a pause of the run, some alerts fire for a moment.
        prometheus.wait_for('absent(ALERTS{alertstate="firing"})')
        for fault, alerts in (
            ("gone", {"SkitterManyFailures"}),
            ("silent", {"SkitterJobStuck", "SkitterOldLease"}),
            ("busy", {"SkitterThrottled"}),
        ):
            faulty.fault = fault
            for alert in alerts:
                prometheus.wait_for_alert(alert)
            faulty.fault = "good"
            for alert in alerts:
                prometheus.wait_for_alert(alert, firing=False)
        prometheus.wait_for_alert("SkitterMonitorViolated")  # it fires until the pass ends
        run.interrupt()
        assert run.end()[0] is not None
        prometheus.wait_for_alert("SkitterMonitorViolated", firing=False)


def test_the_alert_of_workers_that_do_not_answer_fires_and_recovers(tmp_path, serve):
    """As on a machine without free memory: the process that serves the metrics runs, but its workers do not respond."""
    (tmp_path / "shop.py").write_text(SHOP.format(url=serve(FaultySite()).url))
    port = free_port()
    arguments = ["run", "shop.py", "--job", "shop", "-o", "x.jsonl", "--metrics", port, "--workers", 2,
                 "-s", "robots=no", "-s", "delay=0", "-s", "concurrency=2"]  # fmt: skip
    with Running(*arguments, cwd=tmp_path) as run, Prometheus(tmp_path, port) as prometheus:
        prometheus.wait_for('skitter_workers{job="shop"} == 2 and skitter_pages_total{job="shop"} > 20')
        prometheus.wait_for_alert("SkitterNoWorkers", firing=False)
        workers = psutil.Process(run.process.pid).children()
        assert len(workers) == 2
        for worker in workers:
            worker.suspend()
        try:
            prometheus.wait_for_alert("SkitterNoWorkers")
        finally:
            for worker in workers:
                worker.resume()
        prometheus.wait_for_alert("SkitterNoWorkers", firing=False)
        prometheus.wait_for('skitter_workers{job="shop"} == 2')


def test_the_alert_of_a_failed_job_fires_and_recovers_in_a_service(tmp_path, serve):
    """As in the first scrape configuration: with the token and the label of the job."""
    spiders = tmp_path / "spiders"
    spiders.mkdir()
    working = SHOP.format(url=serve(FaultySite()).url)
    (spiders / "shop.py").write_text(working + "\n    async def start(self):\n        yield {}['seed']\n")
    (tmp_path / "token").write_text(TOKEN)
    job = {"name": "shop", "spider": "shop.py", "settings": {"robots": False, "delay": 0}}
    with (
        ServiceNode(tmp_path / "service", "--spiders", str(spiders)) as node,
        Prometheus(tmp_path, node.port, service=True) as prometheus,
    ):
        node.done("POST", "/jobs", job)
        prometheus.wait_for_alert("SkitterJobFailed")
        (spiders / "shop.py").write_text(working)
        node.done("POST", "/jobs/shop/start")
        prometheus.wait_for('skitter_pages_total{job="shop"} > 0')
        prometheus.wait_for_alert("SkitterJobFailed", firing=False)
