"""The API of a service on one node: authentication, refusals, and robustness."""

import asyncio
import json
import socket
import threading
import time

import msgspec
import pytest
import uvicorn

from api_caller import TOKEN, Caller, application
from cli_command import usage_error
from skitter._utils import limited_process
from skitter.errors import FrontierError
from skitter.frontends.tasks.changes import TaskChange
from skitter.frontends.tasks.task_file import TaskFile
from skitter.service.api.access import ApiTokens
from skitter.service.api.auth import AuthContext, AuthMiddleware
from skitter.service.items import read_items
from skitter.service.jobs import JobService
from skitter.service.models import JobRecord, StoredRecipe, TaskList
from skitter.service.node import Node
from skitter.testing import Answer

SPIDER = """from skitter import Spider

class Shop(Spider):
    start_urls = ["{url}"]

    def parse(self, response):
        yield {{"url": response.url}}
"""
RECIPE = "name: web\nstart: {url}\npages:\n  p: {{items: {{fields: {{url: {{value: '{{url}}'}}}}}}}}\n"


@pytest.fixture
async def call(tmp_path):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    yield Caller(app)
    await jobs.store.close()


async def test_without_a_good_token_nothing_is_answered_but_health(call):
    paths = (await call("GET", "/openapi.json"))[1]["paths"]
    calls = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert len(calls) > 20
    for method, path in [*calls, ("GET", "/openapi.json"), ("GET", "/nowhere")]:
        for token in (None, "", TOKEN[:-1], TOKEN + "x", "a-token-for-tests-onlY"):
            status, problem = await call(
                method, path.replace("{name}", "x").replace("{task}", "y"), token=token
            )
            if path == "/health":
                assert (status, problem) == (200, {"status": "ok"})
            else:
                assert (status, problem["title"]) == (401, "A valid token is required"), (method, path)
                assert call.headers[b"www-authenticate"] == b"Bearer"


@pytest.mark.parametrize(
    "spider",
    ["../shop.py", "../spiders/../shop.py", "/etc/passwd", "{tmp}/shop.py", "link.py", "linked/shop.py", "shop", "os:system", "shop.py:a b",
     "notes.txt", ".", "", "a\0b.py", "x" * 400 + ".py", "skitter.frontends.page_spider:PageSpider"],
)  # fmt: skip
async def test_no_path_leads_out_of_the_folder_of_spiders(call, tmp_path, spider):
    for place in (tmp_path / "shop.py", tmp_path / "spiders" / "good.py", tmp_path / "spiders" / "notes.txt"):
        place.write_text(SPIDER.format(url="http://127.0.0.1/"))
    (tmp_path / "spiders" / "link.py").symlink_to(tmp_path / "shop.py")
    (tmp_path / "spiders" / "linked").symlink_to(tmp_path)
    body = {"name": "job", "spider": spider.replace("{tmp}", str(tmp_path))}
    status, problem = await call("POST", "/jobs", body)
    assert (status, problem["errors"][0]["field"]) == (422, "spider" if spider else "recipe")
    assert problem["remedy"]
    assert (await call("POST", "/jobs", {"name": "job", "spider": "good.py:Shop"}))[0] == 201


