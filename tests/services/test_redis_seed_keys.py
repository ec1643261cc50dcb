"""Seeds that other programs put on the server: none is lost, even if processes die."""

import asyncio

import msgspec
import pytest

from crawl_harness import CrawlHarness, Scripted
from services.frontier_requests import counts, done, entries
from skitter import Request, Spider
from skitter.errors import FrontierError, SeedKeyError
from skitter.frontier.records import JobState, Outcome, Resolution, SeedProgress
from skitter.frontier.redis import seed_keys
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.workers import WorkerReport
from skitter.item import OutputRange
from skitter.politeness import HostLimits, Politeness
from skitter.request import decode_request
from skitter.scope import Scope
from skitter.worker.links import LinkCollector
from skitter.worker.seeds import ExternalSeedReader

KEYS = ("t:first", "t:second")
ALL = Politeness(HostLimits(delay=0.0, concurrency_per_slot=1000))


@pytest.fixture
def begin(server, join, ask):
    """Start a job that takes seeds from two keys."""
    now = [1_700_000_000.0]

    async def begin_job(**options):
        await ask.delete(*KEYS)
        given = {"seed_keys": KEYS, "lease_seconds": 10.0, **options}
        frontier = await join(server.url, ALL, clock=lambda: now[0], **given)
        claim = await frontier.claim_seeds("w")
        await frontier.add([], SeedProgress(claim.token, 0, done=True))
        frontier.now = now
        return frontier

    return begin_job


def gatherer():
    return LinkCollector(Scope(allowed_domains=["a.test", "b.test"]), ALL, 42)


async def settle_all(frontier):
    """Process all requests like a worker."""
    outside = ExternalSeedReader(frontier.seed_keys, gatherer(), "w")
    while (batch := await frontier.seed_keys.take("w", 3)) is not None:
        await outside.settle(batch)


async def urls_in_order(frontier):
    urls = []
    while leases := (await frontier.lease("w", 1)).leases:
        urls.append(leases[0].url.removeprefix("http://a.test/"))
        await frontier.commit(done(*leases))
    return urls


async def test_a_list_a_set_and_a_sorted_set_are_taken(begin, ask):
    frontier = await begin()
    await ask.lpush(KEYS[0], *(f"http://a.test/{n}" for n in range(5)))
    await ask.zadd(
        KEYS[1], {"http://a.test/low": -3, "http://a.test/high": 7, "http://a.test/odd": float("-inf")}
    )
    await settle_all(frontier)
    assert await urls_in_order(frontier) == ["high", "0", "1", "2", "3", "4", "low", "odd"]
    await ask.sadd(KEYS[0], *(f"http://a.test/s{n}" for n in range(5)))
    await settle_all(frontier)
    assert sorted(await urls_in_order(frontier)) == [f"s{n}" for n in range(5)]
    assert await ask.exists(*KEYS) == 0


async def test_the_first_key_comes_first(begin, ask):
    frontier = await begin()
    for key in KEYS:
        await ask.rpush(key, *(f"http://a.test/{key}{n}" for n in range(4)))
    batch = await frontier.seed_keys.take("w", 6)
    assert [seed.key for seed in batch.seeds] == [KEYS[0]] * 4 + [KEYS[1]] * 2


async def test_an_element_may_set_all_fields_of_a_request(begin, ask):
    frontier = await begin()
    await ask.zadd(
        KEYS[0],
        {'{"url": "http://a.test/x", "method": "post", "body": "\\u00e9", "callback": "detail", "depth": 2,'
         ' "meta": {"task": "t"}, "headers": {"X-A": "1"}, "priority": 9}': 1},
    )  # fmt: skip
    await settle_all(frontier)
    (lease,) = (await frontier.lease("w", 1)).leases
    request = decode_request(lease.url, lease.record)
    assert (request.method, request.body, request.callback, request.depth) == (
        "POST",
        "é".encode(),
        "detail",
        2,
    )
    assert (request.meta, request.headers, request.priority) == ({"task": "t"}, {"X-A": "1"}, 9)


