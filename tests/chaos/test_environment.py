"""Faults of the environment: a clock that jumps, few file descriptors, little memory, removed part files."""

import resource
import shutil

import pytest
from crawling import FAST, at_moments, check_exact

from skitter.testing import GeneratedSite

pytestmark = pytest.mark.chaos

SITE = {"pages": 200, "page_bytes": 6000, "links_per_page": 20}
JUMPING_CLOCK = '''
"""The wall clock of a machine whose time is set again and again, by up to a month in both directions."""

import pathlib
import time

_true_time = time.time
_start = time.monotonic()
_jumps = (0, 86_400, -86_400, 2_600_000, -2_600_000)


def _jumping_time():
    return _true_time() + _jumps[int((time.monotonic() - _start) / 0.2) % len(_jumps)]


time.time = _jumping_time
(pathlib.Path(__file__).parent / "loaded").touch()
'''


@pytest.fixture
def site(bounded_site):
    return bounded_site("skitter.testing:GeneratedSite", SITE, delay=0.02)


@pytest.fixture
def pages(site):
    return GeneratedSite(**SITE).expected_pages(site.origins)


@pytest.fixture
def job(crawling, site):
    def make(settings=(), **options):
        return crawling("Everything", settings=FAST | dict(settings), arguments={"url": site.url}, **options)

    return make


@pytest.mark.parametrize("workers", [1, 2])
def test_a_clock_that_jumps_loses_and_duplicates_nothing(job, pages, tmp_path, monkeypatch, workers):
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock/sitecustomize.py").write_text(JUMPING_CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "clock"), prepend=":")
    crawl = job(workers=workers)
    assert crawl.run() == 0, crawl.errors
    assert (tmp_path / "clock/loaded").exists()
    check_exact(crawl, pages)
    assert crawl.counters().get("leases/lost", 0) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_few_file_descriptors_lose_nothing(job, pages, workers):
    """A worker opens no more connections than the limit allows. Otherwise hosts would seem to be dead."""

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    crawl = job(workers=workers, limits=limit, settings={"concurrency": 100, "concurrency_per_slot": 100})
    assert crawl.run() == 0, crawl.errors
    assert "ulimit -n" in crawl.errors
    assert "does not respond" not in crawl.errors
    check_exact(crawl, pages)


def test_little_memory_loses_nothing(job, pages):
    """The run fails or completes; another run without the limit completes it."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (120 << 20, 120 << 20))

    limited = job(limits=limit)
    limited.run()
    crawl = job()
    assert crawl.run() == 0, limited.errors + crawl.errors
    check_exact(crawl, pages)


def test_part_files_that_are_removed_during_the_crawl_are_named(job, site, pages, tmp_path):
    crawl = job(workers=2).start()
    for _ in at_moments(crawl, site, [len(pages) // 2]):
        shutil.rmtree(tmp_path / ".skitter/job/parts")
    assert crawl.wait() == 1, crawl.errors
    assert "cannot read the part file" in crawl.errors
    assert not crawl.output.exists()