async def test_a_node_without_a_folder_of_spiders_takes_none(tmp_path):
    app, jobs = application(tmp_path, spiders=False)
    await jobs.store.open()
    status, problem = await Caller(app)("POST", "/jobs", {"name": "job", "spider": "good.py"})
    assert (status, "--spiders" in problem["remedy"]) == (422, True)
    await jobs.store.close()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"recipe": "web"}, "name"),
        ({"name": "../x", "recipe": "web"}, "name"),
        ({"name": "x", "recipe": "web", "spider": "a.py"}, "recipe"),
        ({"name": "x"}, "recipe"),
        ({"name": "x", "recipe": "wob"}, "recipe"),
        ({"name": "x", "recipe": "web", "workers": "2"}, "workers"),
        ({"name": "x", "recipe": "web", "colour": 1}, "colour"),
        ({"name": "x", "recipe": "web", "schedule": "every day"}, "schedule"),
        ({"name": "x", "recipe": "web", "schedule": "0 0 30 2 *"}, "schedule"),
        ({"name": "x", "recipe": "web", "settings": {"delay": "soon"}}, "settings.delay"),
        ({"name": "x", "recipe": "web", "settings": {"concurrency": 0}}, "settings.concurrency"),
        ({"name": "x", "recipe": "web", "settings": {"max_pages": 10**30}}, "settings.max_pages"),
        ({"name": "x", "recipe": "web", "settings": {"fetcher": "os:system"}}, "settings.fetcher"),
        ({"name": "x", "recipe": "web", "settings": {"cookie_file": "/etc/passwd"}}, "settings.cookie_file"),
        ({"name": "x", "recipe": "web", "arguments": {"no": 1}}, "recipe"),
        ({"name": "x", "tasks": True, "schedule": "0 4 * * *"}, "schedule"),
    ],
)  # fmt: skip
async def test_a_bad_job_is_refused_with_its_field_and_a_remedy(call, body, field):
    recipe = RECIPE.format(url="http://127.0.0.1/")
    assert (await call("PUT", "/recipes/web", recipe, kind="application/yaml"))[0] == 201
    status, problem = await call("POST", "/jobs", body)
    assert status == 422
    assert call.headers[b"content-type"] == b"application/problem+json"
    assert problem["errors"][0]["field"] == field
    assert problem.get("remedy") or problem["errors"][0]["remedy"]
    assert (await call("GET", "/jobs"))[1] == {"jobs": [], "total": 0, "states": {}}


@pytest.mark.parametrize(
    ("more", "field"),
    [("outputs: [/tmp/x.jsonl]", "outputs"), ("settings: {cache_dir: /tmp}", "settings.cache_dir"),
     ("settings: {fetcher: 'os:system'}", "settings.fetcher"), ("nonsense: 1", "recipe"), ("- [", "recipe")],
)  # fmt: skip
async def test_a_recipe_with_fields_reserved_to_the_operator_is_rejected(call, more, field):
    recipe = RECIPE.format(url="http://127.0.0.1/") + more
    status, problem = await call("PUT", "/recipes/web", recipe, kind="application/yaml")
    assert (status, problem["errors"][0]["field"]) == (422, field)
    assert (await call("GET", "/recipes/web"))[0] == 404


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"a": NaN}', b'{"a": "\\ud800"}', b"\xff", b"[" * 5000 + b"]" * 5000, b"[" * 70 + b"]" * 70],
)
async def test_a_body_that_is_not_json_is_a_bad_request(call, body):
    assert (await call("POST", "/jobs", body))[0] in {400, 422}


async def test_a_task_is_written_once_by_concurrent_calls(tmp_path):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    call = Caller(app)
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    job = await jobs.records.job("many")
    for number in range(20):
        recipe = RECIPE.format(url="http://127.0.0.1/").replace("name: web", f"name: t{number}")
        await call("PUT", f"/recipes/t{number}", recipe, kind="application/yaml")
        assert (await call("POST", "/jobs/many/tasks", {"recipe": f"t{number}"}))[0] == 201
        await asyncio.gather(*(jobs.prepare(job, job.run) for _ in range(8)))
    lines = await asyncio.to_thread(jobs.config.task_file(job.run).read_text)
    assert [json.loads(line)["task"] for line in lines.splitlines()] == [f"t{number}" for number in range(20)]
    await jobs.store.close()


