"""Stores on real servers: outages, rejected items, fields that change during a crawl, invalid locations."""

import asyncio
import datetime as dt
import decimal
import json
import logging
import random
import urllib.request
import uuid
from functools import partial

import pytest
from pymongo import MongoClient
from store_job import MONGODB, MYSQL, Job, page, pages_in, place_for, server_port

from services.processes import free_port
from services.store_items import mysql_connection, table_of
from services.store_servers import (
    BUCKET,
    FerretServer,
    MariaServer,
    MongoServer,
    OpenSearchServer,
    PostgresServer,
    S3Server,
    running,
)
from skitter._utils import backoff
from skitter._utils.concurrency import stop_listening
from skitter.errors import StoreError
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output

pytestmark = pytest.mark.timeout(600)  # some of the servers take much CPU time to start

SERVERS = {
    "mongodb": partial(MongoServer, "--sync-on-commit"),
    "ferretdb": FerretServer,
    "postgresql": PostgresServer,
    "mysql": MariaServer,
    "opensearch": OpenSearchServer,
    "s3:items.jsonl": S3Server,
}


@pytest.fixture
def store_messages(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("skitter"), "propagate", True)
    monkeypatch.setattr(backoff, "LONGEST_PAUSE", 0.2)
    return lambda: [record.getMessage() for record in caplog.records if record.name == "skitter.store"]


# --- outages -------------------------------------------------------------------------------------------


@pytest.mark.chaos
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_that_is_killed_and_comes_back_loses_and_duplicates_nothing(
    kind, tmp_path, store_messages
):
    server = await asyncio.to_thread(SERVERS[kind])
    try:
        await asyncio.to_thread(server.start)
        job = Job(tmp_path, kind, server=server)
        await job.output.check(job.context)
        store = await job.worker("w1")
        await job.visit(store, *map(page, range(20)))
        await asyncio.to_thread(server.kill)
        writing = asyncio.create_task(job.visit(store, *map(page, range(10, 40))))
        while not store_messages():
            assert not writing.done(), "nothing can be written while the server is away"
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.start)
        await writing
        await job.visit(store, *map(page, range(40, 50)))
        await store.close()
        away, back = store_messages()
        assert "is unavailable" in away
        assert "is back after" in back
        found = await pages_in(job)
        # A file contains each committed visit; a database contains pages 10 to 19 only once.
        assert found == (sorted([*range(20), *range(10, 50)]) if kind.startswith("s3") else [*range(50)])
    finally:
        await asyncio.to_thread(server.stop)


@pytest.mark.parametrize(
    "kind", ["mongodb?directConnection=true", "ferretdb", "postgresql", "mysql", "opensearch"]
)
async def test_a_connection_that_breaks_at_any_moment_of_a_write_loses_and_duplicates_nothing(
    kind, tmp_path, store_messages
):
    """A relay cuts the connection after a number of bytes, anywhere between the first request and the last response."""
    relay = Relay(server_port(kind))
    await relay.start()
    job = Job(tmp_path, kind, port=relay.port)
    await job.output.check(job.context)
    rng = random.Random(kind)
    store = await job.worker("w1")
    for number in range(0, 300, 10):
        relay.cut_after(rng.randrange(2500))
        await job.visit(store, *(page(n, {"page": n}, {"page": -n - 1}) for n in range(number, number + 10)))
    relay.cut_after(None)
    await store.close()
    await relay.stop()
    assert relay.cuts >= 10
    assert await pages_in(job) == sorted([*range(300), *(-n - 1 for n in range(300))])


@pytest.mark.parametrize("when", ["before the next write", "while the next write begins"])
async def test_no_write_uses_the_old_connection_after_a_postgresql_server_announces_its_end(
    when, tmp_path, store_messages
):
    """A killed server may send a notification before its connections are closed."""
    relay = Relay(server_port("postgresql"))
    await relay.start()
    job = Job(tmp_path, "postgresql", port=relay.port)
    store = await job.worker("w1")
    await job.visit(store, page(0))
    fields = b"SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
    relay.say(b"E" + (len(fields) + 4).to_bytes(4) + fields)
    if when == "before the next write":
        await job.output.check(job.context)  # uses another connection, so the notification was read
    await job.visit(store, page(1))
    await store.close()
    await relay.stop()
    assert "is unavailable" in store_messages()[0]
    assert await pages_in(job) == [0, 1]


