"""Kill test of Scrapy projects: Scrapy is killed at any moment, and nothing is lost or duplicated."""

import random
import signal
import time

import pytest
from crawling import CONCURRENCY, ROUNDS, at_moments, check_exact, check_items, hold, visits
from moving_site import MovingSite
from scrapy_crawling import ScrapyCrawling, SharedScrapyCrawling

from services.redis_servers import server_of

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 200, 20, 2
KILLS = 4
IN_HAND = 4 * CONCURRENCY
SUSPENDED = 13.0
"""Seconds after which a suspended process counts as dead, with a margin."""
MOVING = {
    "pages": 160,
    "every": 20,
    "hosts": HOSTS,
    "busy": 32,
    "moved": 9,
    "page_bytes": 3000,
    "links_per_page": 20,
}
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 3000, "links_per_page": 20}
OFTEN = {"SKITTER_SETTINGS": '{"max_worker_crashes": 100, "lease_seconds": 3}'}


@pytest.fixture
def job(tmp_path, request):
    made = []

    def make(folder=tmp_path, site=None, settings=OFTEN, **options):
        folder.mkdir(exist_ok=True)
        site = site or request.getfixturevalue("site")
        made.append(ScrapyCrawling(folder, site, settings=settings, **options))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


@pytest.fixture
def server():
    server = server_of("valkey", "--appendonly", "yes", "--appendfsync", "everysec").start()
    yield server
    server.stop()


@pytest.fixture
def processes(tmp_path, request, server):
    made = []

    def make(name, folder=tmp_path, site=None, **options):
        folder.mkdir(exist_ok=True)
        site = site or request.getfixturevalue("site")
        made.append(SharedScrapyCrawling(folder, server, site, settings=OFTEN, name=name, **options))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("output", ["items.jsonl", "items.db"])
def test_nothing_is_lost_or_duplicated_by_killing_scrapy(job, site, truth, output, seed):
    rng = random.Random(f"{output} {seed}")
    crawl = job(output=output).start()
    kills = 0
    for _ in at_moments(crawl, site, sorted(rng.sample(range(PAGES + 1), KILLS))):
        kills += crawl.kill_owner()
        crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1
    check_exact(crawl, *truth)
    assert sum(count - 1 for count in visits(site).values()) <= kills * IN_HAND


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("victim", [0, 1], ids=["first", "second"])
def test_two_processes_share_a_crawl_and_one_of_them_is_killed(processes, site, truth, victim, seed):
    rng = random.Random(f"{victim} {seed}")
    both = [processes("one").start(), processes("two").start()]
    kills = 0
    for _ in at_moments(both[1 - victim], site, [rng.randrange(20, PAGES)]):
        kills += both[victim].kill_owner()
    survivor = both[1 - victim]
    assert survivor.wait() == 0, survivor.errors
    assert kills == 1
    check_exact(survivor, *truth)
    assert sum(count - 1 for count in visits(site).values()) <= IN_HAND


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("victim", ["owner", "joined"])
def test_a_process_that_is_suspended_for_long_ends_with_the_others(processes, site, truth, victim, seed):
    rng = random.Random(f"suspended {victim} {seed}")
    hold(site, 60)  # the first process must not finish the crawl before the second one joins
    both = [processes("one").start(), processes("two").start()]
    assert both[0].wait_for(
        lambda: any("joined job" in crawl.errors for crawl in both), "a process that joins the other"
    )
    for _ in at_moments(both[0], site, [rng.randrange(60, PAGES - 60)]):
        joined = next(crawl for crawl in both if "joined job" in crawl.errors)
        owner = next(crawl for crawl in both if crawl is not joined)
        suspended, other = (owner, joined) if victim == "owner" else (joined, owner)
        suspended.process.send_signal(signal.SIGSTOP)
    if suspended is joined:
        assert other.wait() == 0, other.errors
    else:  # the process that writes the outputs cannot be replaced
        time.sleep(SUSPENDED)
        assert not other.has_ended
    suspended.process.send_signal(signal.SIGCONT)
    for crawl in both:
        assert crawl.wait() == 0, crawl.errors
    check_exact(other, *truth)
    assert sum(count - 1 for count in visits(site).values()) <= IN_HAND


def kill_either(both, site, rng):
    """Kill one of two processes at several moments, start it again each time, and wait until both have ended."""
    kills = 0
    for _ in at_moments(both[0], site, sorted(rng.sample(range(20, PAGES), KILLS))):
        victim = rng.choice(both)
        kills += victim.kill_owner()
        victim.start()
    for crawl in both:
        assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1