async def test_a_line_that_a_killed_node_left_unfinished_is_written_again(tmp_path):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    call = Caller(app)
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    job = await jobs.records.job("many")
    for name in ("one", "two"):
        recipe = RECIPE.format(url="http://127.0.0.1/").replace("name: web", f"name: {name}")
        await call("PUT", f"/recipes/{name}", recipe, kind="application/yaml")
        await call("POST", "/jobs/many/tasks", {"recipe": name})
    await jobs.prepare(job, job.run)
    path = jobs.config.task_file(job.run)
    whole = await asyncio.to_thread(path.read_bytes)
    await asyncio.to_thread(path.write_bytes, whole[:-20])
    await jobs.prepare(job, job.run)
    assert await asyncio.to_thread(path.read_bytes) == whole
    await jobs.store.close()


async def test_tasks_are_read_again_only_when_they_or_their_file_have_changed(tmp_path, monkeypatch):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    call = Caller(app)
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    job = await jobs.records.job("many")
    reads = []
    tasks = jobs.records.tasks

    async def counted(name):
        reads.append(name)
        return await tasks(name)

    async def poll(count):
        """Do what a node does at each poll. Return how often it reads the tasks."""
        reads.clear()
        for _ in range(count):
            await jobs.prepare(job, job.run)
            await jobs.start_due(time.time())
        return len(reads)

    monkeypatch.setattr(jobs.records, "tasks", counted)
    path = jobs.config.task_file(job.run)
    for number in range(2):
        recipe = RECIPE.format(url="http://127.0.0.1/").replace("name: web", f"name: t{number}")
        await call("PUT", f"/recipes/t{number}", recipe, kind="application/yaml")
        await call("POST", "/jobs/many/tasks", {"recipe": f"t{number}"})
        assert await poll(3) == 2  # one for the file, one for the recrawls
        assert len((await asyncio.to_thread(path.read_bytes)).splitlines()) == number + 1
    whole = await asyncio.to_thread(path.read_bytes)
    await asyncio.to_thread(path.unlink)
    assert await poll(3) == 1
    assert await asyncio.to_thread(path.read_bytes) == whole
    await jobs.store.close()


async def test_each_recrawl_that_is_due_starts_although_the_tasks_are_not_read_again(tmp_path):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    call = Caller(app)
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    recipe = RECIPE.format(url="http://127.0.0.1/") + "reload: 100\n"
    assert (await call("PUT", "/recipes/web", recipe, kind="application/yaml"))[0] == 201
    assert (await call("POST", "/jobs/many/tasks", {"recipe": "web"}))[0] == 201
    for now in (1000.0, 1001.0, 1099.0, 1100.0, 1350.0):
        await jobs.start_due(now)
    (task,) = await jobs.tasks.all("many")
    assert task.recrawls == {10, 11, 13}
    await jobs.store.close()


async def service_with_task(tmp_path):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    call = Caller(app)
    recipe = RECIPE.format(url="http://127.0.0.1/") + "reload: 100\n"
    await call("PUT", "/recipes/web", recipe, kind="application/yaml")
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    assert (await call("POST", "/jobs/many/tasks", {"recipe": "web"}))[0] == 201
    return jobs, call


