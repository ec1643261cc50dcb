"""SqliteStore: types, columns, several processes, and errors of the database."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from skitter.errors import StoreError
from skitter.store import sqlite
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output
from skitter.store.sqlite import SqliteStore


def page(number: int, *items) -> ItemGroup:
    return ItemGroup(number.to_bytes(16, "big"), items or ({"page": number},))


def rows(path: Path, query: str = "SELECT * FROM items ORDER BY rowid") -> list[dict]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


async def opened(
    path: Path, table: str = "items", job: str = "quotes", durability: str = "process"
) -> SqliteStore:
    store = SqliteStore(path, table)
    await store.open(StoreContext(job, "w1", str(path.parent), durability))
    return store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "items.db"


async def test_rows_are_found_by_the_id_of_their_item(path):
    store = await opened(path)
    assert await store.write([page(10, {"a": 1}, {"a": 2})]) == [None]
    await store.close()
    assert rows(path) == [{"_id": f"quotes:{'0' * 31}a:{index}", "a": index + 1} for index in (0, 1)]


async def test_values_keep_their_types(path):
    item = {
        "i": -(2**63),
        "big": 2**63,
        "f": 0.5,
        "t": "1",
        "nul": "a\0b",
        "n": None,
        "yes": True,
        "l": [1, {}],
    }
    store = await opened(path)
    await store.write([page(1, item)])
    await store.close()
    [row] = rows(path)
    del row["_id"]
    assert row == item | {"big": str(2**63), "yes": 1, "l": "[1,{}]"}
    assert [type(value) for value in row.values()] == [int, str, float, str, str, type(None), int, str]


@dataclass
class Picture:
    name: str
    data: bytes


async def test_bytes_are_blobs(path):
    store = await opened(path)
    await store.write(
        [page(1, {"name": "a", "data": b"\0\xff"}, Picture("b", b""), {"in": {"data": b"\xff"}})]
    )
    await store.close()
    found = [(row["name"], row["data"], row["in"]) for row in rows(path)]
    assert found == [("a", b"\0\xff", None), ("b", b"", None), (None, None, '{"data":"/w=="}')]


async def test_columns_are_added_as_fields_appear_and_a_field_that_goes_is_null(path):
    store = await opened(path)
    await store.write([page(1, {"a": 1, "b": 1}), page(2, {"c": 2})])
    await store.write([page(1, {"b": 3, 'x"); DROP TABLE items; --': 4})])
    await store.close()
    assert [list(row.values())[1:] for row in rows(path)] == [[None, None, 2, None], [None, 3, None, 4]]
    assert list(rows(path)[0]) == ["_id", "a", "b", "c", 'x"); DROP TABLE items; --']


async def test_chosen_fields_are_the_columns_in_their_order(path):
    output = await asyncio.to_thread(open_output, f"{path}?fields=price,title")
    await output.check(OutputContext("quotes", str(path.parent)))
    store = output.store()
    await store.open(StoreContext("quotes", "w1", str(path.parent)))
    assert (
        await store.write([page(1, {"title": "a", "url": "x", "price": 2}), page(2, {"title": "b"})])
        == [None] * 2
    )
    await store.close()
    assert [list(row.items())[1:] for row in rows(path)] == [
        [("price", 2), ("title", "a")], [("price", None), ("title", "b")]
    ]  # fmt: skip


async def test_a_chosen_field_without_a_value_in_the_rows_of_the_job_is_logged(path, caplog):
    output = await asyncio.to_thread(open_output, f"{path}?fields=price,prize,Prize")
    context = OutputContext("quotes", str(path.parent), "process")
    await output.check(context)
    await output.merge(context, {})
    assert caplog.messages == [], "there are no items"
    for job, item in (("quotes", {"price": 2}), ("quotes:2", {"prize": 1})):
        store = output.store()
        await store.open(StoreContext(job, "w1", str(path.parent), "process"))
        assert await store.write([page(1, item)]) == [None]
        await store.close()
    await output.merge(context, {})
    (message,) = caplog.messages
    assert message == (
        f"{path}?fields=price,prize,Prize: no item has a value in the field prize, Prize;"
        " check the names in the option fields"
    )
    caplog.clear()
    every = await asyncio.to_thread(open_output, str(path))
    await every.merge(context, {})
    assert caplog.messages == []


async def test_fields_that_sql_cannot_tell_apart_have_columns_of_their_own_in_every_process(path):
    item = {"Name": 1, "name": 2, "NAME": 3, "_id": 4, "_ID": 5, "É": 6, "é": 7, "": 8}
    for _ in range(2):
        store = await opened(path)
        await store.write([page(1, item)])
        await store.write([page(2, {"NAME": 3, "name": 2, "Name": 1})])
        await store.close()
    first, second = rows(path)
    names = list(first)
    assert first.pop("_id") == f"quotes:{'0' * 31}1:0"
    assert sorted(first.values()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {name for name in names if first.get(name) in {1, 6, 7, 8}} == {"Name", "É", "é", ""}
    assert all(second[name] == first[name] for name in names if name.lower().startswith("name"))


async def test_two_stores_agree_on_columns_that_either_added(path):
    one, two = await opened(path), await opened(path)
    await one.write([page(1, {"Name": 1})])
    await two.write([page(2, {"name": 2, "b": 3})])
    await one.write([page(3, {"b": 4, "name": 5, "c": 6})])
    await one.close()
    await two.close()
    found = [{name: value for name, value in row.items() if name != "_id" and value} for row in rows(path)]
    lower = next(name for name in rows(path)[0] if name.startswith("name"))
    assert found == [{"Name": 1}, {lower: 2, "b": 3}, {lower: 5, "b": 4, "c": 6}]


async def test_more_fields_than_a_table_has_columns_fail_the_page_clearly_and_no_other(path):
    store = await opened(path)
    wide = page(2, {f"f{n}": n for n in range(2100)})
    results = await store.write([page(1), wide, page(3)])
    assert isinstance(results[1], GroupError)
    assert "at most 2000" in results[1].error
    assert "nested" in results[1].error
    assert [results[0], results[2]] == [None, None]
    await store.write([page(4, {"page": 4, "other": 1})])
    await store.close()
    assert [row["page"] for row in rows(path)] == [1, 3, 4]


async def test_values_that_sqlite_refuses_fail_their_page_and_no_other(path):
    store = await opened(path)
    bad = page(2, {"page": 2}, {"page": 3, "a\0b": 1})
    results = await store.write([page(1), bad, page(4)])
    await store.close()
    assert [type(result) for result in results] == [type(None), GroupError, type(None)]
    assert [row["page"] for row in rows(path)] == [1, 4]


async def test_a_constraint_of_the_user_fails_the_page_and_no_other(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE items (_id TEXT PRIMARY KEY NOT NULL, page CHECK (page > 1))")
    store = await opened(path)
    results = await store.write([page(1), page(2)])
    await store.close()
    assert "CHECK constraint" in results[0].error
    assert [row["page"] for row in rows(path)] == [2]


async def test_the_table_can_be_named(tmp_path):
    name = 'we"ird; table'
    output = open_output(f"sqlite:{tmp_path / 'x.bin'}?table=we%22ird;%20table")
    store = output.store()
    await store.open(StoreContext("quotes", "w1", str(tmp_path)))
    await store.write([page(1)])
    await store.close()
    assert [
        row["page"]
        for row in rows(tmp_path / "x.bin", f'SELECT * FROM "{name.replace(chr(34), chr(34) * 2)}"')
    ]


async def test_a_table_that_is_not_ours_is_refused_and_left_alone(path, tmp_path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, text)")
    with pytest.raises(StoreError, match="'items'") as caught:
        await open_output(str(path)).check(OutputContext("quotes", str(tmp_path)))
    assert caught.value.field == "table"
    assert "?table=" in caught.value.remedy
    assert rows(path, "SELECT name FROM pragma_table_info('items')") == [{"name": "id"}, {"name": "text"}]


async def test_a_file_that_is_not_a_database_is_rejected_and_unchanged(path, tmp_path):
    path.write_bytes(b"something else entirely, and long enough to be looked at" * 30)
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        await open_output(str(path)).check(OutputContext("quotes", str(tmp_path)))
    assert caught.value.__cause__.sqlite_errorname == "SQLITE_NOTADB"
    assert path.read_bytes() == before


async def test_a_locked_database_is_a_clear_error_and_the_write_can_be_repeated(path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    store = await opened(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            await store.write([page(1)])
    assert caught.value.__cause__.sqlite_errorname == "SQLITE_BUSY"
    assert caught.value.remedy
    assert await store.write([page(1)]) == [None]
    await store.close()
    assert len(rows(path)) == 1


async def ask(store: SqliteStore, statement: str) -> list:
    """Run a statement on the store's own connection, in its thread."""
    return await store._thread.run(lambda: store._connection.execute(statement).fetchall())


