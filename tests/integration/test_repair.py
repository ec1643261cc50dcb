"""Damaged frontier files are detected before anything is fetched, and repaired; lost records are reported."""

import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest

from cli_command import SHOP, expected_urls, skitter, urls_of, usage_error
from skitter.frontier.embedded.repair import repair_file
from skitter.testing import GeneratedSite

PAGES, FIRST = 60, 8


@pytest.fixture
def web():
    return GeneratedSite(pages=PAGES, links_per_page=40, page_bytes=6000)


@pytest.fixture
def server(web, serve):
    return serve(web)


@pytest.fixture
def folder(tmp_path, server):
    """A folder with a job that is partly done."""
    (tmp_path / "shop.py").write_text(SHOP.format(url=server.url))
    run(tmp_path, "-s", f"max_pages={FIRST}")
    return tmp_path


def run(folder, *more):
    result = skitter(
        "run", "shop.py", "-o", "items.jsonl", "--no-robots", "--delay", 0, "--quiet", *more, cwd=folder
    )
    assert result.returncode == 0, result.stderr


def file_of(folder):
    return folder / ".skitter/shop/frontier.db"


def ask(folder, query):
    with closing(sqlite3.connect(f"file:{file_of(folder)}?mode=ro&immutable=1", uri=True)) as file:
        return file.execute(query).fetchall()


def lost_in(result):
    found = re.search(r"lost: ([\d,]+) requests?\b", result.stderr)
    return int(found[1].replace(",", "")) if found else 0


def check_repaired(folder, web, server, lost):
    """Check that the job continues: nothing is duplicated, and only what the repair has reported is missing."""
    run(folder, "-s", "max_pages=100000")
    stored = urls_of(folder / "items.jsonl")
    assert max(Counter(stored).values()) == 1
    missing = set(expected_urls(web, server)) - set(stored)
    assert len(missing) <= lost


def test_a_sound_file_is_not_changed(folder):
    before = file_of(folder).read_bytes()
    result = skitter("repair", "shop", cwd=folder)
    assert result.returncode == 0
    assert "is sound" in result.stderr
    assert file_of(folder).read_bytes() == before


def test_a_changed_byte_in_a_request_is_found_before_the_next_run(folder, web, server):
    (url,) = ask(folder, "SELECT url FROM queue ORDER BY seq DESC LIMIT 1")[0]
    data = file_of(folder).read_bytes()
    wrong = url[:-6] + ("0" if url[-6] != "0" else "1") + url[-5:]
    assert data.count(url.encode()) == 1
    file_of(folder).write_bytes(data.replace(url.encode(), wrong.encode()))
    refusal = usage_error("resume", "shop", cwd=folder)
    assert "is damaged" in refusal
    assert "skitter repair" in refusal
    result = skitter("repair", "shop", cwd=folder)
    assert result.returncode == 1
    assert f"unreadable request: {wrong}" in result.stderr
    assert lost_in(result) == 1
    check_repaired(folder, web, server, lost=1)


def test_a_page_of_the_file_that_is_overwritten_loses_only_its_requests(folder, web, server):
    (page_size,), (waiting,) = (
        ask(folder, "PRAGMA page_size")[0],
        ask(folder, "SELECT count(*) FROM queue")[0],
    )
    (url,) = ask(folder, "SELECT url FROM queue ORDER BY seq LIMIT 1 OFFSET 20")[0]
    data = bytearray(file_of(folder).read_bytes())
    start = data.index(url.encode()) // page_size * page_size
    data[start : start + page_size] = random.Random(1).randbytes(page_size)
    file_of(folder).write_bytes(data)
    assert "is damaged" in usage_error("resume", "shop", cwd=folder)
    result = skitter("repair", "shop", cwd=folder)
    assert result.returncode == 1, result.stderr
    assert 0 < lost_in(result) < waiting
    assert ask(folder, "PRAGMA integrity_check") == [("ok",)]
    check_repaired(folder, web, server, lost_in(result))


@pytest.mark.parametrize(
    ("statement", "consequence"),
    [
        ("UPDATE job SET counters = substr(counters, 3)", "counters of the job"),
        ("INSERT INTO leases VALUES (5, x'93ff')", "pages in progress"),
    ],
)
def test_a_record_that_cannot_be_decoded_is_named_and_reset(folder, web, server, statement, consequence):
    with closing(sqlite3.connect(file_of(folder))) as file:
        file.execute(statement)
        file.commit()
    for command in ("status", "run"):
        result = skitter(command, "shop" if command == "status" else "shop.py", cwd=folder)
        assert result.returncode != 0
        assert "is damaged" in result.stderr
        assert "Traceback" not in result.stderr
    result = skitter("repair", "shop", cwd=folder)
    assert f"incomplete: {consequence}" in result.stderr
    assert skitter("status", "shop", cwd=folder).returncode == 0
    check_repaired(folder, web, server, 0)


