"""The contract of all outputs, in every format: each committed item is stored exactly once."""

import asyncio
import json

import pytest
import redis
from store_job import EVERY, LOCAL_RANGED, RANGED, RANGED_FILES, REMOTE, SHARED, Job, page, pages_in

from skitter.errors import StoreError
from skitter.store.contract import GroupError, ItemGroup, OutputContext
from skitter.store.outputs import open_output
from skitter.store.selection import ItemClasses, SelectingOutput

pytestmark = pytest.mark.timeout(600)  # some of the servers take much CPU time to start


@pytest.fixture(params=EVERY)
def job(request, tmp_path):
    return Job(tmp_path, request.param)


@pytest.fixture(params=RANGED)
def ranged_job(request, tmp_path):
    return Job(tmp_path, request.param)


async def test_every_committed_item_is_in_the_output_exactly_once(job):
    await job.output.check(job.context)
    store = await job.worker("w1")
    await job.visit(store, page(1), page(2))
    await job.visit(store, page(3, {"page": 3}, {"page": 30}))
    await store.close()
    assert await pages_in(job) == [1, 2, 3, 30]


class Kept(dict):
    pass


async def test_a_selection_holds_the_items_of_its_classes(job):
    job.output = SelectingOutput("selected", job.output, ItemClasses(["Kept"]))
    await job.output.check(job.context)
    store = await job.worker("w1")
    await job.visit(store, page(1, {"page": 10}, Kept(page=1)), page(2, {"page": 20}))
    await job.visit(store, page(3, Kept(page=3), {"page": 30}, Kept(page=31)))
    await store.close()
    assert await pages_in(job) == [1, 3, 31]
    if job.keyed:
        store = await job.worker("w2")
        await job.visit(store, page(1, {"page": 10}), page(3, {"page": 30}, Kept(page=33)))
        await store.close()
        assert await pages_in(job) == [33]


async def test_a_refused_range_in_the_middle_never_shows(ranged_job):
    job = ranged_job
    store = await job.worker("w1")
    first, _, third = await store.write([page(1), page(2), page(3)])
    job.commit([first, third])
    await store.write([page(4)])
    await store.close()
    assert await pages_in(job) == [1, 3]


async def test_a_page_that_was_written_without_a_commit_is_there_once_after_its_second_visit(job):
    first = await job.worker("w1")
    await first.write([page(1), page(2)])
    await first.close()
    second = await job.worker("w2")
    await job.visit(second, page(2), page(1))
    await second.close()
    assert await pages_in(job) == [1, 2]


async def test_items_that_a_page_lacks_on_its_second_visit_are_removed(job):
    store = await job.worker("w1")
    await store.write([page(1, *({"page": 1, "old": n} for n in range(12))), page(2, {"page": 2, "old": 1})])
    await job.visit(store, page(1, {"page": 1}, {"page": 11}))
    await job.visit(store, ItemGroup(page(2).fingerprint, []), page(3))
    await store.close()
    result = await job.result()
    assert sorted(int(item["page"]) for item in result) == [1, 3, 11]
    assert not any(item.get("old") for item in result)


async def test_a_page_without_items_has_no_mark(job):
    store = await job.worker("w1")
    assert await store.write([ItemGroup(bytes(16), [])]) == [None]
    await store.close()


async def test_two_workers_write_at_once(job):
    stores = [await job.worker("w1"), await job.worker("w2")]

    async def work(store, numbers):
        for number in numbers:
            await job.visit(store, page(number), page(number + 1000))

    await asyncio.gather(work(stores[0], range(0, 60, 2)), work(stores[1], range(1, 60, 2)))
    for store in stores:
        await store.close()
    assert await pages_in(job) == [*range(60), *range(1000, 1060)]


async def test_a_bad_item_fails_its_page_and_no_other(job):
    store = await job.worker("w1")
    bad = page(2, {"page": 2}, {"page": 22, "what": object()})
    good, failed, also_good = await store.write([page(1), bad, page(3)])
    assert isinstance(failed, GroupError)
    assert "item 2 of the page" in failed.error
    assert "\n" not in failed.error
    job.commit([good, also_good])
    await job.visit(store, page(4))
    await store.close()
    assert await pages_in(job) == [1, 3, 4]


HARD = {
    "text": 'zwei\nZeilen\r\nund "Zitat", Komma; ☃ \U0001f577 \t\x00\x1b\u2028',
    "none": None,
    "empty": "",
    "yes": True,
    "int": 2**63 - 1,
    "float": 0.1,
    "list": [1, "zwei", None, {"x": []}],
    "dict": {"a": {"b": "c\nd"}},
    'Ünïcode, "name"': 1,
}


