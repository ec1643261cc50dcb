"""A task file: recipes that are added to a job, closed and reloaded while it runs."""

import asyncio
import threading

import pytest

from cli_command import Running, lines_of, skitter, usage_error
from crawl_harness import Scripted
from recipe_runs import run_spider
from skitter.errors import SpiderError, UsageError
from skitter.frontends.recipe.source import RecipeError
from skitter.frontends.tasks import task_file as task_file_module
from skitter.frontends.tasks.changes import tasks_by_name
from skitter.frontends.tasks.python_task import task_of_change
from skitter.frontends.tasks.task_file import TaskFile, TaskFileSpider
from skitter.testing import Answer

RECIPE = """name: {name}
start: {url}
{more}
pages:
  p: {{items: {{fields: {{task: {{value: {name}}}, url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""
SCRIPTED = r"""name: scripted
allowed_domains: any
variables: {{site: "{url}"}}
start:
  - script: "for (const n of [1, 2]) ctx.follow('${{site}}list' + n, {{rule: 'list', data: {{n}}}})"
    page: list
pages:
  list: {{script: "ctx.parseJSReg('story', /href=.(\\/s\\d)/); ctx.output({{list: ctx.data.n}})"}}
  story: {{script: "return {{story: ctx.css('h1::text')[0], n: ctx.data.n}}"}}
