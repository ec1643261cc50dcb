"""Kill test of a queue in a broker: servers, workers and whole machines are killed, and nothing is lost or duplicated."""

import asyncio
import random
import time

import psutil
import pytest
from crawling import AHEAD, FAST, ROUNDS, Crawling, at_moments, check_exact, served

from services.nats_servers import NatsServer
from services.nsq_servers import Nsqd
from services.redis_servers import RedisServer

pytestmark = pytest.mark.chaos

PAGES, HOLES, HOSTS = 2_000, 200, 4
SITE = {"pages": PAGES, "every": HOLES, "hosts": HOSTS, "page_bytes": 2000, "links_per_page": 20}
SETTINGS = FAST | {"lease_seconds": 3}


class ThroughBroker(Crawling):
    """A job whose queue is in a broker. Its results are read from its state."""

    def __init__(self, folder, broker, site, state, workers=2, **options):
        arguments = {"url": site.url}
        super().__init__(
            folder, "Everything", workers=workers, settings=SETTINGS, arguments=arguments, **options
        )
        self.state = state
        scheme = "nsq" if isinstance(broker, Nsqd) else "nats"
        self.command += [
            f"--frontier={scheme}://127.0.0.1:{broker.port}/pages?state={state}", "--log-level=info"
        ]  # fmt: skip

    def _ask_state(self, question):
        from skitter.frontier.options import FrontierContext
        from skitter.frontier.redis.frontier import RedisFrontier

        async def ask():
            # Attaching does not change the job.
            frontier = RedisFrontier(self.state, FrontierContext("job", attach=True))
            await frontier.open()
            try:
                return await question(frontier)
            finally:
                await frontier.close()

        return asyncio.run(ask())

    def pids_with_leases(self, since):
        """Process ids of the workers that have reported leases after a time (:func:`time.monotonic`)."""
        found = self._ask_state(lambda frontier: frontier.reports.workers())
        return [one.report.pid for one in found if one.report.held and one.heard < time.monotonic() - since]

    def dead_letters(self):
        if self.state == "sqlite:":
            return super().dead_letters()
        letters = self._ask_state(lambda frontier: frontier.dead_letters.list(0, PAGES))
        return {letter.url: letter.error for letter in letters}

    def counters(self):
        if self.state == "sqlite:":
            return super().counters()
        return self._ask_state(lambda frontier: frontier.status()).counters

    def counts(self):
        if self.state == "sqlite:":
            return super().counts()
        status = self._ask_state(lambda frontier: frontier.status())
        assert status.leased == 0
        return {"added": status.added, "done": status.done, "queue": status.queued, "delayed": status.delayed,
                "dead": status.failed}  # fmt: skip


@pytest.fixture(params=["nsq", "nats"])
def broker(request):
    """A broker. nsqd keeps messages in memory here, so a kill loses them; JetStream keeps them in a file."""
    server = Nsqd("--mem-queue-size=1000000") if request.param == "nsq" else NatsServer()
    yield server.start()
    server.stop()


@pytest.fixture
def redis_url():
    server = RedisServer("valkey").start()
    yield server.url
    server.stop()


@pytest.fixture
def job(broker, site, tmp_path):
    made = []

    def make(state, name="one", **options):
        folder = tmp_path / name
        folder.mkdir()
        made.append(ThroughBroker(folder, broker, site, state, **options))
        return made[-1]

    yield make
    for crawl in made:
        crawl.end()


@pytest.fixture(params=["redis", "sqlite"])
def state(request):
    return request.getfixturevalue("redis_url") if request.param == "redis" else "sqlite:"


def moments(seed, count):
    """Return random numbers of served requests at which to kill a process."""
    return sorted(random.Random(seed).sample(range(50, PAGES - 100), count))


@pytest.mark.parametrize(
    ("broker", "state"), [("nsq", "redis"), ("nsq", "sqlite"), ("nats", "redis")], indirect=True
)
def test_nothing_is_lost_or_duplicated_when_the_broker_is_killed_and_started_again(
    job, site, truth, broker, state
):
    crawl = job(state).start()
    for _ in at_moments(crawl, site, moments("nsqd", 2)):
        broker.kill()
        broker.start()
    assert crawl.wait() == 0, crawl.errors
    check_exact(crawl, *truth)
    if isinstance(broker, Nsqd):
        assert "published again" in crawl.errors


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.parametrize(
    ("broker", "state", "victim"),
    [
        ("nsq", "redis", "worker"),
        ("nsq", "sqlite", "all"),
        ("nats", "redis", "worker"),
    ],
    indirect=["broker", "state"],
)
def test_nothing_is_lost_or_duplicated_when_workers_are_killed(job, site, truth, state, victim, seed):
    rng = random.Random(f"{victim} {seed}")
    crawl, kills = job(state, workers=3).start(), 0
    for _ in at_moments(crawl, site, moments(f"{victim} {seed}", 3)):
        if victim == "worker":
            assert crawl.kill_worker(rng)
        else:
            crawl.kill_all()
            crawl.start()
        kills += 1
    assert crawl.wait() == 0, crawl.errors
    assert kills == 3
    check_exact(crawl, *truth)
    assert crawl.counters()["leases/lost"] > 0


def test_nothing_is_lost_or_duplicated_when_messages_time_out_during_the_work(job, site, truth, redis_url):
    """A hanging worker counts as dead for the broker and the state; its later commits are late."""
    crawl = job(redis_url, workers=3).start()
    at_work = []
    for moment in at_moments(crawl, site, [PAGES // 4]):
        assert crawl.wait_for(lambda moment=moment: served(site) >= moment + AHEAD, "the last answer for now")
        committed = time.monotonic() + 1.0  # from then on, each worker with leases waits for answers
        assert crawl.wait_for(
            lambda since=committed: at_work.extend(crawl.pids_with_leases(since)) or at_work,
            "who holds leases",
        )
        hanging = psutil.Process(at_work[0])
        hanging.suspend()
    assert crawl.wait_for(lambda: crawl.counters().get("leases/lost", 0) > 0, "a lease that is taken back")
    hanging.resume()
    assert crawl.wait() == 0, crawl.errors
    check_exact(crawl, *truth)


def test_two_machines_share_one_crawl_and_everything_dies_around_them(
    job, site, truth, broker, redis_url, tmp_path
):
    rng = random.Random(7)
    output = str(tmp_path / "items.db")  # which both write; part files would be on the worker's machine
    one, other = (job(redis_url, name, output=output).start() for name in ("one", "other"))
    for place, _ in enumerate(at_moments(one, site, moments("both", 3))):
        if place == 1:
            broker.kill()
            other.kill_all()
            broker.start()
            other.start()
        else:
            assert one.kill_worker(rng)
    assert one.wait() == other.wait() == 0, one.errors + other.errors
    check_exact(one, *truth)
