"""Exhaustive exploration of the lease protocol: transitions of a small model, executed on the real backends.

Each transition is executed on the frontier in memory. Other backends execute random walks. ``make chaos`` explores
larger parts of the protocol with longer walks. ``lease_protocol.py`` is the model.

"""

import itertools
import os
import random
from contextlib import asynccontextmanager
from functools import cache

import lease_protocol
import pytest
from frontier_backends import InMemory
from lease_protocol import CONTROL, INITIAL_STATES, LEASE_TICKS, MAX_LOST, SEED, Action, State, other_than
from msgspec.structs import replace

from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.embedded.job import EmbeddedJob
from skitter.frontier.embedded.leases import LeaseTable, SeedLoading
from skitter.frontier.embedded.requests import RequestTable
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import FetchReport, JobState, Outcome, Resolution, SeedProgress
from skitter.item import OutputRange
from skitter.politeness import HostLimits, Politeness

pytestmark = pytest.mark.timeout(1800)  # for the long walks of `make chaos`

STEPS = int(os.environ.get("SKITTER_EXPLORER_STEPS", "0")) or 240
"""Length of the walks on each backend other than the one in memory."""
PARTS = {
    "lease by lease": ("leases", (*CONTROL, "end fetch", "end fetch late")),
    "two leases": (
        "leases",
        (*CONTROL, "fail", "retry", "renew of another", "renew late", "release late", "end fetch late"),
    ),
    "pause": ("control", ("kill", "reopen")),
    "seeds": ("seeds", (*CONTROL, "fail", "retry", "end fetch", "end fetch late")),
}
"""Parts of the protocol: the first state of each, and the excluded actions."""
if "SKITTER_EXPLORER_STEPS" in os.environ:
    PARTS |= {"all leases": ("leases", CONTROL), "all of the seeds": ("seeds", ("kill", "reopen"))}
TICK = 5.0
NAMES = ("a", "b")
RESOLUTIONS = {"done": Resolution.DONE, "fail": Resolution.FAILED, "retry": Resolution.RETRY}
RESTARTS = ("kill", "reopen")


@cache
def graph_of(initial, without):
    return lease_protocol.explore(INITIAL_STATES[initial], without)


class Fault(AssertionError):
    """A frontier that differs from the model, and the actions that lead to the difference."""


