"""Calculations of the benchmarks that simulate a fleet and count the losses of a killed worker."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def simulation(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import simulation

    return simulation


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import beside_scrapy_redis

    return beside_scrapy_redis


def test_the_number_of_larger_hosts_follows_from_their_sizes(simulation):
    web = simulation.Web(hosts=500, largest=300)
    sizes = [web.size(rank) for rank in range(1, web.hosts + 1)]
    assert sum(sizes) == web.pages
    for pages in range(web.largest + 1):
        assert web.larger(pages) == sum(size > pages for size in sizes), pages


def test_a_crawl_lasts_as_long_as_its_largest_host_or_as_the_fleet_needs(simulation):
    slow_host = simulation.bound(simulation.Web(hosts=100, largest=100), 1_000, delay=2.0)
    assert slow_host.seconds == pytest.approx(200, rel=0.01)
    assert slow_host.hosts_left == 100 and slow_host.left == 1.0
    small_fleet = simulation.bound(simulation.Web(hosts=10_000, largest=10), 100, delay=0.01)
    assert small_fleet.seconds == pytest.approx(small_fleet.pages / 100)
    assert small_fleet.left == 0.0


@pytest.mark.parametrize("partitions", [1, 8])
def test_simulated_events_take_as_long_as_the_arithmetic_says(simulation, partitions):
    web = simulation.Web(hosts=3_000, largest=60)
    fleet = simulation.Fleet(workers=2, concurrency=64, partitions=partitions, known=1.0)
    result = simulation.Simulation(web, fleet).run()
    # Grants are spaced by the delay and its grace of a tenth; a fetch takes half a second.
    capacity = fleet.workers * fleet.concurrency / simulation.LATENCY
    expected = simulation.bound(web, capacity, delay=1.1)
    assert result.pages == expected.pages
    assert expected.seconds - 1.1 <= result.end <= expected.seconds * 1.15 + 10
    assert result.shortest >= 1.0


def test_larger_lease_batches_cost_the_server_less(simulation):
    web = simulation.Web(hosts=3_000, largest=20)
    one, many = (
        simulation.Simulation(web, simulation.Fleet(workers=4, gather=gather, known=1.0)).run()
        for gather in (0.0, 0.1)
    )
    assert many.leases_per_call > 2 * one.leases_per_call
    assert many.server_us < one.server_us


def test_partitions_are_those_of_the_hash_and_none_is_forgotten(simulation):
    web = simulation.Web(hosts=2_000, largest=50)
    (even,) = simulation.balance(web, (1,))
    assert (even.hosts, even.pages) == (1.0, 1.0)
    (eight,) = simulation.balance(web, (8,))
    assert 1.0 < eight.hosts < eight.pages < 8.0


def test_the_simulation_puts_a_host_where_a_cluster_frontier_does(simulation):
    from skitter.frontier.cluster.partitions import PartitionMap

    parts = PartitionMap(clock=float)
    parts.fill([None] * 12)
    for rank in range(100):
        host = simulation.name_of(rank)
        assert simulation.partition_of(host, 12) == parts.of_slot(host).number


class Careless:
    """Fetches some pages, one of them twice, and keeps fewer items."""

    name = "careless"

    def __init__(self, log):
        self._log = log

    def prepare(self, place):
        self._log.write_text("/\n/a\n/a\n/b\n")

    def command(self, _place, _number):
        return [sys.executable, "-c", ""]

    def items(self, place):
        return place.folder


def test_lost_and_duplicated_pages_and_items_are_counted(beside, tmp_path, monkeypatch):
    monkeypatch.setattr(beside, "server_cpu", lambda _: 0.0)
    start = "http://site/"
    site = beside.Site({start + name: name for name in ("", "a", "b", "c")}, start, tmp_path / "log")
    crawler = Careless(site.log)
    lines = [b'{"url": "http://site/", "title": ""}'] * 2 + [b'{"url": "http://site/a", "ti']
    monkeypatch.setattr(crawler, "items", lambda _: beside.read_items(lines))
    place = beside.Place(tmp_path, None, start)
    outcome = beside.crawl(crawler, site, place, kill_at=0)
    assert (outcome.never_fetched, outcome.fetched_twice) == (1, 1)
    assert (outcome.items_missing, outcome.items_twice) == (3, 1)
    assert outcome.pages_per_cpu_second > 0
