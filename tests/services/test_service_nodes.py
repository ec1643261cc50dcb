"""Nodes of a service that share a server: jobs survive nodes, each duty is done by one node, and deleted data is gone."""

import json
import signal
import time

import psutil
import pytest

from cli_command import SlowingSite
from services.redis_cluster import running_cluster
from services.redis_servers import RedisServer
from services.service_nodes import PATIENCE, ServiceNode
from sites.gated import GatedSite
from skitter.service.node import STATUS_TTL
from skitter.testing import GeneratedSite, SiteProcess

PAGES = 100
RECIPE = """name: web
start: {url}
settings: {{robots: false, delay: 0, concurrency_per_slot: 8, lease_seconds: 3, retry_delay: 0.1}}
pages:
  p: {{items: {{fields: {{url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""
SITE = {"pages": PAGES, "hosts": 1, "page_bytes": 2000, "links_per_page": 12}
SOME = 20
"""Number of answers of a site before it holds all others back."""
DAILY = f"0 {(time.gmtime().tm_hour + 12) % 24} * * *"
"""A schedule that is never due while the tests run."""


@pytest.fixture(scope="module")
def valkey():
    server = RedisServer("valkey").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def nodes(valkey, tmp_path_factory):
    """Two nodes for all tests that do not stop or kill them."""
    folder = tmp_path_factory.mktemp("nodes")
    with (
        ServiceNode(folder / "one", "--store", valkey.url) as one,
        ServiceNode(folder / "two", "--store", valkey.url) as two,
    ):
        yield one, two


@pytest.fixture
def site():
    with SiteProcess("skitter.testing:GeneratedSite", SITE, delay=0.05) as site:
        yield site


def served(site, serve):
    server = serve(site)
    site.url, site.truth = server.url, sorted(GeneratedSite(**SITE).expected_pages(server.origins))
    return site


@pytest.fixture
def held_site(serve):
    """A site that stops responding in the middle, until ``released.set()``."""
    return served(GatedSite(GeneratedSite(**SITE), SOME), serve)


@pytest.fixture
def slowing_site(serve):
    """A site that takes 20 seconds more for its pages, eight at a time, unless a test releases it."""
    return served(SlowingSite(GeneratedSite(**SITE), SOME, delay=2.0), serve)


def upload(node, site, name="web"):
    node.done("PUT", f"/recipes/{name}", RECIPE.format(url=site.url), kind="application/yaml")


def test_a_job_survives_the_kill_of_the_node_that_took_it(valkey, held_site, tmp_path):
    store = valkey.url.replace("/0", "/1")
    with ServiceNode(tmp_path / "one", "--store", store) as one:
        upload(one, held_site)
        one.done("POST", "/jobs", {"name": "shop", "recipe": "web"})
        one.wait_for("/jobs/shop", lambda job: job["counts"] and job["counts"]["done"] > PAGES // 10, "work")
        orphans = psutil.Process(one.process.pid).children(recursive=True)
        one.kill()
        _, alive = psutil.wait_procs(orphans, timeout=30)
        assert orphans
        assert not alive, "what the dead node ran ends by itself"
        with ServiceNode(tmp_path / "two", "--store", store) as two:
            counts = two.done("GET", "/jobs/shop")["counts"]
            assert PAGES // 10 < counts["done"] < PAGES, "it was killed in the middle"
            held_site.released.set()
            job = two.wait_for("/jobs/shop", lambda job: job["state"] == "finished", "the end")
            assert job["counts"]["failed"] == 0
            assert sorted(item["url"] for item in two.all_items("shop")) == held_site.truth
            nodes = two.wait_for("/nodes", lambda answer: len(answer["nodes"]) == 1, "the death noticed")
            assert nodes["nodes"][0]["name"] == two.name
            assert two.leave() == 0


def test_a_node_that_leaves_is_listed_until_its_runs_have_ended(valkey, held_site, tmp_path):
    store = valkey.url.replace("/0", "/2")
    with ServiceNode(tmp_path / "one", "--store", store) as one:
        upload(one, held_site)
        one.done("POST", "/jobs", {"name": "shop", "recipe": "web"})
        # Only this node has requests, and the site does not respond to them.
        assert held_site.reached.wait(PATIENCE)
        children = psutil.Process(one.process.pid).children()
        [run] = [child for child in children if "skitter.service.runner" in child.cmdline()]
        with ServiceNode(tmp_path / "two", "--store", store) as two:
            began = time.monotonic()
            one.process.send_signal(signal.SIGTERM)
            is_listed = True
            while is_listed:
                is_listed = one.name in {node["name"] for node in two.done("GET", "/nodes")["nodes"]}
                # The node has waited for the run, so it is not a zombie.
                assert is_listed or not run.is_running()
                assert time.monotonic() - began < PATIENCE
                time.sleep(0.1)
            assert time.monotonic() - began > STATUS_TTL, "an announcement is valid for this time anyway"
            held_site.released.set()


def test_both_nodes_share_a_job_and_a_scheduled_run_begins_once(nodes, valkey, held_site):
    one, two = nodes
    upload(one, held_site)
    job = two.done("POST", "/jobs", {"name": "nightly", "recipe": "web", "schedule": DAILY})
    assert (job["state"], job["run"]) == ("scheduled", None)
    make_due(valkey, "nightly")
    two.wait_for(
        "/jobs/nightly", lambda job: len({w["report"]["pid"] for w in job.get("fleet", ())}) == 2, "both"
    )
    held_site.released.set()
    job = one.wait_for("/jobs/nightly", lambda job: job["state"] == "finished", "the end")
    assert (job["previous"], job["skipped"]) == (None, 0)
    assert job["due"] > time.time()
    assert sorted(item["url"] for item in one.all_items("nightly")) == held_site.truth
    assert len(valkey.ask("KEYS", "skitter:{nightly.*}:job")) == 1, "one run has begun"
    # A paused job does not start.
    one.done("POST", "/jobs/nightly/pause")
    make_due(valkey, "nightly")
    later = two.wait_for("/jobs/nightly", lambda job: job["skipped"], "its time")
    assert later["run"]["id"] == job["run"]["id"]


def make_due(valkey, name):
    """Make a scheduled job due. Nothing else changes the record meanwhile."""
    key = "{skitter-service}:jobs"
    record = json.loads(valkey.ask("HGET", key, name))
    valkey.ask("HSET", key, name, json.dumps(record | {"due": time.time() - 1}))


def test_pause_resume_stop_seeds_limits_failures_and_deletion(nodes, valkey, slowing_site):
    one, two = nodes
    upload(one, slowing_site)
    one.done("POST", "/jobs", {"name": "shop", "recipe": "web"})
    one.wait_for("/jobs/shop", lambda job: job["counts"] and job["counts"]["done"] > 5, "work")
    assert two.done("POST", "/jobs/shop/pause")["state"] in {"pausing", "paused"}
    paused = one.wait_for("/jobs/shop", lambda job: job["state"] == "paused", "the pause")
    assert paused["counts"]["leased"] == 0
    assert paused["counts"]["done"] < PAGES
    seen = one.done("GET", "/jobs/shop")
    assert seen["counts"]["done"] == paused["counts"]["done"]
    changed = one.done("PATCH", "/jobs/shop/settings", {"settings": {"max_pages": PAGES + 1}})
    assert changed["changes"] == {"max_pages": PAGES + 1}
    seeds = [f"{slowing_site.url}gone", slowing_site.url]
    assert one.done("POST", "/jobs/shop/seeds", {"seeds": seeds}) == {
        "added": 1,
        "known": 1,
        "banned": 0,
        "over_budget": 0,
    }
    status, refusal = one.call("POST", "/jobs/shop/seeds", {"seeds": [slowing_site.url, "ftp://x/"]})
    assert (status, refusal["errors"][0]["field"]) == (422, "seeds[1]")
    slowing_site.released.set()
    two.done("POST", "/jobs/shop/resume")
    job = one.wait_for("/jobs/shop", lambda job: job["state"] == "finished", "the end")
    assert sorted(item["url"] for item in two.all_items("shop")) == slowing_site.truth
    (failure,) = two.done("GET", "/jobs/shop/failures?kind=status/404")["failures"]
    assert failure["url"] == seeds[0]
    assert one.done("POST", "/jobs/shop/failures/retry", {"ids": [failure["id"]]}) == {"queued": 1}
    one.done("POST", "/jobs/shop/resume")
    one.wait_for(
        "/jobs/shop",
        lambda job: job["state"] == "finished" and job["counts"]["failed"] == 1,
        "the retry",
    )
    assert one.done("POST", "/jobs/shop/failures/drop", {}) == {"dropped": 1}
    one.done("DELETE", "/jobs/shop")
    assert two.call("GET", "/jobs/shop")[0] == 404
    left = f"*{job['run']['id']}*"
    two.wait_for("/jobs", lambda _: not valkey.ask("KEYS", left), "the keys to go")
    folders = [node.runs / job["run"]["id"] for node in nodes]
    two.wait_for("/jobs", lambda _: not any(folder.exists() for folder in folders), "the folders to go")


def test_tasks_are_added_to_a_job_that_runs_on_two_nodes_and_closed(nodes, site):
    one, two = nodes
    one.done("POST", "/jobs", {"name": "many", "tasks": True, "settings": {"robots": False, "delay": 0}})
    for name, page in (("first", "s0/p20.html"), ("second", "s0/p40.html")):
        recipe = f"name: {name}\nstart: {site.url}{page}\npages:\n  p: {{items: {{fields: {{task: {{value: {name}}}}}}}}}\n"
        two.done("PUT", f"/recipes/{name}", recipe, kind="application/yaml")
        assert one.done("POST", "/jobs/many/tasks", {"recipe": name}) == {"task": name}
        two.wait_for(
            "/jobs/many/items",
            lambda page, name=name: [item["task"] for item in page["items"]].count(name) == 1,
            name,
        )
    assert one.call("POST", "/jobs/many/tasks", {"recipe": "first"})[0] == 409
    one.done("DELETE", "/jobs/many/tasks/first")
    tasks = two.done("GET", "/jobs/many/tasks")["tasks"]
    assert [(task["task"], task["state"]) for task in tasks] == [("first", "closed"), ("second", "open")]
    assert two.done("POST", "/jobs/many/tasks", {"recipe": "first"}) == {"task": "first"}
    one.wait_for(
        "/jobs/many/items",
        lambda page: sorted(item["task"] for item in page["items"]) == ["first", "first", "second"],
        "the second task of that name",
    )
    one.done("POST", "/jobs/many/stop")
    one.wait_for("/jobs/many", lambda job: job["state"] == "stopped", "the stop")


def test_a_single_task_is_paused_resumed_and_begins_its_rounds_by_a_schedule(nodes, valkey, site):
    one, two = nodes

    def items():
        return [item["task"] for item in two.done("GET", "/jobs/apart/items?limit=1000")["items"]]

    def upload_task(name, page, follow):  # on different hosts, so that no task waits for the other
        recipe = (
            f"name: {name}\nstart: {page}\npages:\n"
            f"  p: {{items: {{fields: {{task: {{value: {name}}}}}}}, follow: {follow}}}\n"
        )
        one.done("PUT", f"/recipes/{name}", recipe, kind="application/yaml")

    settings = {"robots": False, "delay": 0.5, "lease_seconds": 5}  # all pages take 50 seconds
    one.done("POST", "/jobs", {"name": "apart", "tasks": True, "settings": settings})
    upload_task("walking", f"{site.url}s0/p20.html", "[a]")
    one.done("POST", "/jobs/apart/tasks", {"recipe": "walking"})
    two.wait_for("/jobs/apart/items", lambda page: len(page["items"]) >= 3, "work")
    paused = two.done("POST", "/jobs/apart/tasks/walking/pause")
    assert (paused["task"], paused["state"]) == ("walking", "paused")
    assert one.call("POST", "/jobs/apart/tasks/nobody/pause")[0] == 404
    one.wait_for(
        "/jobs/apart", lambda job: any(slot["paused_for"] for slot in job["counts"]["busiest"]), "the pause"
    )
    upload_task("dated", site.url.replace("127.0.0.1", "localhost") + "s0/p40.html", "[]")
    one.done("POST", "/jobs/apart/tasks", {"recipe": "dated", "schedule": DAILY})
    assert "dated" not in items()
    make_round_due(valkey, "apart", "dated")
    two.wait_for(
        "/jobs/apart/items?limit=1000", lambda page: {"task": "dated"} in page["items"], "the recrawl"
    )
    assert items().count("walking") < PAGES
    two.done("POST", "/jobs/apart/tasks/walking/resume")
    one.done("PATCH", "/jobs/apart/settings", {"settings": {"delay": 0}})
    one.wait_for(
        "/jobs/apart/items?limit=1000",
        lambda page: [item["task"] for item in page["items"]].count("walking") == PAGES,
        "the rest of the paused task",
    )
    tasks = one.done("GET", "/jobs/apart/tasks")["tasks"]
    assert [(t["task"], t["state"], t["schedule"], t["recrawls"]) for t in tasks] == [
        ("walking", "open", "", 0), ("dated", "open", DAILY, 1),
    ]  # fmt: skip
    one.done("DELETE", "/jobs/apart/tasks/walking")
    assert one.call("POST", "/jobs/apart/tasks/walking/resume")[0] == 409
    assert sorted(items()) == ["dated"] + ["walking"] * PAGES
    one.done("DELETE", "/jobs/apart")


def make_round_due(valkey, job, task):
    """Pretend that a task was added two days ago. Nothing else changes the record meanwhile."""
    key = "{skitter-service}:tasks"
    record = json.loads(valkey.ask("HGET", key, job))
    for entry in record["entries"]:
        if entry["task"] == task and "text" in entry:
            entry["at"] = time.time() - 2 * 86_400
    valkey.ask("HSET", key, job, json.dumps(record))


@pytest.mark.parametrize("kind", ["valkey"])
def test_the_store_may_be_a_cluster(kind, held_site, tmp_path):
    cluster = running_cluster(kind)
    with (
        ServiceNode(tmp_path / "one", "--store", cluster.url) as one,
        ServiceNode(tmp_path / "two", "--store", cluster.url) as two,
    ):
        upload(one, held_site)
        one.done("POST", "/jobs", {"name": "spread", "recipe": "web", "workers": 1})
        two.wait_for(
            "/jobs/spread", lambda job: len({w["report"]["pid"] for w in job.get("fleet", ())}) == 2, "both"
        )
        held_site.released.set()
        job = two.wait_for("/jobs/spread", lambda job: job["state"] == "finished", "the end")
        assert sorted(item["url"] for item in two.all_items("spread")) == held_site.truth
        one.done("DELETE", "/jobs/spread")
        left = f"*{job['run']['id']}*"
        two.wait_for(
            "/jobs", lambda _: not any(node.ask("KEYS", left) for node in cluster.masters), "the keys to go"
        )
