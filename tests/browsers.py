"""The browser for tests, and checks that its processes have ended."""

import os
import time
from pathlib import Path

import pytest

from crawl_harness import CrawlHarness
from skitter import Spider
from skitter.browser.executable import check_installed
from skitter.errors import UsageError
from skitter.settings import Settings

BROWSER = {"fetcher": "browser", "page_timeout": 60, "retry_delay": 0.01, "robots": False}
"""Settings of crawls that use the browser."""


class Headings(Spider):
    """Yields the first heading of each page, or the text of a response that is not HTML."""

    name = "headings"

    def __init__(self, requests):
        super().__init__()
        self.requests = requests

    async def start(self):
        for request in self.requests:
            yield request

    def parse(self, response):
        text = response.css("h1::text").get() if response.is_html else response.text
        yield {"path": "/" + response.url.split("/", 3)[3], "text": text, "captured": dict(response.captured)}


async def crawl_headings(tmp_path, requests, **settings):
    """Load pages in the browser. Return their headings by path, and the crawl's report."""
    ran = await CrawlHarness(Headings(requests), tmp_path, **BROWSER | settings).run()
    return {item["path"]: item["text"] for item in ran.items}, ran


def require_browser():
    """Skip the test, with the reason, if the browser or its driver is missing."""
    try:
        check_installed(Settings())
    except UsageError as error:
        pytest.skip(f"{error}: {error.remedy}")


def descendants(pid, folder=""):
    """Return the descendants of a process, and the processes of browsers whose profiles are below a folder."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(entry.name)] = (
                parent,
                (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"),
            )
        except OSError:
            continue
    below = {pid}
    while more := {one for one, (parent, _) in found.items() if parent in below} - below:
        below |= more
    return {
        one: line for one, (_, line) in found.items() if one in below - {pid} or (folder and folder in line)
    }


def is_alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def survivors(pids, seconds=30.0):
    """Return the processes that have not ended within ``seconds``."""
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > deadline:
            return alive
        time.sleep(0.05)
    return []


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
