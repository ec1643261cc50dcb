"""Known fingerprints on a server: their memory use, and that none is lost or invented."""

import random

import msgspec
import pytest

from services.frontier_requests import counts, done, entries
from skitter.frontier.records import Entry, Outcome, Resolution
from skitter.request import Request, encode_request

FILTERS = [{}, {"seen_filter": "compact", "seen_error_rate": 1e-6}]
"""Exact, and compact with 6 bytes of each fingerprint."""


def entry_of(fingerprint: bytes) -> Entry:
    return Entry(fingerprint, "h.test", f"http://h.test/{fingerprint.hex()}", b"\x01")


def random_fingerprints(rng, count) -> list[bytes]:
    return [rng.randbytes(16) for _ in range(count)]


async def size_of(frontier, ask, name) -> int:
    return await ask.execute_command(
        "MEMORY", "USAGE", f"skitter:{{{frontier.job.name}}}:{name}", "SAMPLES", 0
    )


@pytest.mark.parametrize("options", FILTERS)
async def test_exactly_the_added_fingerprints_are_known(server, join, options):
    frontier = await join(server.url, **options)
    rng = random.Random(1)
    prints = random_fingerprints(rng, 5_000)
    for start in range(0, 5_000, 700):
        await frontier.add([entry_of(one) for one in prints[start : start + 700]])
    assert await frontier.unknown(prints) == [False] * 5_000
    assert await frontier.unknown(random_fingerprints(rng, 5_000)) == [True] * 5_000
    assert (await frontier.add([entry_of(one) for one in prints])).added == 0


@pytest.mark.parametrize("options", FILTERS)
async def test_any_course_of_adding_failing_and_replaying_leaves_the_right_ones_known(server, join, options):
    frontier = await join(server.url, refetch_failed=True, **options)
    rng = random.Random(2)
    prints = random_fingerprints(rng, 300)
    known: set[bytes] = set()
    for _ in range(60):
        chosen = rng.sample(prints, 30)
        result = await frontier.add([entry_of(one) for one in chosen])
        assert result.added == len(set(chosen) - known)
        known.update(chosen)
        leases = (await frontier.lease("w", 20)).leases
        failing = {lease.id for lease in leases if rng.random() < 0.4}
        await frontier.commit(
            [
                Outcome(lease.id, Resolution.FAILED if lease.id in failing else Resolution.DONE)
                for lease in leases
            ]
        )
        known -= {lease.fingerprint for lease in leases if lease.id in failing}
        if rng.random() < 0.2:
            letters = [
                letter for letter in await frontier.dead_letters.list() if letter.fingerprint not in known
            ]
            await frontier.dead_letters.replay([letter.id for letter in letters])
            known |= {letter.fingerprint for letter in letters}
        assert await frontier.unknown(prints) == [one not in known for one in prints]


async def test_an_exact_filter_is_not_misled_by_fingerprints_that_are_nearly_the_same(server, join):
    frontier = await join(server.url)
    twin = bytes(range(16))
    others = [twin[:place] + bytes([twin[place] ^ 1]) + twin[place + 1 :] for place in range(16)]
    others += [(twin + twin)[shift : shift + 16] for shift in range(1, 16)]
    await frontier.add([entry_of(twin), entry_of(twin[8:] + twin[:8][::-1])])
    assert await frontier.unknown([*others, twin]) == [True] * len(others) + [False]
    assert (await frontier.add([entry_of(one) for one in others])).added == len(others)
    assert await frontier.unknown(others) == [False] * len(others)


async def test_a_compact_filter_is_wrong_as_often_as_is_stated(server, join, ask):
    """With 4 bytes of each of N fingerprints, N / 2**32 of the unknown ones match. The bound keeps that below the rate.

    16 of these 32 bits are equal here, so that errors are 65,536 times as frequent and can be counted.
    """
    frontier = await join(server.url, seen_filter="compact", seen_error_rate=0.1)
    rng = random.Random(3)

    def look_alikes(count):
        return [rng.randbytes(12) + b"\7\7" + rng.randbytes(2) for _ in range(count)]

    for _ in range(4):
        await frontier.add([entry_of(one) for one in look_alikes(1_000)])
    width, _, kept, bound = await first_table(frontier, ask)
    assert width == 4
    assert bound / 2**32 == pytest.approx(0.1 / 2)
    wrong = 0
    for _ in range(4):
        wrong += (await frontier.unknown(look_alikes(5_000))).count(False)
    assert wrong == pytest.approx(20_000 * kept / 2**16, rel=0.1)
    free = random_fingerprints(rng, 20_000)
    assert await frontier.unknown(free) == [True] * 20_000, "and hardly ever with all 32 bits at play"


