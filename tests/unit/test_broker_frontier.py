"""Calls of a broker frontier to its broker, and their times. The broker is a fake that delivers at once."""

import asyncio

import pytest

from fake_broker import FakeBroker
from skitter.brokers.address import UrlRules
from skitter.brokers.contract import OutgoingMessage
from skitter.brokers.factory import make_broker_frontier
from skitter.brokers.frontier import BrokerFrontier
from skitter.brokers.message import job_mark, request_message, slot_message
from skitter.brokers.pending import MAX_REQUEUE_DELAY, BrokerTuning
from skitter.brokers.polling import PollingBroker, ReceivedMessage
from skitter.errors import FrontierError, UndecodableRecord
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierContext, FrontierSettings
from skitter.frontier.records import Entry, FetchReport, JobState, Outcome, Resolution, SeedProgress
from skitter.politeness import HostLimits, Politeness
from skitter.queues import slot_in
from skitter.request import decode_request

FREE = HostLimits(delay=0.0, concurrency_per_slot=100)
QUICK = BrokerTuning(hold=0.5, dry_after=0.0, overdue_after=0.0, max_wait=0.0)
PATIENT = BrokerTuning(hold=60.0, dry_after=0.0, overdue_after=0.0, max_wait=0.0)
"""Keeps the messages of a host that is ready, however long the calls take."""


def entry(name, host="h.test", **fields):
    return Entry(f"{host} {name}".encode().ljust(16)[:16], host, f"http://{host}/{name}", b"\x01", **fields)


@pytest.fixture
async def make(tmp_path):
    """Open a frontier over a new broker: ``frontier, broker = await make(policy)``."""
    made = []

    async def start(policy=FREE, tuning=QUICK, **options):
        broker = FakeBroker()
        settings = FrontierSettings(**options)
        state = EmbeddedFrontier(Politeness(policy), settings, path=tmp_path / "frontier.db")
        frontier = BrokerFrontier(state, lambda _: broker, tuning=tuning)
        info = await frontier.open()
        broker.mark = job_mark(info.fingerprint_seed)
        made.append(frontier)
        return frontier, broker

    yield start
    for frontier in made:
        await frontier.close()


def topic_of(frontier):
    return frontier._topics["default"]


async def lease(frontier, limit=100, **fields):
    return (await frontier.lease("w", limit, **fields)).leases


async def seeds_in_one_step(frontier):
    """Return the progress of seeds that are loaded in one step."""
    claim = await frontier.claim_seeds("w")
    return SeedProgress(claim.token, 1, done=True)


def done(*leases, **fields):
    return [Outcome(one.id, Resolution.DONE, **fields) for one in leases]


async def test_a_message_is_finished_after_the_commit_and_not_before_its_children_are_published(make):
    frontier, broker = await make()
    await frontier.add([entry("a")])
    (a,) = await lease(frontier)
    (message,) = broker.delivered
    assert message.answers == []
    broker.gate.clear()
    assert await frontier.commit(done(a, entries=[entry("b"), entry("c")])) == [True]
    await asyncio.sleep(0)
    assert message.answers == []
    broker.gate.set()
    await topic_of(frontier)._outbox.wait_below(1)
    assert message.answers == ["finish"]
    assert len(broker.published) == 3


async def test_only_new_requests_are_published(make):
    frontier, broker = await make()
    await frontier.add([entry("a"), entry("a"), entry("b", dedup=False), entry("b", dedup=False)])
    (a, *_) = await lease(frontier)
    await frontier.commit(done(a, entries=[entry("a"), entry("c"), entry("c")]))
    await topic_of(frontier)._outbox.wait_below(1)
    assert len(broker.published) == 3 + 1


async def test_a_retry_is_requeued_with_its_delay(make):
    frontier, broker = await make()
    await frontier.add([entry("a")])
    (a,) = await lease(frontier)
    await frontier.commit([Outcome(a.id, Resolution.RETRY, error="http/500", after=30.0)])
    assert broker.delivered[0].answers == [("requeue", 30.0)]


