"""SqliteStore: several processes with one file, killed processes, and limited disks."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest


def rows_in(path) -> list[dict]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM items ORDER BY rowid")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "items.db"


WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from skitter.store.contract import ItemGroup, StoreContext
from skitter.store.sqlite import SqliteStore

path, worker, kill_after = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

async def main():
    store = SqliteStore(path, "items")
    await store.open(StoreContext("quotes", f"w{worker}", str(path.parent)))
    if kill_after:
        statements = iter(range(kill_after))
        def count(statement):
            if statement.startswith("INSERT") and next(statements, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
        await store._thread.run(store._connection.set_trace_callback, count)
    for batch in range(20):
        numbers = [worker * 1000 + batch * 10 + n for n in range(10)]
        groups = [ItemGroup(n.to_bytes(16, "big"), [{"page": n, f"of{worker}": n, f"in{batch}": n}]) for n in numbers]
        assert await store.write(groups) == [None] * 10
        print(batch, flush=True)
    await store.close()

asyncio.run(main())
"""


def test_several_processes_write_a_new_file(path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(worker), "0"], stdout=subprocess.PIPE)
        for worker in range(4)
    ]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    found = rows_in(path)
    assert sorted(row["page"] for row in found) == [w * 1000 + n for w in range(4) for n in range(200)]
    assert all(row[f"of{row['page'] // 1000}"] == row["page"] for row in found)


@pytest.mark.parametrize("kill_after", [1, 15, 39])
def test_after_a_kill_in_a_transaction_a_batch_is_stored_completely_or_not_at_all(path, kill_after):
    writer = subprocess.run(
        [sys.executable, "-c", WRITER, path, "0", str(kill_after)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert writer.returncode == -signal.SIGKILL
    answered = len(writer.stdout.split())
    assert answered == kill_after // 10
    assert [row["page"] for row in rows_in(path)] == list(range(10 * answered))


def test_a_database_file_limit_is_a_clear_error(path):
    code = WRITER.replace("async def main():", "import resource\nasync def main():").replace(
        "    for batch", "    resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, -1))\n    for batch"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, "0", "0"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "StoreError: cannot write" in done.stderr
    answered = len(done.stdout.split())
    assert [row["page"] for row in rows_in(path)] == list(range(10 * answered))
    assert path.stat().st_size <= 70_000
