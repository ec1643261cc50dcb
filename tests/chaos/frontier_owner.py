"""Owns a frontier file until it is killed: commits the pages of a generated site, and records each answered commit.
While the file ``bound`` beside NOTES exists, it contains the number of recorded commits at which the owner waits.

``python frontier_owner.py FILE NOTES PAGES LIMIT LINKS``: page ``n`` links to ``LINKS * n + 1`` to ``LINKS * (n + 1)``,
and back to earlier pages. Pages of one parent are on one host, so with four links or more they wait in packs. At most LIMIT
known URLs are in memory. Some pages are retried, and some fail and are replayed.

"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from skitter.frontier.embedded import backlog, seen
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import Entry, FetchReport, JobState, Outcome, Resolution, SeedProgress
from skitter.politeness import HostLimits, Politeness
from skitter.request import fingerprint_of_url

LEASES, KILLS = 16, 100


def links_of(page, pages, links):
    first = links * page + 1
    return [number for number in (*range(first, first + links), page // 2, page // 3, page) if number < pages]


def count_of(notes):
    """Return the number of recorded commits."""
    return Path(notes.name).read_bytes().count(b"\n")


def may_continue(notes, noted):
    """Return whether the test allows more commits."""
    with suppress(FileNotFoundError):
        return noted < int(Path(notes.name).with_name("bound").read_text())
    return True


async def own(path, notes, pages, limit, links):
    seen.MIN_MEMORY = limit
    backlog.MIN_HEAD_SIZE, backlog.MAX_HEAD_SIZE, backlog.MAX_LONG_HEAD_SIZE = 4, 16, 16
    options = FrontierSettings(seen_memory_limit=limit, max_worker_crashes=KILLS)
    frontier = EmbeddedFrontier(Politeness(HostLimits(delay=0, concurrency_per_slot=64)), options, path=path)
    job = await frontier.open()
    failed = set()
    noted = count_of(notes)

    def entry(number):
        host = f"h{(number - 1) // links % 7}.test"
        url = f"http://{host}/{number}"
        return Entry(fingerprint_of_url(url, job.fingerprint_seed), host, url, b"\x01")

    def outcome(lease, number):
        if lease.attempt == 0 and number % 5 in (1, 2):
            return Outcome(lease.id, Resolution.RETRY, after=0.02 * (number % 5 == 2), error="http/503")
        if number % 17 == 3 and number not in failed:
            failed.add(number)
            return Outcome(lease.id, Resolution.FAILED, error="http/404")
        return Outcome(lease.id, Resolution.DONE, [entry(link) for link in links_of(number, pages, links)])

    if (claim := await frontier.claim_seeds("w")) is not None:
        await frontier.add([entry(0)], SeedProgress(claim.token, 1, done=True))
    while True:
        while not may_continue(notes, noted):
            await asyncio.sleep(0.005)
        result = await frontier.lease("w", LEASES)
        leases = result.leases
        if result.state is JobState.FINISHED and not await frontier.dead_letters.replay():
            break
        if not leases:
            await asyncio.sleep(0.005)
            continue
        numbers = [int(lease.url.rpartition("/")[2]) for lease in leases]
        outcomes = [outcome(lease, number) for lease, number in zip(leases, numbers, strict=True)]
        await frontier.lease("w", 0, [FetchReport(lease.id, 0.01) for lease in leases])
        accepted = await frontier.commit(outcomes)
        assert all(accepted), accepted
        ended = zip(outcomes, numbers, strict=True)
        lines = [f"{number}\n" for one, number in ended if one.resolution is Resolution.DONE]
        noted += len(lines)
        notes.write("".join(lines))
        notes.flush()
    status = await frontier.status()
    unknown = await frontier.unknown([entry(number).fingerprint for number in range(2 * pages)])
    assert unknown == [False] * pages + [True] * pages
    await frontier.close()
    sys.stdout.write(f"{status.added} {status.done} {status.queued}\n")


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a") as file:
        asyncio.run(own(Path(sys.argv[1]), file, *map(int, sys.argv[3:])))
