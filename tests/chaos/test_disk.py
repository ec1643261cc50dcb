"""A disk that is full or read-only: one clear error line, nothing is lost, and a rerun completes the job."""

import os
import resource
import shutil
import subprocess

import pytest
from crawling import check_exact

from skitter.testing import GeneratedSite

pytestmark = pytest.mark.chaos

SITE = {"pages": 150, "page_bytes": 6000, "links_per_page": 20}
SETTINGS = {"robots": "no", "delay": 0, "concurrency_per_slot": 16, "deny": "outside.invalid"}


@pytest.fixture
def site(site_process):
    return site_process("skitter.testing:GeneratedSite", SITE)


@pytest.fixture
def pages(site):
    return GeneratedSite(**SITE).expected_pages(site.origins)


@pytest.fixture
def job(crawling, site):
    def make(spider="Everything", **options):
        return crawling(spider, settings=SETTINGS, arguments={"url": site.url}, **options)

    return make


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte, mounted at the job's folder."""
    place = tmp_path / ".skitter"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root alone")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def without_privilege():
    """Prefix of a command for which read-only folders are read-only even if the tests run as root."""
    if os.getuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to change that")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def error_line_of(crawl):
    """Return the only error line, which names the problem and the remedy."""
    assert "Traceback" not in crawl.errors
    (line,) = [line for line in crawl.errors.splitlines() if "cannot" in line]
    return line


def at_most(size):
    """Return a function that limits the size of each file of a process."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("spider", "size"), [("Everything", 400_000), ("Heavy", 700_000)], ids=["frontier", "items"]
)
def test_a_file_that_cannot_grow_ends_the_crawl_and_a_rerun_completes(job, pages, spider, size, workers):
    crawl = job(spider, workers=workers, limits=at_most(size))
    assert crawl.run() == 1, crawl.errors
    line = error_line_of(crawl)
    assert ("frontier.db" if spider == "Everything" else "items") in line
    assert "run the same command again" in line
    again = job(spider, workers=workers)
    assert again.run() == 0, again.errors
    check_exact(again, pages)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_crawl_and_with_space_a_rerun_completes(job, pages, small_disk, workers):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    crawl = job("Heavy", workers=workers)
    assert crawl.run() == 1, crawl.errors
    assert "run the same command again" in error_line_of(crawl)
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, pages)


@pytest.mark.parametrize("what", ["the folder of the output", "the working folder"])
def test_a_folder_that_cannot_be_written_is_reported_before_anything_is_fetched(
    job, site, pages, what, without_privilege
):
    crawl = job(prefix=without_privilege, output="out/items.jsonl")
    crawl.output.parent.mkdir()
    locked = crawl.output.parent if what == "the folder of the output" else crawl.folder
    locked.chmod(0o500)
    try:
        assert crawl.run() == 2, crawl.errors
    finally:
        locked.chmod(0o700)
    error_line_of(crawl)
    assert site.hits() == []
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, pages)
