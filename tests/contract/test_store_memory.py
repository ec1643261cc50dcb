"""Memory: five times the items, and what a store and its merge hold does not grow with them."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "stores.py"
GROWTH_MB = 40
"""The difference between 10,000 and 100,000 items is 35 MB of JSON; kept as objects, they would be over 150 MB."""


def largest_memory(kind, items):
    ran = subprocess.run(
        [sys.executable, str(BENCHMARK), "--one", kind, "--items", str(items)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(re.findall(r"(\d+) MB", ran.stdout)[-1])


@pytest.mark.parametrize("kind", ["parquet", "s3, jsonl"])
async def test_memory_does_not_grow_with_the_items(kind):
    few = await asyncio.to_thread(largest_memory, kind, 20_000)
    many = await asyncio.to_thread(largest_memory, kind, 100_000)
    assert many - few < GROWTH_MB, f"{few} MB for 20,000 items, {many} MB for 100,000"
