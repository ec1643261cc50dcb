"""Items as an iterator: ``python stream.py http://127.0.0.1:8000``. In a notebook, write ``async for`` in a cell."""

import asyncio
import sys
from collections import Counter

from quotes import Quotes

import skitter


async def main(site):
    authors = Counter()
    async for quote in skitter.stream(Quotes, arguments={"site": site}):
        authors[quote["author"]] += 1
    print("async:", dict(authors.most_common(3)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    quotes = list(skitter.iter_items(Quotes, arguments={"site": sys.argv[1]}))  # without an event loop
    print("blocking:", len(quotes), "quotes")
