"""Other programs publish requests to the topic of a job on real nsqd."""

import json
import os
import random
import subprocess
import time
import urllib.request

import pytest

from cli_command import SKITTER, skitter
from services.nsq_servers import Nsqd, NsqLookupd
from skitter.testing import Answer, SiteServer

ROUNDS = range(int(os.environ.get("SKITTER_CHAOS_ROUNDS", "1")))
"""Seeds for the order of the published messages."""
SPIDER = """
from skitter import Spider


class Reader(Spider):
    custom_settings = {"robots": False, "delay": 0, "wait_for_seeds": True}

    def parse(self, response):
        yield {"url": response.url, "task": response.meta.get("taskId", ""), "method": response.request.method}
        if "follow" in response.url:
            yield response.follow("/child")
"""


@pytest.fixture
def lookupd():
    server = NsqLookupd().start()
    yield server
    server.stop()


@pytest.fixture
def nsqd(lookupd):
    server = Nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.port}").start()
    lookupd.wait_for_nodes(1)
    yield server
    server.stop()


def publish(nsqd, *bodies):
    """Publish messages like any HTTP client."""
    for body in bodies:
        url = f"http://127.0.0.1:{nsqd.http_port}/pub?topic=pages"
        urllib.request.urlopen(url, data=body, timeout=10).close()


def items(folder):
    return [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]


def counts(folder):
    """Return the numbers of done and failed requests."""
    status = skitter("status", "job", "--json", cwd=folder)
    found = json.loads(status.stdout)["counts"] if status.returncode == 0 else {}
    return {name: found.get(name) for name in ("done", "failed")}


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("seed", ROUNDS)
def test_messages_of_other_programs_are_crawled_and_unreadable_ones_are_dead_letters(
    seed, tmp_path, lookupd, nsqd
):
    (tmp_path / "reader.py").write_text(SPIDER)
    frontier = f"nsq:///pages?lookupd=127.0.0.1:{lookupd.http_port}&state=sqlite:"
    command = [
        *SKITTER, "run", "reader.py", "--job", "job", "--frontier", frontier, "-o", "items.jsonl", "--log-level", "info",
    ]  # fmt: skip
    with SiteServer(lambda visit: Answer(b"<p>")) as site, (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        try:
            # nsqlookupd does not know a new topic when the consumer asks for the first time.
            messages = [
                json.dumps(
                    {"URL": site.url + "go", "Method": "GET", "Retry": 0, "Data": {"taskId": "7"}}
                ).encode(),
                json.dumps({"url": site.url + "follow", "meta": {"taskId": "8"}, "priority": 5}).encode(),
                (site.url + "plain").encode(),
                (site.url + "plain").encode(),
                b"not a request",
                b'{"uri": "http://127.0.0.1/"}',
            ]
            random.Random(seed).shuffle(messages)
            publish(nsqd, *messages)
            wait_for(lambda: counts(tmp_path) == {"done": 4, "failed": 2})
        finally:
            process.terminate()
            process.wait(60)
    assert {item["url"]: (item["task"], item["method"]) for item in items(tmp_path)} == {
        site.url + "go": ("7", "GET"), site.url + "follow": ("8", "GET"), site.url + "child": ("", "GET"),
        site.url + "plain": ("", "GET"),
    }  # fmt: skip
    letters = json.loads(skitter("failures", "list", "job", "--json", cwd=tmp_path).stdout)
    assert {letter["url"] for letter in letters} == {"not a request", '{"uri": "http://127.0.0.1/"}'}
    assert {letter["error"].partition(":")[0] for letter in letters} == {"seed"}
    assert not [letter for letter in letters if letter["error"].startswith("seed: seed")]
    text = (tmp_path / "log").read_text()
    assert "rejected seed b'not a request' from the topic of queue 'default'" in text
    assert "published again" not in text
