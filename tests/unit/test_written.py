"""Which committed items are in an output of any machine, and whether another machine will still write some."""

import asyncio
from types import SimpleNamespace

import pytest

from skitter._utils.notes import WRITERS
from skitter.frontier.options import FrontierContext
from skitter.frontier.registry import make_frontier
from skitter.politeness import Politeness
from skitter.run import written
from skitter.run.written import WrittenItems, describe_unwritten

ALL = {"items/a.jsonl": [(0, 10), (15, 30)], "items/b.jsonl": [(0, 5)]}


@pytest.fixture
async def notes(tmp_path):
    frontier = make_frontier("memory:", FrontierContext("job", str(tmp_path), Politeness()))
    await frontier.open()
    yield frontier.notes
    await frontier.close()


async def test_only_bytes_after_the_written_end_are_missing(notes):
    items = WrittenItems(notes)
    assert await items.unwritten(ALL) == {"items/a.jsonl": 25, "items/b.jsonl": 5}
    await items.record({"items/a.jsonl": [(0, 10), (15, 20)]})
    assert await items.unwritten(ALL) == {"items/a.jsonl": 10, "items/b.jsonl": 5}
    await items.record({"items/a.jsonl": [(0, 10)]})  # from an earlier time
    assert await items.unwritten(ALL) == {"items/a.jsonl": 10, "items/b.jsonl": 5}
    await WrittenItems(notes).record(ALL)
    assert await items.unwritten(ALL) == {}
    assert await items.unwritten({"items/b.jsonl": []}) == {}, "a range that was forgotten since"


async def test_machines_that_record_at_the_same_time_lose_nothing(notes):
    parts = [{f"items/{number}.jsonl": [(0, number + 1)]} for number in range(20)]
    await asyncio.gather(*(WrittenItems(notes).record(part) for part in parts))
    assert await WrittenItems(notes).unwritten({k: v for part in parts for k, v in part.items()}) == {}


async def test_a_machine_is_expected_until_it_leaves_and_does_not_wait_for_itself(notes):
    one, other = WrittenItems(notes), WrittenItems(notes)
    await one.join()
    await other.join()
    await one.leave()
    assert await one.is_expected()
    await other.leave()
    assert not await one.is_expected()


async def test_a_machine_that_reports_is_expected_and_a_silent_one_is_not(notes, monkeypatch):
    monkeypatch.setattr(written, "_BEAT_SECONDS", 0.01)
    now = 1000.0
    monkeypatch.setattr(written, "time", SimpleNamespace(monotonic=lambda: now))  # not that of the event loop
    one, other = WrittenItems(notes), WrittenItems(notes)
    await other.join()
    assert await one.is_expected()
    before = await notes.get(WRITERS)
    while await notes.get(WRITERS) == before:
        await asyncio.sleep(0)
    now += written._LOST_AFTER
    assert await one.is_expected(), "it has reported since"
    other._reporting.cancel()  # as if it were killed
    await asyncio.gather(other._reporting, return_exceptions=True)
    assert await one.is_expected()
    now += written._LOST_AFTER
    assert not await one.is_expected()


def test_missing_items_are_counted_in_bytes_and_workers():
    assert (
        describe_unwritten({"a": 1000, "b": 500})
        == "1,500 bytes of committed items of 2 workers are in no output"
    )
    assert describe_unwritten({"a": 1}) == "1 bytes of committed items of a worker are in no output"
