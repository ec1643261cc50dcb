"""The lease protocol as a small state machine: one or two pages of one host, two workers, a loader of seeds.

A state is a value, and :func:`step` gives the next state and the answer that a frontier must give. Time is counted
in ticks of half a lease. All bounds are small, so that all states can be visited: a page is retried once and may be
lost once, and workers remember only the lease that ended last.

"""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

LEASE_TICKS = 2
MAX_RETRIES = 1
MAX_LOST = 1
WORKERS = ("ann", "ben")
SEED = 0
"""The page that the loader of the seeds adds."""


class Page(NamedTuple):
    state: str = "absent"
    """``absent``, ``queued``, ``leased``, ``done`` or ``failed``."""
    attempt: int = 0
    lost: int = 0
    worker: str = ""
    ticks: int = 0
    """Ticks until the lease expires."""
    fetch_ended: bool = False
    """Whether the end of the fetch was reported, which frees the slot."""


class Claim(NamedTuple):
    """The claim to load the seeds. An expired claim is valid until another worker claims the seeds."""

    state: str = "free"
    """``free``, ``claimed`` or ``loaded``."""
    worker: str = ""
    ticks: int = 0


class State(NamedTuple):
    pages: tuple[Page, ...]
    order: tuple[int, ...] = ()
    """The pages in the order in which they were added."""
    ended: tuple[str, int] | None = None
    """Worker and page of the lease that ended last."""
    claim: Claim = Claim()
    old_claim: bool = False
    """Whether a worker remembers an expired claim."""
    paused: bool = False

    @property
    def is_finished(self) -> bool:
        waiting = any(page.state in {"queued", "leased"} for page in self.pages)
        return self.claim.state == "loaded" and not waiting

    def count(self, state: str) -> int:
        return sum(page.state == state for page in self.pages)


class Action(NamedTuple):
    name: str
    worker: str = ""
    page: int = 0


Transition = tuple[State, Any]
"""The next state, and the expected answer."""


INITIAL_STATES = {
    "leases": State((Page("queued"), Page()), (0,), claim=Claim("loaded")),
    "control": State((Page("queued"),), (0,), claim=Claim("loaded")),
    "seeds": State((Page(),)),
}
"""Three parts of the protocol. The whole protocol has millions of states."""
CONTROL = ("pause", "resume", "kill", "reopen")


def actions_of(state: State, without: Collection[str] = ()) -> Iterator[Action]:
    """Return all possible actions, including those that must have no effect."""
    return (action for action in _actions_of(state) if action.name not in without)


def _actions_of(state: State) -> Iterator[Action]:  # noqa: C901 - one condition for each action
    yield Action("tick")
    yield Action("resume" if state.paused else "pause")
    yield Action("kill")
    yield Action("reopen")
    for number, page in enumerate(state.pages):
        if page.state != "done":
            yield Action("add", page=number)
    for worker in WORKERS:
        if state.claim.state != "loaded" or state.old_claim:
            yield Action("claim", worker)
        yield Action("lease", worker)
        yield Action("abandon", worker)
    if state.claim.state == "claimed":
        yield Action("load")
    if state.old_claim:
        yield Action("load late")
    for number, page in enumerate(state.pages):
        if page.state == "leased":
            for name in ("end fetch", "done", "fail", "release", "renew", "renew of another"):
                yield Action(name, page.worker, number)
            if page.attempt < MAX_RETRIES:
                yield Action("retry", page.worker, number)
    if state.ended is not None:
        for name in ("end fetch late", "commit late", "release late", "renew late"):
            yield Action(name, *state.ended)


def step(state: State, action: Action) -> Transition:
    """Return the next state, and the answer that the frontier must give."""
    return _STEPS[action.name](state, action)


def explore(initial: State, without: Collection[str] = ()) -> dict[State, dict[Action, Transition]]:
    """Return all reachable states in the order of their distance, with all transitions."""
    graph: dict[State, dict[Action, Transition]] = {}
    found = deque([initial])
    seen = {initial}
    while found:
        state = found.popleft()
        graph[state] = {one: step(state, one) for one in actions_of(state, without)}
        for following, _ in graph[state].values():
            if following not in seen:
                seen.add(following)
                found.append(following)
    return graph


def _with(state: State, number: int, page: Page) -> State:
    return state._replace(pages=tuple(page if n == number else one for n, one in enumerate(state.pages)))


def _end(state: State, number: int, page: Page) -> State:
    """End a lease: the page changes to the given state, and the worker remembers the lease."""
    ended = state.pages[number].worker, number
    return _with(state, number, page._replace(worker="", ticks=0, fetch_ended=False))._replace(ended=ended)


