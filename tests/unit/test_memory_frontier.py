"""Properties of the memory frontier beyond the contract: it is simple, and easy to use in tests."""

from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierContext, FrontierSettings
from skitter.frontier.records import Entry
from skitter.frontier.scheduling import extend_ranges, rank_of, wait_for
from skitter.item import OutputRange
from skitter.politeness import HostLimits, Politeness


async def test_a_saver_needs_only_its_class():
    frontier = EmbeddedFrontier()
    info = await frontier.open()
    await frontier.add([Entry(b"\1" * 16, "h.test", "http://h.test/", b"\1")])
    answer = await frontier.lease("w", 1)
    assert len(answer.leases) == 1
    assert info.lease_seconds == FrontierSettings().lease_seconds


async def test_each_job_has_its_own_secret():
    seeds = {(await EmbeddedFrontier().open()).fingerprint_seed for _ in range(5)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**64 for seed in seeds)


async def test_it_is_what_the_memory_url_names(tmp_path):
    options = FrontierSettings(lease_seconds=5.0)
    context = FrontierContext("job", str(tmp_path), Politeness(HostLimits(delay=3.0)), options)
    frontier = EmbeddedFrontier.from_url("memory:", context)
    assert (await frontier.open()).lease_seconds == 5.0
    await frontier.add([Entry(b"\1" * 16, "h.test", "http://h.test/", b"\1")])
    assert (await frontier.status()).busiest[0].delay == 3.0


async def test_it_can_be_opened_again_while_the_object_lives():
    frontier = EmbeddedFrontier()
    first = await frontier.open()
    await frontier.add([Entry(b"\1" * 16, "h.test", "http://h.test/", b"\1")])
    await frontier.close()
    assert await frontier.open() == first
    assert (await frontier.status()).queued == 1


def test_ranks_of_priorities_fit_into_64_bits_and_turn_their_order():
    priorities = [2**63 - 1, 5, 1, 0, -1, -(2**63)]
    ranks = [rank_of("priority", priority, 1) for priority in priorities]
    assert ranks == sorted(ranks)
    assert ranks[0] >= -(2**63)
    assert ranks[-1] < 2**63


def test_a_range_is_joined_only_to_the_one_that_it_continues():
    ranges: list[tuple[int, int]] = []
    for start, end in [(0, 5), (5, 9), (12, 13), (13, 13), (9, 12)]:
        extend_ranges(ranges, OutputRange("part", start, end))
    assert ranges == [(0, 9), (12, 13), (9, 12)]


def test_a_worker_asks_again_when_the_next_slot_is_ready():
    assert wait_for(100.5, 200.0, 100.0, []) <= 0.5
    assert wait_for(100.01, 200.0, 100.0, []) == 100.01 - 100.0
    assert wait_for(None, 100.02, 100.0, []) == 100.02 - 100.0
    assert wait_for(90.0, 200.0, 100.0, ["a lease"]) == 0.0
    assert wait_for(90.0, 200.0, 100.0, []) > 0.01