async def test_a_new_job_has_no_tasks_of_a_deleted_one_even_if_its_deletion_was_cut_off(
    tmp_path, monkeypatch
):
    jobs, call = await service_with_task(tmp_path)
    swap = jobs.store.compare_and_swap

    async def cut_off(kind, *rest):
        if kind == "tasks":
            raise FrontierError("the node was killed")
        return await swap(kind, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(jobs.store, "compare_and_swap", cut_off)
        assert (await call("DELETE", "/jobs/many"))[0] == 503
    assert (await call("POST", "/jobs", {"name": "many", "tasks": True}))[0] == 201
    assert (await call("GET", "/jobs/many/tasks"))[1]["tasks"] == []
    assert (await call("POST", "/jobs/many/tasks", {"recipe": "web"}))[0] == 201
    assert [task.name for task in await jobs.tasks.all("many")] == ["web"]
    await jobs.store.close()


async def test_tasks_of_a_new_job_are_noticed_even_if_they_are_as_long_as_those_of_a_deleted_one(
    tmp_path, monkeypatch
):
    _, jobs = application(tmp_path)
    await jobs.store.open()
    with monkeypatch.context() as patch:
        patch.setattr("skitter.service.jobs.time.time", lambda: 2000.5)
        job = await jobs.add_job(JobRecord(name="many", tasks=True), start=True)
    old, new = (
        msgspec.json.encode(
            TaskList(job_created=created, entries=[TaskChange(task=task, text="x", reload=100)])
        )
        for created, task in ((1000.5, "old"), (2000.5, "new"))
    )
    assert len(old) == len(new)
    for before, after in ((None, old), (old, new)):
        assert await jobs.store.compare_and_swap("tasks", "many", before, after)
        await jobs.prepare(job, job.run)
        await jobs.start_due(3000.5)
    changes = await asyncio.to_thread(TaskFile(jobs.config.task_file(job.run)).changes)
    assert [change.task for change in changes] == ["new"]
    assert [task.recrawls for task in await jobs.tasks.all("many")] == [{30}]
    await jobs.store.close()


async def test_tasks_that_a_node_changes_during_the_deletion_of_their_job_are_deleted(tmp_path, monkeypatch):
    jobs, call = await service_with_task(tmp_path)
    job = await jobs.records.job("many")
    get, moments = jobs.store.get, [1000.0]

    async def overtaken(kind, name):
        data = await get(kind, name)
        if kind == "tasks" and moments:
            await jobs.tasks.start_due_recrawls(job, moments.pop())
        return data

    monkeypatch.setattr(jobs.store, "get", overtaken)
    assert (await call("DELETE", "/jobs/many"))[0] == 204
    assert moments == []
    assert await jobs.store.all("tasks") == {}
    await jobs.store.close()


async def test_the_deletion_of_a_job_spares_the_tasks_of_a_new_job_of_its_name(tmp_path, monkeypatch):
    jobs, call = await service_with_task(tmp_path)
    swap = jobs.store.compare_and_swap

    async def overtaken(kind, name, old, new):
        done = await swap(kind, name, old, new)
        if (kind, new) == ("jobs", None):
            await call("POST", "/jobs", {"name": "many", "tasks": True})
            await call("POST", "/jobs/many/tasks", {"recipe": "web"})
        return done

    monkeypatch.setattr(jobs.store, "compare_and_swap", overtaken)
    assert (await call("DELETE", "/jobs/many"))[0] == 204
    assert [task.name for task in await jobs.tasks.all("many")] == ["web"]
    await jobs.store.close()


TASKS = """print("imported")
from skitter import Task, TaskSpider

class Many(TaskSpider):
    tasks = (Task("one", start=["http://127.0.0.1/"], rules={"p": print}),)
"""


async def test_tasks_of_a_spider_are_added_closed_and_added_again_by_name(tmp_path):
    app, jobs = application(tmp_path)
    await asyncio.to_thread((tmp_path / "spiders" / "many.py").write_text, TASKS)
    await jobs.store.open()
    call = Caller(app)
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    one = {"spider": "many.py:Many", "task": "one"}
    assert await call("POST", "/jobs/many/tasks", one) == (201, {"task": "one"})
    for body, status, field in (
        (one, 409, "task"), ({**one, "task": "on"}, 422, "task"), ({**one, "spider": "no.py"}, 422, "spider"),
        ({**one, "recipe": "x"}, 422, "recipe"), ({"spider": "many.py"}, 422, "recipe"), ({}, 422, "recipe"),
        ({**one, "arguments": {"a": 1}}, 422, "recipe"), ({**one, "schedule": "nope"}, 422, "schedule"),
    ):  # fmt: skip
        answer = await call("POST", "/jobs/many/tasks", body)
        assert (answer[0], answer[1]["errors"][0]["field"]) == (status, field), (body, answer)
    assert (await call("DELETE", "/jobs/many/tasks/one"))[0] == 204
    assert (await call("POST", "/jobs/many/tasks", one))[0] == 201
    tasks = (await call("GET", "/jobs/many/tasks"))[1]["tasks"]
    assert [(task["task"], task["state"]) for task in tasks] == [("one", "open")]
    job = await jobs.records.job("many")
    await jobs.prepare(job, job.run)
    changes = await asyncio.to_thread(TaskFile(jobs.config.task_file(job.run)).changes)
    path = f"{(tmp_path / 'spiders').resolve()}/many.py:Many"
    assert [(change.task, change.spider) for change in changes] == [
        ("one", path),
        ("one", ""),
        ("one~2", path),
    ]
    await jobs.store.close()


async def test_a_spider_whose_import_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limited_process, "_EXTRA_SECONDS", -7.0, raising=False)  # 3 s of 10 s CPU time
    app, jobs = application(tmp_path)
    await asyncio.to_thread((tmp_path / "spiders" / "many.py").write_text, "import signal\nsignal.pause()\n")
    await jobs.store.open()
    call = Caller(app)
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    status, problem = await call("POST", "/jobs/many/tasks", {"spider": "many.py:Many", "task": "one"})
    assert (status, problem["errors"][0]["field"]) == (422, "spider")
    assert problem["remedy"]
    assert (await call("GET", "/jobs/many/tasks"))[1]["tasks"] == []
    await jobs.store.close()


