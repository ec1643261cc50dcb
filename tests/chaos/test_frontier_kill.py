"""Kill test of the frontier file: its owner is killed repeatedly while known URLs move to sorted runs, and while requests
leave their packs.
"""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from crawling import PATIENCE, ROUNDS

from skitter.frontier.embedded.damage import find_damage

pytestmark = pytest.mark.chaos

OWNER = Path(__file__).with_name("frontier_owner.py")
PAGES = 12_000
KILLS = 12
AHEAD = 500
"""Number of commits that the owner may make after a moment, before it waits for its kill."""


@pytest.mark.parametrize(("limit", "links"), [(200, 3), (2_000, 3), (2_000, 4), (2_000, 12)])
@pytest.mark.parametrize("seed", ROUNDS)
def test_requests_and_known_urls_stay_exact_when_the_owner_is_killed(tmp_path, seed, limit, links):
    rng = random.Random(f"{seed} {limit} {links}")
    path, notes = tmp_path / "frontier.db", tmp_path / "notes"
    notes.touch()
    moments = sorted(rng.sample(range(PAGES * 9 // 10), KILLS))
    command = [sys.executable, OWNER, path, notes, str(PAGES), str(limit), str(links)]
    runs, unpacked = [], []
    bound = notes.with_name("bound")
    for moment in moments:
        bound.write_text(str(moment + AHEAD))
        with subprocess.Popen(command) as owner:
            try:
                end = time.monotonic() + PATIENCE
                while notes.read_bytes().count(b"\n") < moment:
                    assert owner.poll() is None, "the owner ended before it was killed"
                    assert time.monotonic() < end, "the owner does not commit"
                    time.sleep(0.001)
                time.sleep(rng.random() / 100)
            finally:
                owner.kill()
        runs.append(runs_in(path))
        unpacked.append(unpacked_in(path))
    bound.unlink()
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE).stdout
    assert found.decode().split() == [str(PAGES), str(PAGES), "0"], "added, done and queued"
    committed = notes.read_text().split()
    assert len(committed) == len(set(committed)), "an answered commit is never done again"
    assert runs[-1] > runs[0], "runs were written although each owner was killed"
    assert (sum(unpacked) > KILLS) is (links > 3), "owners were killed while requests left their packs"
    assert unpacked_in(path) == 0
    assert find_damage(path) == []


def runs_in(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        if not file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'seen_runs'").fetchone():
            return 0
        (last,) = file.execute("SELECT coalesce(max(run), 0) FROM seen_runs").fetchone()
    return last


def unpacked_in(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        if not file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'unpacked'").fetchone():
            return 0
        return file.execute("SELECT count(*) FROM unpacked").fetchone()[0]
