"""Politeness test: in the server's own log, no host exceeds its limits, whatever the two workers do."""

import itertools
import json
import signal
import time

import pytest
from crawling import TICK, served

pytestmark = pytest.mark.chaos


@pytest.fixture
def crawl_politely(crawling, site_process):
    """Crawl a polite site with two workers: ``site, crawl = crawl_politely(settings, hosts=2, pages=5)``."""

    def begin(settings, *, hosts=1, answer_after=0.0, run=True, **site_options):
        site = site_process("polite:PoliteSite", site_options, hosts=hosts, delay=answer_after)
        crawl = crawling("Everything", workers=2, settings=settings, arguments={"url": site.url})
        if run:
            assert crawl.run() == 0, crawl.errors
        return site, crawl

    return begin


def by_host(site):
    hosts = {}
    for hit in site.hits():
        hosts.setdefault(hit.host, []).append(hit)
    return hosts


def intervals(hits):
    return [later.received - earlier.received for earlier, later in itertools.pairwise(hits)]


def check_distance(hits, seconds):
    assert len(hits) > 1
    assert min(intervals(hits)) >= seconds - TICK, [round(gap, 4) for gap in intervals(hits)]


def check_rate(hits, count, per):
    """Check that no window of ``per`` seconds contains more than ``count`` starts of fetches."""
    assert len(hits) > count
    windows = [late.received - early.received for early, late in zip(hits, hits[count:], strict=False)]
    assert min(windows) >= per - TICK, [round(window, 4) for window in windows]


def test_no_host_has_more_in_flight_than_its_parallelism(crawl_politely):
    settings = {"delay": 0, "concurrency_per_slot": 3, "robots": "no"}
    site, _ = crawl_politely(settings, hosts=2, pages=40, answer_after=0.03)
    for hits in by_host(site).values():
        assert max(hit.in_flight for hit in hits) == 3


def test_no_host_is_asked_before_its_delay_is_over(crawl_politely):
    site, _ = crawl_politely({"delay": 0.2, "concurrency_per_slot": 4}, hosts=3, pages=8)
    for hits in by_host(site).values():
        assert {hit.target for hit in hits} >= {f"/p{number}" for number in range(8)}
        check_distance(hits, 0.2)


def test_jitter_only_ever_lengthens_the_delay(crawl_politely):
    site, _ = crawl_politely({"delay": 0.1, "jitter": 0.2, "robots": "no"}, pages=20)
    hits = site.hits()
    check_distance(hits, 0.1)
    gaps = intervals(hits)
    assert sum(gaps) / len(gaps) > 0.15


def test_layered_rates_hold_together(crawl_politely):
    site, _ = crawl_politely({"delay": 0, "rates": '["4/0.5s", "8/2s"]', "robots": "no"}, pages=20)
    check_rate(site.hits(), 4, 0.5)
    check_rate(site.hits(), 8, 2.0)


def test_crawl_delay_holds_from_the_robots_txt_on(crawl_politely):
    site, _ = crawl_politely({}, pages=6, robots="User-agent: *\nCrawl-delay: 0.4\n")
    hits = site.hits()
    fetched = [hit.target for hit in hits].count("/robots.txt")
    assert 1 <= fetched <= 2, "once for each worker at most"
    assert {hit.target for hit in hits[:fetched]} == {"/robots.txt"}
    check_distance(hits[fetched - 1 :], 0.4)


def test_an_own_delay_is_kept_to_the_robots_txt_too(crawl_politely):
    site, _ = crawl_politely({"delay": 0.3}, hosts=2, pages=3, robots="User-agent: *\nDisallow:\n")
    for hits in by_host(site).values():
        assert hits[0].target == "/robots.txt"
        check_distance(hits, 0.3)