async def test_renewing_a_lease_touches_its_message(make):
    frontier, broker = await make()
    await frontier.add([entry("a"), entry("b")])
    a, b = await lease(frontier)
    await frontier.commit(done(b))
    assert await frontier.renew("w", [a.id, b.id]) == [b.id]
    assert sorted(str(message.answers) for message in broker.delivered) == ["['finish']", "['touch']"]


async def test_the_message_of_a_late_commit_is_delivered_again(make):
    frontier, broker = await make(lease_seconds=0.001)
    await frontier.add([entry("a")])
    (a,) = await lease(frontier)
    await asyncio.sleep(0.01)
    assert await frontier.commit(done(a)) == [False]
    (again,) = await lease(frontier)
    assert (again.url, again.lost) == (a.url, 1)
    assert broker.delivered[0].answers == []
    assert len(broker.published) == 1


async def test_messages_of_other_jobs_are_finished(make):
    frontier, broker = await make()
    broker.deliver(request_message(b"another!", entry("x"), 0.0))
    assert await lease(frontier) == []
    assert [message.answers for message in broker.delivered] == [["finish"]]
    assert (await frontier.status()).added == 0
    assert await frontier.topic_seeds.take("w", 10) is None


async def test_messages_of_other_programs_are_seeds_until_they_are_settled(make):
    frontier, broker = await make()
    bodies = [b"http://h.test/1", b'{"URL": "http://h.test/2"}', b"", b"\x90"]
    for body in bodies:
        broker.deliver(body)
    assert await lease(frontier) == []
    batch = await frontier.topic_seeds.take("w", 3)
    assert [seed.value for seed in batch.seeds] == bodies[:3]
    assert [message.answers for message in broker.delivered] == [[]] * 4
    rejected = [(entry("rejected"), "not a URL")]
    assert await frontier.topic_seeds.settle(batch.token, [entry("1"), entry("2")], rejected)
    assert [message.answers for message in broker.delivered[:4]] == [["finish"]] * 3 + [[]]
    leases = await lease(frontier)
    assert {lease.url for lease in leases} == {"http://h.test/1", "http://h.test/2", "http://h.test/rejected"}
    (record,) = [lease.record for lease in leases if lease.url.endswith("rejected")]
    with pytest.raises(UndecodableRecord, match=r"^not a URL"):  # without its kind, which the worker adds
        decode_request("", record)
    assert (await frontier.topic_seeds.take("w", 3)).seeds[0].value == bodies[3]


async def test_messages_of_other_programs_return_to_the_broker_when_the_frontier_closes(make):
    frontier, broker = await make()
    broker.deliver(b"http://h.test/1")
    assert await lease(frontier) == []
    await frontier.close()
    assert broker.answers == [("requeue", 0.0)]


async def test_nothing_is_published_again_while_the_broker_cannot_deliver(make):
    frontier, broker = await make()
    broker.is_receiving = False
    await frontier.add([entry("a")])
    broker.inbox.clear()  # published, but not delivered
    for _ in range(5):
        assert await lease(frontier) == []
        await asyncio.sleep(0)
    assert len(broker.published) == 1


async def test_a_message_delivered_twice_leases_nothing_twice(make):
    frontier, broker = await make()
    await frontier.add([entry("a")])
    broker.deliver(broker.published[0].body, attempts=2)
    (a,) = await lease(frontier)
    await frontier.commit(done(a))
    assert await lease(frontier, reports=[FetchReport(a.id, 0.1)]) == []
    broker.deliver(broker.published[0].body, attempts=3)
    assert await lease(frontier, reports=[FetchReport(a.id, 0.1)]) == []
    assert (await frontier.status()).done == 1
    assert "finish" in broker.delivered[0].answers
    assert broker.delivered[-1].answers == ["finish"]


async def test_a_message_whose_request_is_leased_elsewhere_is_kept_or_requeued(make):
    frontier, broker = await make(tuning=BrokerTuning(hold=0.0))
    await frontier.add([entry("a")])
    assert len(await lease(frontier)) == 1
    broker.deliver(broker.published[0].body, attempts=2)
    assert await lease(frontier, reports=[FetchReport(0)]) == []
    ((word, seconds),) = broker.delivered[1].answers
    assert word == "requeue"
    assert 0 < seconds < 20


