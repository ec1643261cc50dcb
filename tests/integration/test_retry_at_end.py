"""Failed requests get another attempt when all other requests are done."""

import signal
import subprocess
import sys

import pytest

from cli_command import lines_of, skitter
from crawl_harness import Scripted
from skitter.testing import Answer


@pytest.mark.parametrize("workers", [1, 2])
def test_failed_requests_are_retried_once_at_the_end(serve, tmp_path, workers):
    gone = Answer(b"", status=404)
    site = Scripted({"/": ["/late", "/gone", "/b"], "/late": (gone, Answer(b"<title>now</title>")), "/b": []})
    arguments = ("crawl", serve(site).url, "--job", "j", "-o", "out.jsonl", "--delay", 0, "--no-robots", "-q")
    result = skitter(*arguments, "-s", "retry_failed_at_end=yes", "--workers", workers, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(lines_of(tmp_path / "out.jsonl")) == 3
    assert site.counts == {"/": 1, "/b": 1, "/late": 2, "/gone": 2}
    order = [visit.target for visit in site.visits]
    assert set(order[-2:]) == {"/late", "/gone"}
    left = skitter("failures", "list", "j", cwd=tmp_path).stdout
    assert "/gone" in left
    assert "/late" not in left


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "moment", ["run.crawl:Crawl._replay", "frontier.embedded.dead_letters:EmbeddedDeadLetters.replay"]
)
def test_a_run_that_is_killed_before_its_last_retry_leaves_it_to_the_next_run(
    serve, tmp_path, moment, workers
):
    site = Scripted({"/": ["/gone"]})
    arguments = [
        "crawl", serve(site).url, "--job", "j", "-o", "out.jsonl", "--delay", "0", "--no-robots", "--workers", str(workers),
        "-s", "retry_failed_at_end=yes",
    ]  # fmt: skip
    module, _, method = moment.partition(":")
    kind, _, method = method.partition(".")
    killing = (
        f"import os; from skitter.{module} import {kind}; from skitter.cli.main import main;"
        f" {kind}.{method} = lambda *_: os.kill(os.getpid(), 9); main()"
    )
    killed = subprocess.run(
        [sys.executable, "-c", killing, *arguments], cwd=tmp_path, timeout=100, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert site.counts == {"/": 1, "/gone": 1}
    for message in ("job j is finished\n", "job j was already finished; "):
        result = skitter(*arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert message in result.stderr
        assert site.counts == {"/": 1, "/gone": 2}
    assert len(lines_of(tmp_path / "out.jsonl")) == 1
