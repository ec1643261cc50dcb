"""Tasks over the API of a service: reading their own outputs, and closing a task at once."""

import json
from contextlib import ExitStack

import pytest

from services.redis_servers import running
from services.service_nodes import ServiceNode
from skitter.testing import Answer

RECIPE = """name: {name}
start: {url}
pages:
  p: {{items: {{fields: {{task: {{value: {name}}}, url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""


def site(visit):
    """A chain of ten pages below each name, and a page of fifty links below /wide."""
    name, _, number = visit.path.strip("/").partition("/")
    links = [f"/wide/{n}" for n in range(100, 150)] if name == "wide" else [f"/{name}/{int(number or 0) + 1}"]
    return Answer("".join(f"<a href={link}>x</a>" for link in links if not link.endswith("/10")).encode())


@pytest.fixture(params=["sqlite:", "redis"])
def nodes(request, tmp_path):
    """A single node with its own files, or two that share a server."""
    with ExitStack() as stack:
        names, store = ["one"], request.param
        if store == "redis":
            names, store = ["one", "two"], running("valkey").url.replace("/0", "/7")
        yield [
            stack.enter_context(
                ServiceNode(
                    tmp_path / name, "--store", store,
                    "--task-output", f"file={tmp_path}/{name}-{{job}}-{{task}}.jsonl", "--output", f"{tmp_path}/{name}-{{run}}.csv",
                )
            )
            for name in names
        ]  # fmt: skip


def add(node, job, name, url, **fields):
    node.done("PUT", f"/recipes/{name}", RECIPE.format(name=name, url=url), kind="application/yaml")
    return node.done("POST", f"/jobs/{job}/tasks", {"recipe": name, **fields})


def have_all_nodes_stopped(log):
    """Return whether each node that ran a job has written its outputs.

    A node that cannot announce itself for ten seconds no longer counts.
    """
    messages = [line["message"] for line in log["lines"]]
    began = messages.count("this node runs the job now")
    return began == messages.count("this node has stopped the run as requested") > 0


def test_a_task_has_outputs_of_its_own_where_the_operator_has_named_some(nodes, serve, tmp_path):
    one, two = nodes[0], nodes[-1]
    url = serve(site).url
    one.done("POST", "/jobs", {"name": "many", "tasks": True, "settings": {"robots": False, "delay": 0}})
    for wrong in (["elsewhere"], ["file", "../x"], ["/tmp/x.csv"], ["items:"], "file"):
        one.done("PUT", "/recipes/own", RECIPE.format(name="own", url=url), kind="application/yaml")
        status, problem = one.call("POST", "/jobs/many/tasks", {"recipe": "own", "outputs": wrong})
        assert (status, problem["errors"][0]["field"].startswith("outputs")) == (422, True), wrong
    add(one, "many", "own", f"{url}own/", outputs=["file"])
    add(two, "many", "listed", f"{url}listed/", outputs=["items"])
    add(one, "many", "plain", f"{url}plain/")
    two.wait_for("/jobs/many/items", lambda page: len(page["items"]) == 30, "the items of all")
    tasks = {task["task"]: task["outputs"] for task in two.done("GET", "/jobs/many/tasks")["tasks"]}
    assert tasks == {"own": ["file"], "listed": ["items"], "plain": []}
    for name in ("own", "listed"):
        page = two.done("GET", f"/jobs/many/tasks/{name}/items?limit=7")
        more = one.done("GET", f"/jobs/many/tasks/{name}/items?limit=7&after={page['next']}")
        items = page["items"] + more["items"]
        assert [item["task"] for item in items] == [name] * 10
        assert len({item["url"] for item in items}) == 10
    for path in ("/jobs/many", "/jobs/many/tasks/listed"):
        found = [json.loads(line) for line in two.text(f"{path}/items.jsonl").splitlines()]
        assert found == one.done("GET", f"{path}/items")["items"]
    assert one.call("GET", "/jobs/many/tasks/plain/items")[0] == 409
    assert one.call("GET", "/jobs/many/tasks/plain/items.jsonl")[0] == 409
    assert one.call("GET", "/jobs/many/tasks/nobody/items")[0] == 404
    one.done("POST", "/jobs/many/stop")
    one.wait_for("/jobs/many", lambda job: job["state"] == "stopped", "the stop")
    one.wait_for("/jobs/many/log?last=200", have_all_nodes_stopped, "the end of its processes")
    written = [
        json.loads(line)
        for file in tmp_path.glob("*-many-own.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted(item["url"] for item in written) == sorted(
        item["url"] for item in one.done("GET", "/jobs/many/tasks/own/items")["items"]
    )
    others = [
        line
        for file in tmp_path.glob("*.csv")
        for line in file.read_text().splitlines()
        if not line.startswith("task")
    ]
    assert sorted(line.partition(",")[0] for line in others) == ["plain"] * 10
    one.done("DELETE", "/jobs/many")


@pytest.mark.parametrize("wanted", ["running", "paused"])
def test_closing_a_task_shrinks_the_queue_at_once_and_other_tasks_stay(nodes, serve, wanted):
    one, two = nodes[0], nodes[-1]
    url = serve(site).url
    settings = {"robots": False, "delay": 3600, "max_retries": 0}
    one.done("POST", "/jobs", {"name": wanted, "tasks": True, "settings": settings})
    add(one, wanted, "wide", f"{url}wide")
    one.wait_for(
        f"/jobs/{wanted}", lambda job: (job.get("counts") or {}).get("queued") == 50, "the links of a page"
    )
    add(one, wanted, "other", f"{url}other/")
    two.wait_for(f"/jobs/{wanted}", lambda job: job["counts"]["queued"] == 51, "the other task")
    if wanted == "paused":
        one.done("POST", f"/jobs/{wanted}/pause")
        one.wait_for(f"/jobs/{wanted}", lambda job: job["state"] == "paused", "the pause")
    two.done("DELETE", f"/jobs/{wanted}/tasks/wide")
    counts = one.done("GET", f"/jobs/{wanted}")["counts"]
    assert (counts["queued"], counts["counters"]["refused/dropped"]) == (1, 50)
    one.done("DELETE", f"/jobs/{wanted}")


def test_an_unsafe_name_is_not_used_in_an_output_name(nodes, serve):
    one = nodes[0]
    one.done("POST", "/jobs", {"name": "job", "tasks": True})
    for place, name in enumerate(("../../etc/x", "a b", "x" * 65, "{run}")):
        recipe = RECIPE.replace("{{value: {name}}}", "{{value: t}}").format(
            name=json.dumps(name), url=serve(site).url
        )
        one.done("PUT", f"/recipes/r{place}", recipe, kind="application/yaml")
        status, problem = one.call("POST", "/jobs/job/tasks", {"recipe": f"r{place}", "outputs": ["file"]})
        assert (status, problem["errors"][0]["field"]) == (422, "outputs"), name
    assert one.done("GET", "/jobs/job/tasks") == {"tasks": []}
    one.done("DELETE", "/jobs/job")
