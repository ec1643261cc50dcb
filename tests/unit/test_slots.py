"""The slot table: which hosts may be fetched now, and which limits must hold."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skitter.frontier.embedded import scheduler
from skitter.frontier.embedded.scheduler import Slot, SlotScheduler
from skitter.frontier.records import FetchReport
from skitter.politeness import HostLimits

BEGIN = 1_000.0
EPSILON = 1e-6

REPORTS = {
    "quick": FetchReport(1, 0.02),
    "slow": FetchReport(1, 3.0),
    "far": FetchReport(1, 0.5, connecting=0.3),
    "late": FetchReport(1, None, connecting=0.8),
    "refused": FetchReport(1, 0.1, refused=True, retry_after=0.5),
    "nothing": FetchReport(1),
}

policies = st.builds(
    HostLimits,
    delay=st.sampled_from([None, 0.0, 0.05, 0.5, 3.0]),
    jitter=st.sampled_from([0.0, 0.0, 0.4]),
    concurrency_per_slot=st.integers(1, 5),
    rates=st.sampled_from([(), (), ("1/2s",), ("2/1s", "5/6s"), ("3/0.5s",)]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0, 5.0])),
        st.tuples(st.just("take"), st.floats(0.0, 1.0)),
        st.tuples(st.just("take"), st.sampled_from([0.0, 1.0])),
        st.tuples(st.just("end_fetch"), st.sampled_from(sorted(REPORTS))),
        st.tuples(st.just("report_unsent"), st.just(0.0)),
        st.tuples(st.just("min_delay"), st.sampled_from([0.0, 0.1, 0.7])),
        st.tuples(st.just("pause"), st.sampled_from([0.1, 2.0])),
    ),
    min_size=20,
    max_size=150,
)


class OneHost:
    """One host with endless requests, and the log of its server."""

    def __init__(self, policy: HostLimits) -> None:
        self.policy = policy
        self.table = SlotScheduler(lambda _: policy)
        self.slot = self.table.get("h")
        self.now = BEGIN
        self.waiting = 0
        self.in_flight: list[tuple[float, float]] = []
        """When each request was granted and sent."""
        self.log: list[tuple[float, float]] = []
        """When each request was sent, and the earliest time that was promised when it was granted."""
        self.paused_until = 0.0

    def wait(self, seconds):
        self.now += seconds

    def take(self, lateness):
        """Lease a request. The worker sends it as late as it may, or earlier."""
        self.waiting += 1
        self.table.push(self.slot, (0, self.waiting, None))
        if self.table.take(self.now) is None:
            return
        assert self.now >= self.paused_until
        sent = self.now + lateness * (self.slot.start_within or 0.0)
        self.in_flight.append((self.now, sent))
        assert len(self.in_flight) <= self.policy.concurrency_per_slot
        self.log.append((sent, self.slot.min_delay))

    def end_fetch(self, how):
        if self.in_flight:
            report = REPORTS[how]
            granted, sent = self.in_flight.pop(0)
            self.now = max(self.now, sent)  # it cannot end before
            self.slot.end_fetch(self.now, granted, report)
            self.table.reschedule(self.slot)
            if report.refused:
                self.paused_until = max(self.paused_until, self.now + report.retry_after)

    def report_unsent(self, _):
        """Report that the request that was leased last was not sent."""
        if self.in_flight:
            granted, sent = self.in_flight.pop()
            self.log.remove(next(entry for entry in reversed(self.log) if entry[0] == sent))
            self.slot.end_fetch(self.now, granted, FetchReport(1, sent=False))
            self.table.reschedule(self.slot)

    def min_delay(self, seconds):
        self.table.set_min_delay(self.slot, seconds, self.now)

    def pause(self, seconds):
        self.table.pause(self.slot, self.now + seconds)
        self.paused_until = max(self.paused_until, self.now + seconds)

    def check_next_lease(self):
        """Check that the next request is leased when the table said, or as soon as a fetch ends."""
        if self.slot.waiting and self.slot.in_flight < self.policy.concurrency_per_slot:
            assert self.table.take(self.table.next_at()) is not None


@settings(max_examples=400, deadline=None)
@given(policies, steps)
def test_no_host_is_fetched_faster_than_promised_wherever_fetches_begin(policy, script):
    host = OneHost(policy)
    for step, value in script:
        getattr(host, step)(value)
    for (early, floor), (late, later_floor) in pairwise(host.log):
        if distance := max(policy.delay or 0.0, min(floor, later_floor)):
            assert late - early >= distance - EPSILON
    begun = sorted(start for start, _ in host.log)
    for rate in policy.parsed_rates():
        for early, late in zip(begun, begun[rate.count :], strict=False):
            assert late - early >= rate.per - EPSILON
    host.check_next_lease()


@settings(max_examples=50, deadline=None)
@given(policies)
def test_a_host_is_not_fetched_slower_than_it_must_be(policy):
    """Each wait is at most the delay, the jitter, and a grace."""
    host = OneHost(
        HostLimits(
            delay=policy.delay or 0.0, jitter=policy.jitter, concurrency_per_slot=policy.concurrency_per_slot
        )
    )
    for _ in range(20):
        host.take(0.0)
        host.end_fetch("nothing")
        if host.table.next_at() is not None:
            host.now = max(host.now, host.table.next_at())
    longest = (policy.delay or 0.0) + policy.jitter + scheduler.MAX_GRACE
    assert all(late - early <= longest + EPSILON for (early, _), (late, _) in pairwise(host.log))
    assert len(host.log) >= 10


def test_the_heap_stays_bounded_however_often_slots_change():
    table = SlotScheduler(lambda _: HostLimits(delay=1.0, concurrency_per_slot=10))
    for number in range(100):
        slot = table.get(f"h{number}")
        table.push(slot, (0, number, None))
    for turn in range(500):
        for slot in table:
            table.pause(slot, BEGIN + turn)
    assert len(table._order) <= 2 * 100 + 1025
    assert sum(table.take(1e9) is not None for _ in range(200)) == 100


def test_the_slot_that_is_ready_longest_is_leased_first():
    table = SlotScheduler(lambda _: HostLimits(delay=1.0, concurrency_per_slot=10))
    for number, until in enumerate([30.0, 10.0, 20.0]):
        slot = table.get(f"{until}")
        table.push(slot, (0, number, None))
        table.pause(slot, until)
    assert [table.take(100.0)[0].key for _ in range(3)] == ["10.0", "20.0", "30.0"]


def test_of_slots_ready_at_the_same_time_the_higher_priority_goes_first():
    table = SlotScheduler(lambda _: HostLimits(delay=0.0))
    for number, rank in enumerate([0, -5, 5]):
        table.push(table.get(f"{rank}"), (rank, number, None))
    assert [table.take(1.0)[0].key for _ in range(3)] == ["-5", "0", "5"]


def test_new_hosts_do_not_hold_up_hosts_that_have_answered():
    table = SlotScheduler(lambda _: HostLimits(delay=0.0, concurrency_per_slot=1))
    good = table.get("good")
    table.push(good, (0, 0, None))
    table.take(0.0)
    good.end_fetch(1.0, 0.0, FetchReport(1, 0.1))
    for number in range(1, 101):
        table.push(table.get(f"new{number}"), (0, number, None))
    turns = []
    for number in range(101, 121):
        table.push(good, (0, number, None))
        taken, _ = table.take(float(number))
        turns.append(taken.key)
        if taken is good:
            good.end_fetch(float(number), float(number), FetchReport(number, 0.1))
            table.reschedule(good)
    assert turns.count("good") == 15
    assert turns[3] == "new1"


def test_new_hosts_get_every_turn_in_which_no_other_host_may_be_asked():
    table = SlotScheduler(lambda _: HostLimits(delay=10.0))
    good = table.get("good")
    good.has_responded = True
    table.push(good, (0, 0, None))
    table.pause(good, 100.0)
    for number in range(1, 9):
        table.push(table.get(f"new{number}"), (0, number, None))
    assert [table.take(1.0)[0].key for _ in range(8)] == [f"new{number}" for number in range(1, 9)]


def test_a_full_slot_waits_for_no_time():
    table = SlotScheduler(lambda _: HostLimits(delay=0.0, concurrency_per_slot=1))
    slot = table.get("h")
    for number in range(2):
        table.push(slot, (0, number, None))
    table.take(1.0)
    assert table.next_at() is None
    slot.end_fetch(2.0, 1.0, FetchReport(1, 0.1))
    table.reschedule(slot)
    assert table.next_at() is not None


def test_a_grace_that_shrinks_does_not_shorten_an_older_promise():
    """If a Crawl-delay makes the grace smaller, a rate must still consider how late a fetch may have started."""
    slot = Slot("h", HostLimits(delay=0.0, concurrency_per_slot=9, rates=("1/10s",)))
    slot.grant(BEGIN)
    begun_by = BEGIN + slot.start_within
    slot.set_min_delay(0.1)
    assert slot.start_within < begun_by - BEGIN
    assert slot.ready_at() >= begun_by + 10.0


@pytest.mark.parametrize(
    ("delay", "within"), [(0.01, 0.02), (0.2, 0.02), (1.0, 0.1), (2.5, 0.25), (60.0, 1.0)]
)
def test_the_grace_is_a_tenth_of_the_delay_within_bounds(delay, within):
    assert Slot("h", HostLimits(delay=delay)).start_within == pytest.approx(within)


def test_the_grace_period_follows_the_connection_times():
    slot = Slot("h", HostLimits(delay=1.0))
    slot.grant(BEGIN)
    slot.end_fetch(BEGIN, BEGIN, FetchReport(1, None, connecting=0.3))
    assert slot.start_within == pytest.approx(0.6)
    for _ in range(300):
        slot.grant(BEGIN)
        slot.end_fetch(BEGIN, BEGIN, FetchReport(1, 0.1))
    assert slot.start_within == pytest.approx(0.1)
    slot.grant(BEGIN)
    slot.end_fetch(BEGIN, BEGIN, FetchReport(1, None, connecting=1e6))
    assert slot.start_within == pytest.approx(2 * scheduler.MAX_CONNECT_TIME)


def test_an_adapted_delay_follows_the_latency_up_and_down():
    slot = Slot("h", HostLimits())
    delays = []
    for latency in [1.0, 9.0, 9.0, 9.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]:
        slot.grant(BEGIN)
        slot.end_fetch(BEGIN, BEGIN, FetchReport(1, latency))
        delays.append(slot.delay)
    assert delays[:4] == sorted(delays[:4])
    assert delays[3:] == sorted(delays[3:], reverse=True)
    assert delays[3] == pytest.approx(9.0 * scheduler.ADAPTIVE_SHARE, rel=0.2)


def test_an_adapted_delay_is_capped():
    slot = Slot("h", HostLimits())
    slot.grant(BEGIN)
    slot.end_fetch(BEGIN, BEGIN, FetchReport(1, 1e6))
    assert slot.delay == scheduler.MAX_ADAPTIVE_DELAY


def table_with_idle_slots(monkeypatch, policy, change=None):
    monkeypatch.setattr(scheduler, "MIN_EVICTION_SIZE", 4)
    table = SlotScheduler(lambda _: policy)
    for number in range(6):
        slot = table.get(f"{number}")
        table.push(slot, (0, number, None))
        table.take(BEGIN)
        slot.end_fetch(BEGIN, BEGIN, FetchReport(1))
        if change:
            change(table, slot)
    return table


def test_idle_slots_are_evicted(monkeypatch):
    table = table_with_idle_slots(monkeypatch, HostLimits(delay=1.0))
    table.evict_idle(BEGIN + 5.0)
    assert len(table) == 0


def test_the_slots_are_looked_at_again_only_when_their_number_has_doubled(monkeypatch):
    table = table_with_idle_slots(monkeypatch, HostLimits(delay=1.0))
    table.evict_idle(BEGIN)  # their delay still runs
    table.evict_idle(BEGIN + 5.0)
    assert len(table) == 6
    for number in range(6, 12):
        table.get(f"{number}")
    table.evict_idle(BEGIN + 5.0)
    assert len(table) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda table, slot: table.push(slot, (0, 99, None)),
        lambda table, slot: setattr(slot, "on_disk", 1),
        lambda table, slot: slot.grant(BEGIN),
        lambda table, slot: table.set_min_delay(slot, 1.0, BEGIN),
        lambda table, slot: table.pause(slot, BEGIN + 1e6),
        lambda table, slot: (
            slot.grant(BEGIN),
            slot.end_fetch(BEGIN, BEGIN, FetchReport(1, 0.1, refused=True)),
        ),
    ],
    ids=["waiting", "on disk", "in flight", "minimum delay", "paused", "backing off"],
)
def test_a_slot_with_something_to_remember_is_kept(monkeypatch, change):
    table = table_with_idle_slots(monkeypatch, HostLimits(delay=1.0), change)
    table.evict_idle(BEGIN + 5.0)
    assert len(table) == 6


def test_a_slot_is_kept_while_its_rates_count_a_fetch(monkeypatch):
    """Otherwise a host that is evicted and added again would have a new allowance."""
    table = table_with_idle_slots(monkeypatch, HostLimits(delay=0.0, rates=("20/60s",)))
    table.evict_idle(BEGIN + 5.0)
    assert len(table) == 6
    table._evict_at = 0
    table.evict_idle(BEGIN + 61.0)
    assert len(table) == 0


class TwoKinds:
    """Hosts that have responded after 0.1 s and have two more requests each, and new hosts that never respond."""

    def __init__(self, answered, new):
        self.table = SlotScheduler(lambda _: HostLimits())
        for number in range(answered):
            self.add(f"good{number}", 3)
        for slot, _ in [self.table.take(BEGIN) for _ in range(answered)]:
            slot.end_fetch(BEGIN + 0.1, BEGIN, FetchReport(1, 0.1))
            self.table.reschedule(slot)
        for number in range(new):
            self.add(f"new{number}", 1)

    def add(self, host, requests):
        for number in range(requests):
            self.table.push(self.table.get(host), (0, number, host))

    def pause_answered(self, until):
        for slot in self.table:
            if slot.has_responded:
                self.table.pause(slot, until)

    def fill(self, at, places):
        """Lease until all places are taken, or no request is available. Return the numbers of both kinds."""
        taken = []
        while len(taken) < places:
            found = self.table.take(BEGIN + at, None, places - len(taken))
            if found is None:
                break
            taken.append(found[0].has_responded)
        return sum(taken), len(taken) - sum(taken)


def test_two_places_are_kept_for_each_host_that_has_answered_and_is_ready_soon():
    hosts = TwoKinds(3, new=20)
    hosts.pause_answered(BEGIN + 0.3)
    assert hosts.fill(0.25, 16) == (0, 10)
    assert hosts.table.next_at(None, BEGIN + 0.25, 6) == BEGIN + 0.3
    assert hosts.fill(0.3, 6) == (6, 0)


def test_no_place_is_kept_for_a_host_that_is_not_ready_soon():
    hosts = TwoKinds(3, new=20)
    hosts.pause_answered(BEGIN + 9)
    assert hosts.fill(0.25, 16) == (0, 16)


def test_new_hosts_always_have_a_quarter_of_the_places():
    assert TwoKinds(30, new=20).fill(1.0, 16) == (12, 4)


def test_requests_of_new_hosts_are_not_read_while_all_places_are_kept():
    hosts = TwoKinds(3, new=0)
    unread = hosts.table.get("unread")
    unread.on_disk = 5
    hosts.table.reschedule(unread)
    for number in range(4):
        hosts.add(f"other{number}", 1)
    hosts.pause_answered(BEGIN + 0.3)
    assert hosts.fill(0.05, 8) == (0, 4)
    assert hosts.table.unread(BEGIN + 0.35, 10, worker_capacity=4) == []
    assert hosts.table.unread(BEGIN + 0.35, 10, worker_capacity=100) == [unread]


def test_fetches_in_progress_are_counted_for_each_kind_of_host():
    hosts = TwoKinds(1, new=3)
    hosts.pause_answered(BEGIN + 9)
    counts = hosts.table.get("good0").counts
    assert (counts.all, counts.new) == (0, 0)
    assert hosts.fill(0.05, 3) == (0, 3)
    assert (counts.all, counts.new) == (3, 3)
    hosts.table.get("new0").end_fetch(BEGIN + 1, BEGIN, FetchReport(1, 0.1))
    assert (counts.all, counts.new) == (2, 2)
    hosts.table.get("new1").end_fetch(BEGIN + 1, BEGIN, FetchReport(1))  # it has not answered
    hosts.table.get("new2").end_unreported_fetch()
    assert (counts.all, counts.new) == (0, 0)


def test_all_fetches_of_a_host_count_as_those_of_a_known_one_once_it_has_answered():
    table = SlotScheduler(lambda _: HostLimits(delay=0.0))
    for number in range(3):
        table.push(table.get("h"), (0, number, "h"))
    (slot, _), _, _ = [table.take(BEGIN) for _ in range(3)]
    assert (slot.counts.all, slot.counts.new) == (3, 3)
    slot.end_fetch(BEGIN + 1, BEGIN, FetchReport(1, 0.1))
    assert (slot.counts.all, slot.counts.new) == (2, 0)
    slot.end_unreported_fetch()
    slot.end_fetch(BEGIN + 2, BEGIN, FetchReport(1, 0.1))
    assert (slot.counts.all, slot.counts.new) == (0, 0)