BAD = {
    b"\xff\xfe": "seed: not valid UTF-8",
    b"": "seed: the seed is empty",
    b"ftp://a.test/": "seed: scheme",
    b"http://elsewhere.test/": "seed: host",
    b'{"url": 3}': "seed: the seed has no url",
    b'{"url": "http://a.test/", "colour": 1}': "seed: unknown field: 'colour'",
    b'{"url": "http://a.test/"': "seed: not valid JSON",
    b'{"url": "http://a.test/", "priority": "x"}': "seed: Expected `int`",
    b'["http://a.test/"]': "seed: not a JSON object",
    b'{"url": "http://a.test/", "body": 7}': "seed: the body is not a string",
}


async def test_an_invalid_seed_is_a_dead_letter_and_the_others_are_taken(begin, ask):
    frontier = await begin()
    await ask.rpush(KEYS[0], *BAD, "http://a.test/good")
    await settle_all(frontier)
    assert await counts(frontier) == {"queued": 1, "failed": len(BAD)}
    errors = {letter.error for letter in await frontier.dead_letters.list()}
    for wanted in BAD.values():
        assert any(error.startswith(wanted) for error in errors), (wanted, errors)
    assert (await frontier.status()).counters["failed/seed"] == len(BAD)
    assert await frontier.dead_letters.drop() == len(BAD)


async def test_a_bad_seed_is_shown_as_one_line_without_control_characters(begin, ask):
    frontier = await begin()
    await ask.rpush(KEYS[0], "\x1b[2J ü\n2", b"\xff" * 5000)
    await settle_all(frontier)
    long, short = sorted((letter.url for letter in await frontier.dead_letters.list()), key=len, reverse=True)
    assert short == "\\x1b[2J ü\\n2"
    assert long == "\\xff" * 2000


async def test_seeds_taken_by_a_dead_worker_go_to_another_and_are_added_once(begin, ask, server):
    frontier = await begin()
    await ask.lpush(KEYS[0], *(f"http://a.test/{n}" for n in range(5)))
    taken = await frontier.seed_keys.take("w", 3)
    assert len(taken.seeds) == 3
    await settle_all(frontier)  # another worker: the remaining seeds
    assert await counts(frontier) == {"queued": 2}
    assert await frontier.seed_keys.take("w", 3) is None
    frontier.now[0] += 11.0
    await settle_all(frontier)
    assert await counts(frontier) == {"queued": 5}
    late = [gatherer().entry(Request(seed.value.decode())) for seed in taken.seeds]
    assert await frontier.seed_keys.settle(taken.token, late, []) is False, "the dead one comes too late"
    assert await counts(frontier) == {"queued": 5}


async def leave(frontier, worker):
    report = WorkerReport(worker, "host", 1, "1", 0.0, 1, 0, 0, 0, 0, 0, 0.0)
    await frontier.reports.announce(report, 0.0)


@pytest.mark.parametrize("ended", [RedisFrontier.abandon, leave])
async def test_seeds_taken_by_a_worker_that_died_or_left_are_free_at_once(begin, ask, ended):
    frontier = await begin()
    await ask.lpush(KEYS[0], *(f"http://a.test/{n}" for n in range(5)))
    taken = await frontier.seed_keys.take("gone", 3)
    other = await frontier.seed_keys.take("alive", 9)
    await ended(frontier, "gone")
    assert (await frontier.status()).state is JobState.RUNNING, "its seeds are not settled"
    entry = gatherer().entry(Request("http://a.test/late"))
    assert await frontier.seed_keys.settle(taken.token, [entry], []) is False
    again = await frontier.seed_keys.take("heir", 9)
    assert again.seeds == taken.seeds
    assert await frontier.seed_keys.take("heir", 9) is None, "a live worker keeps its seeds"
    reader = ExternalSeedReader(frontier.seed_keys, gatherer(), "heir")
    await reader.settle(again)
    await reader.settle(other)
    assert await counts(frontier) == {"queued": 5}


async def test_a_job_is_not_finished_while_a_seed_is_anywhere(begin, ask):
    frontier = await begin()
    assert (await frontier.status()).state is JobState.FINISHED
    await ask.sadd(KEYS[1], "http://a.test/")
    assert (await frontier.lease("w", 1)).state is JobState.RUNNING
    batch = await frontier.seed_keys.take("w", 9)
    assert (await frontier.lease("w", 1)).state is JobState.RUNNING
    assert await frontier.seed_keys.settle(batch.token, [], []) is True
    assert (await frontier.status()).state is JobState.FINISHED


