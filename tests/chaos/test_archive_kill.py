"""Kill test of archives: whichever process is killed, each answer that counts is recorded exactly once."""

import random
from collections import Counter

import pytest
from crawling import FAST, ROUNDS, at_moments, check_exact

from warc_files import of_kind, read_warc

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 400, 40, 2
KILLS = 4
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("victim", ["worker", "owner", "all"])
def test_each_answer_is_archived_once(crawling, site, truth, victim, seed):
    pages, gone = truth
    rng = random.Random(f"archive {victim} {seed}")
    crawl = crawling("Everything", workers=2, settings=FAST, arguments={"url": site.url})
    archive = crawl.folder / "site.warc.gz"
    crawl.command += ["-o", str(archive)]
    crawl.start()
    kills = 0
    for _ in at_moments(crawl, site, sorted(rng.sample(range(PAGES + 1), KILLS))):
        kills += crawl.kill_worker(rng) if victim == "worker" else getattr(crawl, f"kill_{victim}")()
        if victim != "worker":
            crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1
    check_exact(crawl, pages, gone)
    records = read_warc(archive.read_bytes())
    answers = Counter((record.url, record.status.split()[1]) for record in of_kind(records, "response"))
    assert answers == Counter([*((url, "200") for url in pages), *((url, "410") for url in gone)])
    assert Counter(record.url for record in of_kind(records, "request")) == Counter([*pages, *gone])