def _lose(state: State, number: int) -> State:
    page = state.pages[number]
    fate = "failed" if page.lost + 1 > MAX_LOST else "queued"
    return _end(state, number, page._replace(state=fate, lost=page.lost + 1))


def _add(state: State, *numbers: int) -> tuple[State, int]:
    added = 0
    for number in numbers:
        if state.pages[number].state == "absent":
            state = _with(state, number, Page("queued"))._replace(order=(*state.order, number))
            added += 1
    return state, added


def _tick(state: State, _: Action) -> Transition:
    for number, page in enumerate(state.pages):
        if page.state == "leased":
            left = page.ticks - 1
            state = _with(state, number, page._replace(ticks=left)) if left else _lose(state, number)
    claim = state.claim
    return state._replace(claim=claim._replace(ticks=max(0, claim.ticks - 1))), None


def _lease(state: State, action: Action) -> Transition:
    is_busy = any(page.state == "leased" and not page.fetch_ended for page in state.pages)
    waiting = [number for number in state.order if state.pages[number].state == "queued"]
    if state.paused or is_busy or not waiting:
        return state, None
    number = waiting[0]
    page = state.pages[number]._replace(state="leased", worker=action.worker, ticks=LEASE_TICKS)
    return _with(state, number, page), (number, page.attempt, page.lost)


def _commit(state: State, action: Action) -> Transition:
    """Each outcome has links to all pages."""
    page = state.pages[action.page]
    fate = {"done": "done", "fail": "failed", "retry": "queued"}[action.name]
    state = _end(state, action.page, page._replace(state=fate, attempt=page.attempt + (fate == "queued")))
    return _add(state, *range(len(state.pages)))[0], [True]


def _renew(state: State, worker: str) -> State:
    claim = state.claim
    is_holder = claim.state == "claimed" and claim.worker == worker
    return state._replace(claim=claim._replace(ticks=LEASE_TICKS)) if is_holder else state


def _renew_own(state: State, action: Action) -> Transition:
    renewed = _with(state, action.page, state.pages[action.page]._replace(ticks=LEASE_TICKS))
    return _renew(renewed, action.worker), []


def _renew_lost(state: State, action: Action) -> Transition:
    """The frontier reports the lease as lost."""
    worker = action.worker if action.name == "renew late" else other_than(action.worker)
    return _renew(state, worker), "gone"


def _abandon(state: State, action: Action) -> Transition:
    lost = [number for number, page in enumerate(state.pages) if page.worker == action.worker]
    for number in lost:
        state = _lose(state, number)
    if state.claim.state == "claimed" and state.claim.worker == action.worker:
        state = state._replace(claim=Claim(), old_claim=True)
    return state, len(lost)


def _claim(state: State, action: Action) -> Transition:
    claim = state.claim
    if claim.state == "loaded" or claim.ticks:
        return state, False
    is_taken = claim.state == "claimed"
    return state._replace(
        claim=Claim("claimed", action.worker, LEASE_TICKS), old_claim=state.old_claim or is_taken
    ), True


def _load(state: State, _: Action) -> Transition:
    state, added = _add(state, SEED)
    return state._replace(claim=Claim("loaded"), old_claim=True), added


def _restart(state: State, action: Action) -> Transition:
    for number, page in enumerate(state.pages):
        if page.state == "leased" and action.name == "kill":
            state = _lose(state, number)
        elif page.state == "leased":
            state = _end(state, number, page._replace(state="queued"))
    if state.claim.state == "claimed":
        state = state._replace(claim=Claim(), old_claim=True)
    return state, None


def other_than(worker: str) -> str:
    """Return the other worker."""
    return WORKERS[worker == WORKERS[0]]


_STEPS = {
    "tick": _tick,
    "pause": lambda state, _: (state._replace(paused=True), None),
    "resume": lambda state, _: (state._replace(paused=False), None),
    "add": lambda state, action: _add(state, action.page),
    "claim": _claim,
    "load": _load,
    "load late": lambda state, _: (state, 0),
    "lease": _lease,
    "end fetch": lambda state, action: (
        _with(state, action.page, state.pages[action.page]._replace(fetch_ended=True)), None,
    ),
    "done": _commit,
    "fail": _commit,
    "retry": _commit,
    "release": lambda state, action: (
        _end(state, action.page, state.pages[action.page]._replace(state="queued")), None,
    ),
    "renew": _renew_own,
    "renew of another": _renew_lost,
    "abandon": _abandon,
    "end fetch late": lambda state, _: (state, None),
    "commit late": lambda state, _: (state, [False]),
    "release late": lambda state, _: (state, None),
    "renew late": _renew_lost,
    "kill": _restart,
    "reopen": _restart,
}  # fmt: skip
