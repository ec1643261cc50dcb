"""Runs the real command line in separate processes."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time

import msgspec

from skitter.testing import Answer

SKITTER = [sys.executable, "-m", "skitter"]
SHOP = """
from skitter import Spider

class Shop(Spider):
    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        yield {{"url": response.url}}
        yield response.follow_all("a")
"""


def skitter(*arguments, cwd, stdin="", environment=None, patience=100):
    """Run a command to its end. Fail if it takes longer than ``patience`` seconds."""
    return subprocess.run(
        [*SKITTER, *map(str, arguments)], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=patience,
        env={**os.environ, **(environment or {})}, check=False,
    )  # fmt: skip


_PROGRESS = re.compile(r"[\d:]{8} INFO +[\d,]+ pages, ")


def lines_without_progress(stderr):
    """Return the lines on standard error without progress lines. A slow run logs one every ten seconds."""
    return [line for line in stderr.splitlines() if not _PROGRESS.match(line)]


def usage_error(*arguments, cwd):
    """Run a command that must fail with exit status 2. Return its error message, which must be a single line."""
    result = skitter(*arguments, cwd=cwd)
    assert result.returncode == 2, (result.returncode, result.stderr)
    lines = lines_without_progress(result.stderr)
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("skitter: ")
    assert "; " in lines[0], "there is no remedy"
    assert result.stdout == ""
    return lines[0]


def run_in_terminal(*words, cwd, typed=b"", after=b"", **environment):
    """Run a command in a terminal. Return its exit status and its output.

    ``typed``: keys to press once ``after`` is shown.
    """
    parent, child = pty.openpty()
    shown, is_typed = b"", not typed
    with subprocess.Popen(
        [*SKITTER, *words],
        cwd=cwd,
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, **environment},
    ) as process:
        os.close(child)
        try:
            while piece := os.read(parent, 10_000):
                shown += piece
                if not is_typed and after in shown:
                    os.write(parent, typed)
                    is_typed = True
        except OSError:  # EIO: the command has closed the terminal
            pass
        os.close(parent)
    return process.returncode, shown.decode().replace("\r\n", "\n")


class Running:
    """A running command. It is ended at the end of the block if it is still running."""

    def __init__(self, *arguments, cwd):
        self._arguments = [*SKITTER, *map(str, arguments)]
        self._cwd = cwd

    def __enter__(self):
        self.process = subprocess.Popen(
            self._arguments, cwd=self._cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def end(self):
        """Wait for the command to end. Return its status, stdout and stderr."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


class Logged(Running):
    """A running command whose output and log can be read meanwhile: standard output and standard error are files."""

    def __enter__(self):
        with (self._cwd / "log").open("w") as log, (self._cwd / "out").open("w") as out:
            self.process = subprocess.Popen(
                self._arguments, cwd=self._cwd, stdout=out, stderr=log, start_new_session=True
            )
        return self

    @property
    def log(self):
        return (self._cwd / "log").read_text()

    @property
    def out(self):
        return (self._cwd / "out").read_text().splitlines()

    def wait_for(self, fact):
        """Wait until ``fact()`` is true. Fail if the command ends first."""
        deadline = time.monotonic() + 60
        while not fact():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)  # polls another process

    def end(self):
        """Wait for the command to end. Return its status."""
        return self.process.wait(60)


def lines_of(path):
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def urls_of(path):
    """Read the URLs of the items in a file, sorted, so that duplicates show."""
    return sorted(item["url"] for item in lines_of(path))


def expected_urls(site, server):
    """Return the URLs of all pages of a site, as `urls_of` returns them."""
    return sorted(site.expected_pages(server.origins))


class SlowingSite:
    """Serves another site, but delays its responses after a number of requests.

    Tests use it to act in the middle of a crawl, however fast the machine is. Set ``released`` to end the delay.
    """

    def __init__(self, site, after, delay=0.3):
        self._site = site
        self._left = after
        self._delay = delay
        self.reached = threading.Event()
        self.released = threading.Event()

    def slow_down(self, after):
        """Delay responses again after some more requests."""
        self._left = after

    def __call__(self, visit):
        if visit.path == "/robots.txt":
            return Answer(status=404)
        answer = self._site(visit)
        self._left -= 1
        if self._left > 0 or self.released.is_set():
            return answer
        self.reached.set()
        return msgspec.structs.replace(answer, delay=self._delay)
