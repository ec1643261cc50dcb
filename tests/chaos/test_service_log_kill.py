"""Processes of a run are killed while they write: all lines that they had handed over are in the log, and no line is broken."""

import json
import os
import random
import signal
import time
from contextlib import suppress

import psutil
import pytest

from services.redis_servers import running
from services.service_nodes import ServiceNode
from skitter.testing import Answer

pytestmark = pytest.mark.chaos

KILLS = 3
PATIENCE = 60.0
TALKER = """import os, time
from skitter import Spider

class Talker(Spider):
    start_urls = ["{url}"]

    def parse(self, response):
        said = os.open("{folder}/%d" % os.getpid(), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in range(10**9):
            text = "%d of %d " % (number, os.getpid()) + "x" * (12_000 if number % 40 == 0 else 50)
            self.logger.info("%s", text)
            os.write(said, b"%d\\n" % number)  # it was handed over
            time.sleep(0.002)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_process_loses_no_line_that_it_had_handed_over(serve, tmp_path, workers):
    for name in ("spiders", "said"):
        (tmp_path / name).mkdir()
    url = serve(lambda visit: Answer(b"x")).url
    (tmp_path / "spiders" / "talker.py").write_text(TALKER.format(url=url, folder=tmp_path / "said"))
    options = ("--store", running("valkey").url.replace("/0", "/11"), "--spiders", str(tmp_path / "spiders"))
    with ServiceNode(tmp_path / "one", *options, "--job-log-size", "100000000") as node:
        settings = {"robots": False, "lease_seconds": 1, "max_worker_crashes": 1000}
        node.done(
            "POST",
            "/jobs",
            {"name": "talker", "spider": "talker.py", "settings": settings, "workers": workers},
        )
        killed = []
        for _ in range(KILLS):
            pid = writing_process(tmp_path / "said", killed)
            time.sleep(random.uniform(0.0, 0.1))  # at any position in a line
            assert psutil.pid_exists(pid), node.errors
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            wait_for(lambda pid=pid: not psutil.pid_exists(pid), "its end")
        node.done("POST", "/jobs/talker/stop")
        wait_until_stopped(node)
        lines = []
        while more := node.done("GET", f"/jobs/talker/log?limit=1000&after={len(lines)}")["lines"]:
            lines += more
        assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
        assert not any(line["message"].startswith("lost ") for line in lines)
        for pid in killed:
            said = (tmp_path / "said" / str(pid)).read_text().split("\n")[:-1]
            kept = [line for line in lines if f" of {pid} x" in line["message"]]
            assert len(said) > 20
            assert [line["message"].split()[0] for line in kept][: len(said)] == said
            assert len(kept) <= len(said) + 1, "it was killed before it could note the last"
            whole = kept[: len(said)]
            assert {len(line["message"].split()[3]) for line in whole} == {50, 12_000}
            assert all(line["worker"].partition("-")[0] == str(pid) for line in whole) or workers > 1
        assert "-9" in json.dumps([line["message"] for line in lines]), "and the deaths stand there, too"
        node.done("DELETE", "/jobs/talker")


def writing_process(folder, killed):
    """Return the process id of a process that writes and was not killed before."""
    return wait_for(
        lambda: [
            int(path.name)
            for path in folder.iterdir()
            if int(path.name) not in killed and path.read_bytes().count(b"\n") > 100
        ],
        "somebody who talks",
    )[0]


def wait_until_stopped(node):
    """Wait until the job runs on no node. Its workers do not read commands while they write, so kill them."""

    def is_over():
        for one in psutil.Process(node.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has ended already
                if one.children() == [] and "skitter" in " ".join(one.cmdline()):
                    one.kill()
        return not node.done("GET", "/jobs/talker")["nodes"]

    wait_for(is_over, "the end of the job")


def wait_for(fact, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := fact()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)
    return found
