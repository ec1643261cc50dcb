"""Additions of the local socket to the contract: a worker is alive as long as its connection is."""

import asyncio
import stat
from collections.abc import Sequence
from typing import Protocol

import pytest

from skitter.errors import FrontierError
from skitter.frontier.contract import Control, Frontier
from skitter.frontier.records import ComparedPage, Entry, LinkBatch, Outcome, Resolution
from skitter.frontier.rpc.client import OwnerGone, remote_frontier
from skitter.frontier.rpc.server import FrontierServer

pytestmark = pytest.mark.parametrize("backend", ["socket"], indirect=True)


@pytest.fixture
async def worker(job, backend):
    """A second connection, of a worker process."""
    frontier = remote_frontier(backend.folder / "socket", "worker")
    await frontier.open()
    yield frontier
    await frontier.close()


async def until(condition) -> None:
    """Let the event loop run until the condition is true. The timeout of the test is the limit."""
    while not await condition():
        await asyncio.sleep(0)


async def test_the_leases_of_a_worker_return_when_its_connection_closes(job, worker):
    await job.add("a", "b", "c")
    await worker.lease("worker", 2)
    kept = await job.one("other")

    async def is_back():
        return (await job.status()).leased == 1

    await worker.close()
    await until(is_back)
    assert sorted(lease.lost for lease in await job.lease()) == [1, 1]
    assert await job.done(kept) == [True]


async def test_the_seed_claim_of_a_disconnected_worker_is_free(job, worker):
    await worker.claim_seeds("worker")

    async def is_free():
        return await job.frontier.claim_seeds("other") is not None

    await worker.close()
    await until(is_free)


async def test_a_worker_that_commits_before_it_leaves_loses_nothing(job, worker):
    await job.add("a")
    (lease,) = (await worker.lease("worker", 5)).leases
    assert await worker.commit([Outcome(lease.id, Resolution.DONE)]) == [True]
    await worker.close()
    assert await job.counts() == {"done": 1}
    assert "leases/lost" not in (await job.status()).counters


def found_on(lease, *names, job):
    """Return the outcome of a page with links."""
    entries = [job.entry(name) for name in names]
    template = Entry(b"", "", "", entries[0].record)
    batch = LinkBatch(
        template,
        [entry.url for entry in entries],
        [entry.fingerprint for entry in entries],
        [entry.slot for entry in entries],
        [0] * len(entries),
    )
    return Outcome(lease.id, Resolution.DONE, batches=[batch])


async def known_urls(worker, name="worker"):
    return (await worker.lease(name, 0)).known_urls


async def test_a_worker_gets_the_urls_that_others_have_added_once_with_its_next_leases(job, worker, backend):
    other = remote_frontier(backend.folder / "socket", "other")
    await other.open()
    await job.add("a", "b")
    own, late = (await worker.lease("worker", 2)).leases
    assert await worker.commit([found_on(own, "c", "d", job=job)]) == [True]
    assert await known_urls(other, "other") == [job.entry("c").url, job.entry("d").url]
    assert await known_urls(other, "other") == await known_urls(worker) == []
    await worker.release([late.id])
    assert await worker.commit([found_on(late, "e", job=job)]) == [False]
    assert await known_urls(other, "other") == [], "they are not in the frontier"
    await other.close()


async def test_urls_wait_for_a_worker_only_up_to_a_bound(job, worker, backend):
    other = remote_frontier(backend.folder / "socket", "other")
    await other.open()
    await job.add(*range(30))
    pages = (await other.lease("other", 30)).leases
    for page in pages:
        links = [f"{page.id}-{number}" for number in range(100)]
        assert await other.commit([found_on(page, *links, job=job)]) == [True]
    assert len(await known_urls(worker)) == 1_000
    assert (await job.status()).added == 30 * 101
    await other.close()


async def test_pages_that_a_worker_has_compared_reach_the_others_once_and_up_to_a_bound(job, worker, backend):
    other = remote_frontier(backend.folder / "socket", "other")
    await other.open()
    await job.add("a", "b")
    first, late = (await worker.lease("worker", 2)).leases
    pages = [ComparedPage(job.entry("a").url, 3, [number], 1) for number in range(150)]
    assert await worker.commit([Outcome(first.id, Resolution.DONE, compared_pages=pages[:1])]) == [True]
    assert (await other.lease("other", 0)).compared_pages == pages[:1]
    assert (await other.lease("other", 0)).compared_pages == []
    assert (await worker.lease("worker", 0)).compared_pages == []
    await worker.release([late.id])
    outcome = Outcome(late.id, Resolution.DONE, compared_pages=pages)
    assert await worker.commit([outcome]) == [False]
    assert (await other.lease("other", 0)).compared_pages == pages[:100], (
        "also those of a page that came too late"
    )
    await other.close()