class Explorer:
    """A job on one backend, which follows the model step by step."""

    def __init__(self, job, initial: State) -> None:
        self.job = job
        self.names = NAMES[: len(initial.pages)]
        self.frontier = job.frontier.unchecked
        self.state = initial
        self.trace = []
        self.leases = {}
        """The valid leases by page."""
        self.ended = None
        self.token = self.old_token = 0
        self.committed = 0
        self.outputs = {}

    async def begin(self) -> None:
        """Bring the frontier to the first state of an exploration."""
        await self.frontier.add([self.job.entry(self.names[number]) for number in self.state.order])
        if self.state.claim.state == "loaded":
            await self.job.seeds_done()

    async def do(self, action: Action, check: bool = False) -> None:
        """Carry out an action on the frontier, and compare its answer with the model's."""
        before = self.state
        following, expected = lease_protocol.step(before, action)
        self.trace.append(action)
        answer = await self._call(action)
        self._require(answer == expected, f"answer {answer}, expected {expected}")
        if action.name in {"tick", *RESTARTS}:
            await self.frontier.status()  # a frontier takes expired leases back at the next call
        self.state = following
        for number, page in enumerate(before.pages):
            if page.state == "leased" and following.pages[number].state != "leased":
                self.ended = self.leases.pop(number)
        if following.claim.state != "claimed":
            self.old_token, self.token = self.token or self.old_token, 0
        if check:
            await self.compare()

    def _require(self, fact: bool, what: str) -> None:
        if not fact:
            steps = ", ".join(" ".join(map(str, one)) for one in self.trace)
            raise Fault(f"{what}; after {steps}")

    async def compare(self) -> None:
        """Compare all readable values with the model."""
        state = self.state
        status = await self.frontier.status()
        for name in ("queued", "leased", "done", "failed"):
            found = getattr(status, name)
            self._require(found == state.count(name), f"{found} {name}, expected {state.count(name)}")
        self._require(status.added == len(state.order), f"{status.added} added, expected {len(state.order)}")
        self._require(status.counters.get("pages", 0) == self.committed, f"counters {status.counters}")
        requested = JobState.PAUSED if state.paused else JobState.RUNNING
        wanted = JobState.FINISHED if state.is_finished else requested
        self._require(status.state is wanted, f"{status.state}, expected {wanted}")
        unknown = await self.frontier.unknown([self.job.entry(name).fingerprint for name in self.names])
        self._require(unknown == [page.state == "absent" for page in state.pages], f"unknown {unknown}")

    async def compare_at_end(self) -> None:
        """Compare values that only commits change."""
        self._require(await self.frontier.reports.outputs() == self.outputs, "other output ranges")
        letters = await self.frontier.dead_letters.list()
        found = sorted((letter.url[-1], letter.attempts, letter.lost) for letter in letters)
        failed = [
            (NAMES[number], page) for number, page in enumerate(self.state.pages) if page.state == "failed"
        ]
        self._require(
            found == [(name, one.attempt + 1, one.lost) for name, one in failed], f"letters {found}"
        )

    async def _call(self, action: Action):  # noqa: C901, PLR0911, PLR0912 - one case for each action
        frontier, name, number = self.frontier, action.name, action.page
        match name:
            case "tick":
                await self.job.clock.advance(TICK)
            case "pause" | "resume":
                state = JobState.PAUSED if name == "pause" else JobState.RUNNING
                await frontier.control.set_state(state)
            case "add":
                return (await frontier.add([self.job.entry(NAMES[number])])).added
            case "claim":
                claim = await frontier.claim_seeds(action.worker)
                if claim is not None:
                    self.old_token, self.token = self.token or self.old_token, claim.token
                return claim is not None
            case "load" | "load late":
                token = self.token if name == "load" else self.old_token
                entries = [self.job.entry(NAMES[SEED])]
                return (await frontier.add(entries, SeedProgress(token, 1, done=True))).added
            case "lease":
                return await self._lease(action.worker)
            case "end fetch" | "end fetch late":
                lease = self._lease_for(action)
                await frontier.lease(action.worker, 0, [FetchReport(lease.id, 0.1)])
            case "done" | "fail" | "retry" | "commit late":
                return await self._commit(action)
            case "release" | "release late":
                await frontier.release([self._lease_for(action).id])
            case "renew" | "renew late" | "renew of another":
                holder = other_than(action.worker) if name == "renew of another" else action.worker
                lease = self._lease_for(action)
                gone = await frontier.renew(holder, [lease.id])
                return "gone" if gone == [lease.id] else gone
            case "abandon":
                return await frontier.abandon(action.worker)
            case "kill" | "reopen":
                await self.job.backend.flush_leases()
                await getattr(self.job, name)()
                self.frontier = self.job.frontier.unchecked
        return None

    def _lease_for(self, action: Action):
        return self.ended if action.name.endswith("late") else self.leases[action.page]

    async def _lease(self, worker):
        answer = await self.frontier.lease(worker, 1)
        if not answer.leases:
            return None
        (lease,) = answer.leases
        number = NAMES.index(lease.url[-1])
        self._require(number not in self.leases, f"{lease.url} is leased twice")
        self.leases[number] = lease
        return number, lease.attempt, lease.lost

    async def _commit(self, action: Action):
        resolution = RESOLUTIONS.get(action.name, Resolution.DONE)
        start = 10 * self.committed
        written = OutputRange("part", start, start + 5)
        outcome = Outcome(
            self._lease_for(action).id,
            resolution,
            self.job.entries(*self.names),
            {"pages": 1},
            [written],
            error="e",
        )
        accepted = await self.frontier.commit([outcome])
        if accepted == [True]:
            self.outputs.setdefault("part", []).append((start, start + 5))
            self.committed += 1
        return accepted


class Jobs:
    """Starts jobs on one kind of backend, each in its own folder."""

    def __init__(self, backend_kind, job_kind, folder) -> None:
        self._backend_kind = backend_kind
        self._job_kind = job_kind
        self._folder = folder
        self._numbers = itertools.count()

    @asynccontextmanager
    async def explorer(self, initial):
        folder = self._folder / f"job{next(self._numbers)}"
        folder.mkdir()
        options = FrontierSettings(lease_seconds=TICK * LEASE_TICKS, max_worker_crashes=MAX_LOST)
        politeness = Politeness(HostLimits(delay=0.0, concurrency_per_slot=1))
        job = self._job_kind(self._backend_kind(folder), politeness, options)
        await job.open()
        try:
            explorer = Explorer(job, INITIAL_STATES[initial])
            await explorer.begin()
            yield explorer
        finally:
            await job.backend.stop()


async def explore_all(jobs, initial, without) -> int:
    """Execute each transition of the model. Return their number.

    A walk takes the shortest path to a state with open transitions. From there it follows open transitions until
    none is left.
    """
    graph = graph_of(initial, without)
    parents = _ways(graph)
    still_open = {state: list(transitions) for state, transitions in graph.items()}
    executed = 0
    for target in graph:
        while still_open[target]:
            async with jobs.explorer(initial) as explorer:
                for action in _way_to(target, parents):
                    await explorer.do(action)
                while actions := still_open[explorer.state]:
                    await explorer.do(actions.pop(), check=True)
                    executed += 1
                await explorer.compare_at_end()
    return executed


def _ways(graph):
    parents = {}
    for state, transitions in graph.items():
        for action, (following, _) in transitions.items():
            parents.setdefault(following, (state, action))
    parents[next(iter(graph))] = None
    return parents


def _way_to(state, parents):
    actions = []
    while parents[state] is not None:
        state, action = parents[state]
        actions.append(action)
    return reversed(actions)


