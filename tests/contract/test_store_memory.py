"""The memory use of a store and its merge does not depend on the number of items."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)  # some of the servers take much CPU time to start

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "stores.py"
ITEMS = 40_000
MOST_MB = 12
"""The items are 14 MB of JSON; as objects they would take more than 60 MB."""
GROWTH_MB = 40
"""For outputs with large blocks. The difference between 20,000 and 100,000 items is 28 MB of JSON. As objects, they
would take more than 120 MB.

"""


def memory(kind, items):
    """Write the items in a separate process; return its peak memory at the start and in total, in MB."""
    ran = subprocess.run(
        [sys.executable, str(BENCHMARK), "--one", kind, "--items", str(items)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Skipped: " in ran.stderr:
        pytest.skip(ran.stderr.rpartition("Skipped: ")[2].strip())
    assert ran.returncode == 0, ran.stdout + ran.stderr  # it checks the number of items
    start, _, largest = map(int, re.findall(r"(\d+) MB", ran.stdout))
    return start, largest


@pytest.mark.parametrize(
    "kind",
    [
        "jsonl", "csv", "sqlite", "mongodb, buffered", "postgresql, buffered", "postgresql, jsonb", "mysql, buffered",
        "redis, list", "redis, stream",
    ],
)  # fmt: skip
async def test_a_store_holds_few_of_the_items_that_it_has_written(kind):
    start, largest = await asyncio.to_thread(memory, kind, ITEMS)
    assert largest - start < MOST_MB, f"{start} MB before {ITEMS} items, {largest} MB after"


@pytest.mark.parametrize("kind", ["parquet", "s3, jsonl"])
async def test_memory_does_not_grow_with_the_items(kind):
    _, few = await asyncio.to_thread(memory, kind, 20_000)
    _, many = await asyncio.to_thread(memory, kind, 100_000)
    assert many - few < GROWTH_MB, f"{few} MB for 20,000 items, {many} MB for 100,000"