"""


def recipe(name, url, more=""):
    return RECIPE.format(name=name, url=url, more=more)


@pytest.fixture
def task_file(tmp_path):
    return TaskFile(tmp_path / "task_file.jsonl")


class Counted:
    """A task file that records when it is read."""

    def __init__(self, task_file, looks):
        self._file = task_file
        self._looks = looks

    def __getattr__(self, name):
        return getattr(self._file, name)

    def size(self):
        self._looks.append(1)
        return self._file.size()


def spider_on(path, **arguments):
    return asyncio.to_thread(TaskFileSpider, task_file=str(path), **arguments)


def test_a_task_file_keeps_added_tasks_and_rejects_a_used_name(task_file, tmp_path):
    assert task_file.add(recipe("one", "http://x/"), "one.yaml") == "one"
    task_file.add(recipe("two", "http://x/"), "two.yaml", {})
    task_file.change("one", "close")
    assert [(change.task, change.closed) for change in task_file.changes()] == [
        ("one", False),
        ("two", False),
        ("one", True),
    ]
    with pytest.raises(UsageError, match="'two'"):
        task_file.add(recipe("two", "http://y/"), "two.yaml")
    with pytest.raises(UsageError, match="'tow'") as caught:
        task_file.change("tow", "close")
    assert "two" in caught.value.remedy
    with pytest.raises(RecipeError, match=r"bad\.yaml line 1"):
        task_file.add("pages: {}", "bad.yaml")
    assert len(task_file.changes()) == 3


def test_a_line_that_was_torn_by_a_crash_is_left_out_and_then_removed(task_file, tmp_path):
    task_file.add(recipe("one", "http://x/"), "one.yaml")
    path = tmp_path / "task_file.jsonl"
    path.write_bytes(path.read_bytes() + b'{"task":"tw')  # as it is written
    assert len(task_file.changes()) == 1
    task_file.add(recipe("two", "http://x/"), "two.yaml")
    assert [change.task for change in task_file.changes()] == ["one", "two"]


@pytest.mark.parametrize("content", [b"my notes", b"one\ntwo", b'{"task": 1}', b"{}"])
def test_a_file_that_is_not_a_task_file_is_rejected_and_unchanged(tmp_path, content):
    """Also one whose last line has no end, which would be a torn one in a task file."""
    file = tmp_path / "notes"
    file.write_bytes(content)
    (tmp_path / "one.yaml").write_text(recipe("one", "http://x/"))
    for command in (("add", "notes", "one.yaml"), ("close", "notes", "one")):
        assert "is not a task file" in usage_error("task", *command, cwd=tmp_path)
        assert file.read_bytes() == content


def test_a_missing_task_file_is_reported_and_not_created(tmp_path):
    for command in (("list",), ("pause", "one"), ("close", "one")):
        arguments = (command[0], "nowhere", *command[1:])
        assert "nowhere; create it with `skitter task add`" in usage_error("task", *arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_writers_at_once_lose_nothing(task_file):
    def write(writer):
        for number in range(10):
            task_file.add(recipe(f"t{writer}-{number}", "http://x/"), "r.yaml")

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({change.task for change in task_file.changes()}) == 30


async def test_the_tasks_of_a_book_run_beside_each_other_and_the_job_ends(serve, tmp_path, task_file):
    site = Scripted({"/": ["/a"], "/a": ["/"]})
    url = serve(site).url
    for name in ("one", "two"):
        await asyncio.to_thread(task_file.add, recipe(name, url), f"{name}.yaml")
    ran = await run_spider(await spider_on(tmp_path / "task_file.jsonl"), tmp_path, 2)
    assert sorted((item["task"], item["url"]) for item in ran.items) == [
        (name, f"{url}{path}") for name in ("one", "two") for path in ("", "a")
    ]


async def test_rules_and_roots_may_be_scripts(serve, tmp_path, task_file):
    site = Scripted({
        "/list1": Answer(b"<a href='/s1'>x</a><a href='/s2'>x</a>"), "/list2": Answer(b"<a href='/s1'>x</a>"),
        "/s1": Answer(b"<h1>S1</h1>"), "/s2": Answer(b"<h1>S2</h1>"),
    })  # fmt: skip
    text = SCRIPTED.format(url=serve(site).url)
    await asyncio.to_thread(task_file.add, text, "scripted.yaml")
    ran = await run_spider(await spider_on(tmp_path / "task_file.jsonl"), tmp_path)
    assert ran.letters == {}
    assert sorted(item["list"] for item in ran.items if "list" in item) == [1, 2]
    assert sorted(item["story"] for item in ran.items if "story" in item) == ["S1", "S2"]


async def test_a_task_reloads_only_in_its_rounds(serve, tmp_path, task_file):
    site = Scripted({"/": []})
    url = serve(site).url
    text = recipe("often", url, "reload: 1000000000")  # no period ends while the test runs
    await asyncio.to_thread(task_file.add, text, "r.yaml")
    await asyncio.to_thread(task_file.start_recrawl, "often", 5)
    await asyncio.to_thread(task_file.start_recrawl, "often", 5)
    ran = await run_spider(await spider_on(tmp_path / "task_file.jsonl"), tmp_path)
    assert len(ran.items) == 2  # the recorded recrawl, and the current one
    recrawls = [change.recrawl for change in await asyncio.to_thread(task_file.changes)]
    assert recrawls[:2] == [None, 5]
    assert len(recrawls) == 3


def test_a_task_is_added_to_a_running_fleet_and_another_is_closed(serve, tmp_path, task_file):
    """Each worker is a separate process that learns of the tasks only from the task file."""
    seen, done = threading.Event(), threading.Event()

    def answer(event, body=b""):
        def page(_visit):
            event.set()
            return Answer(body)

        return page

    site = Scripted({
        "/": ["/a"], "/a": answer(seen), "/late": ["/late/a"], "/late/a": answer(done), "/closed": [],
    })  # fmt: skip
    url = serve(site).url
    task_file.add(recipe("one", url), "one.yaml")
    task_file.add(recipe("closed", f"{url}closed"), "closed.yaml")
    task_file.change("closed", "close")
    arguments = (
        "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=task_file.jsonl", "-a", "watch=yes", "--job", "many", "--workers", 2,
        "-o", "out.jsonl", "--delay", 0, "--no-robots", "-q",
    )  # fmt: skip
    with Running(*arguments, cwd=tmp_path) as running:
        assert seen.wait(60)
        (tmp_path / "late.yaml").write_text(recipe("late", f"{url}late"))
        assert skitter("task", "add", "task_file.jsonl", "late.yaml", cwd=tmp_path).returncode == 0
        assert done.wait(60)
        running.interrupt()
        running.end()
    found = sorted((item["task"], item["url"]) for item in lines_of(tmp_path / "out.jsonl"))
    assert found == [("late", f"{url}late"), ("late", f"{url}late/a"), ("one", url), ("one", f"{url}a")]
    assert "/closed" not in site.counts
    listed = skitter("task", "list", "task_file.jsonl", cwd=tmp_path).stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
        ["one", "open"], ["closed", "closed"], ["late", "open"],
    ]  # fmt: skip


PYTHON = """
from skitter import Task, TaskSpider

def read(context):
    yield context.output({{"page": context.url.removeprefix("{url}")}})
    yield context.follow_all("a")

class Many(TaskSpider):
    tasks = tuple(Task(name, start=["{url}" + name], rules={{"page": read}}) for name in ("one", "late"))
