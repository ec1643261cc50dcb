"""Pauses and schedules of single tasks, while the other tasks of their job continue."""

import asyncio
import threading
import time

import pytest

from cli_command import Running, skitter, urls_of, usage_error
from crawl_harness import Scripted
from recipe_runs import run_spider
from skitter.errors import UsageError
from skitter.frontends.tasks import spider as task_spider
from skitter.frontends.tasks.changes import TaskChange, last_scheduled, next_scheduled, task_states
from skitter.frontends.tasks.task_file import TaskFile, TaskFileSpider
from skitter.frontier.records import JobState
from skitter.testing import Answer, WireAnswer

RECIPE = """name: {name}
start: {url}
{more}
pages:
  p: {{items: {{fields: {{task: {{value: {name}}}, url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""
NOON = 1_700_000_000 // 86_400 * 86_400 + 43_200.0


@pytest.fixture
def task_file(tmp_path):
    return TaskFile(tmp_path / "task_file")


def add(task_file, name, url, more="", **fields):
    task_file.add(RECIPE.format(name=name, url=url, more=more), f"{name}.yaml", **fields)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_paused_task_waits_while_the_others_continue_and_its_job_ends_after_its_resumption(
    serve, tmp_path, task_file, monkeypatch, host
):
    """With a host of its own, the task keeps its places there; on a shared host its requests are put back one by one."""
    monkeypatch.setattr(task_spider, "_PAUSED_HOST_DELAY", 0.1)
    monkeypatch.setattr(task_spider, "_PAUSED_REQUEST_DELAY", 0.1)
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def last(_visit):
        loop.call_soon_threadsafe(done.set)
        return Answer(b"")

    links = {f"/a/{n}": [f"/a/{n + 1}"] for n in range(5)} | {"/a/5": []}
    site = Scripted({**links, "/b/0": ["/b/1"], "/b/1": ["/b/2"], "/b/2": last})
    server = serve(site)
    await asyncio.to_thread(add, task_file, "waiting", server.url.replace("127.0.0.1", host) + "a/0")
    await asyncio.to_thread(add, task_file, "working", f"{server.url}b/0")
    await asyncio.to_thread(task_file.change, "waiting", "pause")
    spider = await asyncio.to_thread(TaskFileSpider, task_file=str(tmp_path / "task_file"))
    crawl = asyncio.create_task(run_spider(spider, tmp_path, 2, max_retries=0))
    await asyncio.wait_for(done.wait(), 60)
    assert not any(path.startswith("/a") for path in site.counts)
    assert not crawl.done()
    await asyncio.to_thread(task_file.change, "waiting", "resume")
    ran = await crawl
    assert (ran.state, ran.letters) == (JobState.FINISHED, {})
    assert len(ran.items) == 9
    assert max(site.counts.values()) == 1


def test_a_task_of_a_running_fleet_is_paused_and_resumed_from_the_command_line(serve, tmp_path):
    halfway, paused, more = threading.Event(), threading.Event(), threading.Event()

    def telling(event, *links):
        def page(_visit):
            event.set()
            return Answer("".join(f"<a href={link}>x</a>" for link in links).encode())

        return page

    def answer_when_it_is_paused(_visit):
        def steps():
            while not paused.is_set():
                yield 0.01
            body = b"<a href=/7>x</a>"
            yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (
                len(body),
                body,
            )

        return WireAnswer(steps())

    chain = {f"/{n}": [f"/{n + 1}"] for n in range(40)}
    pages = {"/5": telling(halfway, "/6"), "/6": answer_when_it_is_paused, "/40": telling(more)}
    site = Scripted({**chain, **pages})
    url = serve(site).url
    (tmp_path / "slow.yaml").write_text(
        RECIPE.format(name="slow", url=f"{url}0", more="settings: {delay: 0.1}")
    )
    assert skitter("task", "add", "task_file", "slow.yaml", cwd=tmp_path).returncode == 0
    run = (
        "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=task_file", "--job", "job", "-o", "out.jsonl", "--workers", 2,
        "--no-robots", "-q",
    )  # fmt: skip
    with Running(*run, cwd=tmp_path) as running:
        assert halfway.wait(60)
        told = skitter("task", "pause", "task_file", "slow", cwd=tmp_path)
        assert (told.returncode, told.stderr) == (0, "paused slow\n")
        paused.set()
        assert "paused" in skitter("task", "list", "task_file", cwd=tmp_path).stdout.splitlines()[1]
        assert not more.is_set()
        assert running.process.poll() is None
        assert skitter("task", "resume", "task_file", "slow", cwd=tmp_path).stderr == "resumed slow\n"
        assert more.wait(60)
        assert running.end()[0] == 0
    assert urls_of(tmp_path / "out.jsonl") == sorted(f"{url}{n}" for n in range(41))


def test_a_change_without_effect_adds_no_line_and_a_closed_task_stays_closed(task_file):
    add(task_file, "one", "http://x/")
    task_file.change("one", "resume")
    task_file.change("one", "pause")
    task_file.change("one", "pause")
    assert len(task_file.changes()) == 2
    task_file.change("one", "close")
    for change in ("pause", "resume"):
        with pytest.raises(UsageError, match="closed"):
            task_file.change("one", change)
    with pytest.raises(UsageError, match="'on'"):
        task_file.change("on", "pause")


def test_a_scheduled_task_begins_each_round_at_its_time_and_once():
    def due(now, *lines):
        change = TaskChange(task="t", text="x", schedule="0 12 * * *", at=NOON - 3600)
        return task_states([change, *lines])["t"].due_recrawl(now)

    assert due(NOON - 1) is None, "not before"
    assert due(NOON) == due(NOON + 50_000) == int(NOON)
    begun = TaskChange(task="t", recrawl=int(NOON))
    assert due(NOON + 10, begun) is None
    assert due(NOON + 86_400, begun) == int(NOON) + 86_400
    assert due(NOON + 3 * 86_400, begun) == int(NOON) + 3 * 86_400, "what was missed is one round"
    pause = TaskChange(task="t", paused=True, at=NOON + 100)
    assert due(NOON + 86_400, begun, pause) is None
    resumed = TaskChange(task="t", paused=False, at=NOON + 86_500)
    assert due(NOON + 86_600, begun, pause, resumed) is None, "what came in the pause is left out"
    assert due(NOON + 2 * 86_400, begun, pause, resumed) == int(NOON) + 2 * 86_400
    assert due(NOON + 1, TaskChange(task="t", closed=True)) is None


async def test_the_pages_of_a_scheduled_task_are_fetched_once_in_each_round(serve, tmp_path, task_file):
    site = Scripted({"/": ["/a"], "/a": ["/"]})
    url = serve(site).url
    await asyncio.to_thread(add, task_file, "daily", url, schedule="30 4 * * *")
    path = str(tmp_path / "task_file")
    before = await run_spider(await asyncio.to_thread(TaskFileSpider, task_file=path), tmp_path / "before")
    if not await asyncio.to_thread(lambda: any(change.recrawl for change in task_file.changes())):
        assert before.items == []  # unless this runs over half past four
    for number in (5, 6):
        await asyncio.to_thread(task_file.start_recrawl, "daily", number)
    spider = await asyncio.to_thread(TaskFileSpider, task_file=path, recrawls="given")
    ran = await run_spider(spider, tmp_path / "after")
    assert sorted(item["url"] for item in ran.items) == sorted([url, f"{url}a"] * 2)


def test_an_invalid_schedule_is_rejected(tmp_path, task_file):
    (tmp_path / "r.yaml").write_text(RECIPE.format(name="r", url="http://x/", more="reload: 5"))
    for text in ("now", "* * * *", "61 * * * *", "0 0 31 2 *"):
        assert "invalid schedule" in usage_error(
            "task", "add", "task_file", "r.yaml", "--schedule", text, cwd=tmp_path
        )
    told = usage_error("task", "add", "task_file", "r.yaml", "--schedule", "0 0 * * *", cwd=tmp_path)
    assert "both reload and a schedule" in told
    moment = time.time()
    schedule = "*/7 * * * *"
    last, following = last_scheduled(schedule, moment), next_scheduled(schedule, moment)
    assert last <= moment < following
    assert next_scheduled(schedule, last) == following
