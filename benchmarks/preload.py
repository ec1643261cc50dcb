"""Fill a frontier with URLs of another host that is held, to see what a large frontier costs.

Usage: ``python preload.py FRONTIER.db COUNT``. Nothing of it is ever leased, so a crawl over the same file
does its own work beside a waiting backlog, and ends by ``--limit``.
"""

import asyncio
import sys
import time

from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.records import Entry
from skitter.request import Request, encode_request, fingerprint_of_url

OTHER_HOST = "preloaded.invalid"

_BATCH = 20_000
_YEAR = 365 * 86_400.0


def entry(number, seed):
    url = f"http://{OTHER_HOST}/section-{number % 1000}/page-{number}.html"
    record = encode_request(Request(url, callback="parse", depth=3))
    return Entry(fingerprint_of_url(url, seed), OTHER_HOST, url, record)


async def preload(path, count):
    """Add ``count`` requests to the frontier at ``path``, which is made if need be."""
    frontier = EmbeddedFrontier(path=path)
    job = await frontier.open()
    try:
        await frontier.control.pause_slot(OTHER_HOST, _YEAR)
        for first in range(0, count, _BATCH):
            numbers = range(first, min(first + _BATCH, count))
            await frontier.add([entry(number, job.fingerprint_seed) for number in numbers])
    finally:
        await frontier.close()


def main():
    path, count = sys.argv[1], int(sys.argv[2])
    begin = time.monotonic()
    asyncio.run(preload(path, count))
    print(f"{count} requests in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
