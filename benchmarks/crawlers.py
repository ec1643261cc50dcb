"""The crawlers that are compared: how each is started, and what it must have written."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
BENCH_PYTHON = HERE.parent / ".cache" / "bench" / "bin" / "python"
"""Interpreter that has Scrapy and Crawlee, if they are kept apart as README.md proposes."""
COLLY = HERE.parent / ".cache" / "colly_driver"
"""The program with Colly, which Go builds when it is first needed."""


class Job(NamedTuple):
    start: str
    output: Path
    concurrency: int = 32
    workers: int = 1
    limit: int = 0
    """Stop after this number of pages; 0: at the end."""
    frontier: str = ""
    """URL of the frontier; empty: a file."""
    hosts: str = ""


class WrongOutput(Exception):
    """A crawler did not write exactly the truth, so its speed means nothing."""


def plain(job):
    return [sys.executable, str(HERE / "plain.py"), job.start, str(job.output), str(job.concurrency)]


def scrapy(job):
    return _in_other_environment("scrapy_driver.py", job)


def crawlee(job):
    return _in_other_environment("crawlee_driver.py", job)


def _in_other_environment(driver, job):
    python = BENCH_PYTHON if BENCH_PYTHON.exists() else Path(sys.executable)
    return [str(python), str(HERE / driver), job.start, str(job.output), str(job.concurrency)]


def colly(job):
    if not COLLY.exists():
        build = ["go", "build", "-buildvcs=false", "-o", str(COLLY), "."]
        subprocess.run(build, cwd=HERE / "colly_driver", check=True, env={**os.environ, "CGO_ENABLED": "0"})
    return [str(COLLY), job.start, str(job.output), str(job.concurrency)]


def skitter(job):
    command = [str(Path(sys.executable).with_name("skitter")), "run", str(HERE / "skitter_spider.py")]
    command += [
        "-a",
        f"start={job.start}",
        "-a",
        f"hosts={job.hosts}",
        "-o",
        str(job.output),
        "--job",
        "bench",
        "--quiet",
    ]
    command += ["--no-robots", "--delay", "0", "--workers", str(job.workers)]
    command += ["--concurrency", str(job.concurrency), "--concurrency-per-slot", str(job.concurrency)]
    if job.frontier:
        command += ["--frontier", job.frontier]
    return [*command, "--limit", str(job.limit)] if job.limit else command


def skitter_of(checkout):
    """Return the crawler of another checkout of skitter, so that two versions can be compared in one run."""
    return lambda job: ["env", f"PYTHONPATH={checkout / 'src'}", *skitter(job)]


def without_traps(job):
    """skitter without the detection of traps, to see what this feature costs."""
    return [*skitter(job), "-s", "trap_detection=false"]


CRAWLERS = {
    "plain": plain,
    "scrapy": scrapy,
    "skitter": skitter,
    "without-traps": without_traps,
    "colly": colly,
    "crawlee": crawlee,
}


def check(output, truth):
    """Compare the items with the truth, a mapping of URL to title. Raises :class:`WrongOutput`."""
    with output.open(encoding="utf-8") as lines:
        items = Counter((item["url"], item["title"]) for item in map(json.loads, lines))
    missing = len(truth.items() - items.keys())
    strange = len(items.keys() - truth.items())
    twice = sum(times - 1 for times in items.values())
    if missing or strange or twice:
        raise WrongOutput(f"{output}: {missing} items missing, {strange} not true, {twice} twice")