async def test_a_request_that_the_state_has_lost_is_added_again_from_its_message(make):
    frontier, broker = await make()
    broker.deliver(request_message(broker.mark, entry("lost", priority=3), 0.0))
    assert await lease(frontier, reports=[FetchReport(0)]) == []
    await topic_of(frontier)._outbox.wait_below(1)
    (again,) = await lease(frontier, reports=[FetchReport(0)])
    assert again.url == "http://h.test/lost"


async def test_a_message_of_an_earlier_pass_adds_no_request_to_the_present_one(make):
    frontier, broker = await make()
    await frontier.add([entry("unlinked"), entry("linked")], seeds=await seeds_in_one_step(frontier))
    await frontier.commit(done(*await lease(frontier)))
    late, _ = (message.body for message in broker.published)
    assert await frontier.control.recrawl()
    broker.deliver(late, attempts=2)
    assert await lease(frontier, reports=[FetchReport(0)]) == []
    assert (await frontier.status()).queued == 0
    assert broker.delivered[-1].answers == ["finish"]
    await frontier.add([entry("linked")], seeds=await seeds_in_one_step(frontier))
    assert [one.url for one in await lease(frontier)] == ["http://h.test/linked"]


async def test_messages_of_a_slow_host_are_requeued_one_behind_the_other(make):
    frontier, broker = await make(HostLimits(delay=60.0, concurrency_per_slot=1))
    await frontier.add([entry(number) for number in range(50)])
    assert len(await lease(frontier)) == 1
    waits = [message.answers[0][1] for message in broker.delivered if message.answers]
    assert len(waits) == 49
    assert all(60 <= wait <= MAX_REQUEUE_DELAY for wait in waits)
    assert waits == sorted(waits)
    assert len(set(waits)) == 49


async def test_a_message_is_kept_if_its_host_is_ready_soon(make):
    frontier, broker = await make(HostLimits(delay=0.0, concurrency_per_slot=1), PATIENT)
    await frontier.add([entry("a"), entry("b")])
    (a,) = await lease(frontier)
    (b,) = await lease(frontier, reports=[FetchReport(a.id, 0.1)])
    assert b.url != a.url
    assert [message.answers for message in broker.delivered] == [[], []]


async def test_no_more_messages_are_kept_than_allowed(make):
    frontier, broker = await make(
        HostLimits(delay=0.0, concurrency_per_slot=1), tuning=BrokerTuning(max_pending=4, hold=1e6)
    )
    await frontier.add([entry(number) for number in range(30)])
    assert len(await lease(frontier)) == 1
    assert sum(not message.answers for message in broker.delivered) == 1 + 4


async def test_a_worker_that_has_just_started_keeps_as_many_more_messages_as_it_wants_leases(make):
    tuning = BrokerTuning(max_pending=4, hold=1e6, settling_time=1e6)
    frontier, broker = await make(HostLimits(delay=0.0, concurrency_per_slot=1), tuning=tuning)
    await frontier.add([entry(number) for number in range(30)])
    assert len(await lease(frontier, 20)) == 1
    assert sum(not message.answers for message in broker.delivered) == 30
    assert await lease(frontier, 5, reports=[FetchReport(0)]) == []
    assert sum(not message.answers for message in broker.delivered) < 30


@pytest.mark.parametrize(("settling_time", "is_returned"), [(0.0, True), (5.0, True), (60.0, False)])
async def test_a_message_that_waits_is_kept_while_the_broker_would_deliver_it_late(
    make, settling_time, is_returned
):
    tuning = BrokerTuning(hold=0.5, settling_time=settling_time)
    frontier, broker = await make(HostLimits(delay=9.0), tuning=tuning)
    await frontier.add([entry("a"), entry("b")])
    (a,) = await lease(frontier)
    used, waiting = broker.delivered
    assert [word for word, _ in waiting.answers] == ["requeue"] * is_returned
    await frontier.commit([Outcome(a.id, Resolution.RETRY, after=9.0)])
    assert used.answers == [("requeue", 9.0)] * is_returned