class Relay:
    """Forwards the bytes of a port, and cuts all connections after a number of bytes."""

    def __init__(self, target):
        self._target = target
        self._left = None
        self._writers = set()
        self._clients = set()
        self._tasks = set()
        self.cuts = 0

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut_after(self, size):
        self._left = size

    def say(self, data):
        """Send data to all clients as if the server had sent it."""
        for writer in self._clients:
            writer.write(data)

    async def _serve(self, reader, writer):
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, back}
        self._clients.add(writer)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink, writer, back))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source, sink, *both):
        try:
            while data := await source.read(512):
                if self._left is not None:
                    self._left -= len(data)
                    if self._left < 0:
                        self._left = None
                        self.cuts += 1
                        for writer in self._writers:
                            writer.transport.abort()
                        self._writers.clear()
                        return
                sink.write(data)
        except OSError:
            pass
        finally:
            for writer in both:
                writer.close()
                self._writers.discard(writer)

    async def stop(self):
        await stop_listening(self._server)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()


# --- rejected items ------------------------------------------------------------------------------------


async def refuse_negative(kind, place):
    """Make the server reject items with a negative page."""
    if kind == "mongodb":
        from pymongo import AsyncMongoClient

        uri, _, collection = place.partition("?")[0].rpartition("/")
        async with AsyncMongoClient(uri) as client:
            rule = {"page": {"$gte": 0}}
            await client.get_default_database().create_collection(collection, validator=rule)
    elif kind == "mysql":
        with mysql_connection(place) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE {table_of(place)} (_id varchar(255) COLLATE utf8mb4_bin PRIMARY KEY,"
                " page int CHECK (page >= 0), seen timestamp DEFAULT now())"
            )
    elif kind == "opensearch":
        mapping = {"mappings": {"properties": {"page": {"type": "unsigned_long"}}}}
        request = urllib.request.Request(
            place.replace("opensearch:", "http:"), json.dumps(mapping).encode(),
            {"content-type": "application/json"}, method="PUT",
        )  # fmt: skip
        (await asyncio.to_thread(urllib.request.urlopen, request)).close()
    else:
        import asyncpg

        connection = await asyncpg.connect(place.partition("?")[0])
        table = place.rpartition("table=")[2]
        await connection.execute(
            f"CREATE TABLE {table} (_id text PRIMARY KEY, page int CHECK (page >= 0), seen timestamp DEFAULT now())"
        )
        await connection.close()


@pytest.mark.parametrize("kind", ["mongodb", "mongodb?buffer=1", "postgresql", "mysql", "opensearch"])
async def test_a_page_that_the_server_rejects_is_set_aside_and_all_others_are_stored(kind, tmp_path):
    job = Job(tmp_path, kind)
    await refuse_negative(kind.partition("?")[0], job.place)
    await job.output.check(job.context)
    store = await job.worker("w1")
    poisoned = {7, 8, 50, 99}
    groups = [
        page(n, {"page": n}, {"page": -1 if n in poisoned else n + 1000}, {"page": n + 2000})
        for n in range(100)
    ]
    answers = await store.write(groups)
    assert {n for n, answer in enumerate(answers) if isinstance(answer, GroupError)} == poisoned
    assert all("rejects the page's items" in answers[n].error for n in poisoned)
    good = [n for n in range(100) if n not in poisoned]
    assert await pages_in(job) == sorted([*good, *(n + 1000 for n in good), *(n + 2000 for n in good)])
    await job.visit(store, page(7), page(8))
    await store.close()
    assert {7, 8} <= set(await pages_in(job))


async def test_of_two_workers_that_write_the_same_pages_the_last_one_prevails(tmp_path):
    for kind in ("mongodb", "ferretdb", "postgresql", "mysql", "opensearch"):
        job = Job(tmp_path / kind, kind)
        await job.output.check(job.context)
        stores = [await job.worker(f"w{n}") for n in range(3)]
        await asyncio.gather(
            *(
                store.write([page(n, *({"page": n} for _ in range(1 + (n + w) % 3))) for n in range(40)])
                for w, store in enumerate(stores)
            )
        )
        await job.visit(stores[0], *map(page, range(40)))
        for store in stores:
            await store.close()
        assert await pages_in(job) == [*range(40)]


@pytest.mark.parametrize("kind", MONGODB)
async def test_a_gap_left_by_two_workers_hides_no_surplus_item(kind, tmp_path):
    job = Job(tmp_path, kind)
    store = await job.worker("w1")
    await job.visit(store, page(7, *({"page": 7, "n": number} for number in range(4))))
    uri, _, collection = job.place.partition("?")[0].rpartition("/")
    with MongoClient(uri) as client:
        await asyncio.to_thread(client.get_default_database()[collection].delete_one, {"n": 1})
    await job.visit(store, page(7))
    await store.close()
    assert await pages_in(job) == [7]