@pytest.mark.parametrize("seed", ROUNDS)
def test_killed_processes_of_a_fleet_are_started_again(processes, site, truth, seed):
    rng = random.Random(seed)
    both = [processes("one").start(), processes("two").start()]
    kill_either(both, site, rng)
    check_exact(both[0], *truth)


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_project_that_feeds_itself_when_it_is_idle_survives_kills(job, site, truth, seed):
    pages, dead = truth
    rng = random.Random(f"feeding {seed}")
    crawl = job(urls=sorted(pages | dead)).start()
    kills = 0
    for _ in at_moments(crawl, site, sorted(rng.sample(range(PAGES), KILLS))):
        kills += crawl.kill_owner()
        crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1
    check_exact(crawl, pages, dead)


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize("frontier", ["sqlite", "valkey"])
def test_processes_that_feed_themselves_end_together_whichever_is_killed(
    job, processes, site, truth, frontier, seed
):
    pages, dead = truth
    urls = sorted(pages | dead)
    rng = random.Random(f"feeding {frontier} {seed}")
    if frontier == "valkey":
        both = [processes(name, urls=part) for name, part in (("one", urls[::2]), ("two", urls[1::2]))]
    else:
        both = [job(urls=urls[::2]), job(urls=urls[1::2])]
    for crawl in both:
        crawl.start()
    kill_either(both, site, rng)
    check_exact(both[0], pages, dead)


@pytest.fixture
def moving(site_process, tmp_path):
    """A site with retries and redirects."""
    bound = tmp_path / "bound"
    arguments = {**MOVING, "bound": str(bound)}
    site = site_process("moving_site:MovingSite", arguments, hosts=HOSTS, delay=0.02)
    site.bound = bound
    return site


@pytest.mark.parametrize("seed", ROUNDS)
def test_retries_and_redirects_survive_killing_scrapy(job, moving, seed):
    rng = random.Random(f"moving {seed}")
    crawl = job(site=moving).start()
    kills = 0
    for _ in at_moments(crawl, moving, sorted(rng.sample(range(MOVING["pages"]), 2 * KILLS))):
        kills += crawl.kill_owner()
        crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert kills >= 2 * KILLS - 1
    check_moving(crawl, moving)
    assert sum(visits(moving).values()) <= requests_of(moving) + kills * IN_HAND


@pytest.mark.parametrize("seed", ROUNDS)
def test_retries_and_redirects_survive_killing_processes_of_a_fleet(processes, moving, seed):
    rng = random.Random(f"moving fleet {seed}")
    both = [processes("one", site=moving).start(), processes("two", site=moving).start()]
    kills = 0
    for _ in at_moments(both[0], moving, sorted(rng.sample(range(20, MOVING["pages"]), KILLS))):
        victim = rng.choice(both)
        kills += victim.kill_owner()
        victim.start()
    for crawl in both:
        assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS - 1
    check_moving(both[0], moving)


def check_moving(crawl, moving):
    """Check that each page is in the output once and each dead link is a dead letter.

    Retries and redirects are separate requests. A busy page whose first visit was answered to a killed process has no retry.
    """
    site = MovingSite(**MOVING)
    pages, dead = site.urls(moving.origins)
    check_items(crawl, pages, dead)
    moved = sum(site.has_moved(number) and not site.is_gone(number) for number in range(site.pages))
    busy = sum(site.is_busy(number) and not site.is_gone(number) for number in range(site.pages))
    counts = crawl.counts()
    assert counts["queue"] == counts["delayed"] == 0
    assert counts["added"] == counts["done"] + counts["dead"]
    assert len(pages) + moved <= counts["done"] <= len(pages) + moved + busy


def requests_of(moving):
    """Return the maximum number of requests of a crawl without kills."""
    site = MovingSite(**MOVING)
    return site.pages + sum(site.has_moved(n) + site.is_busy(n) for n in range(site.pages))


@pytest.mark.parametrize("seed", ROUNDS)
def test_another_process_of_the_machine_takes_the_place_of_a_killed_owner(job, site, truth, seed):
    rng = random.Random(seed)
    both = [job().start()]
    assert both[0].wait_for((both[0].folder / ".skitter/job/owner.sock").exists, "the owner")
    both.append(job().start())
    for _ in at_moments(both[1], site, [rng.randrange(40, PAGES)]):
        both[0].kill_owner()
    assert both[1].wait() == 0, both[1].errors
    check_exact(both[1], *truth)


def test_ctrl_c_returns_unfinished_requests_and_the_next_run_continues(job, site, truth):
    crawl = job(settings={})  # with leases that are longer than any pause of the process
    for moment in (40, 120):
        crawl.start()
        for _ in at_moments(crawl, site, [moment]):
            crawl.process.send_signal(signal.SIGINT)
        assert crawl.wait() == 0, crawl.errors
        items = crawl.urls()
        assert 0 < len(items) < len(truth[0])
        assert max(items.values()) == 1
    assert crawl.run() == 0, crawl.errors
    check_exact(crawl, *truth)
    assert max(visits(site).values()) == 1  # no request in progress was lost
    assert "leases/lost" not in crawl.counters()