async def test_while_much_is_queued_seeds_stay_where_they_are(begin, ask, monkeypatch):
    frontier = await begin()
    await ask.lpush(KEYS[0], "http://a.test/1", "http://a.test/2")
    monkeypatch.setattr(seed_keys, "MAX_QUEUED", 1)
    batch = await frontier.seed_keys.take("w", 1)
    await ExternalSeedReader(frontier.seed_keys, gatherer(), "w").settle(batch)
    assert await frontier.seed_keys.take("w", 1) is None
    assert await ask.llen(KEYS[0]) == 1


@pytest.mark.parametrize(("end", "order"), [("right", "4321"), ("left", "1234")])
async def test_a_list_is_read_from_the_end_that_its_producers_need(begin, ask, end, order):
    frontier = await begin(seed_list_end=end)
    await ask.rpush(KEYS[0], *[f"http://a.test/{number}" for number in "1234"])
    await settle_all(frontier)  # three at a time
    assert "".join(await urls_in_order(frontier)) == order
    assert await ask.exists(KEYS[0]) == 0


async def test_seeds_of_scrapy_redis_are_read_as_there_and_each_is_crawled(begin, ask):
    frontier = await begin()
    seeds = [
        '{"url": "http://a.test/1", "meta": {"job-id": "123xsd"}, "url_cookie_key": "fertxsas"}',
        '{"url": "http://a.test/0?old=1", "meta": {"page": 1}, "cookies": {"sid": "x"}, "tag": ["a", "b"]}',
        '{"url": "http://a.test/2?a=1", "method": "POST", "name": "ann", "age": 7}',
        "http://a.test/3",
        "http://a.test/3",
        '{"uri": "http://a.test/4"}',
        '{"url": "http://a.test/5", "meta": null}',
    ]
    await ask.lpush(KEYS[0], *seeds)
    batch = await frontier.seed_keys.take("w", 9)
    await ExternalSeedReader(frontier.seed_keys, gatherer(), "w", seed_format="scrapy-redis").settle(batch)
    leases = (await frontier.lease("w", 9)).leases
    requests = [decode_request(lease.url, lease.record) for lease in leases]
    assert [request.cookies for request in requests] == [{}, {"sid": "x"}, {}, {}, {}, {}]
    assert [(request.url, request.method, request.body, request.meta) for request in requests] == [
        ("http://a.test/1?url_cookie_key=fertxsas", "GET", b"", {"job-id": "123xsd"}),
        ("http://a.test/0?tag=a&tag=b", "GET", b"", {"page": 1}),
        ("http://a.test/2?a=1", "POST", b"name=ann&age=7", {}),
        ("http://a.test/3", "GET", b"", {}),
        ("http://a.test/3", "GET", b"", {}),
        ("http://a.test/5", "GET", b"", {}),
    ]  # fmt: skip
    (letter,) = await frontier.dead_letters.list()
    assert letter.error == "seed: the seed has no url"


class Ids(Spider):
    """A spider whose seeds are ids, not URLs."""

    def make_request_from_data(self, data):
        if data == b"none":
            return None
        if b"-" in data:
            return (self.make_request_from_data(part) for part in data.split(b"-"))
        return Request(f"http://a.test/{int(data)}", meta={"id": data.decode()})


async def test_a_spider_reads_seeds_in_its_own_format(begin, ask):
    frontier = await begin()
    await ask.zadd(KEYS[0], {"7": 3, "8": 9, "rubbish": 1, "none": 1, "1-2-3": 2, "5-none": 1, "5-x": 1})
    batch = await frontier.seed_keys.take("w", 9)
    await ExternalSeedReader(frontier.seed_keys, gatherer(), "w", spider=Ids()).settle(batch)
    leases = (await frontier.lease("w", 9)).leases
    requests = [decode_request(lease.url, lease.record) for lease in leases]
    assert [(request.url, request.meta, request.priority) for request in requests] == [
        ("http://a.test/8", {"id": "8"}, 9), ("http://a.test/7", {"id": "7"}, 3),
        *((f"http://a.test/{n}", {"id": str(n)}, 2) for n in (1, 2, 3)),
    ]  # fmt: skip
    letters = {letter.url: letter.error for letter in await frontier.dead_letters.list()}
    assert letters.keys() == {"rubbish", "none", "5-none", "5-x"}, "of an element, all requests count or none"
    assert letters["rubbish"].startswith("seed: ValueError")
    assert "NoneType" in letters["none"]