async def test_a_full_disk_is_a_clear_error_loses_nothing_and_the_write_can_be_repeated(path):
    store = await opened(path)
    await store.write([page(1)])
    [(pages,)] = await ask(store, "PRAGMA page_count")
    await ask(store, f"PRAGMA max_page_count={pages + 2}")
    big = page(2, {"page": 2, "text": "x" * 50_000, "new": 1})
    with pytest.raises(StoreError) as caught:
        await store.write([big, page(3)])
    assert caught.value.__cause__.sqlite_errorname == "SQLITE_FULL"
    assert caught.value.remedy
    await ask(store, "PRAGMA max_page_count=100000")
    assert await store.write([big, page(3)]) == [None, None]
    await store.close()
    assert [row["page"] for row in rows(path)] == [1, 2, 3]


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("machine", 2)])
async def test_only_machine_durability_syncs_every_commit(path, durability, level):
    store = await opened(path, durability=durability)
    assert await ask(store, "PRAGMA journal_mode") == [("wal",)]
    assert await ask(store, "PRAGMA synchronous") == [(level,)]
    await store.close()


async def test_a_long_log_is_folded_in_while_writers_continue(path, monkeypatch):
    monkeypatch.setattr(sqlite, "_WAL_LIMIT", 100_000)
    store = await opened(path)
    for number in range(20):
        await store.write([page(number, {"text": "x" * 20_000})])
        assert await asyncio.to_thread(lambda: Path(f"{path}-wal").stat().st_size) < 200_000
    await store.close()


async def test_a_fresh_start_removes_the_rows_of_this_job_only(path, tmp_path):
    for job in ("quotes", "quotes:2", "quote", "quotes2"):
        store = await opened(path, job=job)
        await store.write([page(1, *({"job": job} for _ in range(12)))])
        await store.close()
    await open_output(str(path)).clear(OutputContext("quotes", str(tmp_path)))
    assert sorted({row["job"] for row in rows(path)}) == ["quote", "quotes2", "quotes:2"]


async def test_after_a_stop_the_file_alone_is_the_output_also_of_killed_workers(path, tmp_path):
    store = await opened(path)
    await store.write([page(1)])
    copy = tmp_path / "copy.db"
    await open_output(str(path)).merge(OutputContext("quotes", str(tmp_path)), {})
    shutil.copy(path, copy)
    await store.close()
    assert [row["page"] for row in rows(copy)] == [1]


@pytest.mark.parametrize("target", ["sqlite:", "sqlite::memory:", "a.db?table=", "a.db?table=sqlite_master"])
def test_names_that_cannot_be_are_refused(target):
    with pytest.raises(StoreError) as caught:
        open_output(target)
    assert caught.value.remedy
