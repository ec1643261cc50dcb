"""Visits: what a job with the setting ``changes`` remembers of its pages between passes."""

import pytest

from skitter.errors import FrontierError
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import JobState, Outcome, PageChange, PageVisit, Resolution
from skitter.item import OutputRange
from skitter.run.page_changes import read_changes_of_pass, with_kept

NEW, CHANGED, UNCHANGED, GONE, UNCHECKED, SKIPPED = (
    PageChange.NEW, PageChange.CHANGED, PageChange.UNCHANGED, PageChange.GONE, PageChange.UNCHECKED, PageChange.SKIPPED
)  # fmt: skip


def visit(lease, change=NEW, memory=b"m", status=200):
    return PageVisit(change, status, lease.url, memory)


async def close(job, lease, found, resolution=Resolution.DONE, **fields):
    return await job.frontier.commit([Outcome(lease.id, resolution, visit=found, **fields)])


async def listed(job, limit=1000):
    """Return all visits by name of the page. No page may be listed with two contents."""
    pages, cursor = {}, ""
    while True:
        part = await job.frontier.reports.visits(cursor, limit)
        for page in part.pages:
            assert pages.setdefault(page.url.rpartition("/")[2], page) == page
        if not (cursor := part.cursor):
            return pages


async def by_name(job):
    return {lease.url.rpartition("/")[2]: lease for lease in await job.lease()}


async def next_pass(job, *names):
    assert await job.frontier.control.recrawl()
    await job.add(*names)
    await job.seeds_done()
    return await by_name(job)


async def begin(start, *names, mode="all", **options):
    job = await start(changes=mode, **options)
    await job.add(*names)
    await job.seeds_done()
    return job, await by_name(job)


async def test_a_lease_of_a_later_pass_carries_the_stored_record(start):
    job, leases = await begin(start, "a", "b")
    assert {lease.memory for lease in leases.values()} == {None}
    for name, lease in leases.items():
        await close(job, lease, visit(lease, memory=name.encode() * 3000))
    again = await next_pass(job, "a", "b", "c")
    assert {name: lease.memory for name, lease in again.items()} == {
        "a": b"a" * 3000, "b": b"b" * 3000, "c": None
    }  # fmt: skip
    assert (await job.status()).pass_number == 2


async def test_the_lease_of_waiting_items_completes_the_visit_of_their_page(start):
    job, leases = await begin(start, "a")
    lease = leases["a"]
    waiting = job.entry("items", dedup=False)
    await close(job, lease, visit(lease, memory=b"links"), entries=[waiting])
    (later,) = await job.lease()
    archived, written = OutputRange("site/w.warc.gz", 0, 7), OutputRange("items/w.jsonl", 0, 9)
    whole = PageVisit(NEW, 200, lease.url, b"whole", lease.fingerprint, ranges=[archived])
    await close(job, later, whole, outputs=[written])
    assert {name: (page.ranges, page.since) for name, page in (await listed(job)).items()} == {
        "a": ([archived, written], 1)
    }
    again = await next_pass(job, "a")
    assert again["a"].memory == b"whole"


async def test_a_visit_without_memory_keeps_the_one_before(start):
    job, leases = await begin(start, "a")
    written = OutputRange("items/w.jsonl", 0, 9)
    await close(job, leases["a"], visit(leases["a"]), outputs=[written])
    for change in (UNCHANGED, UNCHECKED):
        again = await next_pass(job, "a")
        assert again["a"].memory == b"m"
        await close(job, again["a"], PageVisit(change, 304))
        page = (await listed(job))["a"]
        assert (page.change, page.status, page.since, page.ranges) == (change, 304, 1, [written])
    assert page.pass_number == 3


