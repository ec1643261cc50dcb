"""Expired notes are removed from an embedded frontier."""

import pytest

from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierSettings
from skitter.politeness import Politeness


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


async def number_of_notes(frontier):
    return await frontier._journal.read(
        lambda tables: tables.file.execute("SELECT count(*) FROM notes").fetchone()[0]
    )


@pytest.fixture(params=["memory", "sqlite"])
async def kept(request, tmp_path):
    """A frontier and its clock."""
    clock = Clock()
    path = tmp_path / "frontier.db" if request.param == "sqlite" else None
    frontier = EmbeddedFrontier(Politeness(), FrontierSettings(), clock=clock, path=path)
    await frontier.open()
    yield frontier, clock
    await frontier.close()


async def test_expired_notes_are_removed_and_the_others_stay(kept):
    frontier, clock = kept
    for number in range(1_500):
        await frontier.notes.put(f"short{number}", b"x", 10.0)
        clock.now += 0.1
    await frontier.notes.put("long", b"y", 1e6)
    clock.now += 20.0
    for number in range(1_500):
        await frontier.notes.put(f"later{number}", b"z", 1e6)
    assert await number_of_notes(frontier) <= 1_500 + 1 + 1_000
    assert await frontier.notes.get("long") == b"y"
    assert await frontier.notes.get("later0") == b"z"


async def test_a_table_never_has_many_expired_entries(kept):
    frontier, clock = kept
    most = 0
    for number in range(5_000):
        await frontier.notes.put(f"host{number}", b"x", 100.0)
        clock.now += 1.0
        if number % 250 == 0:
            most = max(most, await number_of_notes(frontier))
    assert most <= 1_200


async def test_expired_notes_are_removed_at_the_start_of_a_run(tmp_path):
    clock = Clock()
    for run in range(3):
        frontier = EmbeddedFrontier(path=tmp_path / "frontier.db", clock=clock)
        await frontier.open()
        assert await number_of_notes(frontier) == 0
        await frontier.notes.put(f"host{run}", b"x", 10.0)
        await frontier.close()
        clock.now += 20.0


async def test_the_next_sweep_follows_as_many_additions_as_the_last_one_left(kept):
    frontier, clock = kept

    async def put(number, ttl=1e6):
        for index in range(number):
            await frontier.notes.put(f"{clock.now}/{index}", b"x", ttl)
        clock.now += 20.0

    await put(2_000)  # swept after 1,000 and after 2,000 additions: 2,000 are left
    await put(1, ttl=10.0)
    await put(1_998)
    assert await number_of_notes(frontier) == 3_999
    await put(1)
    assert await number_of_notes(frontier) == 3_999