async def test_only_as_many_messages_as_needed_are_received(make):
    frontier, broker = await make()
    await frontier.add([entry(number) for number in range(3)])
    leases = await lease(frontier, 10)
    assert broker.allowed[0] == 10
    await lease(frontier, 7, reports=[FetchReport(one.id, 0.1) for one in leases])
    assert broker.allowed[-1] == len(leases) + 1  # one to check: no slot has a request that is ready
    await frontier.control.set_state(JobState.PAUSED)
    await lease(frontier, 7, reports=[FetchReport(0)])
    await lease(frontier, 7, reports=[FetchReport(0)])
    assert broker.allowed[-1] == len(leases)


async def test_the_next_messages_may_come_during_a_commit_and_no_more_afterwards(make):
    frontier, broker = await make()
    await frontier.add([entry(number) for number in range(6)])
    leases = await lease(frontier, 3)
    kept = len([message for message in broker.delivered if not message.answers]) - 3
    broker.gate.clear()
    broker.allowed.clear()
    await frontier.commit(done(*leases[:2], entries=[entry("child")]))
    assert broker.allowed == [
        3 + kept
    ]  # three in progress, and the kept ones are as many as the next leases need
    topic_of(frontier)._pending.clear()
    broker.allowed.clear()
    await frontier.commit(done(leases[2]))
    # One in progress, two to be finished after their children are published, and three new ones; the first has no
    # children.
    assert broker.allowed == [1 + 2 + 3, 2 + 3]
    broker.gate.set()
    await topic_of(frontier)._outbox.wait_below(1)
    assert len(broker.allowed) == 3
    assert broker.allowed[-1] <= 3 + len(topic_of(frontier)._pending)


async def test_messages_that_were_not_needed_stay_pending_and_count_as_needed(make):
    frontier, broker = await make(tuning=BrokerTuning(max_pending=4, hold=0.5))
    await frontier.add([entry(number) for number in range(30)])
    leases = await lease(frontier, 2)
    assert [message.answers for message in broker.delivered] == [[]] * 30
    broker.allowed.clear()
    await lease(frontier, 5, reports=[FetchReport(one.id, 0.1) for one in leases])
    assert set(broker.allowed) == {2 + 28, 7 + 23}


async def test_lost_messages_are_published_again_when_the_broker_is_dry(make):
    frontier, broker = await make()
    await frontier.add([entry(number) for number in range(10)])
    broker.inbox.clear()
    assert await lease(frontier) == []
    await topic_of(frontier)._search
    leases = await lease(frontier, reports=[FetchReport(0)])
    assert len({one.url for one in leases}) == 10


async def test_nothing_is_published_again_while_messages_come(make):
    frontier, broker = await make(tuning=BrokerTuning(dry_after=1e6, overdue_after=0.0))
    await frontier.add([entry(number) for number in range(10)])
    broker.inbox.clear()
    assert await lease(frontier) == []
    assert topic_of(frontier)._search is None
    assert len(broker.published) == 10


async def test_closing_requeues_pending_and_leased_messages(make):
    frontier, broker = await make(HostLimits(delay=0.0, concurrency_per_slot=1), PATIENT)
    await frontier.add([entry("a"), entry("b")])
    await lease(frontier)
    await frontier.close()
    assert [message.answers for message in broker.delivered] == [[("requeue", 0.0)]] * 2


async def test_closing_a_finished_job_finishes_the_remaining_messages(make):
    frontier, broker = await make(tuning=BrokerTuning(hold=1e6))
    claim = await frontier.claim_seeds("w")
    await frontier.add([entry("a")], SeedProgress(claim.token, 1, done=True))
    (a,) = await lease(frontier)
    broker.deliver(slot_message(broker.mark, "h.test"))
    await lease(frontier, reports=[FetchReport(0)])
    await frontier.commit(done(a))
    answer = await frontier.lease("w", 0, [FetchReport(0)])
    assert answer.state is JobState.FINISHED
    await frontier.close()
    assert [message.answers for message in broker.delivered] == [["finish"]] * 2


async def test_a_request_too_large_for_a_message_stays_with_the_state(make):
    frontier, broker = await make()
    large = Entry(b"1" * 16, "h.test", "http://h.test/large", bytes(2_000_000))
    await frontier.add([large])
    assert len(broker.published[0].body) < 1000
    (one,) = await lease(frontier)
    assert one.record == large.record


