"""What stands in an output, read by other means than skitter's."""

import asyncio
import csv
import gzip
import io
import json
import sqlite3
from contextlib import closing
from functools import cache
from urllib.parse import parse_qsl

import zstandard


def read_served(url: str) -> list[dict]:
    """The items on a server, whatever its kind."""
    if url.startswith("mongodb:"):
        return _read_mongodb(url)
    if url.startswith("postgresql:"):
        return _read_postgresql(url)
    path, _, options = url.removeprefix("s3://").partition("?")
    return read_file(path, bucket_files(options).cat_file(path))


def read_file(name: str, data: bytes) -> list[dict]:
    """The items of a file."""
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


def _without_id(rows) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "_id"} for row in rows]


@cache
def bucket_files(options: str):
    """The bucket of the tests, as a file system."""
    import s3fs

    ours = {"buffer", "flush", "patience"}
    given = {name: value for name, value in parse_qsl(options) if name not in ours}
    return s3fs.S3FileSystem(**given, skip_instance_cache=True, use_listings_cache=False)