def test_the_first_page_of_a_file_holds_all_tables(folder):
    """Without their statements, no data of a damaged file can be read."""
    assert (
        file_of(folder).read_bytes()[100] == 13
    )  # a leaf of the tree, see "B-tree Pages" in SQLite's file format


def test_a_truncated_file_is_detected_and_its_readable_rows_are_kept(folder, web, server):
    size = file_of(folder).stat().st_size
    with file_of(folder).open("r+b") as file:
        file.truncate(size * 2 // 3)
    assert "is damaged" in usage_error("resume", "shop", cwd=folder)
    result = skitter("repair", "shop", cwd=folder)
    assert result.returncode == 1, result.stderr
    saved = next(file_of(folder).parent.glob("frontier.db.damaged-*"))
    assert (saved / "frontier.db").stat().st_size == size * 2 // 3
    assert ask(folder, "PRAGMA integrity_check") == [("ok",)]
    run(folder, "-s", "max_pages=100000")
    assert set(urls_of(folder / "items.jsonl")) <= set(expected_urls(web, server))


def test_a_file_without_the_record_of_its_job_is_left_as_it_is(folder):
    file_of(folder).write_bytes(b"\0" * file_of(folder).stat().st_size)
    before = file_of(folder).read_bytes()
    result = skitter("repair", "shop", cwd=folder)
    assert result.returncode == 2
    assert file_of(folder).read_bytes() == before
    assert not list(file_of(folder).parent.glob("frontier.db.damaged-*"))


def test_an_older_copy_of_the_file_is_accepted(folder, web, server):
    older = folder / "older.db"
    shutil.copy(file_of(folder), older)
    run(folder, "-s", f"max_pages={3 * FIRST}")
    shutil.copy(older, file_of(folder))
    run(folder, "-s", "max_pages=100000")
    assert set(urls_of(folder / "items.jsonl")) == set(expected_urls(web, server))


KILLED_REPAIR = """
import os, signal, sys
from pathlib import Path
from skitter.frontier.embedded.repair import repair_file

path, left = Path(sys.argv[1]), int(sys.argv[2])


def kill_before(event, arguments):
    global left
    if event in {"os.mkdir", "os.remove", "os.rename", "os.chmod", "shutil.copyfile", "shutil.rmtree"}:
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1


sys.addaudithook(kill_before)
repair_file(path)
"""


def test_a_repair_may_be_killed_at_any_step(folder, tmp_path_factory):
    """A repair that is killed and repeated keeps the same as a single one, including data that is only in the log."""
    path = file_of(folder)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA wal_autocheckpoint = 0")
        file.execute("UPDATE job SET counters = 'damaged'")
        file.execute("DELETE FROM queue WHERE seq = (SELECT max(seq) FROM queue)")
        before = tmp_path_factory.mktemp("damaged") / path.name
        for suffix in ("", "-wal"):
            shutil.copy2(f"{path}{suffix}", f"{before}{suffix}")
    sound = rows_after(before, tmp_path_factory.mktemp("at_once"))
    kills = 0
    while (found := rows_after(before, tmp_path_factory.mktemp("killed"), killed_at=kills)) is not None:
        assert found == sound, f"killed before step {kills}"
        kills += 1
    assert kills > 10


def rows_after(before, folder, killed_at=None):
    """Return the rows of the main tables after a repair that was killed at a step first, or ``None`` without such a step."""
    path = folder / before.name
    for suffix in ("", "-wal"):
        shutil.copy2(f"{before}{suffix}", f"{path}{suffix}")
    if killed_at is not None:
        command = [sys.executable, "-c", KILLED_REPAIR, str(path), str(killed_at)]
        killed = subprocess.run(command, check=False)
        if killed.returncode == 0:
            return None
        assert killed.returncode == -signal.SIGKILL
    report = repair_file(path)
    assert report.incomplete == ["counters"]
    with closing(sqlite3.connect(path)) as file:
        return [file.execute(f"SELECT * FROM {table}").fetchall() for table in ("queue", "job", "slots")]
