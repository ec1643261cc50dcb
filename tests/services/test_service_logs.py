"""Logs of jobs over the API: complete, readable from any node, bounded, without secrets, and never blocking the run."""

import http.client
import json
import threading
import time
from contextlib import ExitStack, contextmanager
from urllib.parse import quote

import pytest

from services.redis_servers import running
from services.service_nodes import PATIENCE, TOKEN, ServiceNode
from sites.gated import gated
from skitter.testing import Answer

TALKER = """import logging, os, sys, warnings
from skitter import Spider

class Talker(Spider):
    start_urls = ["{url}", "{url}bad", "{url}odd"]

    def parse(self, response):
        self.logger.info("page %s", response.url)
        logging.getLogger("mine").warning("with postgresql://me:hidden@h/db and %s", os.environ["SHOP_PASSWORD"])
        logging.getLogger("mine").debug("for debugging")
        print("printed")
        print("complained", file=sys.stderr)
        os.write(2, b"past Python\\n")
        warnings.warn("careful")
        if response.url.endswith("bad"):
            raise ValueError("of the callback")
        yield {{"url": response.url}}
"""
FLOOD = """from skitter import Spider

class Flood(Spider):
    start_urls = ["{url}"]

    def parse(self, response):
        for number in range(20_000):
            self.logger.info("line %d", number)
        yield {{"url": response.url}}
"""


