"""The status machine of a managed crawl: every call in every status, and the effect of a refused call."""

import threading

import pytest

from skitter.errors import SkitterError, UsageError
from skitter.frontends.lifecycle import LEGAL, CrawlArguments, IllegalTransition, ManagedCrawl, Status
from skitter.frontends.lifecycle.status import StatusMachine

WISHES = (Status.INITIALIZING, Status.STARTING, Status.STOPPING)
ALLOWED = {
    (Status.UNINITIALIZED, Status.INITIALIZING), (Status.INITIALIZED, Status.INITIALIZING),
    (Status.INITIALIZED, Status.STARTING), (Status.STARTED, Status.STOPPING),
    (Status.STOPPED, Status.INITIALIZING), (Status.STOPPED, Status.STARTING),
}  # fmt: skip
"""The table of gopcp.v2, chapter 6."""

WAY = (Status.INITIALIZING, Status.STARTING, Status.STOPPING)
"""Started and completed one after the other, they lead through all statuses."""


def machine_at(status):
    machine = StatusMachine()
    for wish in WAY:
        if machine.status is status:
            break
        machine.begin(wish)
        if machine.status is status:
            break
        machine.complete()
    assert machine.status is status
    return machine


@pytest.mark.parametrize("wish", Status)
@pytest.mark.parametrize("status", Status)
def test_only_the_calls_of_the_table_are_legal_and_a_refused_one_changes_nothing(status, wish):
    machine = machine_at(status)
    if (status, wish) in ALLOWED:
        machine.begin(wish)
        assert machine.status is wish
        return
    before = vars(machine).copy()
    with pytest.raises(IllegalTransition) as refused:
        machine.begin(wish)
    assert vars(machine) == before
    assert refused.value.remedy


def test_the_published_table_is_that_of_gopcp():
    assert {(status, wish) for status, wishes in LEGAL.items() for wish in wishes} == ALLOWED


def test_each_status_has_its_own_error_message():
    messages = set()
    for status in Status:
        with pytest.raises(IllegalTransition) as refused:
            machine_at(status).begin(Status.STOPPED)
        messages.add(str(refused.value))
    assert len(messages) == len(Status)


@pytest.mark.parametrize(("status", "wish"), sorted(ALLOWED))
def test_success_completes_and_failure_returns_to_the_status_before(status, wish):
    machine = machine_at(status)
    with pytest.raises(ValueError, match="no"), machine.passing(wish):
        raise ValueError("no")
    assert machine.status is status
    with machine.passing(wish):
        pass
    assert (
        str(machine.status)
        == {"initializing": "initialized", "starting": "started", "stopping": "stopped"}[wish]
    )


@pytest.mark.parametrize("wish", WISHES)
def test_a_refused_call_does_not_undo_a_concurrent_start(wish):
    """gopcp writes the old status back when it refuses a call, and may get stuck."""
    machine = machine_at(Status.STARTING)
    with pytest.raises(IllegalTransition), machine.passing(wish):
        pytest.fail("it was let in")
    assert machine.status is Status.STARTING
    machine.complete()
    assert machine.status is Status.STARTED


def test_of_many_threads_one_gets_in():
    for _ in range(50):
        machine = machine_at(Status.INITIALIZED)
        gate = threading.Barrier(8)
        got_in = []

        def attempt(machine=machine, gate=gate, got_in=got_in):
            gate.wait()
            try:
                machine.begin(Status.STARTING)
            except IllegalTransition:
                return
            got_in.append(True)

        threads = [threading.Thread(target=attempt) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got_in == [True]


async def test_before_initialize_a_crawl_refuses_its_calls_and_can_be_summed_up():
    crawl = ManagedCrawl()
    for call in (crawl.start, crawl.stop):
        with pytest.raises(IllegalTransition, match="not been initialized"):
            await call()
    with pytest.raises(UsageError, match="not been started"):
        await crawl.wait()
    assert crawl.status is Status.UNINITIALIZED
    assert (await crawl.summary()).status == "uninitialized"
    assert await crawl.idle()


@pytest.mark.parametrize(
    ("wrong", "field", "detail"),
    [
        ({}, "spider", "spider"),
        ({"job": "a/b", "spider": "x.py"}, "", "a/b"),
        ({"analyzers": [print]}, "analyzers", "print"),
        ({"spider": "x.py", "downloaders": [print]}, "downloaders", "print"),
        ({"spider": "x.py", "pipelines": [None]}, "pipelines", "None"),
        ({"spider": "x.py", "depth_limit": -1}, "depth_limit", "-1"),
        ({"spider": "x.py", "workers": 0}, "workers", "0"),
        ({"spider": "x.py", "workers": 2, "allowed_domains": ["example.com"]}, "workers", "allowed_domains"),
        ({"spider": "x.py", "allowed_domains": ["co.uk"]}, "allowed_domains", "co.uk"),
        ({"spider": "x.py", "error_capacity": 0}, "error_capacity", "0"),
        ({"spider": "x.py", "error_capacity": "many"}, "error_capacity", "many"),
        ({"spider": "there_is_no.py"}, "", "there_is_no.py"),
        (
            {"spider": "skitter.frontends.page_spider:PageSpider", "settings": {"concurency": 3}},
            "",
            "concurency",
        ),
        ({"spider": "skitter.frontends.page_spider:PageSpider", "outputs": ["x.what"]}, "", "x.what"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_by_name_and_change_nothing(
    tmp_path, wrong, field, detail
):
    crawl = ManagedCrawl()
    before = await crawl.summary()
    with pytest.raises(SkitterError, match=detail) as refused:
        await crawl.initialize(CrawlArguments(**{"job": "lifecycle", "home": str(tmp_path), **wrong}))
    assert refused.value.remedy
    assert refused.value.field == field or not field
    assert crawl.status is Status.UNINITIALIZED
    assert await crawl.summary() == before