async def test_a_key_of_another_kind_is_reported_in_one_line(begin, ask):
    frontier = await begin()
    await ask.hset(KEYS[0], "a", "b")
    with pytest.raises(SeedKeyError, match="t:first is a hash") as refusal:
        await frontier.seed_keys.take("w", 1)
    assert "sorted set" in refusal.value.remedy


async def test_no_seed_is_taken_while_another_key_is_of_a_wrong_kind(begin, ask):
    frontier = await begin()
    await ask.rpush(KEYS[0], "http://a.test/1", "http://a.test/2")
    await ask.set(KEYS[1], "a text")
    with pytest.raises(SeedKeyError, match="t:second is a string"):
        await frontier.seed_keys.take("w", 9)
    assert await ask.llen(KEYS[0]) == 2
    await ask.delete(KEYS[1])
    assert len((await frontier.seed_keys.take("w", 9)).seeds) == 2


async def test_the_queue_of_a_job_is_not_a_seed_key(begin):
    with pytest.raises(FrontierError, match=r"skitter:\{shop\}:queue") as refusal:
        await begin(seed_keys=("skitter:{shop}:queue",))
    assert refusal.value.field == "seed_keys"
    await begin(seed_keys=("skitter:{shop}:seeds",))


class Nothing(Spider):
    async def start(self):
        return
        yield

    def parse(self, response):
        yield {"path": "/" + response.url.rpartition("/")[2]}


async def test_a_worker_crawls_the_seeds_of_the_keys_until_it_is_stopped(serve, server, ask, tmp_path):
    site = Scripted({f"/{n}": [] for n in range(20)})
    url = serve(site).url
    await ask.delete("live")
    crawl = CrawlHarness(Nothing(), tmp_path, seed_keys=["live"], wait_for_seeds=True, group_key="task")
    context = msgspec.structs.replace(crawl.frontier_context(), job=f"job{tmp_path.name}")
    crawl.frontier = RedisFrontier(server.url, context)
    running = asyncio.create_task(crawl.run())
    for number in range(20):
        await ask.lpush("live", f'{{"url": "{url}{number}", "meta": {{"task": "t{number % 2}"}}}}')
        if number == 10:
            while len(site.visits) < 5:
                await asyncio.sleep(0.01)
    while (await crawl.frontier.status()).done < 20:
        await asyncio.sleep(0.01)
    assert not running.done()
    await crawl.frontier.control.set_state(JobState.STOPPING)
    ran = await running
    await crawl.frontier.close()
    assert sorted(item["path"] for item in ran.items) == sorted(f"/{n}" for n in range(20))
    assert site.counts == {f"/{n}": 1 for n in range(20)}


async def test_items_of_a_task_are_counted_in_a_plain_key_that_runs_out(begin, ask):
    frontier = await begin(group_counter_prefix="shop:count:", group_counter_ttl=50.0)
    await ask.delete("shop:count:books")
    for name in "ab":
        await frontier.add(entries(name))
        (lease,) = (await frontier.lease("w", 1)).leases
        outcome = Outcome(lease.id, Resolution.DONE, counters={"pages": 1, "items": 3}, group="books")
        assert await frontier.commit([outcome]) == [True]
        assert await frontier.commit([outcome]) == [False]
    assert int(await ask.get("shop:count:books")) == 6
    assert 0 < await ask.ttl("shop:count:books") <= 50


async def test_a_plain_counter_that_cannot_be_increased_aborts_no_commit(begin, ask):
    frontier = await begin(group_counter_prefix="shop:count:", group_counter_ttl=50.0)
    await ask.set("shop:count:books", "many")
    await frontier.add(entries("a"))
    (lease,) = (await frontier.lease("w", 1)).leases
    mark = OutputRange("items/1.jsonl", 0, 10)
    outcome = Outcome(lease.id, Resolution.DONE, counters={"items": 3}, outputs=[mark], group="books")
    assert await frontier.commit([outcome]) == [True]
    assert await counts(frontier) == {"done": 1}
    assert await frontier.reports.outputs() == {"items/1.jsonl": [(0, 10)]}
    assert (await frontier.status()).counters["errors/group_counter"] == 1
    assert await ask.get("shop:count:books") == b"many"
