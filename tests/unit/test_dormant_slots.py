"""Dormant slots, which are stored as counts until they are needed."""

import random

import pytest

from skitter.frontier.embedded.scheduler import MAX_DORMANT_RANKS, DormantSlots, SlotScheduler
from skitter.politeness import HostLimits

BEGIN = 1_000.0


@pytest.fixture
def slots():
    return SlotScheduler(lambda _: HostLimits(delay=1.0))


def test_slots_come_in_the_order_of_their_rank_and_then_of_their_arrival():
    dormant = DormantSlots()
    for key, rank in (("a", 0), ("b", -5), ("c", 0), ("d", 3), ("e", -5)):
        assert dormant.add(key, rank, 1)
    order = []
    while (first := dormant.first("default")) is not None:
        order.append(first[1])
        dormant.take(first[1])
    assert order == ["b", "e", "a", "c", "d"]
    assert len(dormant) == 0


def test_a_request_that_comes_before_the_first_one_wakes_its_slot():
    dormant = DormantSlots()
    dormant.add("a", 0, 2)
    assert dormant.grow("a", 0, 3)
    assert dormant.grow("a", 7, 1)
    assert not dormant.grow("a", -1, 1)
    assert not dormant.grow("b", 0, 1)
    assert dormant.take("a") == (0, 6)
    assert dormant.take("a") is None


def test_more_ranks_than_the_most_are_refused_and_queues_are_apart():
    dormant = DormantSlots()
    assert all(dormant.add(f"h{rank}", rank, 1) for rank in range(MAX_DORMANT_RANKS))
    assert not dormant.add("more", MAX_DORMANT_RANKS, 1)
    assert dormant.add("news|more", MAX_DORMANT_RANKS, 1)
    assert dormant.first("news") == (MAX_DORMANT_RANKS, "news|more")


def test_the_largest_slots_are_found_after_they_have_grown():
    dormant, draw = DormantSlots(), random.Random(1)
    counts = {f"h{number}": draw.randint(1, 1_000) for number in range(500)}
    for key, count in counts.items():
        dormant.add(key, 0, count)
    assert [count for _, count in dormant.largest(5)] == sorted(counts.values(), reverse=True)[:5]
    for key in counts:
        dormant.grow(key, 0, 2_000 if key == "h7" else 1)
    assert dormant.largest(1) == [("h7", counts["h7"] + 2_000)]
    dormant.take("h7")
    assert "h7" not in dict(dormant.largest(5))


def test_all_dormant_slots_are_read_in_their_turn(slots):
    for number in range(300):
        assert slots.add_unread(f"h{number}", 0, 4, create=True)
    assert slots.next_at() == 0.0
    first = slots.unread(BEGIN, 10)
    assert [slot.key for slot in first] == [f"h{number}" for number in range(10)]
    assert {(slot.on_disk, slot.head_end) for slot in first} == {(4, (0, 0))}
    assert len(slots) == 10
    assert len(slots.dormant) == 290


def test_a_dormant_slot_with_a_better_rank_overtakes_those_that_wait_to_be_read(slots):
    for number in range(100):
        slots.add_unread(f"h{number}", 0, 1, create=True)
    slots.unread(BEGIN, 10)
    slots.add_unread("urgent", -1, 1, create=True)
    assert slots.unread(BEGIN, 10)[0].key == "urgent"


def test_a_slot_is_either_dormant_or_an_object(slots):
    slots.get("busy")
    assert not slots.add_unread("busy", 0, 1, create=True)
    assert not slots.add_unread("unknown", 0, 1, create=False)
    slots.add_unread("quiet", 0, 5, create=True)
    assert slots.active("quiet") is None
    assert slots.find("quiet").queued == 5
    assert "quiet" not in slots.dormant
    assert slots.find("unknown") is None


def test_a_slot_of_an_earlier_run_keeps_its_distance_when_it_wakes(slots):
    slots.resume(BEGIN, lambda key: key == "old")
    for key in ("old", "new"):
        slots.add_unread(key, 0, 1, create=True)
    assert slots.find("old").ready_at() == pytest.approx(BEGIN + 1.1)
    assert slots.find("new").ready_at() == 0.0


def test_the_busiest_slots_include_dormant_ones(slots):
    slots.add_unread("dormant", 0, 7, create=True)
    slots.push(slots.get("active"), (0, 1, None))
    found = [(status.key, status.queued, status.delay) for status in slots.busiest(10, {}, BEGIN)]
    assert found == [("dormant", 7, 1.0), ("active", 1, 1.0)]
