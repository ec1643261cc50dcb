"""A state machine that makes random calls to a job and compares it with a simple model after each step."""

import asyncio
import tempfile
from pathlib import Path

from frontier_model import Model, key_of
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec.structs import replace

from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import FetchReport, JobState, Outcome, Resolution
from skitter.politeness import HostLimits, Politeness
from skitter.queues import DEFAULT_QUEUE, queue_of, slot_in
from skitter.request import Request, encode_request

LEASE_SECONDS = 10.0
NAMES = range(8)
HOSTS = ("one.test", "two.test")
TASKS = ("", "red", "blue")
WORKERS = st.sampled_from(["ann", "ben"])
SHARES = st.sampled_from(
    [None, None, {"default": 100}, {"detail": 2, "*": 100}, {"list": 1, "detail": 100}, {"list": 0, "*": 1}]
)
choices = st.lists(st.integers(0, 100), max_size=6)
links = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(NAMES),
            "host": st.sampled_from(HOSTS),
            "queue": st.sampled_from(["", "", "list", "detail"]),
            "priority": st.sampled_from([0, 0, 0, 1, -1, 2**63 - 1, -(2**63)]),
            "delay": st.sampled_from([0.0, 0.0, 0.0, 3.0, 15.0]),
            "not_before": st.sampled_from([0.0, 0.0, 5.0]),
            "dedup": st.sampled_from([True, True, True, False]),
            "task": st.sampled_from(TASKS),
        }
    ),
    max_size=5,
)


pages = st.fixed_dictionaries(
    {
        "amount": st.integers(3, 14),
        "host": st.sampled_from(HOSTS),
        "priority": st.sampled_from([0, 0, 1]),
        "task": st.sampled_from(TASKS),
    }
)
"""New links of one page that differ only in their URL."""


