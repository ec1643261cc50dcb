"""Owner of a frontier file that is killed: it commits the pages of a web whose truth is known, and notes each answered commit.

``python frontier_owner.py FILE NOTES PAGES LIMIT``: page ``n`` links to ``4n + 1`` to ``4n + 4``, and back to earlier pages.
At most LIMIT known URLs are in memory.
"""

import asyncio
import sys
from pathlib import Path

from skitter.frontier.embedded import seen
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import Entry, FetchReport, JobState, Outcome, Resolution, SeedProgress
from skitter.politeness import HostLimits, Politeness
from skitter.request import fingerprint_of_url

LEASES, KILLS = 16, 100


def links_of(page, pages):
    return [
        number
        for number in (*range(4 * page + 1, 4 * page + 5), page // 2, page // 3, page)
        if number < pages
    ]


async def own(path, notes, pages, limit):
    seen.MIN_MEMORY = limit
    options = FrontierSettings(seen_memory_limit=limit, max_worker_crashes=KILLS)
    frontier = EmbeddedFrontier(Politeness(HostLimits(delay=0, concurrency_per_slot=64)), options, path=path)
    job = await frontier.open()

    def entry(number):
        host = f"h{number % 7}.test"
        url = f"http://{host}/{number}"
        return Entry(fingerprint_of_url(url, job.fingerprint_seed), host, url, b"\x01")

    if (claim := await frontier.claim_seeds("w")) is not None:
        await frontier.add([entry(0)], SeedProgress(claim.token, 1, done=True))
    while (result := await frontier.lease("w", LEASES)).state is not JobState.FINISHED:
        leases = result.leases
        if not leases:
            await asyncio.sleep(min(result.wait or 0.01, 0.01))
            continue
        numbers = [int(lease.url.rpartition("/")[2]) for lease in leases]
        outcomes = [
            Outcome(lease.id, Resolution.DONE, [entry(link) for link in links_of(number, pages)])
            for lease, number in zip(leases, numbers, strict=True)
        ]
        await frontier.lease("w", 0, [FetchReport(lease.id, 0.01) for lease in leases])
        accepted = await frontier.commit(outcomes)
        assert all(accepted), accepted
        notes.write("".join(f"{number}\n" for number in numbers))
        notes.flush()
    status = await frontier.status()
    unknown = await frontier.unknown([entry(number).fingerprint for number in range(2 * pages)])
    assert unknown == [False] * pages + [True] * pages
    await frontier.close()
    sys.stdout.write(f"{status.added} {status.done} {status.queued}\n")


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a") as file:
        asyncio.run(own(Path(sys.argv[1]), file, int(sys.argv[3]), int(sys.argv[4])))