# --- fields that change during a crawl -----------------------------------------------------------------

CHANGES = [
    {"page": 1, "price": 5},
    {"page": 2, "price": 5.25, "title": "new"},
    {"page": 3, "price": None, "tags": ["a"]},
    {"page": 4, "price": "007", "title": "x"},
    {"page": 5, "price": {"amount": 5, "currency": "EUR"}, "title": True},
    {"page": 6, "tags": "none", "late": "é" * 40},
    {"page": 7, "x" * 70: 1, "_id": "own", "Page": 7},
    {"page": 8, "ctid": "a name of PostgreSQL", "xmin": 1, "rowid": "a name of SQLite"},
]


@pytest.mark.parametrize("kind", ["items.jsonl", "items.csv", "items.db", "items.parquet", "mongodb", "ferretdb", "postgresql", "postgresql?layout=jsonb", *MYSQL, "s3:items.csv"])  # fmt: skip
async def test_fields_that_come_late_or_change_their_type_fail_no_page(kind, tmp_path):
    job = Job(tmp_path, kind)
    await job.output.check(job.context)
    stores = [await job.worker("w1"), await job.worker("w2")]
    for number, item in enumerate(CHANGES):
        await job.visit(stores[number % 2], page(item["page"], item))
    await asyncio.gather(
        *(job.visit(store, *map(page, range(10 * w, 10 * w + 5))) for w, store in enumerate(stores, 1))
    )
    for store in stores:
        await store.close()
    assert await pages_in(job) == [*range(1, 9), *range(10, 15), *range(20, 25)]


async def test_a_column_of_postgresql_widens_without_changing_a_value(tmp_path):
    job = Job(tmp_path, "postgresql")
    store = await job.worker("w1")
    moment = dt.datetime(2026, 11, 21, 14, 15, tzinfo=dt.UTC)
    for given in (
        page(
            1,
            {
                "a": 5,
                "b": True,
                "c": 1.5,
                "d": moment,
                "e": decimal.Decimal("1.10"),
                "f": b"\x00\xff",
                "g": 2**60,
            },
        ),
        page(2, {"a": 2**63, "b": 1, "c": 2**60, "d": "soon", "e": 2, "f": b"x", "g": 0.1}),
        page(3, {"a": 1, "b": "yes", "c": 7, "d": moment.date(), "e": 0.25}),
    ):
        await job.visit(store, given)
    await store.close()
    columns = {name: [row[name] for row in await job.result()] for name in "abcdefg"}
    assert columns["a"] == [5, 2**63, 1]
    assert columns["b"] == ["true", "1", "yes"]
    assert columns["c"] == [decimal.Decimal("1.5"), 2**60, 7]
    assert columns["d"] == ["2026-11-21T14:15:00+00:00", "soon", "2026-11-21"]
    assert columns["e"] == [decimal.Decimal("1.10"), 2, decimal.Decimal("0.25")]
    assert columns["f"] == [b"\x00\xff", b"x", None]
    assert columns["g"] == [2**60, decimal.Decimal("0.1"), None]


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_many_workers_may_add_and_widen_columns_at_once(kind, tmp_path):
    job = Job(tmp_path, kind)
    stores = [await job.worker(f"w{n}") for n in range(4)]

    async def work(number, store):
        for turn in range(15):
            fields = {f"f{(turn * 7 + number) % 20}": [turn, str(turn), {"t": turn}][(turn + number) % 3]}
            await job.visit(store, page(100 * number + turn, {"page": 100 * number + turn, **fields}))
        await store.close()

    await asyncio.gather(*(work(number, store) for number, store in enumerate(stores)))
    assert await pages_in(job) == [100 * number + turn for number in range(4) for turn in range(15)]


