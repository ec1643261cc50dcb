"""Sessions: selected by load; retired by age, use, score and blocking; shared with other workers."""

from collections import Counter

import pytest

from skitter.errors import SettingsError
from skitter.fetch.contract import ProxyError, TimedOut, TlsError
from skitter.fetch.identity.sessions import PoolOptions, SessionPool, pool_of
from skitter.request import Request

PAGE = Request("http://site.test/")


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Notes:
    def __init__(self):
        self.kept = {}

    async def get(self, key):
        return self.kept.get(key)

    async def put(self, key, value, ttl):
        self.kept[key] = value


class NumberedPool:
    """A pool with numbered headers and a set of broken proxies."""

    def __init__(self, notes=None, **options):
        self.clock = Clock()
        self.broken = set()
        self.made = 0
        self.pool = SessionPool(PoolOptions(**options), clock=self.clock)
        self.pool.equip(self._make, lambda proxy: proxy not in self.broken, notes)

    def _make(self, _request, _name):
        self.made += 1
        return {"User-Agent": str(self.made)}, f"http://p{self.made}:1"

    async def take(self, name=""):
        return await self.pool.take(PAGE.replace(session=name))

    async def use(self, status=200, error=None, name=""):
        session = await self.take(name)
        await self.pool.settle(session, status if error is None else None, error)
        return session


async def test_a_full_pool_returns_existing_sessions():
    bench = NumberedPool(size=5)
    names = [(await bench.use()).name for _ in range(50)]
    assert bench.made == len(set(names)) == len(bench.pool) == 5
    assert all(name.startswith("~") for name in names)


async def test_the_one_with_the_least_in_flight_is_taken():
    bench = NumberedPool(size=4, max_uses=1000)
    taken = Counter([(await bench.take()).name for _ in range(40)])
    assert set(taken.values()) == {10}


async def test_a_session_that_fails_is_not_taken_for_an_idle_one():
    bench = NumberedPool(size=2, max_uses=1000)
    bad, good = await bench.take(), await bench.take()
    await bench.pool.settle(bad, error=TimedOut("slow"))
    assert [(await bench.take()).name for _ in range(3)] == [good.name] * 3


@pytest.mark.parametrize(("option", "uses"), [({"max_uses": 3}, 3), ({"max_age": 30.0}, 3)])
async def test_a_session_ends_by_use_and_by_age(option, uses):
    bench = NumberedPool(size=1, **option)
    names = []
    for _ in range(7):
        names.append((await bench.use()).name)
        bench.clock.now += 10
    assert list(Counter(names).values()) == [uses, uses, 7 - 2 * uses]


@pytest.mark.parametrize("status", [403, 429])
async def test_a_blocked_session_is_retired_at_once(status):
    bench = NumberedPool(size=1)
    first = await bench.use(status)
    assert first.retired
    assert (await bench.use()).name != first.name


async def test_a_session_is_retired_when_it_fails_more_than_it_succeeds():
    bench = NumberedPool(size=1)
    first = await bench.use(500)
    for status in (500, 200, 200, 502, 200):
        await bench.use(status)
    assert not first.retired
    await bench.use(error=TimedOut("slow"))
    assert not first.retired
    assert first.error_score == 2.5
    await bench.use(503)
    assert first.retired


async def test_a_neutral_failure_changes_no_score():
    bench = NumberedPool(size=1)
    session = await bench.use(404)
    for _ in range(9):
        await bench.use(error=TlsError("bad certificate"))
    assert (session.error_score, session.retired) == (0.0, False)


async def test_a_session_whose_proxy_is_out_of_order_is_retired():
    bench = NumberedPool(size=1)
    session = await bench.take()
    bench.broken.add(session.proxy)
    await bench.pool.settle(session, error=ProxyError("refused"))
    assert session.retired
    idle = await bench.use()
    bench.broken.add(idle.proxy)
    assert (await bench.use()).name != idle.name
    assert idle.retired


async def test_a_cancelled_request_changes_no_score():
    bench = NumberedPool(size=1)
    session = await bench.take()
    await bench.pool.settle(session)
    assert (session.in_flight, session.error_score, session.uses) == (0, 0.0, 1)


async def test_a_named_session_stays_what_it_is_and_gets_another_proxy_when_its_own_fails():
    bench = NumberedPool(size=1)
    anna = await bench.use(403, name="anna")
    bench.broken.add("http://p1:1")
    again = await bench.use(name="anna")
    assert again is anna
    assert (again.headers, again.proxy) == ({"User-Agent": "1"}, "http://p2:1")
    assert len(bench.pool) == 0


async def test_a_request_may_continue_in_a_session_of_the_pool_until_that_is_retired():
    bench = NumberedPool(size=3)
    first = await bench.use()
    for _ in range(5):
        assert await bench.use(name=first.name) is first
    await bench.use(403, name=first.name)
    assert (await bench.use(name=first.name)).name != first.name


async def test_another_worker_continues_as_the_same_session_until_it_is_retired():
    notes = Notes()
    here, there = NumberedPool(notes), NumberedPool(notes)
    there.made = 100
    session = await here.use()
    adopted = await there.use(name=session.name)
    assert (adopted.name, adopted.headers, adopted.proxy) == (
        session.name,
        {"User-Agent": "1"},
        "http://p1:1",
    )
    assert await there.use(name=session.name) is adopted
    await here.use(403, name=session.name)
    third = NumberedPool(notes)
    assert (await third.use(name=session.name)).name != session.name


async def test_a_session_that_is_not_known_here_is_another_one_of_the_pool():
    bench = NumberedPool(size=1)
    assert (await bench.use(name="~of-another-worker")).name in bench.pool._by_name


def test_a_pool_is_named_by_its_size_or_its_options():
    assert pool_of("20").options == PoolOptions(size=20)
    assert pool_of({"size": 5, "max_uses": "9"}).options == PoolOptions(size=5, max_uses=9)
    for wrong in ("many", {"sise": 3}, {"size": 0}, 0):
        with pytest.raises(SettingsError):
            pool_of(wrong)