async def walk(jobs, steps, seed, without, length=60) -> None:
    """Execute random transitions that depend on a seed."""
    rng = random.Random(seed)
    done = set()
    names = itertools.cycle(INITIAL_STATES)
    for start in range(0, steps, length):
        async with jobs.explorer(next(names)) as explorer:
            for _ in range(min(length, steps - start)):
                state, actions = explorer.state, list(lease_protocol.actions_of(explorer.state, without))
                new = [action for action in actions if (state, action) not in done]
                action = rng.choice(new or actions)
                done.add((state, action))
                await explorer.do(action, check=True)
            await explorer.compare_at_end()


@pytest.mark.parametrize("part", PARTS)
async def test_every_transition_of_the_protocol_is_as_in_the_model(tmp_path, job_kind, part):
    executed = await explore_all(Jobs(InMemory, job_kind, tmp_path), *PARTS[part])
    assert executed == sum(map(len, graph_of(*PARTS[part]).values()))


async def test_drawn_transitions_of_the_protocol_are_as_in_the_model(backend, job_kind, tmp_path):
    await walk(
        Jobs(type(backend), job_kind, tmp_path),
        STEPS,
        backend.name,
        () if backend.durable else ("kill", "reopen"),
    )


def patch(kind, name):
    """Make a fault from a function that takes the original method and its arguments."""

    def plant(monkeypatch, fault):
        original = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda self, *arguments, **named: fault(original, self, *arguments, **named)
        )

    return plant


def late_commit_counts(apply, frontier, outcome, *arguments):
    """A commit after the end of a lease closes the lease of another worker."""
    leases = frontier._leases
    held = leases._leases.get(outcome.lease_id) or next(iter(leases), None)
    return apply(frontier, replace(outcome, lease_id=held.id) if held else outcome, *arguments)


def no_expiry(expired, table, now):
    """Leases of a silent worker never expire."""
    return []


def renewal_without_effect(renew, table, worker, lease_ids, now):
    """The lease of a slow worker expires although it was renewed."""
    return [one for one in lease_ids if (held := table._leases.get(one)) is None or held.worker != worker]


def renewal_for_anyone(renew, table, worker, lease_ids, now):
    """A worker renews leases of other workers."""
    return [one for one in lease_ids if table._leases.get(one) is None]


def place_not_freed(end, table, lease_id):
    """A lease that is lost before the end of its fetch keeps its place in the slot."""
    return table._leases.pop(lease_id, None)


def released_request_lost(release, requests, lease_id, now):
    """A released request is forgotten."""
    requests._end_lease(lease_id, now)


def release_counts_a_loss(release, requests, lease_id, now):
    requests.requeue_lost(lease_id, now)


def dead_worker_keeps_a_lease(of_worker, table, worker):
    return of_worker(table, worker)[1:]


def lost_request_queued_twice(requeue_lost, requests, lease_id, now):
    held = requests.leases._leases.get(lease_id)
    requeue_lost(requests, lease_id, now)
    if held is not None:
        requests._enqueue(held.row)


def links_of_a_retry_lost(apply, frontier, outcome, *arguments):
    if outcome.resolution is Resolution.RETRY:
        outcome = replace(outcome, entries=[])
    return apply(frontier, outcome, *arguments)


def end_before_the_last_commit(state_now, job, leased):
    return state_now(job, 0)


def seeds_by_an_old_claim(advance, seeds, progress, now):
    """A loader whose claim was given to another worker adds its seeds."""
    return advance(seeds, replace(progress, token=seeds._token or progress.token), now)


def claim_of_a_dead_loader_stays(abandon, seeds, worker):
    return None


FAULTS = [
    (patch(EmbeddedFrontier, "_apply"), late_commit_counts),
    (patch(LeaseTable, "expired"), no_expiry),
    (patch(LeaseTable, "renew"), renewal_without_effect),
    (patch(LeaseTable, "renew"), renewal_for_anyone),
    (patch(LeaseTable, "end"), place_not_freed),
    (patch(LeaseTable, "of_worker"), dead_worker_keeps_a_lease),
    (patch(RequestTable, "release"), released_request_lost),
    (patch(RequestTable, "release"), release_counts_a_loss),
    (patch(RequestTable, "requeue_lost"), lost_request_queued_twice),
    (patch(EmbeddedFrontier, "_apply"), links_of_a_retry_lost),
    (patch(EmbeddedJob, "state_now"), end_before_the_last_commit),
    (patch(SeedLoading, "advance"), seeds_by_an_old_claim),
    (patch(SeedLoading, "abandon"), claim_of_a_dead_loader_stays),
]


@pytest.mark.parametrize(("plant", "fault"), FAULTS, ids=[fault.__name__ for _, fault in FAULTS])
async def test_a_planted_fault_is_found(tmp_path, job_kind, monkeypatch, plant, fault):
    plant(monkeypatch, fault)
    with pytest.raises(Fault):
        await walk(Jobs(InMemory, job_kind, tmp_path), 20_000, "faults", ("kill", "reopen"))