async def test_the_schedule_of_a_job_is_changed_and_removed(call):
    recipe = RECIPE.format(url="http://127.0.0.1/")
    await call("PUT", "/recipes/web", recipe, kind="application/yaml")
    for body in ({"name": "web", "recipe": "web", "start": False}, {"name": "many", "tasks": True}):
        await call("POST", "/jobs", body)
    status, job = await call("PUT", "/jobs/web/schedule", {"schedule": "0 4 * * *"})
    assert (status, job["state"], job["due"] % 86_400) == (200, "scheduled", 4 * 3600)
    assert (await call("GET", "/jobs/web"))[1]["schedule"] == "0 4 * * *"
    status, job = await call("PUT", "/jobs/web/schedule", {"schedule": ""})
    assert (status, job["state"], job["due"]) == (200, "new", None)
    for name, schedule, expected in (("web", "@daily", 422), ("many", "0 4 * * *", 422), ("none", "", 404)):
        status, problem = await call("PUT", f"/jobs/{name}/schedule", {"schedule": schedule})
        assert (status, bool(problem["remedy"])) == (expected, True)


@pytest.mark.parametrize("restarted", [False, True])
async def test_scheduled_runs_start_after_a_clock_that_was_years_ahead_is_set_back(tmp_path, restarted):
    _, jobs = application(tmp_path)
    await jobs.store.open()
    await jobs.put_recipe(StoredRecipe(name="web", text=RECIPE.format(url="http://127.0.0.1/")))
    await jobs.add_job(JobRecord(name="nightly", recipe="web", schedule="0 4 * * *"), start=False)
    now, day = time.time(), 86_400.0
    assert await jobs.start_due(now + 3650 * day) == ["nightly"]
    await jobs.steer("nightly", "stop")
    if restarted:
        jobs = JobService(jobs.config, jobs.store, jobs.checker)
    assert await jobs.start_due(now) == []
    assert now < (await jobs.records.job("nightly")).due <= now + day
    assert await jobs.start_due(now + day) == ["nightly"]
    await jobs.store.close()


async def test_a_body_of_another_type_and_an_unknown_path_receive_a_remedy(call):
    kind = "application/x-www-form-urlencoded"  # curl's default with -d
    status, problem = await call("POST", "/jobs", '{"name": "x", "tasks": true}', kind=kind)
    assert (status, problem["errors"][0]["field"]) == (422, "body")
    assert "application/json" in problem["remedy"]
    for method, path, code in (("GET", "/jobs/", 404), ("PUT", "/jobs", 405)):
        status, problem = await call(method, path)
        assert (status, "openapi.json" in problem["remedy"]) == (code, True)


