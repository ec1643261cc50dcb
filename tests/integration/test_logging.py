"""The log of a run: loggers of users, their levels, and a file that all worker processes share."""

import json
import logging
import resource
import threading

import pytest

from cli_command import skitter, usage_error
from crawl_harness import Scripted
from skitter.run.log_file import SharedLogFile

SPIDER = """
import logging, warnings
from skitter import Spider

log = logging.getLogger("shop.prices")


class Own(Spider):
    start_urls = ["{url}"]

    def parse(self, response):
        self.logger.info("own %s", response.url)
        log.debug("price %s", response.url)
        logging.getLogger("other").info("quiet")
        logging.getLogger("other").warning("odd")
        warnings.warn("old " + response.url)
        yield {{"url": response.url}}
        yield response.follow_all("a")
"""


def test_messages_of_all_loggers_are_shown_by_their_level_and_kept_in_a_file(serve, tmp_path):
    pages = [f"/{n}" for n in range(20)]
    server = serve(Scripted({"/": pages, **{path: [] for path in pages}}))
    (tmp_path / "own.py").write_text(SPIDER.format(url=server.url))
    levels = json.dumps({"shop": "debug", "skitter.spider": "info"})
    result = skitter(
        "run", "own.py", "-o", "x.jsonl", "--quiet", "--workers", 2, "--log-file", "crawl.log", "--log-level", "WARNING",
        "-s", f"log_levels={levels}", "-s", "delay=0", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    kept = (tmp_path / "crawl.log").read_text()
    for text in (result.stderr, kept):
        lines = text.splitlines()
        for path in ("", *(page[1:] for page in pages)):
            url = f"{server.url}{path}"
            assert len([line for line in lines if line.endswith(f"INFO    own {url}")]) == 1
            assert len([line for line in lines if line.endswith(f"DEBUG   shop.prices: price {url}")]) == 1
        assert len([line for line in lines if line.endswith("WARNING other: odd")]) == 21
        assert "quiet" not in text
        assert "py.warnings: " in text


def test_wrong_log_settings_are_refused(serve, tmp_path):
    server = serve(Scripted({"/": []}))
    (tmp_path / "own.py").write_text(SPIDER.format(url=server.url))
    assert "log_levels" in usage_error("run", "own.py", "-s", 'log_levels={"shop": "loud"}', cwd=tmp_path)
    assert "nowhere/crawl.log" in usage_error(
        "run", "own.py", "--log-file", "nowhere/crawl.log", cwd=tmp_path
    )
    assert not (tmp_path / ".skitter").exists()


@pytest.mark.parametrize("writers", [1, 6])
def test_a_shared_log_file_loses_and_duplicates_nothing_when_it_is_rotated(tmp_path, writers):
    path, amount = tmp_path / "crawl.log", 400

    def write(name):
        handler = SharedLogFile(path, max_bytes=500, backups=100)
        for number in range(amount):
            handler.handle(logging.LogRecord("x", logging.INFO, "", 0, f"{name}-{number}", None, None))
        handler.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = list(tmp_path.glob("crawl.log*"))
    assert len(files) > 2
    assert max(file.stat().st_size for file in files) < 500 + writers * 20
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{name}-{number}" for name in range(writers) for number in range(amount))


def test_old_log_files_are_removed(tmp_path):
    path = tmp_path / "crawl.log"
    handler = SharedLogFile(path, max_bytes=10, backups=2)
    for number in range(10):
        handler.handle(logging.LogRecord("x", logging.INFO, "", 0, f"message {number}", None, None))
    handler.close()
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "crawl.log": "message 9\n",
        "crawl.log.1": "message 8\n",
        "crawl.log.2": "message 7\n",
    }


def test_a_log_file_that_cannot_be_written_is_reported_once_per_failure(tmp_path, capsys):
    path = tmp_path / "crawl.log"
    handler = SharedLogFile(path, max_bytes=10_000, backups=1)

    def log(*numbers):
        for number in numbers:
            handler.handle(logging.LogRecord("x", logging.INFO, "", 0, f"message {number}", None, None))

    log(0)
    expected = f"skitter: cannot write log file {path}: File too large; the crawl continues\n"
    for first in (1, 5):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
        try:
            log(first, first + 1, first + 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert capsys.readouterr().err == expected
        log(first + 3)
    handler.close()
    assert path.read_text().splitlines() == [f"message {number}" for number in range(9)]