async def test_a_delayed_request_is_published_with_its_delay_and_not_offered_before(make):
    frontier, broker = await make()
    await frontier.add([entry("later", delay=300.0)])
    assert broker.published[0].delay == pytest.approx(300.0, abs=1.0)
    assert await lease(frontier) == []
    ((word, seconds),) = broker.delivered[0].answers
    assert word == "requeue"
    assert 240 < seconds <= 300, "what is left of it"


class AwayFirst(FakeBroker):
    """Cannot be opened the first time."""

    def __init__(self):
        super().__init__()
        self.tries = 0

    async def open(self):
        self.tries += 1
        if self.tries == 1:
            raise FrontierError("no answer")


@pytest.mark.parametrize("patient", [True, False])
async def test_only_a_worker_that_joins_a_crawl_waits_for_a_broker_that_is_unavailable(
    tmp_path, monkeypatch, patient
):
    monkeypatch.setattr("skitter.brokers.waiting.RETRY_INTERVAL", 0.0)
    broker = AwayFirst()
    frontier = BrokerFrontier(
        EmbeddedFrontier(Politeness(FREE), path=tmp_path / "f.db"), lambda _: broker, patient=patient
    )
    if patient:
        await frontier.open()
        await frontier.close()
    else:
        with pytest.raises(FrontierError, match="no answer"):
            await frontier.open()
    assert broker.tries == 1 + patient


class ClosingBroker(FakeBroker):
    """Records whether it was closed, and raises an error then if it is to ``fail``."""

    def __init__(self, fail=False):
        super().__init__()
        self.fail = fail
        self.is_closed = False

    async def close(self):
        self.is_closed = True
        if self.fail:
            raise FrontierError("not closed")


async def test_a_broker_is_closed_if_its_opening_is_cancelled(tmp_path):
    opening = asyncio.Event()

    class Slow(ClosingBroker):
        async def open(self):
            opening.set()
            await asyncio.Event().wait()

    broker = Slow()
    frontier = BrokerFrontier(EmbeddedFrontier(Politeness(FREE), path=tmp_path / "f.db"), lambda _: broker)
    task = asyncio.create_task(frontier.open())
    await opening.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert broker.is_closed


async def test_brokers_are_closed_at_the_same_time_and_no_error_is_lost(tmp_path):
    both = asyncio.Barrier(2)

    class Waiting(FakeBroker):
        def __init__(self, queue):
            super().__init__()
            self._queue = queue

        async def close(self):
            async with asyncio.timeout(10):
                await both.wait()
            raise FrontierError(self._queue)

    frontier = BrokerFrontier(EmbeddedFrontier(Politeness(FREE), path=tmp_path / "f.db"), Waiting)
    await frontier.open()
    await frontier.add([entry("x", slot_in("list", "h.test"))])
    with pytest.raises(FrontierError) as caught:
        await frontier.close()
    assert str(caught.value) == "default"
    assert caught.value.__notes__ == ["another queue was not closed either: list"]


async def test_all_brokers_and_the_state_are_closed_if_closing_one_of_them_fails(tmp_path):
    brokers = {"default": ClosingBroker(), "a": ClosingBroker(fail=True), "b": ClosingBroker()}
    path = tmp_path / "f.db"
    frontier = BrokerFrontier(EmbeddedFrontier(Politeness(FREE), path=path), brokers.__getitem__)
    await frontier.open()
    await frontier.add([entry("x", slot_in(queue, "h.test")) for queue in ("a", "b")])
    with pytest.raises(FrontierError, match="not closed"):
        await frontier.close()
    assert all(broker.is_closed for broker in brokers.values())
    again = EmbeddedFrontier(Politeness(FREE), path=path)  # the state is not locked any more
    await again.open()
    await again.close()


class ListPlace:
    """A queue in memory. ``error`` is raised by its next calls while it is set."""

    unavailable = (ConnectionError,)

    def __init__(self):
        self.waiting, self.calls, self.error = [], [], None

    def call(self, *what):
        self.calls.append(what)
        if self.error is not None:
            raise self.error

    async def open(self):
        self.call("open")

    async def close(self):
        self.call("close")

    async def put(self, messages):
        self.call("put", len(messages))
        self.waiting += [message.body for message in messages]

    async def take(self, count):
        if self.error is not None:
            raise self.error
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return [ReceivedMessage(body, body, 2) for body in taken]

    async def delete(self, key):
        self.call("delete", key)

    async def delay(self, key, seconds):
        self.call("delay", key, seconds)


