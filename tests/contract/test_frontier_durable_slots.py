"""The limits and delays of hosts after a restart."""

import pytest

from skitter.frontier.records import FetchReport
from skitter.politeness import HostLimits, Rate

pytestmark = pytest.mark.parametrize("backend", ["sqlite", "socket"], indirect=True)


@pytest.fixture(params=["reopen", "kill"])
def ending(request):
    """How the first run ends: the name of a method of the job."""
    return request.param


async def restart(job, how: str) -> None:
    await getattr(job, how)()


async def test_a_retry_after_survives_a_restart(start, ending):
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=10))
    await job.add(*range(3))
    lease = await job.one()
    await job.lease(0, reports=[FetchReport(lease.id, 0.1, refused=True, retry_after=500.0)])
    await restart(job, ending)
    await job.clock.advance(499.0)
    assert await job.lease() == []
    await job.clock.advance(1.001)
    assert len(await job.lease()) == 3


async def test_holds_and_crawl_delays_are_kept(job, ending):
    await job.add(*range(3))
    await job.add("a", host="held.test")
    await job.frontier.control.set_delay("h.test", 7.0)
    await job.frontier.control.pause_slot("held.test", 100.0)
    await restart(job, ending)
    slots = {slot.key: slot for slot in (await job.status()).busiest}
    assert slots["h.test"].delay == 7.0
    assert slots["held.test"].paused_for == pytest.approx(100.0)
    await job.wait_for_one()
    waited, lease = await job.wait_for_one()
    assert 7.0 <= waited <= 7.0 + 0.7 + 0.15
    assert lease.slot == "h.test"


async def test_the_delay_between_two_fetches_is_kept_across_restarts(start, ending):
    job = await start(HostLimits(delay=10.0, concurrency_per_slot=5))
    await job.add(*range(3))
    lease = await job.one()
    await job.clock.advance(0.5)
    await restart(job, ending)
    waited, _ = await job.wait_for_one()
    assert 0.5 + waited >= 10.0 + lease.start_within - 0.001


async def test_layered_rates_are_kept_across_restarts(start, ending):
    rate = Rate(4, 100.0)
    job = await start(HostLimits(delay=0.0, concurrency_per_slot=100, rates=("4/100s",)))
    await job.add(*range(20))
    grants = []
    for _ in range(40):
        grants += [(job.clock.now, lease.start_within) for lease in await job.lease(3)]
        await restart(job, ending)
        await job.clock.advance(12.5)
    for (early, within), (late, _) in zip(grants, grants[rate.count :], strict=False):
        assert late - (early + within) >= rate.per - 1e-6
    assert len(grants) >= 12
