"""How long a crawl keeps its event loop busy without a turn. Spiders of tests and benchmarks contain the text :data:`WATCH`."""

WATCH = """
import asyncio, time
from pathlib import Path


async def watch():
    # CPU time and not time, so that other processes of a busy machine do not count.
    longest, last = 0.0, None
    try:
        while True:
            await asyncio.sleep(0.005)
            before, last = last, time.thread_time()
            if before is not None:
                longest = max(longest, last - before)
    finally:
        Path("longest_turn").write_text(f"{longest} {time.process_time()}")
"""
MAX_SHARE = 0.1
"""Longest turn of the event loop, as a share of the CPU time of the crawl. Usual: 0.02. ``benchmarks/hostile.py --turns`` has seconds."""


def longest_turn(folder):
    """Return the longest turn of a crawl in a folder: seconds of CPU time of its thread, and its share of those of the process."""
    longest, total = map(float, (folder / "longest_turn").read_text().split())
    return longest, longest / total
