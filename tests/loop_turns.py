"""Measures how long a crawl blocks its event loop. Spiders of tests and benchmarks contain the text :data:`WATCH`."""

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
"""Longest allowed turn, as a share of the crawl's CPU time. Usual: 0.02. ``benchmarks/hostile.py --turns`` prints seconds."""


def longest_turn(folder):
    """Return the longest turn of a crawl: CPU seconds of its thread, and its share of the CPU time of the process."""
    longest, total = map(float, (folder / "longest_turn").read_text().split())
    return longest, longest / total
