"""Kill test: whichever process is killed at any moment, nothing is lost or duplicated."""

import random
import signal

import psutil
import pytest
from crawling import CONCURRENCY, FAST, PATIENCE, ROUNDS, at_moments, check_exact, served, visits
from dead_link_site import STALL, DeadLinkSite

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 400, 40, 2
KILLS = 4
"""Kills in one crawl; one round has 48."""
IN_HAND = 4 * CONCURRENCY
"""Requests of one worker: those in flight, and three times as many that wait to be committed."""
OUTPUTS = ["items.jsonl", "items.csv", "items.db"]
if len(ROUNDS) > 1:
    OUTPUTS += ["items.jsonl.gz", "items.csv.zst", "items.parquet"]
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}


@pytest.fixture
def job(crawling, site):
    def make(workers=2, settings=(), spider="Everything", arguments=(), **options):
        return crawling(
            spider, workers=workers, settings={**FAST, **dict(settings)},
            arguments={"url": site.url, **dict(arguments)}, **options,
        )  # fmt: skip

    return make


def kill_at_moments(job, site, victim, moments, rng):
    """Kill at each moment (a number of served requests), and start the job again if its owner is gone."""
    job.start()
    kills = 0
    for _ in at_moments(job, site, moments):
        kills += job.kill_worker(rng) if victim == "worker" else getattr(job, f"kill_{victim}")()
        if victim != "worker":
            job.start()
    assert job.wait() == 0, job.errors
    return kills


def check_fetched_twice(crawl, site, dead_workers, *, owner_lives=False):
    """Check that only requests in progress are fetched again: those in flight, and those that wait to be committed.

    An owner that lives counts every lost lease; a killed one has not recorded the last leases.
    """
    twice = sum(count - 1 for count in visits(site).values())
    counted, at_most = crawl.counters().get("leases/lost", 0), dead_workers * IN_HAND
    assert counted <= at_most
    assert twice <= (counted if owner_lives else at_most)


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("victim", ["worker", "owner", "all"])
def test_nothing_is_lost_or_duplicated_by_kills(job, site, truth, victim, output, seed):
    rng = random.Random(f"{victim} {output} {seed}")
    pages, gone = truth
    crawl = job(output=output)
    kills = kill_at_moments(crawl, site, victim, sorted(rng.sample(range(PAGES + 1), KILLS)), rng)
    assert kills >= KILLS - 1
    check_exact(crawl, pages, gone)
    dead = kills * (1 if victim == "worker" else 2)
    check_fetched_twice(crawl, site, dead, owner_lives=victim == "worker")


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("output", OUTPUTS)
def test_nothing_is_lost_or_duplicated_by_killing_the_only_process(job, site, truth, output, seed):
    rng = random.Random(f"{output} {seed}")
    crawl = job(workers=1, output=output)
    kills = kill_at_moments(crawl, site, "owner", sorted(rng.sample(range(PAGES + 1), KILLS)), rng)
    check_exact(crawl, *truth)
    check_fetched_twice(crawl, site, kills)


def test_a_page_that_kills_its_workers_is_given_up_and_all_others_are_obtained(job, site, truth):
    pages, gone = truth
    poison = sorted(pages)[7]
    crawl = job(spider="Poisoned", arguments={"poison": poison}, settings={"max_worker_crashes": 3})
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, pages - {poison}, gone | {poison})
    assert crawl.dead_letters()[poison].startswith("lost: ")
    assert visits(site)[poison] == 4


def test_many_pages_that_kill_workers_do_not_end_the_crawl(crawling, site_process):
    """These are more deaths than a fleet survives whose workers cannot even start."""
    arguments = {"pages": 100, "page_bytes": 3000, "links_per_page": 20}
    site = site_process("dead_link_site:DeadLinkSite", arguments)
    pages = set(DeadLinkSite(**arguments).expected_pages(site.origins))
    poisoned = {url for url in pages if url.endswith("3.html")}
    assert len(poisoned) == 10
    crawl = crawling(
        "Poisoned", workers=2, settings={**FAST, "max_worker_crashes": 0, "concurrency": 1},
        arguments={"url": site.url, "poison": "3.html"},
    )  # fmt: skip
    assert crawl.run() == 0, crawl.errors
    lost = crawl.dead_letters()
    assert set(lost) >= poisoned
    check_exact(crawl, pages - set(lost), lost)


def test_a_worker_that_wakes_after_its_leases_ran_out_commits_nothing(job, site, truth):
    pages, gone = truth
    place = sorted(pages)[20]
    marker = job().folder / "stopped.pid"
    crawl = job(
        spider="Sleepy", arguments={"stop_at": place, "stopped": marker}, settings={"lease_seconds": 1}
    )
    crawl.start()
    assert crawl.wait_for(marker.exists, "the worker that stops")
    sleeper = psutil.Process(int(marker.read_text()))
    assert crawl.wait_for(lambda: visits(site)[place] >= 2, "the second fetch of its page")
    sleeper.send_signal(signal.SIGCONT)
    assert crawl.wait() == 0, crawl.errors
    check_exact(crawl, pages, gone | {f"{site.url}late"})
    assert f"late: {place}" in crawl.errors


def test_the_first_interrupt_drains_and_a_rerun_completes(job, site, truth):
    pages, gone = truth
    crawl = job().start()
    for _ in at_moments(crawl, site, [PAGES // 3]):
        crawl.process.send_signal(signal.SIGINT)
        assert crawl.wait_for(lambda: "stopping" in crawl.errors, "its word that it stops")
    assert crawl.wait() == 130, crawl.errors
    before = crawl.urls()
    assert 0 < len(before) < len(pages)
    assert crawl.counts()["done"] == len(before), "the output holds what was committed"
    assert "leases/lost" not in crawl.counters()
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, pages, gone)
    assert set(visits(site).values()) == {1}, "nothing is fetched again"


def test_the_second_interrupt_ends_at_once_and_a_rerun_completes(crawling, site_process):
    arguments = {"pages": 200, "page_bytes": 3000, "links_per_page": 20, "stalls": 4}
    site = site_process("dead_link_site:DeadLinkSite", arguments)
    crawl = crawling("Everything", workers=2, settings=FAST, arguments={"url": site.url}).start()
    assert crawl.wait_for(lambda: served(site) >= 2, "a page that was leased together with those that stall")
    workers = crawl.workers()
    crawl.process.send_signal(signal.SIGINT)
    assert crawl.wait_for(lambda: "stopping" in crawl.errors, "its word that it stops")
    crawl.process.send_signal(signal.SIGINT)
    assert crawl.wait() == 130, crawl.errors
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert not alive, "workers outlived their owner"
    assert all(hit.ended - hit.received < STALL for hit in site.hits()), (
        "it did not wait for the stalled pages"
    )
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, DeadLinkSite(**arguments).expected_pages(site.origins))
