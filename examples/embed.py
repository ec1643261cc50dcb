"""A crawl inside your own program: ``python embed.py http://127.0.0.1:8000``."""

import asyncio
import sys
from pathlib import Path

from skitter import Crawl, JobSpec


async def main(site):
    spec = JobSpec(
        job="embedded",
        spider=f"{Path(__file__).with_name('quotes.py')}:Quotes",
        arguments={"site": site},
        settings={"max_pages": 10},
        outputs=["embedded.jsonl"],
    )
    crawl = Crawl(spec, fresh=True)  # crawl.stop("enough") ends it gracefully from another task
    result = await crawl.run()
    print(result.state, result.reason, result.counters["pages"], result.counters["items"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
