"""A broker frontier with named queues: the topics of messages, and the times of publishing. The brokers are fakes."""

import asyncio

import pytest

from fake_broker import FakeBroker
from skitter.brokers.frontier import BrokerFrontier
from skitter.brokers.pending import BrokerTuning
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import Entry, FetchReport, Outcome, Resolution
from skitter.politeness import HostLimits, Politeness

QUICK = BrokerTuning(hold=0.5, dry_after=1000.0, overdue_after=1000.0, max_wait=0.0)


class OpenState:
    """A state that is opened and closed elsewhere, like that of another process."""

    def __init__(self, state, info):
        self._state, self._info = state, info

    def __getattr__(self, name):
        return getattr(self._state, name)

    async def open(self):
        return self._info

    async def close(self):
        pass


@pytest.fixture
async def job(tmp_path):
    """Open a frontier: ``frontier, topics, another = await job()``; ``another()`` opens that of another process."""
    opened = []

    async def begin():
        topics = {}

        def topic(queue):
            return topics.setdefault(queue, FakeBroker())

        politeness = Politeness(HostLimits(delay=0.0, concurrency_per_slot=100))
        state = EmbeddedFrontier(politeness, path=tmp_path / "frontier.db")
        frontier = BrokerFrontier(state, topic, tuning=QUICK)
        info = await frontier.open()
        opened.append(frontier)

        async def another():
            other = BrokerFrontier(OpenState(state, info), topic, tuning=QUICK)
            await other.open()
            opened.insert(0, other)
            return other

        return frontier, topics, another

    yield begin
    for frontier in opened:
        await frontier.close()


def entry(slot, name):
    return Entry(f"{slot} {name}".encode().ljust(16)[:16], slot, f"http://h.test/{name}", b"\x01")


def done(lease, *entries):
    return Outcome(lease.id, Resolution.DONE, list(entries))


async def test_a_job_without_queues_has_one_topic(job):
    frontier, topics, _ = await job()
    await frontier.add([entry("h.test", "a")])
    (lease,) = (await frontier.lease("w", 10)).leases
    await frontier.commit([done(lease, entry("h.test", "b"))])
    assert topics.keys() == {"default"}


async def test_each_request_goes_to_the_topic_of_its_queue(job):
    frontier, topics, _ = await job()
    await frontier.add([entry("h.test", "a"), entry("list|h.test", "b"), entry("detail|h.test", "c"),
                        entry("detail|h.test", "d")])  # fmt: skip
    assert {queue: len(topic.inbox) for queue, topic in topics.items()} == {
        "default": 1,
        "list": 1,
        "detail": 2,
    }


async def test_links_into_another_queue_are_published_before_the_message_of_their_page_is_finished(job):
    frontier, topics, _ = await job()
    await frontier.add([entry("list|h.test", "a"), entry("detail|h.test", "known")])
    (lease,) = (await frontier.lease("w", 10, (), {"list": 10})).leases
    topics["detail"].gate.clear()
    outcome = done(lease, entry("detail|h.test", "b"), entry("detail|h.test", "known"))
    commit = asyncio.create_task(frontier.commit([outcome]))
    while not (await frontier.status()).done:
        await asyncio.sleep(0)
    assert topics["list"].answers == []
    topics["detail"].gate.set()
    assert await commit == [True]
    await asyncio.sleep(0)
    assert topics["list"].answers == ["finish"]
    assert len(topics["detail"].inbox) == 2, "the known one was not published again"


async def test_messages_come_from_the_queues_that_are_served_and_from_no_other(job):
    frontier, topics, _ = await job()
    await frontier.add([entry("list|h.test", "a"), entry("detail|h.test", "b")])
    for _ in range(3):
        await frontier.lease("w", 10, (), {"list": 10})
    assert max(topics["list"].allowed) > 0
    assert not any(topics["detail"].allowed)
    assert not any(topics["default"].allowed)


async def test_a_queue_that_another_process_has_started_is_found(job):
    frontier, _, another = await job()
    other = await another()
    await frontier.add([entry("detail|h.test", "a")])
    assert [one.slot for one in (await other.lease("w", 10)).leases] == ["detail|h.test"]


async def test_fetch_reports_reach_their_queue_even_if_it_is_no_longer_served(job):
    frontier, _, _ = await job()
    await frontier.add([entry("detail|h.test", "a"), entry("h.test", "b")])
    (lease,) = (await frontier.lease("w", 10, (), {"detail": 10})).leases
    await frontier.lease("w", 10, [FetchReport(lease.id, 0.1)], {"default": 10})
    assert next(iter(frontier._state._leases)).fetch_ended
    assert await frontier.renew("w", [lease.id]) == []
    await frontier.release([lease.id])
    assert [one.slot for one in (await frontier.lease("w", 10)).leases] == ["detail|h.test"]


async def test_the_leases_of_a_dead_worker_come_back_in_each_queue(job):
    frontier, _, _ = await job()
    await frontier.add([entry("detail|h.test", "a"), entry("list|h.test", "b")])
    assert len((await frontier.lease("dead", 10)).leases) == 2
    assert await frontier.abandon("dead") == 2
    assert len((await frontier.lease("w", 10, (), {"detail": 10})).leases) == 1
    assert len((await frontier.lease("w", 10, (), {"list": 10})).leases) == 1