async def test_jobs_in_a_misspelled_state_are_not_an_empty_list(call):
    status, problem = await call("GET", "/jobs?state=runing")
    assert (status, problem["errors"][0]["field"]) == (422, "query.state")


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(call):
    assert (await call("PUT", "/recipes/x", b"#" * 10_001, kind="application/yaml"))[0] == 413
    endless = [b"#" * 6_000] * 1_000
    assert (await call("PUT", "/recipes/x", chunks=endless))[0] == 413
    length = [(b"content-length", b"10001"), (b"authorization", b"Bearer " + TOKEN.encode())]

    async def unread():
        raise AssertionError("it was read")

    sent = []

    async def send(message):
        sent.append(message)

    await AuthMiddleware(None, AuthContext(ApiTokens([TOKEN]), None, None), 10_000)(
        {"type": "http", "path": "/jobs", "headers": length}, unread, send
    )
    assert sent[0]["status"] == 413


async def test_calls_are_logged_with_their_status_and_without_their_token(call, caplog):
    with caplog.at_level("INFO", "skitter.service"):
        await call("GET", "/jobs/a%0Ab")
        await call("GET", "/nodes", token="nobody-knows-this-one")
    calls = [record.getMessage().rpartition(" ms")[0].rpartition(" ")[0] for record in caplog.records]
    assert calls == ["GET '/jobs/a%0Ab' 422", "GET '/nodes' 401"]


async def test_a_job_of_one_node_runs_to_its_end(tmp_path, serve):
    site = serve(lambda visit: Answer(b"<title>x</title>", status=200 if visit.path == "/" else 404))
    app, jobs = application(tmp_path, Node)
    (tmp_path / "spiders" / "shop.py").write_text(SPIDER.format(url=site.url))
    await jobs.store.open()
    call, stopping = Caller(app), asyncio.Event()
    work = asyncio.create_task(Node(jobs).work(stopping))
    await call("POST", "/jobs", {"name": "shop", "spider": "shop.py", "settings": {"robots": False}})
    async with asyncio.timeout(60):
        while (job := (await call("GET", "/jobs/shop"))[1])["state"] != "finished":
            assert not job["node_errors"], job
            await asyncio.sleep(0.05)
    assert (await call("GET", "/jobs/shop/items"))[1] == {"items": [{"url": site.url}], "next": "1.1"}
    metrics = (await call("GET", "/metrics"))[1].splitlines()
    assert 'skitter_items_total{job="shop"} 1.0' in metrics
    assert 'skitter_job_state{job="shop",state="finished"} 1.0' in metrics
    assert (await call("GET", "/metrics"))[1].splitlines() == metrics
    assert (await call("GET", "/jobs/shop/items?after=1.1"))[1] == {"items": [], "next": None}
    changed = await call("PATCH", "/jobs/shop/settings", {"settings": {"wait_for_seeds": True}})
    assert changed == (200, {"changes": {"wait_for_seeds": True}})
    assert (await call("GET", "/jobs/shop"))[1]["changes"] == {"wait_for_seeds": True}
    huge = {"seeds": [{"url": site.url, "meta": {"n": 10**30}}]}
    assert (await call("POST", "/jobs/shop/seeds", huge))[0] == 422
    assert (await call("PATCH", "/jobs/shop/settings", {"settings": {"max_pages": 10**30}}))[0] == 422
    first = job["run"]["id"]
    assert (await call("POST", "/jobs/shop/start"))[1]["previous"]["id"] == first
    async with asyncio.timeout(60):
        while (await call("GET", "/jobs/shop"))[1]["state"] != "finished":
            await asyncio.sleep(0.05)
    stopping.set()
    await work
    await jobs.store.close()
    assert len([hit for hit in site.log.hits if hit.target == "/"]) == 2