def test_retry_after_pauses_the_whole_host_and_no_other(crawl_politely):
    settings = {"delay": 0.02, "concurrency_per_slot": 1, "robots": "no", "retry_delay": 0.1}
    site, _ = crawl_politely(settings, hosts=2, pages=30, throttled="/p5")
    hits = site.hits()
    (refusal,) = [hit for hit in hits if hit.status == 429]
    again = next(hit for hit in hits if hit.host == refusal.host and hit.received > refusal.ended)
    assert again.received >= refusal.ended + 1.0
    silence = [hit for hit in hits if refusal.ended < hit.received < again.received]
    assert {hit.host for hit in silence} == {host for host in by_host(site) if host != refusal.host}
    assert [hit.status for hit in hits if hit.host == refusal.host and hit.target == "/p5"] == [429, 200]


def test_of_limit_rules_the_first_match_wins_and_a_rule_can_be_one_pool(crawl_politely):
    rules = [
        {"domain_glob": "127.0.0.1", "delay": 0.3},
        {"domain_glob": "127.0.0.*", "delay": 0.1, "concurrency_per_slot": 1, "unit": "rule"},
    ]
    settings = {"limit_rules": json.dumps(rules), "robots": "no", "delay": 0}
    site, _ = crawl_politely(settings, hosts=3, pages=5, answer_after=0.02)
    hosts = by_host(site)
    check_distance(hosts["127.0.0.1"], 0.3)
    pool = sorted(hosts["127.0.0.2"] + hosts["127.0.0.3"], key=lambda hit: hit.received)
    check_distance(pool, 0.1)
    assert all(later.received >= earlier.ended for earlier, later in itertools.pairwise(pool))


def test_urls_that_robots_txt_forbids_are_never_fetched(crawl_politely):
    site, crawl = crawl_politely(
        {"delay": 0}, hosts=3, pages=10, robots="User-agent: *\nDisallow: /private/\n"
    )
    for hits in by_host(site).values():
        targets = [hit.target for hit in hits]
        assert not [target for target in targets if target.startswith("/private/")]
        assert 1 <= targets.count("/robots.txt") <= 2, "once for each worker at most"
        assert set(targets) >= {f"/p{number}" for number in range(10)}
    assert crawl.counters()["refused/robots"] == 3 * 2
    assert crawl.dead_letters() == {}


def test_a_host_whose_robots_txt_fails_is_not_crawled_but_the_others_are(crawl_politely):
    site, crawl = crawl_politely({"delay": 0}, hosts=2, pages=5, robots_down=[1], run=False)
    crawl.start()
    assert crawl.wait_for(
        lambda: crawled(site) == {"127.0.0.1": 9, "127.0.0.2": 1}, "all that may be fetched"
    )
    time.sleep(1.0)  # no page is fetched in this time
    crawl.process.send_signal(signal.SIGINT)
    assert crawl.wait() == 130, crawl.errors
    hosts = by_host(site)
    assert {hit.target for hit in hosts["127.0.0.2"]} == {"/robots.txt"}
    assert len(hosts["127.0.0.2"]) <= 2, "once for each worker at most"
    assert {hit.target for hit in hosts["127.0.0.1"]} >= {f"/p{number}" for number in range(5)}
    counts = crawl.counts()
    assert counts["dead"] == 0
    assert counts["queue"] + counts["delayed"] == 7, "its pages wait"


def crawled(site):
    """Return the number of fetched URLs by host."""
    return {host: len({hit.target for hit in hits}) for host, hits in by_host(site).items()}


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        ({"delay": 1}, lambda hits: check_distance(hits, 1.0)),
        ({"delay": 0, "rates": "2/2s"}, lambda hits: check_rate(hits, 2, 2.0)),
    ],
    ids=["delay", "rate"],
)
def test_the_distance_is_kept_over_a_kill_and_a_restart(crawl_politely, settings, check):
    site, crawl = crawl_politely({**settings, "robots": "no"}, pages=5, run=False)
    crawl.start()
    for number in (2, 4):
        assert crawl.wait_for(lambda number=number: served(site) >= number, f"{number} requests")
        crawl.kill_all()
        crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert {hit.target for hit in site.hits()} >= {f"/p{number}" for number in range(5)}
    check(site.hits())