@pytest.fixture
def site(serve):
    return serve(lambda visit: Answer(b"<title>x</title>"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for nodes, with an empty folder for their spiders and a password in their environment."""
    folder = tmp_path_factory.mktemp("logs")
    (folder / "spiders").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_PASSWORD", "hidden-too")
        yield folder


@pytest.fixture(scope="module", params=["sqlite:", "valkey"])
def nodes(request, folder):
    """A single node with its own files, or two that share a server, for all tests that do not stop or kill them."""
    with ExitStack() as stack:
        yield [stack.enter_context(node) for node in make_nodes(folder, request.param, 9)]


def make_nodes(folder, store, database):
    names = ["one"]
    if store != "sqlite:":
        names, store = ["one", "two"], running(store).url.replace("/0", f"/{database}")
    options = (
        "--store",
        store,
        "--spiders",
        str(folder / "spiders"),
        "--job-log-runs",
        "2",
        "--job-log-size",
        "20000",
    )
    return [ServiceNode(folder / f"{store[:6]}-{database}-{name}", *options) for name in names]


def add(node, folder, name, text, **fields):
    (folder / "spiders" / f"{name}.py").write_text(text)
    settings = {"robots": False, "delay": 0, "max_retries": 0, "lease_seconds": 5}
    node.done("POST", "/jobs", {"name": name, "spider": f"{name}.py", "settings": settings, **fields})


def end_of(node, name):
    return node.wait_for(f"/jobs/{name}", lambda job: job["state"] in {"finished", "failed"}, "the end")


def log_of(node, name, query=""):
    """Read a log page by page."""
    found, after = [], 0
    while True:
        page = node.done("GET", f"/jobs/{name}/log?limit=7&after={after}{query}")
        if not page["lines"]:
            return found
        found += page["lines"]
        after = page["next"]


@contextmanager
def stream(node, path):
    """Send a request whose response may be endless."""
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        assert answer.status == 200
        yield answer
    finally:
        connection.close()


def next_line(answer):
    """Read the next line that is not a keep-alive."""
    while not (line := answer.readline()).strip():
        assert line, "it has ended"
    return line


def text_of(node, path):
    with stream(node, path) as answer:
        return answer.read().decode()


def settled(nodes, name):
    """Wait until no node adds lines to the log of a job. Return the log."""
    nodes[0].wait_for(f"/jobs/{name}", lambda job: not job["nodes"], "all nodes to let go")
    return log_of(nodes[0], name)


def test_all_output_of_a_run_is_read_from_any_node_without_secrets(nodes, site, folder):
    name = "talker"
    one, two = nodes[0], nodes[-1]
    add(one, folder, name, TALKER.format(url=site.url), workers=len(nodes))
    end_of(two, name)
    lines = settled(nodes, name)
    assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
    assert log_of(two, name) == lines
    said = {(line["logger"], line["level"], line["message"].splitlines()[0]) for line in lines}
    for path in ("", "bad", "odd"):
        assert ("skitter.spider.talker", "info", f"page {site.url}{path}") in said
    assert {
        ("mine", "warning", "with postgresql://me:***@h/db and ***"),
        ("stdout", "info", "printed"),
        ("stderr", "warning", "complained"),
        ("stderr", "warning", "past Python"),
        ("skitter.service", "info", "this node runs the job now"),
        ("skitter.service", "info", "the run is finished"),
    } <= said
    assert any(line["logger"] == "py.warnings" and "careful" in line["message"] for line in lines)
    (error,) = [line for line in lines if line["level"] == "error"]
    assert error["message"].startswith(f"{site.url}bad: ValueError: of the callback")
    assert "in parse" in error["traceback"]
    assert error["node"] in {node.name for node in nodes}
    assert error["worker"]
    whole = json.dumps(lines) + "".join(node.errors for node in nodes)
    assert "hidden" not in whole
    assert "for debugging" not in whole
    # Filters of the API.
    assert log_of(two, name, "&level=error") == [error]
    about_bad = [line for line in lines if f"{site.url}bad:" in line["message"]]
    assert error in about_bad
    assert log_of(two, name, f"&contains={site.url}BAD:") == about_bad
    page = one.done("GET", f"/jobs/{name}/log?limit=2&after={error['number']}")
    assert page["lines"] == lines[error["number"] :][:2]
    page = two.done("GET", f"/jobs/{name}/log?last=3")
    assert (page["lines"], page["next"]) == (lines[-3:], len(lines))
    found = [json.loads(line) for line in text_of(one, f"/jobs/{name}/log.jsonl").splitlines()]
    assert found == lines
    text = text_of(two, f"/jobs/{name}/log.txt?level=error")
    assert text.startswith(f"{error['time']} ERROR   {error['node']}/{error['worker']} {error['logger']}: ")
    assert "\n    Traceback (most recent call last):\n" in text
    # The log of the node contains it as well, filtered by the log level of the node.
    told = f"{page['run']}: {error['message']}\n"
    for text in (told, "ValueError: of the callback\n"):
        wait_until(
            lambda text=text: any(text in node.errors for node in nodes), f"{text} in the log of a node"
        )
    assert not any(f"page {site.url}" in node.errors for node in nodes)
    one.done("DELETE", f"/jobs/{name}")


def test_a_spider_that_cannot_be_imported_and_one_that_cannot_start_leave_a_traceback(nodes, site, folder):
    add(nodes[0], folder, "broken", "import nothing_there\n")
    for text in ("in <module>\n", "correct the spider's file"):
        page = nodes[-1].wait_for(
            f"/jobs/broken/log?level=error&contains={quote(text)}", lambda page: page["lines"], text
        )
        assert "ModuleNotFoundError" in json.dumps(page["lines"][0])
    nodes[0].done("DELETE", "/jobs/broken")
    text = (
        "from skitter import Spider\nclass S(Spider):\n    async def start(self):\n        yield {}['seed']\n"
    )
    add(nodes[0], folder, "startless", text, workers=len(nodes))
    assert end_of(nodes[-1], "startless")["state"] == "failed"
    lines = settled(nodes, "startless")
    assert any("KeyError: 'seed'" in line.get("traceback", "") for line in lines), lines
    assert any(line["message"].startswith("the run is failed: ") for line in lines)
    nodes[0].done("DELETE", "/jobs/startless")


def test_a_follower_of_a_run_gets_its_lines_as_they_arrive(nodes, serve, folder):
    released = threading.Event()

    def answer(visit):
        page = Answer(b"<title>x</title>")
        # Only this page waits. The site serves all others, including those requested later.
        return gated(page, released.is_set) if visit.path == "/odd" else page

    url = serve(answer).url
    add(nodes[0], folder, "followed", TALKER.format(url=url))
    with (
        stream(nodes[-1], "/jobs/followed/log.jsonl?follow=true") as lines,
        stream(nodes[0], "/jobs/followed/log.txt?follow=true&level=error") as text,
    ):
        found = []
        while not any(line["message"] == f"page {url}bad" for line in found):
            found.append(json.loads(next_line(lines)))
        assert b"ValueError" in next_line(text)
        released.set()  # all lines so far arrived during the run
        found += [json.loads(line) for line in lines.read().splitlines() if line.strip()]
        assert b"Traceback" in text.read()
    assert found == settled(nodes, "followed")
    assert text_of(nodes[0], "/jobs/followed/log.txt?follow=true&last=1").count("\n") == 1, "it has ended"
    nodes[0].done("DELETE", "/jobs/followed")


@pytest.mark.parametrize("store", ["sqlite:", "valkey"])
def test_a_leaving_node_ends_its_streams_and_the_job_continues(store, serve, folder):
    url = serve(lambda visit: Answer(b"", status=503)).url  # its page is retried forever
    with ExitStack() as stack:
        one, *others = [stack.enter_context(node) for node in make_nodes(folder, store, 12)]
        settings = {"robots": False, "max_throttled": 10**6}
        add(one, folder, "endless", TALKER.format(url=url), settings=settings)
        one.wait_for("/jobs/endless", lambda job: one.name in job["nodes"], "work")
        with stream(one, "/jobs/endless/log.txt?follow=true") as answer:
            assert b"this node runs the job now" in next_line(answer)
            assert one.leave() == 0
            answer.read()  # raises if the response was cut off
        assert "graceful shutdown exceeded" not in one.errors
        for other in others:
            lines = log_of(other, "endless")
            assert [line["node"] for line in lines if line["message"] == "this node has left"] == [one.name]
            other.done("DELETE", "/jobs/endless")


def test_the_logs_of_a_number_of_runs_are_kept_and_erased_with_their_job(nodes, site, folder):
    one, two = nodes[0], nodes[-1]
    add(one, folder, "again", TALKER.format(url=site.url), start=False)
    assert one.call("GET", "/jobs/again/log")[0] == 404
    runs = []
    for _ in range(3):
        one.done("POST", "/jobs/again/start")
        job = end_of(two, "again")
        runs.insert(0, job["run"]["id"])
        assert job["logs"] == runs[:2]
        assert settled(nodes, "again")
    kept = {run: two.call("GET", f"/jobs/again/log?run={run}") for run in runs}
    assert [status for status, _ in kept.values()] == [200, 200, 404]
    assert kept[runs[1]][1]["run"] == runs[1]
    assert kept[runs[1]][1]["lines"][-1]["number"] > 10
    assert "`logs` of GET /jobs/NAME" in kept[runs[2]][1]["remedy"]
    wait_until(lambda: remains(nodes, runs[2]) == [], "the oldest log to go")
    assert remains(nodes, runs[1]) != []
    one.done("DELETE", "/jobs/again")
    assert two.call("GET", "/jobs/again/log")[0] == 404
    wait_until(lambda: remains(nodes, "again.") == [], "all to go")


def remains(nodes, run):
    """Return the remaining log records of some runs."""
    if len(nodes) > 1:
        return running("valkey").ask(
            "EVAL", f"redis.call('SELECT', 9) return redis.call('KEYS', '*{run}*:log*')", 0
        )
    return [path for path in (nodes[0].runs.parent / "logs").iterdir() if path.name.startswith(run)]


def wait_until(fact, what):
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def test_a_run_with_endless_output_is_never_blocked_and_its_log_is_bounded(nodes, site, folder):
    add(nodes[0], folder, "flood", FLOOD.format(url=site.url))
    assert end_of(nodes[-1], "flood")["state"] == "finished"
    lines = settled(nodes, "flood")
    assert 20 < len(lines) < 200
    numbers = [line["number"] for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + len(lines)))
    assert any(line["message"] == "the run is finished" for line in lines[-2:])
    nodes[0].done("DELETE", "/jobs/flood")


def test_a_log_that_cannot_be_written_is_reported_once_and_the_run_continues(site, folder):
    node = ServiceNode(folder / "refused", "--spiders", str(folder / "spiders"))
    (folder / "refused" / "node").mkdir()
    (folder / "refused" / "node" / "logs").write_text("a file where a folder should be")
    with node:
        add(node, folder, "unheard", TALKER.format(url=site.url))
        job = end_of(node, "unheard")
        assert (job["state"], job["counts"]["done"], job["counts"]["failed"]) == ("finished", 2, 1)
        wait_until(lambda: "ValueError: of the callback" in node.errors, "the error in the log of the node")
        assert node.errors.count("cannot be stored") == 1
        assert node.done("GET", "/jobs/unheard/log") == {"run": job["run"]["id"], "lines": [], "next": 0}


def test_the_log_of_a_node_that_was_killed_is_read_from_another(serve, folder):
    url = serve(lambda visit: Answer(b"", status=503 if visit.path == "/odd" else 200)).url
    options = (
        "--store", running("valkey").url.replace("/0", "/10"), "--spiders", str(folder / "spiders"), "--job-log-level", "debug",
    )  # fmt: skip
    with ServiceNode(folder / "one", *options) as one:
        settings = {"robots": False, "max_throttled": 10**6}
        add(one, folder, "survivor", TALKER.format(url=url), settings=settings)
        one.wait_for("/jobs/survivor/log?level=error", lambda page: page["lines"], "the error")
        one.wait_for("/jobs/survivor", lambda job: job["counts"]["failed"] == 1, "its page to be given up")
        one.kill()
        one.process.wait()
        with ServiceNode(folder / "two", *options) as two:
            lines = two.wait_for(
                "/jobs/survivor/log?limit=1000",
                lambda page: any(line["node"] == two.name for line in page["lines"]),
                "the other node",
            )["lines"]
            assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
            (error,) = [line for line in lines if line["level"] == "error"]
            assert error["node"] == one.name
            assert ("debug", "for debugging") in {(line["level"], line["message"]) for line in lines}
            two.done("DELETE", "/jobs/survivor")
