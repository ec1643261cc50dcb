"""Downloads of files during kills and server faults: each content is stored once, each item is complete and written once."""

import hashlib
import itertools
import os
import random
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from crawling import FAST, PATIENCE, at_moments, served
from media_site import MediaSite

from sites.cases import http_head
from skitter.testing import Answer, WireAnswer

pytestmark = pytest.mark.chaos

ROUNDS = int(os.environ.get("SKITTER_CHAOS_ROUNDS", "1"))
"""With more than one round, each has 2,000 files and 100 kills."""
FILES, KILLS = (200, 6) if ROUNDS == 1 else (2000, 100)
BIG = 500_000_000
FIRST_BLOCKS = 5


@pytest.mark.timeout(1800 if ROUNDS > 1 else 400)
@pytest.mark.parametrize("seed", range(1 if ROUNDS == 1 else ROUNDS - 1))
def test_each_file_is_stored_once_and_each_item_is_complete_once(crawling, bounded_site, tmp_path, seed):
    arguments = {"files": FILES, "seed": seed}
    site, truth = bounded_site("media_site:MediaSite", arguments), MediaSite(**arguments)
    rng = random.Random(seed)
    crawl = crawling(
        "Archive", workers=2, output="items.jsonl",
        settings={**FAST, "files_store": tmp_path / "archive", "retry_delay": 0.05, "read_timeout": PATIENCE},
        arguments={"url": site.url},
    )  # fmt: skip
    crawl.start()
    kills = 0
    moments = (served(site) + rng.randrange(1, FILES // KILLS) for _ in range(KILLS))
    for _ in at_moments(crawl, site, moments, ahead=8):
        victim = rng.choice(["worker", "worker", "owner", "all"])
        if victim == "worker":
            kills += crawl.kill_worker(rng)
        else:
            getattr(crawl, f"kill_{victim}")()
            kills += 1
            crawl.start()
    crawl.process.wait(PATIENCE * (1 if ROUNDS == 1 else 6))
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS * 0.9
    check(crawl, truth, tmp_path / "archive")


def check(crawl, truth, archive):
    checksums = truth.checksums()
    items = {urlsplit(item["url"]).path: item for item in crawl.items()}
    assert len(crawl.items()) == len(items) == truth.pages + 1
    for page in range(truth.pages):
        files = items[f"/page/{page}"]["files"]
        assert [urlsplit(file["url"]).path for file in files] == truth.files_of(page)
        for file in files:
            assert file.get("checksum") == checksums[urlsplit(file["url"]).path], file
            assert (archive / file["path"]).stat().st_size == file["size"]
    stored = [path for path in archive.glob("full/*/*") if path.is_file()]
    assert len(stored) == len(set(checksums.values()))
    assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in stored} == set(checksums.values())
    counts = crawl.counts()
    assert (counts["queue"], counts["delayed"], counts["dead"]) == (0, 0, 0)


class BigFiles:
    """A page with a file of 500 MB, sent as fast as it is read. After the first blocks it waits for the file ``released``."""

    def __init__(self, released):
        self._released = Path(released)

    def __call__(self, visit):
        if visit.path.startswith("/big"):
            return WireAnswer(self._file())
        return Answer(b'<img src="/big.zip">')

    def _file(self):
        yield http_head(f"Content-Length: {BIG}")
        blocks = itertools.repeat(b"x" * 1_000_000, BIG // 1_000_000)
        yield from itertools.islice(blocks, FIRST_BLOCKS)
        while not self._released.exists():
            yield 0.01
        yield from blocks


def test_memory_is_flat_while_large_files_are_downloaded(crawling, site_process, tmp_path):
    released = tmp_path / "released"
    site = site_process("test_media_kill:BigFiles", {"released": str(released)})
    crawl = crawling(
        "Archive",
        workers=1,
        settings={**FAST, "files_store": tmp_path / "archive"},
        arguments={"url": site.url},
    ).start()
    archive = tmp_path / "archive"

    def has_begun():
        return sum(path.stat().st_size for path in archive.glob(".drafts/*")) > 1_000_000

    assert crawl.wait_for(has_begun, "the first blocks")
    before = peak = high_water(crawl.process)
    released.touch()
    deadline = time.monotonic() + PATIENCE
    while not crawl.has_ended and time.monotonic() < deadline:
        peak = max(peak, high_water(crawl.process))
        time.sleep(0.02)
    assert crawl.wait() == 0, crawl.errors
    (item,) = crawl.items()
    assert [file["size"] for file in item["files"]] == [BIG]
    assert len(list(archive.glob("full/*/*"))) == 1
    assert peak - before < 40_000, f"{before} kB at the beginning, {peak} kB at most"


def high_water(process):
    """Return the largest resident size of a process so far, in kB."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
