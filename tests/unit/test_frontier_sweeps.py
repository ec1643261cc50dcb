"""Notes that have run out leave an embedded frontier."""

import sqlite3

import pytest

from skitter.frontier.embedded.dead_letters import CleanupSchedule
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierSettings
from skitter.politeness import Politeness


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


def notes_of_memory(frontier):
    return len(frontier._journal._tables._notes)


def notes_of_sqlite(frontier):
    with sqlite3.connect(frontier._journal.path) as file:
        return file.execute("SELECT count(*) FROM notes").fetchone()[0]


@pytest.fixture(params=["memory", "sqlite"])
async def kept(request, tmp_path):
    """A frontier, its clock, and how many notes it keeps."""
    clock = Clock()
    if request.param == "memory":
        frontier, count = EmbeddedFrontier(clock=clock), notes_of_memory
    else:
        frontier = EmbeddedFrontier(
            Politeness(), FrontierSettings(), clock=clock, path=tmp_path / "frontier.db"
        )
        count = notes_of_sqlite
    await frontier.open()
    yield frontier, clock, lambda: count(frontier)
    await frontier.close()


async def test_notes_that_ran_out_are_swept_and_the_others_stay(kept):
    frontier, clock, count = kept
    for number in range(1_500):
        await frontier.notes.put(f"short{number}", b"x", 10.0)
        clock.now += 0.1
    await frontier.notes.put("long", b"y", 1e6)
    clock.now += 20.0
    for number in range(1_500):
        await frontier.notes.put(f"later{number}", b"z", 1e6)
    assert count() <= 1_500 + 1 + 1_000
    assert await frontier.notes.get("long") == b"y"
    assert await frontier.notes.get("later0") == b"z"


async def test_a_table_never_has_many_expired_entries(kept):
    frontier, clock, count = kept
    most = 0
    for number in range(5_000):
        await frontier.notes.put(f"host{number}", b"x", 100.0)
        clock.now += 1.0
        if number % 250 == 0:
            most = max(most, count())
    assert most <= 1_200


async def test_expired_notes_are_removed_at_the_start_of_a_run(tmp_path):
    clock = Clock()
    for run in range(3):
        frontier = EmbeddedFrontier(path=tmp_path / "frontier.db", clock=clock)
        await frontier.open()
        assert notes_of_sqlite(frontier) == 0
        await frontier.notes.put(f"host{run}", b"x", 10.0)
        await frontier.close()
        clock.now += 20.0


def test_a_sweep_is_due_after_as_many_additions_as_the_last_one_left():
    sweeps = CleanupSchedule()
    assert [sweeps.is_due() for _ in range(1_000)] == [False] * 999 + [True]
    sweeps.done(3_000)
    assert [sweeps.is_due() for _ in range(3_000)] == [False] * 2_999 + [True]
    sweeps.done(5)
    assert not any(sweeps.is_due() for _ in range(999))
