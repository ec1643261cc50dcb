"""Monitors of a job in a service: each run has its own frontier, and is compared with earlier runs."""

import os
import signal

import msgspec
import pytest

from services.redis_servers import RedisServer
from services.service_nodes import ServiceNode
from sites.gated import GatedSite
from skitter.monitors import Verdict
from skitter.run.passes import OpenPass, Passes, PassRecord
from skitter.service.models import JobRecord, PassHistory, Records, decode
from skitter.service.storage.sqlite import SqliteKeyValueStore
from skitter.testing import Answer

PRODUCTS = 12
RECIPE = """name: shop
start: {url}
settings:
  robots: false
  delay: 0
  monitors:
    - {{name: fewer, rule: "items >= 0.8 * median(items, 5)"}}
    - {{name: new, rule: "new_values(category) == 0"}}
pages:
  list: {{follow: [{{css: a, page: product}}]}}
  product: {{items: {{each: p, fields: {{category: {{css: "::text"}}}}}}}}
"""


class Shop:
    """A list and its products, which are in three categories. Faults: ``few``, ``toys``."""

    fault = ""

    def __init__(self):
        self.answer = self

    def hold(self, answers):
        """Send a number of answers, and hold the others back."""
        self.answer = GatedSite(self, answers)
        return self.answer

    def __call__(self, visit):
        if visit.path == "/":
            return Answer("".join(f'<a href="/{number}">x</a>' for number in range(PRODUCTS)).encode())
        number = int(visit.path[1:])
        category = "toys" if self.fault == "toys" and number == 5 else f"c{number % 3}"
        return Answer(b"" if self.fault == "few" and number % 2 else f"<p>{category}</p>".encode())


def violated(job):
    return [[one["monitor"] for one in each["verdicts"] if one["passed"] is False] for each in job["passes"]]


@pytest.fixture(params=["sqlite", "valkey"])
def store(request):
    if request.param == "sqlite":
        yield ()
        return
    server = RedisServer("valkey").start()
    yield ("--store", server.url)
    server.stop()


def test_each_run_is_judged_with_the_history_of_the_runs_before_it(store, serve, tmp_path):
    shop = Shop()
    url = serve(lambda visit: shop.answer(visit)).url  # noqa: PLW0108 - it changes
    with ServiceNode(tmp_path, *store) as node:
        node.done("PUT", "/recipes/shop", RECIPE.format(url=url), kind="application/yaml")
        node.done("POST", "/jobs", {"name": "shop", "recipe": "shop"})

        def finished(passes):
            return node.wait_for(
                "/jobs/shop",
                lambda job: job["state"] == "finished" and len(job["passes"]) == passes,
                "the end",
            )

        first = finished(1)
        assert [one["passed"] for one in first["passes"][0]["verdicts"]] == [None, None], (
            "nothing to compare with"
        )

        # A value that is new to all runs. The only worker is killed before the end.
        shop.fault = "toys"
        gate = shop.hold(PRODUCTS - 2)
        node.done("POST", "/jobs/shop/start")
        assert gate.reached.wait(60)
        job = node.wait_for("/jobs/shop", lambda job: job["fleet"], "the worker")
        os.kill(job["fleet"][0]["report"]["pid"], signal.SIGKILL)
        gate.released.set()
        assert violated(finished(2)) == [["new"], []]

        shop.fault = "few"
        node.done("POST", "/jobs/shop/start")
        assert violated(finished(3)) == [["fewer"], ["new"], []]

        # A stopped run is not judged, and the next one is compared with the judged ones.
        shop.fault = ""
        gate = shop.hold(2)
        node.done("POST", "/jobs/shop/start")
        assert gate.reached.wait(60)
        node.done("PATCH", "/jobs/shop/settings", {"settings": {"delay": 60}})
        node.done("POST", "/jobs/shop/stop")
        gate.released.set()
        node.wait_for("/jobs/shop", lambda job: job["state"] == "stopped", "the stop")
        node.done("POST", "/jobs/shop/start")
        last = finished(4)
        assert violated(last) == [[], ["fewer"], ["new"], []]
        assert [one["number"] for one in last["passes"]] == [4, 3, 2, 1]
        assert [one["passed"] for one in last["passes"][0]["verdicts"]] == [True, True]


async def test_a_late_write_reaches_no_new_job_of_the_same_name_and_adding_twice_changes_nothing(tmp_path):
    store = SqliteKeyValueStore(tmp_path / "service.db")
    records = Records(store)
    verdict = Verdict("m", "items / pages > 1", False, {"items / pages": float("inf"), "pages": 0.0})
    record = PassRecord(number=1, began=1.0, ended=2.0, figures={"items": 4.0}, verdicts=[verdict])
    passes = Passes(
        history=[record], known={"x": ["a"]}, unreported=[1, 2], current=OpenPass(number=2, began=3.0)
    )
    history = PassHistory(job_created=5.0)
    for _ in range(2):
        history.add("job.1", passes)
    data = msgspec.json.encode(history)
    found = decode(data, PassHistory)
    assert [(kept.run, kept.record.number) for kept in found.passes] == [("job.1", 1)]
    assert found.passes[0].record.verdicts[0].values == {"pages": 0.0}
    inherited = found.inherited()
    assert (inherited.known, inherited.unreported, inherited.inherited, inherited.own) == (
        {"x": ["a"]},
        [1],
        1,
        [],
    )
    assert inherited.current is None
    assert await store.compare_and_swap("passes", "job", None, data)
    assert (await records.passes(JobRecord(name="job", created=5.0)))[0] == found
    assert (await records.passes(JobRecord(name="job", created=6.0)))[0].passes == []
    await store.close()