class FrontierMachine(RuleBasedStateMachine):
    """All calls that workers and users make, in any order."""

    backend_kind: type
    job_kind: type

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.backend = self.backend_kind(Path(self.folder.name))
        self.serial = 0
        self.handed_out = []
        """All leases so far. The machine also uses ended ones."""

    def run(self, work):
        return self.runner.run(work)

    @initialize(
        ttl=st.sampled_from([None, 0.0, 20.0]),
        refetch=st.booleans(),
        concurrency_per_slot=st.sampled_from([1, 2, 100]),
    )
    def begin(self, ttl, refetch, concurrency_per_slot):
        options = FrontierSettings(
            lease_seconds=LEASE_SECONDS, max_worker_crashes=2, visited_ttl=ttl, refetch_failed=refetch
        )
        politeness = Politeness(HostLimits(delay=0.0, concurrency_per_slot=concurrency_per_slot))
        job = self.job_kind(self.backend, politeness, options)
        self.run(job.open())  # skips the test if the backend's server is not installed
        self.job = job
        self.model = Model(LEASE_SECONDS, 2, ttl, not refetch, concurrency_per_slot, now=job.clock.now)

    def entries(self, found):
        built = []
        for link in found:
            self.serial += 1
            fields = dict(link)
            if fields["not_before"]:
                fields["not_before"] += self.model.now
            words = {"task": fields.pop("task"), "data": {"serial": self.serial, "task": "red"}}
            record = encode_request(Request("", cb_kwargs=words))
            queue = fields.pop("queue")
            entry = self.job.entry(fields.pop("name"), fields.pop("host"), record=record, **fields)
            built.append(replace(entry, slot=slot_in(queue, entry.slot)))
        return built

    def page(self, amount, host, priority, task):
        self.serial += 1
        words = {"task": task, "data": {"serial": self.serial, "task": "red"}}
        record = encode_request(Request("", cb_kwargs=words))
        names = [f"page{self.serial}-{number}" for number in range(amount)]
        return self.job.entries(*names, host=host, record=record, priority=priority)

    def divide(self, entries):
        """Return new requests as entries and as batches. Each entry and each batch has its own record."""
        first = len(entries)
        while first and entries[first - 1].dedup:
            first -= 1
        return entries[:first], [self.job.batch([entry]) for entry in entries[first:]]

    def some_leases(self, numbers):
        """Choose leases, mostly valid ones."""
        recent = self.handed_out[-8:] + list(self.model.leases)
        return list(dict.fromkeys(recent[number % len(recent)] for number in numbers)) if recent else []

    @rule(found=links)
    def add(self, found):
        entries = self.entries(found)
        result = self.run(self.job.frontier.add(entries))
        assert result.added == self.model.add(entries)
        assert result.known + result.banned == len(entries) - result.added
        assert result.banned == sum(self.model.is_banned(entry.slot) for entry in entries)

    @rule(found=pages)
    def add_page(self, found):
        entries = self.page(**found)
        assert self.run(self.job.frontier.add(entries)).added == self.model.add(entries)

    @rule(worker=WORKERS, limit=st.sampled_from([1, 2, 5, 100]), fetched=choices, shares=SHARES)
    def lease(self, worker, limit, fetched, shares):
        ids = self.some_leases(fetched)
        for lease_id in ids:
            if lease_id in self.model.leases:
                self.model.leases[lease_id].fetch_ended = True
        reports = [FetchReport(lease_id, 0.1) for lease_id in ids]
        answer = self.run(self.job.frontier.lease(worker, limit, reports, shares))
        new = [lease.id for lease in answer.leases]
        assert len(set(new)) == len(new)
        assert not set(new) & set(self.handed_out)
        self.handed_out += new
        self.model.take(answer.leases, limit, worker, shares)

    @rule(
        chosen=choices,
        resolution=st.sampled_from(Resolution),
        after=st.sampled_from([0.0, 4.0]),
        free=st.booleans(),
        found=links,
        page=st.one_of(st.none(), pages),
    )
    def commit(self, chosen, resolution, after, free, found, page):
        ids = self.some_leases(chosen)
        children = [self.entries(found) for _ in ids]
        if self.job.frontier.partitions is not None:
            # Outcomes of leases from different partitions have no order, so only one of them adds requests.
            children[1:] = [[] for _ in children[1:]]
        divided = [self.divide(new) for new in children]
        if page is not None and ids:
            links_of_page = self.page(**page)
            children[0] += links_of_page
            divided[0][1].append(self.job.batch(links_of_page))
        outcomes = [
            Outcome(
                lease_id,
                resolution,
                entries,
                {"pages": 1},
                error="e",
                after=after,
                free=free,
                batches=batches,
            )
            for lease_id, (entries, batches) in zip(ids, divided, strict=True)
        ]
        expected = [
            self.model.commit(lease_id, resolution.value, after, free, new)
            for lease_id, new in zip(ids, children, strict=True)
        ]
        assert self.run(self.job.frontier.commit(outcomes)) == expected

    @rule(chosen=choices)
    def release(self, chosen):
        ids = self.some_leases(chosen)
        self.run(self.job.frontier.release(ids))
        for lease_id in set(ids) & set(self.model.leases):
            self.model.release(lease_id)

    @rule(host=st.sampled_from(HOSTS), ban=st.sampled_from([False, False, True]))
    def drop_slot(self, host, ban):
        assert self.run(self.job.frontier.control.drop_slot(host, ban=ban)) == self.model.drop_slot(host, ban)

    @rule(task=st.sampled_from(TASKS))
    def drop_task(self, task):
        assert self.run(self.job.frontier.control.drop_task(task)) == self.model.drop_task(task)

    @rule(host=st.sampled_from(HOSTS))
    def unban(self, host):
        assert self.run(self.job.frontier.control.unban(host)) is (host in self.model.banned)
        self.model.banned.discard(host)

    @rule(worker=WORKERS, chosen=choices)
    def renew(self, worker, chosen):
        ids = self.some_leases(chosen)
        gone = self.run(self.job.frontier.renew(worker, ids))
        held = [one for one in ids if one in self.model.leases and self.model.leases[one].worker == worker]
        assert sorted(gone) == sorted(set(ids) - set(held))
        for lease_id in held:
            self.model.leases[lease_id].deadline = self.model.now + LEASE_SECONDS

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 10.0, 25.0]))
    def advance(self, seconds):
        self.run(self.job.clock.advance(seconds))
        self.run(self.job.status())  # a frontier takes expired leases back at the next call
        self.model.advance(seconds)

    @rule(worker=WORKERS)
    def abandon(self, worker):
        assert self.run(self.job.frontier.abandon(worker)) == self.model.abandon(worker)

    @rule(action=st.sampled_from(["replay", "replay", "drop"]), chosen=choices)
    def settle_letters(self, action, chosen):
        letters = self.model.in_state("failed")
        picked = list({number % len(letters): None for number in chosen}) if letters else []
        wanted = [letters[number] for number in picked]
        ids = {key_of(letter): letter.id for letter in self.run(self.job.frontier.dead_letters.list())}
        act = getattr(self.job.frontier.dead_letters, action)
        settled = self.run(act([ids[key_of(one.entry)] for one in wanted]))
        assert settled == getattr(self.model, action)(wanted)

    @rule()
    def finish_seeds(self):
        if not self.model.seeds_done:
            self.model.seeds_done = True
            self.run(self.job.seeds_done())

    @rule(paused=st.booleans())
    def control(self, paused):
        self.model.paused = paused
        self.run(self.job.frontier.control.set_state(JobState.PAUSED if paused else JobState.RUNNING))

    @precondition(lambda self: self.backend.durable)
    @rule()
    def restart_after_close(self):
        self.run(self.job.reopen())
        for lease_id in list(self.model.leases):
            self.model.release(lease_id)

    @precondition(lambda self: self.backend.durable)
    @rule()
    def kill(self):
        self.run(self.job.kill())
        for lease_id in list(self.model.leases):
            self.model.lose(lease_id)

    @invariant()
    def frontier_and_model_agree(self):
        if not hasattr(self, "model"):
            return
        status = self.run(self.job.status())
        model = self.model
        waiting = model.in_state("waiting")
        assert status.added == len(model.requests) - model.dropped
        assert status.leased == len(model.leases)
        assert status.done == len(model.in_state("done"))
        assert status.failed == len(model.in_state("failed"))
        surely = sum(one.surely_due <= model.now for one in waiting)
        maybe = sum(one.due <= model.now for one in waiting)
        assert surely <= status.queued <= maybe
        assert status.queued + status.delayed == len(waiting)
        if status.queues:
            assert sum(status.queues.values()) == status.queued
        else:
            here = [one for one in waiting if one.surely_due <= model.now]
            assert all(queue_of(one.entry.slot) == DEFAULT_QUEUE for one in here)
        for queue, queued in status.queues.items():
            here = [one for one in waiting if queue_of(one.entry.slot) == queue]
            surely = sum(one.surely_due <= model.now for one in here)
            assert surely <= queued <= sum(one.due <= model.now for one in here)
        assert status.counters.get("pages", 0) == model.pages
        assert status.counters.get("leases/lost", 0) == model.lost
        over = model.seeds_done and not waiting and not model.leases
        paused = JobState.PAUSED if model.paused else JobState.RUNNING
        assert status.state is (JobState.FINISHED if over else paused)

    @invariant()
    def known_urls_agree(self):
        if hasattr(self, "model"):
            prints = [self.job.entry(name, host).fingerprint for name in NAMES for host in HOSTS]
            known = [not new for new in self.run(self.job.frontier.unknown(prints))]
            assert known == [self.model.is_known(one) for one in prints]

    @invariant()
    def dead_letters_agree(self):
        if hasattr(self, "model"):
            letters = self.run(self.job.frontier.dead_letters.list(0, 10_000))
            failed = {key_of(one.entry): one for one in self.model.in_state("failed")}
            assert {key_of(letter) for letter in letters} == set(failed)
            assert len(letters) == len(failed)
            for letter in letters:
                one = failed[key_of(letter)]
                assert (letter.attempts, letter.lost) == (one.attempt + 1, one.lost)

    def finish_the_job(self):
        """Whatever happened, all added requests can be leased and done, and then the job is finished."""
        self.control(paused=False)
        self.finish_seeds()
        self.advance(1_000.0)
        self.advance(2.0**2)  # for suspects that were lost in the last step
        while True:
            answer = self.run(self.job.ask())
            self.model.take(answer.leases, 100_000, "last")
            if not answer.leases:
                break
            for lease in answer.leases:
                self.model.commit(lease.id, "done", 0.0, free=False, entries=[])
            assert all(self.run(self.job.done(*answer.leases, counters={"pages": 1})))
        assert self.run(self.job.is_finished())
        self.frontier_and_model_agree()

    def teardown(self):
        try:
            if hasattr(self, "model"):
                self.end()
        finally:
            self.runner.close()
            self.folder.cleanup()

    def end(self):
        try:
            self.finish_the_job()
        finally:
            self.run(self.backend.stop())