async def test_an_unchanged_page_can_replace_its_memory_alone(start):
    job, leases = await begin(start, "a", "b")
    written = OutputRange("items/w.jsonl", 0, 9)
    await close(job, leases["a"], visit(leases["a"]), outputs=[written])
    await close(job, leases["b"], visit(leases["b"]))
    for number in (2, 3):
        again = await next_pass(job, "a", "b")
        await close(job, again["a"], PageVisit(UNCHANGED, 304, memory=b"more" * number))
        page = (await listed(job))["a"]
        assert (page.change, page.status, page.since, page.ranges) == (UNCHANGED, 304, 1, [written])
        await close(job, again["b"], PageVisit(SKIPPED))
        assert (await listed(job))["b"].change is SKIPPED
    assert {name: lease.memory for name, lease in (await next_pass(job, "a", "b")).items()} == {
        "a": b"moremoremore", "b": b"m"
    }  # fmt: skip


async def test_no_items_are_missing_or_duplicated_if_pages_change_while_a_running_job_is_exported(start):
    job, leases = await begin(start, "a", "b", "c")
    for start_at, name in enumerate(leases):
        written = OutputRange("items/w.jsonl", start_at * 10, start_at * 10 + 10)
        await close(job, leases[name], visit(leases[name]), outputs=[written])
    again = await next_pass(job, "a", "b", "c")
    newer = {name: OutputRange("items/v.jsonl", at * 10, at * 10 + 10) for at, name in enumerate("ab")}
    await close(job, again["a"], visit(again["a"], CHANGED), outputs=[newer["a"]])
    ranges = await job.frontier.reports.outputs()
    await close(job, again["b"], visit(again["b"], CHANGED), outputs=[newer["b"]])
    report = await read_changes_of_pass(job.frontier.reports.visits, await job.status(), may_repeat=True)
    old = {name: (at * 10, at * 10 + 10) for at, name in enumerate(leases)}
    assert with_kept(ranges, report.kept) == {"items/v.jsonl": [(0, 20)], "items/w.jsonl": [old["c"]]}


async def test_a_changed_page_replaces_its_stored_record(start):
    job, leases = await begin(start, "a")
    await close(job, leases["a"], visit(leases["a"]), outputs=[OutputRange("items/w.jsonl", 0, 9)])
    again = await next_pass(job, "a")
    newer = OutputRange("items/w.jsonl", 9, 20)
    await close(job, again["a"], visit(again["a"], CHANGED, b"newer"), outputs=[newer])
    page = (await listed(job))["a"]
    assert (page.change, page.pass_number, page.since, page.ranges) == (CHANGED, 2, 2, [newer])
    assert (await job.frontier.reports.outputs()) == {"items/w.jsonl": [(9, 20)]}  # of this pass only
    assert (await next_pass(job, "a"))["a"].memory == b"newer"


async def test_pages_that_are_gone_are_listed_in_their_round_and_then_forgotten(start):
    job, leases = await begin(start, "home", "gone", "unlinked")
    for lease in leases.values():
        await close(job, lease, visit(lease))
    again = await next_pass(job, "home", "gone")
    await close(job, again["home"], PageVisit(UNCHANGED, 304))
    await close(job, again["gone"], PageVisit(GONE, 404), Resolution.FAILED, error="status/404")
    found = {name: (page.change, page.pass_number) for name, page in (await listed(job)).items()}
    assert found == {"home": (UNCHANGED, 2), "gone": (GONE, 2), "unlinked": (NEW, 1)}
    third = await next_pass(job, "home", "gone", "unlinked")
    assert {name: lease.memory for name, lease in third.items()} == {
        "home": b"m", "gone": None, "unlinked": None
    }  # fmt: skip


async def test_pages_that_an_earlier_pass_did_not_visit_are_no_longer_listed(start):
    job, leases = await begin(start, "a", "b")
    for lease in leases.values():
        await close(job, lease, visit(lease))
    for _ in range(2):
        again = await next_pass(job, "a")
        await close(job, again["a"], PageVisit(UNCHANGED, 304))
    assert set(await listed(job)) == {"a"}


async def test_a_late_outcome_leaves_no_visit(start):
    job, leases = await begin(start, "a")
    await job.clock.advance(1e6)
    assert await close(job, leases["a"], visit(leases["a"])) == [False]
    assert await listed(job) == {}