"""


def test_tasks_in_python_are_added_to_a_running_fleet_closed_and_added_again_by_name(serve, tmp_path):
    """The second `one` crawls its pages again, and the requests of the first one are gone."""
    visits, late = threading.Semaphore(0), threading.Event()

    def first(_visit):
        visits.release()
        return Answer(b"")

    def second(_visit):
        late.set()
        return Answer(b"")

    site = Scripted({"/one": ["/one/a"], "/one/a": first, "/late": second})
    url = serve(site).url
    (tmp_path / "many.py").write_text(PYTHON.format(url=url))
    assert skitter("task", "add", "tasks.jsonl", "one", "--spider", "many.py", cwd=tmp_path).returncode == 0
    assert "'on'" in usage_error("task", "add", "tasks.jsonl", "on", "--spider", "many.py:Many", cwd=tmp_path)
    arguments = (
        "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=tasks.jsonl", "-a", "watch=yes", "--job", "many",
        "--workers", 2, "-o", "out.jsonl", "--delay", 0, "--no-robots", "-q",
    )  # fmt: skip
    with Running(*arguments, cwd=tmp_path) as running:
        assert visits.acquire(timeout=60)
        assert (
            skitter("task", "add", "tasks.jsonl", "late", "--spider", "many.py:Many", cwd=tmp_path).returncode
            == 0
        )
        assert late.wait(60)
        assert "'one'" in usage_error(
            "task", "add", "tasks.jsonl", "one", "--spider", "many.py", cwd=tmp_path
        )
        assert skitter("task", "close", "tasks.jsonl", "one", cwd=tmp_path).returncode == 0
        assert (
            skitter("task", "add", "tasks.jsonl", "one", "--spider", "many.py", cwd=tmp_path).returncode == 0
        )
        assert visits.acquire(timeout=60)
        listed = skitter("task", "list", "tasks.jsonl", cwd=tmp_path).stdout
        running.interrupt()
        running.end()
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["one", "open"], ["late", "open"]]
    assert site.counts == {"/one": 2, "/one/a": 2, "/late": 1}
    items = {(item["task"], item["page"]) for item in lines_of(tmp_path / "out.jsonl")}
    assert items == {("late", "late"), ("one", "one"), ("one", "one/a")}


async def test_a_task_in_python_that_a_machine_cannot_load_fails_alone(serve, tmp_path, task_file):
    site = Scripted({"/one": [], "/late": []})
    path = tmp_path / "gone_soon.py"
    await asyncio.to_thread(path.write_text, PYTHON.format(url=serve(site).url))
    await asyncio.to_thread(task_file.add_python, f"{path}:Many", "late")
    await asyncio.to_thread(task_file.add_python, f"{path}:Many", "one")
    changes = await asyncio.to_thread(task_file.changes)
    broken = changes[1]
    broken.spider = str(tmp_path / "nowhere.py")
    good, bad = [await asyncio.to_thread(task_of_change, change) for change in changes]
    assert [request.url async for request in good.start_requests()]
    with pytest.raises(SpiderError, match="nowhere"):
        [request async for request in bad.start_requests()]
    with pytest.raises(SpiderError, match="nowhere"):
        await bad.read(None, "page", {}, None)


def test_a_name_is_used_again_only_after_its_task_is_closed(task_file):
    one = recipe("one", "http://x/")
    for _ in range(3):
        task_file.add(one, "one.yaml")
        with pytest.raises(UsageError, match="'one'"):
            task_file.add(one, "one.yaml")
        task_file.change("one", "pause")
        task_file.change("one", "close")
    added = [change for change in task_file.changes() if change.adds]
    assert [(change.task, change.name) for change in added] == [
        ("one", ""),
        ("one~2", "one"),
        ("one~3", "one"),
    ]
    assert [
        (name, state.task, state.state) for name, state in tasks_by_name(task_file.changes()).items()
    ] == [("one", "one~3", "closed")]


async def test_a_worker_waits_for_a_task_that_only_another_worker_has_read(tmp_path, task_file, monkeypatch):
    await asyncio.to_thread(task_file.add, recipe("one", "http://x/"), "one.yaml")
    spider = await spider_on(tmp_path / "task_file.jsonl", watch="yes")
    assert (await spider.find_task("one")).name == "one"
    asked = asyncio.create_task(spider.find_task("two"))
    looks = []
    monkeypatch.setattr(spider, "_file", Counted(spider._file, looks))
    while len(looks) < 2:
        await asyncio.sleep(0.01)
    assert not asked.done()
    await asyncio.to_thread(task_file.add, recipe("two", "http://x/"), "two.yaml")
    assert (await asked).name == "two"
    monkeypatch.setattr(task_file_module, "_TASK_TIMEOUT", 0.0)
    with pytest.raises(SpiderError, match="'three'"):
        await spider.find_task("three")


def test_mistakes_are_reported_in_one_line(tmp_path):
    (tmp_path / "one.yaml").write_text(recipe("one", "http://x/"))
    said = usage_error("run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=none", cwd=tmp_path)
    assert said.startswith("skitter: none ")
    assert "skitter task add none" in said
    assert "missing.yaml" in usage_error("task", "add", "task_file", "missing.yaml", cwd=tmp_path)
    (tmp_path / "task_file").write_text("nonsense\n")
    assert "is not a task file" in usage_error("task", "list", "task_file", cwd=tmp_path)
    told = usage_error(
        "run",
        "skitter.frontends.tasks:TaskFileSpider",
        "-a",
        "task_file=none",
        "-a",
        "watch=maybe",
        cwd=tmp_path,
    )
    assert "watch" in told
    assert "'maybe'" in told