async def test_values_survive(job):
    store = await job.worker("w1")
    given = HARD
    if job.target == "opensearch":  # the values of a list must have one type
        given = HARD | {"list": ["zwei", None, ""]}
    if job.target == "ferretdb":  # fails for quotation marks in field names, see docs/design/outputs.md
        given = {name.replace('"', ""): value for name, value in HARD.items()}
    await job.visit(store, page(1, given))
    await store.close()
    [item] = await job.result()
    if job.target.endswith("items.csv"):
        text = {name: value for name, value in HARD.items() if isinstance(value, str)}
        parsed = {name: json.loads(item[name]) for name in ("yes", "int", "float", "list", "dict")}
        assert item | parsed == HARD | {"none": "", 'Ünïcode, "name"': "1"} | text
    elif job.target == "items.db":
        parsed = {name: json.loads(item[name]) for name in ("list", "dict")}
        assert item | parsed == HARD
    elif job.target.startswith("postgresql"):
        # PostgreSQL has no NUL character, and a column that only contains null values is not created.
        assert {"none": None} | item == HARD | {"text": HARD["text"].replace("\0", "\ufffd")}
    elif job.target == "mysql":
        # A boolean is a number, and a column that only contains null values is not created.
        assert {"none": None} | item == HARD
    elif job.target.endswith(".parquet"):
        # Values without a common type become text.
        assert item == HARD | {"list": ["1", "zwei", None, '{"x":[]}']}
    else:
        assert item == given
        assert list(item) == list(given)


async def test_halves_of_characters_which_utf8_cannot_carry_are_replaced(job):
    store = await job.worker("w1")
    await job.visit(store, page(1, {"te\ud800xt": "a\ud800b", "in": ["\udc00"]}))
    await store.close()
    [item] = await job.result()
    name = next(name for name in item if name.startswith("te"))
    assert (name, item[name]) == ("te\ufffdxt", "a\ufffdb")
    assert item["in"] in (["\ufffd"], '["\ufffd"]')


async def test_a_crawl_without_items_writes_an_empty_output(job):
    await job.output.check(job.context)
    assert await job.result() == []


async def test_merging_again_at_a_later_stop_holds_everything_once(job):
    store = await job.worker("w1")
    await job.visit(store, page(1))
    assert await pages_in(job) == [1]
    assert await pages_in(job) == [1]
    await job.visit(store, page(2))
    await store.close()
    job.output = job.run_again()
    assert await pages_in(job) == [1, 2]


@pytest.mark.parametrize("later", LOCAL_RANGED)
async def test_an_output_named_only_in_a_later_run_holds_every_item(tmp_path, later):
    job = Job(tmp_path, "items.jsonl")
    store = await job.worker("w1")
    await job.visit(store, page(1))
    await store.close()
    job.target, job.place = later, tmp_path / "later" if later == "-" else tmp_path / f"later-{later}"
    job.output = job.run_again()
    store = await job.worker("w2")
    await job.visit(store, page(2))
    await store.close()
    job.target = later
    assert await pages_in(job) == [1, 2]


async def test_committed_items_that_a_server_has_lost_fail_the_merge_by_name_and_leave_the_file(tmp_path):
    job = Job(tmp_path, *SHARED)
    store = await job.worker("w1")
    await job.visit(store, page(1))
    assert await pages_in(job) == [1]
    await job.visit(store, page(2))
    await store.close()
    await asyncio.to_thread(lose_parts, job)
    with pytest.raises(StoreError) as caught:
        await job.result()
    assert caught.value.field == "parts"
    assert [item["page"] for item in job._read()] == ["1"]


def lose_parts(job):
    with redis.Redis.from_url(job.place.partition("?parts=")[2].rpartition("/")[0]) as client:
        client.delete(*client.keys(f"{job.place.rpartition('/')[2]}:staged:*"))


async def test_half_written_items_of_a_killed_worker_never_appear(ranged_job):
    job = ranged_job
    store = await job.worker("w1")
    await job.visit(store, page(1))
    await store.close()

    await asyncio.to_thread(job.tear, "w1", b'{"page": 2}\n{"page": 3, "te')
    assert await pages_in(job) == [1]


async def test_only_a_file_that_this_job_did_not_merge_is_foreign(job):
    await job.output.check(job.context)
    assert not await job.output.occupied(job.context)
    await job.result()
    store = await job.worker("w1")
    await job.visit(store, page(1))
    await store.close()
    await job.result()
    assert not await job.output.occupied(job.context)
    another_job = OutputContext("other", str(job.folder / "other"))
    assert await job.output.occupied(another_job) == (job.target in RANGED_FILES + REMOTE + SHARED)


async def test_a_fresh_start_shows_nothing_of_the_run_before(job):
    store = await job.worker("w1")
    await job.visit(store, page(1))
    await store.close()
    await job.output.clear(job.context)
    job.ranges.clear()
    job.output = job.run_again()
    assert await job.result() == []


async def test_items_can_be_followed_while_the_crawl_runs(job):
    store = await job.worker("w1")
    await job.visit(store, page(1))
    assert await job.output.emit(job.context, job.ranges)
    await job.visit(store, page(2))
    assert await job.output.emit(job.context, job.ranges)
    await store.close()
    assert await pages_in(job) == [1, 2]


@pytest.mark.parametrize("target", [*RANGED_FILES, "items.db"])
async def test_a_missing_folder_is_found_before_the_crawl(tmp_path, target):
    output = open_output(str(tmp_path / "missing" / target))
    with pytest.raises(StoreError, match="missing") as caught:
        await output.check(OutputContext("quotes", str(tmp_path)))
    assert "folder" in caught.value.remedy