@pytest.fixture
async def polled():
    place = ListPlace()
    broker = PollingBroker(place, 60.0, interval=0.001)
    await broker.open()
    yield place, broker
    place.error = None
    await broker.close()


async def take_of(broker):
    while not await broker.wait(5):
        pass
    return broker.receive()


async def test_a_polling_broker_takes_only_allowed_messages_and_each_answer_frees_capacity(polled):
    place, broker = polled
    await broker.publish([OutgoingMessage(body) for body in (b"1", b"2", b"3")])
    broker.allow(2)
    one, two = await take_of(broker)
    assert ([one.body, two.body], one.attempts, place.waiting) == ([b"1", b"2"], 2, [b"3"])
    one.touch()
    one.finish()
    [three] = await take_of(broker)
    two.requeue(7.0)
    await broker.close()
    assert place.calls[2:] == [
        ("delay", b"1", 60.0), ("delete", b"1"), ("delay", b"2", 7.0), ("delay", three.body, 0.0), ("close",),
    ]  # fmt: skip


async def test_a_polling_broker_waits_for_a_place_that_is_unavailable(polled, monkeypatch, caplog):
    place, broker = polled
    monkeypatch.setattr("skitter.brokers.waiting.RETRY_INTERVAL", 0.001)
    place.error = ConnectionError("gone")
    broker.allow(1)
    publishing = asyncio.create_task(broker.publish([OutgoingMessage(b"1")]))
    while broker.is_receiving or ("put", 1) not in place.calls:
        await asyncio.sleep(0)
    place.error = None
    await publishing
    [one] = await take_of(broker)
    assert (one.body, broker.is_receiving) == (b"1", True)
    assert [record.getMessage() for record in caplog.records] == ["gone; waiting for the broker"]


async def test_a_place_that_is_unavailable_or_refuses_for_an_hour_is_an_error_with_a_remedy(monkeypatch):
    place = ListPlace()
    place.error = ConnectionError("gone")
    broker = PollingBroker(place, 60.0)
    with pytest.raises(FrontierError, match="cannot use the broker: gone"):
        await broker.open()
    monkeypatch.setattr("skitter.brokers.waiting.PUBLISH_TIMEOUT", 0.0)
    with pytest.raises(FrontierError, match="does not accept messages: gone"):
        await broker.publish([OutgoingMessage(b"1")])
    await broker.close()


async def test_an_unexpected_error_of_a_place_ends_the_run(polled):
    place, broker = polled
    place.error = ZeroDivisionError("a bug")
    broker.allow(1)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        while True:
            await broker.wait(0.01)


async def test_a_finished_job_runs_again_at_once_when_its_dead_letters_are_replayed(make, monkeypatch):
    frontier, broker = await make()
    await frontier.add([entry("a")], await seeds_in_one_step(frontier))
    (a,) = await lease(frontier)
    await frontier.commit([Outcome(a.id, Resolution.FAILED, error="status/404: not found")])
    ended = await frontier.lease("w", 10, [FetchReport(a.id)])
    assert ended.state is JobState.FINISHED
    assert await frontier.dead_letters.replay() == 1
    with monkeypatch.context() as patch:
        patch.setattr(broker, "receive", list)  # the message is still on its way
        assert (await frontier.lease("w", 10)).state is JobState.RUNNING
    assert [again.url for again in await lease(frontier)] == [a.url]


@pytest.mark.parametrize("state", ["sqlite:", "SQLite:", "sqlite"])
async def test_a_state_in_a_file_is_in_a_file_with_any_spelling(tmp_path, state):
    rules = UrlRules("x://HOST", 1, is_name=lambda name: True)
    context = FrontierContext("job", str(tmp_path))
    frontier = make_broker_frontier(f"x://h/t?state={state}", context, rules, lambda *_: FakeBroker())
    await frontier.open()
    await frontier.close()
    assert (tmp_path / "frontier.db").exists()
