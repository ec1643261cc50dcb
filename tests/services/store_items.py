"""Reads the content of an output with other libraries than skitter's."""

import asyncio
import csv
import gzip
import io
import json
import sqlite3
from contextlib import closing
from functools import cache
from urllib.parse import parse_qsl, urlsplit

import zstandard


def read_served(url: str) -> list[dict]:
    """Return the items on a server of any kind."""
    if url.startswith("mongodb:"):
        return _read_mongodb(url)
    if url.startswith("postgresql:"):
        return _read_postgresql(url)
    if url.startswith("mysql:"):
        return _read_mysql(url)
    if url.startswith("opensearch:"):
        return _read_opensearch(url)
    place, _, options = url.partition("?")
    scheme, _, path = place.partition("://")
    return read_file(path, bucket_files(options, scheme).cat_file(path))


def read_file(name: str, data: bytes) -> list[dict]:
    """Return the items of a file."""
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    if name.endswith(".zst"):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if ".csv" in name:
        return list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    if name.endswith(".parquet"):
        from pyarrow import parquet

        return parquet.ParquetFile(io.BytesIO(data)).read().to_pylist()
    assert data.endswith(b"\n") or not data, "not whole lines"
    return [json.loads(line) for line in data.splitlines()]


def read_sqlite(place) -> list[dict]:
    with closing(sqlite3.connect(place)) as connection:
        connection.row_factory = sqlite3.Row
        return _without_id(map(dict, connection.execute("SELECT * FROM items ORDER BY rowid")))


def _read_mongodb(place) -> list[dict]:
    from pymongo import MongoClient

    uri, _, collection = place.partition("?")[0].rpartition("/")
    with MongoClient(uri) as client:
        return _without_id(client.get_default_database()[collection].find())


def _read_postgresql(place) -> list[dict]:
    import asyncpg

    async def read():
        dsn, _, options = place.partition("?")
        connection = await asyncpg.connect(dsn)
        try:
            await connection.set_type_codec(
                "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )
            table = options.partition("&")[0].removeprefix("table=")
            return [dict(row) for row in await connection.fetch(f"SELECT * FROM {table}")]
        finally:
            await connection.close()

    rows = _without_id(asyncio.run(read()))
    return [row["item"] for row in rows] if "layout=jsonb" in place else rows


def _read_mysql(place) -> list[dict]:
    with mysql_connection(place) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW FULL COLUMNS FROM `{table_of(place)}`")
        as_json = {row["Field"] for row in cursor.fetchall() if row["Comment"] == "JSON"}
        cursor.execute(f"SELECT * FROM `{table_of(place)}`")
        rows = _without_id(cursor.fetchall())
    if "layout=json" in place:
        return [json.loads(row["item"]) for row in rows]
    return [
        {name: json.loads(value) if name in as_json and value else value for name, value in row.items()}
        for row in rows
    ]


def table_of(place: str) -> str:
    return dict(parse_qsl(place.partition("?")[2]))["table"]


def mysql_connection(place: str):
    """Return a connection to the database of an output, by another client than skitter's."""
    import pymysql

    url = urlsplit(place)
    return pymysql.connect(
        host=url.hostname, port=url.port, user=url.username, password=url.password, database=url.path[1:],
        cursorclass=pymysql.cursors.DictCursor, autocommit=True,
    )  # fmt: skip


def _read_opensearch(place) -> list[dict]:
    """Return the documents in the order of their ids, so that those of a page are in order."""
    import urllib.request

    base = place.partition("?")[0].replace("opensearch:", "http:")
    urllib.request.urlopen(f"{base}/_refresh", b"").close()
    with urllib.request.urlopen(f"{base}/_search?size=10000") as answer:
        hits = json.load(answer)["hits"]["hits"]
    hits.sort(key=lambda hit: (hit["_id"].rpartition(":")[0], int(hit["_id"].rpartition(":")[2])))
    return [{name: value for name, value in hit["_source"].items() if name != "skitter_job"} for hit in hits]


def read_kafka(url: str) -> dict[str, dict]:
    """Return the messages of a topic by key: a message with a known key repeats its item."""
    from aiokafka import AIOKafkaConsumer

    servers, _, topic = url.removeprefix("kafka://").partition("/")

    async def read():
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            found = {}
            ends = await consumer.end_offsets(consumer.assignment())
            for partition, end in ends.items():
                while await consumer.position(partition) < end:
                    for messages in (await consumer.getmany(partition, timeout_ms=500)).values():
                        for message in messages:
                            item = json.loads(message.value)
                            assert found.setdefault(message.key.decode(), item) == item
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


def _without_id(rows) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "_id"} for row in rows]


@cache
def bucket_files(options: str, scheme: str = "s3"):
    """Return the bucket of the tests as a file system."""
    import fsspec

    ours = {"buffer", "flush", "outage_timeout"}
    given = {name: value for name, value in parse_qsl(options) if name not in ours}
    return fsspec.filesystem(scheme, **given, skip_instance_cache=True, use_listings_cache=False)