async def test_a_request_that_skips_the_duplicate_test_is_not_remembered(start):
    job = await start(changes="all")
    await job.add(job.entry("a", dedup=False))
    await job.seeds_done()
    lease = await job.one()
    await close(job, lease, visit(lease), outputs=[OutputRange("items/w.jsonl", 0, 9)])
    assert await listed(job) == {}
    assert (await job.frontier.reports.outputs()) == {"items/w.jsonl": [(0, 9)]}


async def test_a_page_whose_workers_die_is_unchecked_and_not_unlinked(start):
    job, leases = await begin(start, "a", max_worker_crashes=0)
    await close(job, leases["a"], visit(leases["a"]))
    await next_pass(job, "a")
    await job.frontier.abandon("w")
    page = (await listed(job))["a"]
    assert (page.change, page.pass_number, page.since) == (UNCHECKED, 2, 1)
    assert (await next_pass(job, "a"))["a"].memory == b"m"


async def test_a_retry_leaves_the_memory_for_the_next_attempt(start):
    job, leases = await begin(start, "a")
    await close(job, leases["a"], visit(leases["a"]))
    again = await next_pass(job, "a")
    await job.retry(again["a"])
    assert (await job.one()).memory == b"m"


async def test_a_replayed_page_still_has_its_memory(start):
    job, leases = await begin(start, "a")
    await close(job, leases["a"], visit(leases["a"]))
    again = await next_pass(job, "a")
    await close(job, again["a"], PageVisit(UNCHECKED, 500), Resolution.FAILED, error="status/500")
    assert await job.frontier.dead_letters.replay() == 1
    assert (await job.one()).memory == b"m"


async def test_all_visits_are_listed_in_parts(start):
    names = [f"page{number}" for number in range(250)]
    job, leases = await begin(start, *names)
    await job.frontier.commit([
        Outcome(lease.id, Resolution.DONE, visit=visit(lease, memory=bytes(100))) for lease in leases.values()
    ])  # fmt: skip
    assert set(await listed(job, limit=20)) == set(names)


@pytest.mark.parametrize("mode", ["changed", "new"])
async def test_ranges_are_kept_only_for_all(start, mode):
    job, leases = await begin(start, "a", mode=mode)
    await close(job, leases["a"], visit(leases["a"]), outputs=[OutputRange("items/w.jsonl", 0, 9)])
    page = (await listed(job))["a"]
    assert (page.since, page.change) == (1, NEW)
    await next_pass(job, "a")
    assert await job.frontier.reports.outputs() == {}


async def test_a_job_that_remembers_nothing_ignores_visits(start):
    job = await start()
    await job.add("a")
    await job.seeds_done()
    lease = await job.one()
    assert await close(job, lease, visit(lease), outputs=[OutputRange("items/w.jsonl", 0, 9)]) == [True]
    assert (await listed(job), await job.is_finished()) == ({}, True)
    assert (await next_pass(job, "a"))["a"].memory is None
    assert await job.frontier.reports.outputs() == {"items/w.jsonl": [(0, 9)]}


@pytest.mark.parametrize("backend", ["sqlite", "socket"], indirect=True)
async def test_visits_and_the_pass_survive_a_kill(start, backend):
    job, leases = await begin(start, "a", "b")
    await close(job, leases["a"], visit(leases["a"]))
    await job.kill()
    assert set(await listed(job)) == {"a"}
    await job.clock.advance(1000.0)
    left = await job.one()
    await close(job, left, visit(left))
    assert await job.frontier.control.recrawl()
    await job.kill()
    status = await job.status()
    assert (status.pass_number, status.state, status.seeds_loading) == (2, JobState.RUNNING, True)
    await job.add("a")
    assert (await job.one()).memory == b"m"


@pytest.mark.parametrize("backend", ["sqlite", "socket"], indirect=True)
async def test_a_job_cannot_continue_in_another_mode(start, backend):
    job, leases = await begin(start, "a")
    await job.done(leases["a"])
    job.options = FrontierSettings(changes="changed")
    with pytest.raises(FrontierError) as caught:
        await job.reopen()
    assert caught.value.field == "changes"
    job.options = FrontierSettings(changes="all")
    await job.open()