async def test_a_column_of_mysql_widens_without_losing_a_value(tmp_path):
    job = Job(tmp_path, "mysql")
    store = await job.worker("w1")
    moment = dt.datetime(2026, 11, 21, 14, 15, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    for given in (
        page(1, {"a": 5, "b": True, "c": 1.5, "d": moment, "e": decimal.Decimal("1.10"), "f": b"\x00\xff", "g": 2**60}),
        page(2, {"a": 2**63, "b": 7, "c": 2**60, "d": "soon", "e": 2, "f": "x", "g": 0.1, "h": [1]}),
        page(3, {"a": 1, "b": "yes", "c": 7, "d": moment.date(), "e": 1e-300, "g": 1e300, "h": "two", "i": moment}),
    ):  # fmt: skip
        await job.visit(store, given)
    await store.close()
    columns = {name: [row[name] for row in await job.result()] for name in "abcdefghi"}
    assert columns["a"] == [5, 2**63, 1]
    assert columns["b"] == ["1", "7", "yes"]
    assert columns["c"] == ["1.5", str(2**60), "7"]
    assert columns["d"] == ["2026-11-21 13:15:00.000000", "soon", "2026-11-21"]
    assert [float(value) for value in columns["e"]] == [1.1, 2, 1e-300]
    assert columns["f"] == [b"\x00\xff", b"x", None]
    assert [float(value) for value in columns["g"]] == [2**60, 0.1, 1e300]
    assert columns["h"] == [None, "[1]", "two"]
    assert columns["i"] == [None, None, dt.datetime(2026, 11, 21, 13, 15)]  # noqa: DTZ001 - as the client gives it


async def test_a_mysql_page_with_the_unique_value_of_another_page_is_set_aside_and_replaces_nothing(tmp_path):
    job = Job(tmp_path, "mysql")
    with mysql_connection(job.place) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {table_of(job.place)} (_id varchar(255) COLLATE utf8mb4_bin PRIMARY KEY,"
            " page int, url varchar(100) UNIQUE, `seen` timestamp DEFAULT now())"
        )
    store = await job.worker("w1")
    await job.visit(store, page(1, {"page": 1, "url": "x"}))
    copy, fresh, again = await store.write(
        [
            page(2, {"page": 2, "url": "x"}),
            page(3, {"page": 3, "url": "y"}),
            page(1, {"page": 10, "url": "x"}),
        ]
    )
    await store.close()
    assert isinstance(copy, GroupError)
    assert (fresh, again) == (None, None)
    assert await pages_in(job) == [3, 10]


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_a_field_named_like_a_column_with_a_default_fails_its_page_alone(kind, tmp_path):
    job = Job(tmp_path, kind)
    await refuse_negative(kind, job.place)
    store = await job.worker("w1")
    first, bad, last = await store.write(
        [page(1), page(2, {"page": 2, "seen": "now"}), page(3, {"page": 3, "seen": None})]
    )
    await store.close()
    assert (first, last) == (None, None)
    assert isinstance(bad, GroupError)
    assert "fills the column 'seen' itself" in bad.error
    assert await pages_in(job) == [1, 3]
    assert all(row["seen"] is not None for row in await job.result())


async def test_an_item_that_mysql_cannot_take_in_one_packet_is_set_aside(tmp_path):
    job = Job(tmp_path, "mysql")
    store = await job.worker("w1")
    large = "x" * (17 << 20)  # the server takes 16 MB
    good, bad = await store.write([page(1), page(2, {"page": 2, "text": large})])
    await store.close()
    assert (good, type(bad)) == (None, GroupError)
    assert await pages_in(job) == [1]


# --- locations -----------------------------------------------------------------------------------------


async def test_a_template_sends_each_type_of_item_to_a_collection_of_its_own(tmp_path):
    from dataclasses import dataclass

    @dataclass
    class Product:
        page: int
        shop: str = "a b"

    database = f"t{uuid.uuid4().hex[:12]}"
    server = running("mongodb")
    output = open_output(f"{server.url}/{database}/all_{{type}}_{{shop}}")
    context = OutputContext("quotes", str(tmp_path))
    await output.check(context)
    store = output.store()
    await store.open(StoreContext("quotes", "w1", str(tmp_path)))
    three = [Product(1), {"page": 1, "shop": "x"}, Product(1)]
    assert await store.write([ItemGroup(bytes(16), three)]) == [None]
    assert await contents(server, database) == {"all_Product_a_b": 2, "all_item_x": 1}
    assert await store.write([ItemGroup(bytes(16), [Product(1)])]) == [None], "a later visit gives fewer"
    assert await contents(server, database) == {"all_Product_a_b": 1, "all_item_x": 0}
    [missing] = await store.write([ItemGroup(bytes(16), [{"page": 2}])])
    assert "no field 'shop'" in missing.error
    await store.close()
    await output.clear(OutputContext("quote", str(tmp_path)))
    assert (await contents(server, database))["all_Product_a_b"] == 1, "of another job nothing is removed"
    await output.clear(context)
    assert not any((await contents(server, database)).values())


async def contents(server, database):
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient(server.url) as client:
        names = await client[database].list_collection_names()
        return {name: await client[database][name].count_documents({}) for name in names}


def unreachable(kind):
    port = free_port()
    return {
        "mongodb": f"mongodb://127.0.0.1:{port}/shop/items?serverSelectionTimeoutMS=300",
        "postgresql": f"postgresql://crawler@127.0.0.1:{port}/postgres",
        "mysql": f"mysql://crawler@127.0.0.1:{port}/tests",
        "opensearch": f"opensearch://127.0.0.1:{port}/items",
        "s3": f"s3://{BUCKET}/items.csv?endpoint_url=http://127.0.0.1:{port}&key=k&secret=s",
    }[kind]


def invalid_locations():
    mysql = "mysql://crawler:{}@127.0.0.1:{}/{}"
    postgres = "postgresql://crawler:{}@127.0.0.1:{}/{}"
    return {
        "mongodb away": lambda: unreachable("mongodb"),
        "mongodb option": lambda: place_for("mongodb?colour=red", None),
        "postgresql away": lambda: unreachable("postgresql"),
        "postgresql password": lambda: postgres.format("wrong", running("postgresql").port, "postgres"),
        "postgresql database": lambda: postgres.format("pencil", running("postgresql").port, "none"),
        "postgresql system table": lambda: f"{running('postgresql').url}?table=pg_class&schema=pg_catalog",
        "postgresql schema": lambda: f"{running('postgresql').url}?schema=none",
        "mysql away": lambda: unreachable("mysql"),
        "mysql password": lambda: mysql.format("wrong", running("mysql").port, "tests"),
        "mysql database": lambda: mysql.format("pencil", running("mysql").port, "none"),
        "mysql certificate": lambda: f"{running('mysql').url}?sslmode=require",
        "mysql authority": lambda: f"{running('mysql').url}?sslrootcert=/nowhere.pem",
        "opensearch away": lambda: unreachable("opensearch"),
        "opensearch certificate": lambda: place_for("opensearch?tls=true&ca_file=/none.pem", None),
        "s3 away": lambda: unreachable("s3"),
        "s3 keys": lambda: running("s3").place("items.csv").replace("secret=", "secret=x"),
        "s3 bucket": lambda: running("s3").place("items.csv").replace(BUCKET, "none"),
        "file folder": lambda: "file:///nowhere/at/all/items.csv",
    }


@pytest.mark.parametrize("case", invalid_locations())
async def test_an_unwritable_location_is_reported_in_one_line_before_the_crawl(case, tmp_path, caplog):
    output = await asyncio.to_thread(lambda: open_output(invalid_locations()[case]()))
    with pytest.raises(StoreError) as caught:
        await output.check(OutputContext("quotes", str(tmp_path)))
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert not [record.name for record in caplog.records if record.exc_info]
    assert not any(secret in str(caught.value) for secret in ("wrong", "xtester-secret"))


@pytest.mark.parametrize("key", ["id int", "_id varchar(200) COLLATE utf8mb4_general_ci"])
async def test_a_mysql_table_whose_key_cannot_hold_ids_is_refused(key, tmp_path):
    place = place_for("mysql", None)
    with mysql_connection(place) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table_of(place)} ({key} PRIMARY KEY)")
    with pytest.raises(StoreError) as caught:
        await open_output(place).check(OutputContext("quotes", str(tmp_path)))
    assert caught.value.field == "table"


async def test_a_table_that_skitter_did_not_make_is_refused(tmp_path):
    import asyncpg

    place = place_for("postgresql", None)
    connection = await asyncpg.connect(place.partition("?")[0])
    await connection.execute(f"CREATE TABLE {place.rpartition('=')[2]} (id serial PRIMARY KEY)")
    await connection.close()
    with pytest.raises(StoreError, match=r"table=") as caught:
        await open_output(place).check(OutputContext("quotes", str(tmp_path)))
    assert caught.value.field == "table"


@pytest.mark.parametrize("kind", ["mongodb", "ferretdb", "postgresql", "mysql", "opensearch"])
async def test_a_fresh_start_removes_the_items_of_its_job_and_of_no_other(kind, tmp_path):
    job = Job(tmp_path, kind)
    await job.output.check(job.context)
    for name in ("quotes", "quotes:1", "quote", "quotes2"):
        store = job.output.store()
        await store.open(StoreContext(name, "w1", str(tmp_path)))
        await store.write([page(len(name))])
        await store.close()
    await job.output.clear(job.context)
    assert await pages_in(job) == [5, 7, 8]