async def first_table(frontier, ask):
    packed = await ask.hget(f"skitter:{{{frontier.job.name}}}:job", "seen")
    return msgspec.msgpack.decode(packed)[0]


async def test_a_compact_filter_that_reaches_its_bound_continues_in_a_wider_table(server, join, ask):
    frontier = await join(server.url, seen_filter="compact", seen_error_rate=1e-4)
    job = f"skitter:{{{frontier.job.name}}}:job"
    await ask.hset(job, "seen", msgspec.msgpack.encode([[5, 1, 0, 500]]))
    rng = random.Random(4)
    prints = random_fingerprints(rng, 2_000)
    for start in range(0, 2_000, 100):
        await frontier.add([entry_of(one) for one in prints[start : start + 100]])
    tables = msgspec.msgpack.decode(await ask.hget(job, "seen"))
    assert [(table[0], table[2]) for table in tables] == [(5, 500), (6, 1_500)]
    assert tables[1][3] / 256**6 == pytest.approx(1e-4 / 4)
    assert await frontier.unknown(prints) == [False] * 2_000
    assert await frontier.unknown(random_fingerprints(rng, 2_000)) == [True] * 2_000


@pytest.mark.parametrize(
    ("options", "least", "most"), [(FILTERS[0], 16, 26), (FILTERS[1], 6, 15), ({"visited_ttl": 9.0}, 60, 130)]
)
async def test_a_known_url_takes_as_many_bytes_as_the_manual_says(server, join, ask, options, least, most):
    frontier = await join(server.url, **options)
    rng = random.Random(5)
    for _ in range(20):
        await frontier.add([entry_of(one) for one in random_fingerprints(rng, 1_000)])
    assert least < await size_of(frontier, ask, "seen") / 20_000 < most


async def test_a_queued_url_takes_as_many_bytes_as_the_manual_says(server, join, ask):
    frontier = await join(server.url)
    rng = random.Random(6)
    waiting = []
    for number, one in enumerate(random_fingerprints(rng, 10_000)):
        host = f"www.site{number // 50}.example"
        url = f"http://{host}/section/{number % 7}/article-{number}.html"
        record = encode_request(Request(url, depth=3, referer=f"http://{host}/section/{number % 7}/"))
        waiting.append(Entry(one, host, url, record))
    await frontier.add(waiting)
    assert await size_of(frontier, ask, "queue") / 10_000 < 270
    leases = (await frontier.lease("w", 10_000)).leases
    assert {(lease.url, lease.record) for lease in leases} == {(entry.url, entry.record) for entry in waiting}


@pytest.mark.parametrize(
    "origin", ["http://h.test", "https://h.test", "http://h.test:80", "ftp://h.test", ""]
)
async def test_any_url_and_record_come_back_as_they_were(server, join, origin):
    frontier = await join(server.url)
    records = [
        b"",
        b"\x01" + f"{origin}/".encode(),
        b"x" * 300 + f"{origin}/here".encode(),
        f"{origin}/".encode() * 9,
    ]
    sent = [Entry(bytes([n]) * 16, "h.test", f"{origin}/page{n}", record) for n, record in enumerate(records)]
    await frontier.add(sent)
    leases = (await frontier.lease("w", 9)).leases
    assert [(one.url, one.record) for one in leases] == [(one.url, one.record) for one in sent]
    await frontier.commit(
        [Outcome(one.id, Resolution.RETRY, error="x", record=b"new" + one.record) for one in leases]
    )
    again = (await frontier.lease("w", 9)).leases
    assert [(one.url, one.record) for one in again] == [(one.url, b"new" + one.record) for one in sent]


async def test_bodies_and_records_leave_the_server_when_they_are_done(server, join, ask):
    frontier = await join(server.url)
    body = random.Random(7).randbytes(100_000)
    before = await size_of(frontier, ask, "job")
    await frontier.add([Entry(b"%016d" % n, "h.test", f"http://h.test/{n}", body) for n in range(20)])
    assert await size_of(frontier, ask, "queue") > 2_000_000
    await frontier.commit(done(*(await frontier.lease("w", 20)).leases, entries=entries("a")))
    await frontier.commit(done(*(await frontier.lease("w", 20)).leases))
    keys = await ask.keys(f"skitter:{{{frontier.job.name}}}:*")
    left = [await ask.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys]
    assert await counts(frontier) == {"done": 21}
    assert sum(left) < before + 5_000