async def test_all_items_are_those_of_one_run_although_the_next_run_starts_meanwhile(tmp_path, monkeypatch):
    app, jobs = application(tmp_path)
    await jobs.store.open()
    await jobs.put_recipe(StoredRecipe(name="web", text=RECIPE.format(url="http://127.0.0.1/")))
    job = await jobs.add_job(JobRecord(name="web", recipe="web"), start=True)
    log = jobs.config.items(job.run.id)
    await log.put([(f"page-{number}", b'{"n":%d}' % number) for number in range(2500)])
    await log.close()

    async def read_and_start(*arguments):
        page = await read_items(*arguments)
        if (await jobs.records.job("web")).run.id == job.run.id:
            await jobs.steer("web", "stop")
            await jobs.start("web")
        return page

    monkeypatch.setattr("skitter.service.queries.read_items", read_and_start)
    status, body = await Caller(app)("GET", "/jobs/web/items.jsonl")
    assert status == 200
    assert [json.loads(line)["n"] for line in body.splitlines()] == list(range(2500))
    assert (await jobs.records.job("web")).previous.id == job.run.id
    await jobs.store.close()


async def test_a_run_that_can_fetch_no_page_fails_and_is_resumed_when_its_seeds_are_retried(tmp_path, serve):
    statuses = {"/": 404}
    site = serve(lambda visit: Answer(b"<title>x</title>", status=statuses.get(visit.path, 404)))
    app, jobs = application(tmp_path, Node)
    (tmp_path / "spiders" / "shop.py").write_text(SPIDER.format(url=site.url))
    await jobs.store.open()
    call, stopping = Caller(app), asyncio.Event()
    work = asyncio.create_task(Node(jobs).work(stopping))

    async def end():
        async with asyncio.timeout(60):
            while not (job := (await call("GET", "/jobs/shop"))[1])["run"]["ended"]:
                assert not job["node_errors"], job
                await asyncio.sleep(0.05)
        return job

    await call("POST", "/jobs", {"name": "shop", "spider": "shop.py", "settings": {"robots": False}})
    failed = await end()
    assert failed["state"] == "failed"
    assert "no page could be fetched" in failed["run"]["reason"]
    assert "retry" in failed["run"]["reason"]
    statuses["/"] = 200
    assert (await call("POST", "/jobs/shop/failures/retry", {})) == (200, {"queued": 1})
    await call("POST", "/jobs/shop/resume")
    finished = await end()
    assert (finished["state"], finished["run"]["reason"]) == ("finished", "")
    stopping.set()
    await work
    await jobs.store.close()


async def test_an_unreadable_store_is_unavailable_and_not_a_mistake_of_the_caller(call, tmp_path):
    await call("PUT", "/recipes/web", RECIPE.format(url="http://127.0.0.1/"), kind="application/yaml")
    run = (await call("POST", "/jobs", {"name": "web", "recipe": "web"}))[1]["run"]["id"]
    broken = [tmp_path / "node" / "logs" / f"{run}.log", tmp_path / "node" / "runs" / run / "items.log"]
    for path in broken:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"no database" * 1000)
    for path in ("log", "log.txt", "log.jsonl", "items", "items.jsonl"):
        status, problem = await call("GET", f"/jobs/web/{path}")
        assert (status, bool(problem["remedy"])) == (503, True), path