async def test_a_worker_learns_that_the_owner_has_gone(job, worker, backend):
    closed = asyncio.ensure_future(worker.wait_closed())
    await backend.server.close()
    await closed
    with pytest.raises(OwnerGone):
        await worker.status()


async def test_a_worker_that_finds_no_owner_says_so(tmp_path, backend):
    with pytest.raises(OwnerGone, match="no frontier listens"):
        await remote_frontier(tmp_path / "nothing").open()


async def test_errors_of_the_owner_reach_the_worker_with_their_remedy(job, worker, backend):
    async def fail():
        raise FrontierError("the disk is full", remedy="free some space")

    backend.owner.status = fail
    with pytest.raises(FrontierError, match="the disk is full") as error:
        await worker.status()
    assert error.value.remedy == "free some space"
    del backend.owner.status


async def test_only_this_user_may_connect(job, backend):
    mode = (backend.folder / "socket").stat().st_mode
    assert stat.S_IMODE(mode) & 0o077 == 0


async def test_sockets_opened_at_once_change_nothing_for_files_of_the_process(job, backend, tmp_path):
    servers = [FrontierServer(backend.owner, backend.info, tmp_path / f"s{number}") for number in range(4)]
    folders = tmp_path / "before", tmp_path / "after"
    folders[0].mkdir()
    await asyncio.gather(*(server.start() for server in servers))
    folders[1].mkdir()
    for server in servers:
        await server.close()
    assert folders[0].stat().st_mode == folders[1].stat().st_mode


async def test_a_server_closes_when_its_last_call_has_just_ended(job, backend, tmp_path):
    """Since Python 3.12, `asyncio.gather` does not yield to the event loop if all its tasks have ended: the server hung."""
    server = FrontierServer(backend.owner, backend.info, tmp_path / "closed")
    await server.start()

    async def begin_another():
        while server.path.exists():
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # the server waits for this call now
        server.run(asyncio.sleep(0))

    server.run(begin_another())
    await server.close()
    assert not server.tasks


async def test_many_calls_at_once_are_answered_each_with_its_own_result(job, worker):
    await job.add(*range(100))
    asked = [worker.unknown([job.entry(number).fingerprint]) for number in range(200)]
    answers = await asyncio.gather(*asked)
    assert answers == [[number >= 100] for number in range(200)]


async def test_a_defect_of_the_owner_is_an_answer_too(job, worker, backend, caplog):
    async def fail():
        raise KeyError("nothing here")

    backend.owner.status = fail
    with pytest.raises(FrontierError, match=r"KeyError.*nothing here"):
        await worker.status()
    assert "the call status of a worker failed" in caplog.text
    del backend.owner.status


class LargerControl(Control, Protocol):
    async def rename_slot(self, old: str, new: str = "unnamed") -> list[str]: ...


class LargerFrontier(Frontier, Protocol):
    @property
    def control(self) -> LargerControl: ...

    async def peek(self, count: int, entries: Sequence[Entry] = ()) -> dict[str, Entry | None]: ...


async def test_a_new_method_of_the_contract_works_over_the_socket_without_other_changes(
    job, backend, tmp_path
):
    async def peek(count, entries):
        return {"first": entries[0] if entries else None, "last": job.entry(f"{count}")}

    async def rename_slot(old, new):
        return [old, new]

    backend.owner.peek, backend.owner.control.rename_slot = peek, rename_slot
    server = FrontierServer(backend.owner, backend.info, tmp_path / "larger", LargerFrontier)
    await server.start()
    client = remote_frontier(tmp_path / "larger", contract=LargerFrontier)
    assert await client.open() == backend.info
    assert await client.peek(7) == {"first": None, "last": job.entry("7")}
    assert await client.peek(count=7, entries=[job.entry("a")]) == {
        "first": job.entry("a"),
        "last": job.entry("7"),
    }
    assert await client.control.rename_slot("old") == ["old", "unnamed"]
    assert await client.control.rename_slot("old", new="new") == ["old", "new"]
    assert (await client.add([job.entry("b")])).added == 1
    with pytest.raises(TypeError):
        await client.peek()
    await client.close()
    await server.close()


async def test_errors_of_the_owner_keep_their_field(job, worker, backend):
    async def fail(lease_ids):
        raise FrontierError("no", field="lease_ids")

    backend.owner.release = fail
    with pytest.raises(FrontierError) as error:
        await worker.release([1])
    assert error.value.field == "lease_ids"
    del backend.owner.release
