"""Random interleavings of writes, commits, rejected items and kills, for every output."""

import asyncio
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_job import DATABASES, EVERY, REMOTE, Job

from skitter.store.contract import ItemGroup

steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "commit", "refuse", "kill", "merge"]),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), min_size=1, max_size=3),
    ),
    max_size=14,
)


pytestmark = pytest.mark.timeout(600)  # some of the servers take much CPU time to start
SERVED = [*DATABASES, *REMOTE]


class Model:
    """Three workers with one output, and a model: the number of items committed for each page."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.truth: Counter[tuple[int, int]] = Counter()
        self.committed: set[int] = set()
        self.lives = 0
        self.names: dict[int, str] = {}
        self.stores: dict[int, object] = {}
        self.pending: dict[int, list] = {0: [], 1: [], 2: []}

    async def store(self, worker):
        if worker not in self.stores:
            self.lives += 1
            self.names[worker] = f"life{self.lives}"
            self.stores[worker] = await self.job.worker(self.names[worker])
        return self.stores[worker]

    def held(self) -> set[int]:
        return {number for pending in self.pending.values() for number, _, _ in pending}

    async def write(self, worker, visits) -> None:
        free = {n: count for n, count in visits if n not in self.committed and n not in self.held()}
        groups = [
            ItemGroup(n.to_bytes(16, "big"), [{"page": n, "index": i} for i in range(count)])
            for n, count in free.items()
        ]
        marks = await (await self.store(worker)).write(groups)
        self.pending[worker] += [(*visit, mark) for visit, mark in zip(free.items(), marks, strict=True)]

    async def commit(self, worker, _visits) -> None:
        for number, count, mark in self.pending[worker]:
            self.job.commit([mark])
            self.committed.add(number)
            self.truth.update((number, index) for index in range(count))
        self.pending[worker] = []

    async def refuse(self, worker, _visits) -> None:
        del self.pending[worker][:1]

    async def kill(self, worker, _visits) -> None:
        self.pending[worker] = []
        store = self.stores.pop(worker, None)
        if store:
            await store.close()
            await asyncio.to_thread(self.job.tear, self.names.pop(worker), b'{"page": 99, "ind')

    async def merge(self, _worker, _visits) -> None:
        if self.job.keyed:
            # A keyed store shows a page as soon as it is written, and is consistent again after the page's next visit.
            await self.visit_the_rest()
        found = Counter((int(i["page"]), int(i["index"])) for i in await self.job.result())
        assert found == self.truth

    async def visit_the_rest(self) -> None:
        for worker in self.pending:
            await self.commit(worker, [])
        await self.write(0, [(n, n % 3) for n in range(8)])
        await self.commit(0, [])


@pytest.mark.parametrize("target", [target for target in EVERY if target not in SERVED])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=steps)
def test_any_order_of_writes_commits_refusals_and_kills_agrees_with_a_plain_model(
    tmp_path_factory, target, steps
):
    play(Job(tmp_path_factory.mktemp("model"), target), steps)


@pytest.mark.parametrize("target", SERVED)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=steps)
def test_the_same_holds_where_the_items_are_on_a_server(tmp_path_factory, target, steps):
    play(Job(tmp_path_factory.mktemp("model"), target), steps)


def play(job, steps):
    async def run() -> None:
        await job.output.check(job.context)
        model = Model(job)
        for name, worker, visits in steps:
            await getattr(model, name)(worker, visits)
        await model.visit_the_rest()
        await model.merge(0, [])
        for store in model.stores.values():
            await store.close()

    asyncio.run(run())