async def test_the_log_of_a_job_is_found_by_its_run_and_parameters_that_do_not_fit_are_refused(call):
    await call("POST", "/jobs", {"name": "many", "tasks": True})
    job = (await call("GET", "/jobs/many"))[1]
    assert job["logs"] == [job["run"]["id"]]
    assert (await call("GET", "/jobs/many/log"))[1] == {"run": job["run"]["id"], "lines": [], "next": 0}
    assert (await call("GET", "/jobs/many/log?after=7"))[1]["next"] == 7
    for query, field in (
        ("level=loud", "query.level"), ("after=-1", "query.after"), ("limit=1001", "query.limit"), ("last=0", "query.last"),
    ):  # fmt: skip
        status, problem = await call("GET", f"/jobs/many/log?{query}")
        assert (status, problem["errors"][0]["field"]) == (422, field)
    status, problem = await call("GET", "/jobs/many/log.txt?run=another")
    assert (status, "`logs`" in problem["remedy"]) == (404, True)
    assert (await call("GET", "/jobs/none/log"))[0] == 404


@pytest.mark.parametrize(
    ("options", "token", "expected"),
    [
        ((), "", "SKITTER_SERVE_TOKEN"),
        ((), "short", "16"),
        (("--token-file", "none.txt"), TOKEN, "none.txt"),
        (("--spiders", "nowhere"), TOKEN, "nowhere"),
        (("--store", "mysql://x/y"), TOKEN, "mysql"),
        (("--store", "redis://127.0.0.1:1/0"), TOKEN, "redis://127.0.0.1:1/0"),
        (("--output", "items.xyz"), TOKEN, "items.xyz"),
    ],
)  # fmt: skip
def test_a_node_that_cannot_start_reports_the_cause_in_one_line(
    tmp_path, monkeypatch, options, token, expected
):
    monkeypatch.setenv("SKITTER_SERVE_TOKEN", token)
    assert expected in usage_error("serve", "--port", "0", *options, cwd=tmp_path)


def test_a_port_that_is_taken_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("SKITTER_SERVE_TOKEN", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in usage_error("serve", "--port", port, cwd=tmp_path)


# --- valid and invalid calls of the whole API ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)  # several hundred calls
@pytest.mark.parametrize("described", [True, False])
def test_no_generated_call_breaks_the_service(tmp_path, described):
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    mode = schemathesis.GenerationMode.POSITIVE if described else schemathesis.GenerationMode.NEGATIVE
    app, jobs = application(tmp_path)
    asyncio.run(jobs.store.open())
    with ServedApplication(app) as url:
        with_token = {"Authorization": f"Bearer {TOKEN}"}
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=with_token)
        _fill(url, with_token)
        count = 0
        for result in schema.get_all_operations():
            operation = result.ok()

            @settings(
                max_examples=12, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            def try_out(case):
                nonlocal count
                # No node runs these jobs, so the stream would never end.
                (case.query or {}).pop("follow", None)
                if "name" in (case.path_parameters or {}) and count % 2:
                    case.path_parameters["name"] = "tasks" if "tasks" in case.path else "web"
                answer = case.call(headers=with_token, timeout=60)
                count += 1
                assert answer.status_code < 500, (case.as_curl_command(), answer.text)
                if answer.status_code >= 400:
                    assert answer.headers["content-type"] == ["application/problem+json"]

            if described or takes_anything(operation):
                given(case=operation.as_strategy(generation_mode=mode))(try_out)()
        assert count > 150
    asyncio.run(jobs.store.close())


def takes_anything(operation):
    """Return whether a call can be invalid in other parts than its path and method."""
    return bool(operation.body or list(operation.query) or list(operation.path_parameters))


def _fill(url, headers):
    import requests

    requests.put(f"{url}/recipes/web", RECIPE.format(url="http://127.0.0.1:9/"), headers=headers, timeout=60)
    for body in ({"name": "web", "recipe": "web"}, {"name": "tasks", "tasks": True}):
        assert requests.post(f"{url}/jobs", json=body, headers=headers, timeout=60).status_code == 201


class ServedApplication:
    """An application on a port, in a thread of its own."""

    def __init__(self, app):
        self._server = uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="on", access_log=False)
        )
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            self._thread.join(0.01)
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()
