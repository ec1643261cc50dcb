"""Outputs of tasks: the items of a task go only to its outputs."""

import csv
import gzip
import json
import sqlite3
import threading
import time
from contextlib import closing

from cli_command import Running, lines_of, skitter, urls_of, usage_error
from crawl_harness import Scripted
from recipe_runs import run_spider
from skitter.frontends.tasks.spider import TaskSpider
from skitter.frontends.tasks.task import Task
from skitter.frontends.tasks.task_file import TaskFile
from skitter.testing import Answer

RECIPE = """name: {name}
start: {url}{name}
{more}
pages:
  p: {{items: {{fields: {{task: {{value: {name}}}, url: {{value: "{{url}}"}}}}}}, follow: [a]}}
"""
RUN = (
    "run", "skitter.frontends.tasks:TaskFileSpider", "-a", "task_file=task_file", "--job", "job", "--delay", 0, "--no-robots", "-q",
)  # fmt: skip


def site_of(*names):
    return Scripted(
        {f"/{name}": [f"/{name}/1"] for name in names} | {f"/{name}/1": [f"/{name}"] for name in names}
    )


def add(folder, url, name, more="", **fields):
    TaskFile(folder / "task_file").add(RECIPE.format(name=name, url=url, more=more), f"{name}.yaml", **fields)


def wait_for(fact):
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # polls another process


def pages(url, *names):
    return [f"{url}{name}{page}" for name in names for page in ("", "/1")]


def test_items_go_to_the_outputs_of_their_task_and_to_those_of_the_job_only_without(serve, tmp_path):
    url = serve(site_of("one", "two", "three", "four", "five")).url
    add(tmp_path, url, "one")
    add(tmp_path, url, "two", "outputs: [two.jsonl, two.csv]")
    add(tmp_path, url, "three", outputs=["shared.db"])
    add(tmp_path, url, "four", "outputs: [unused.jsonl]", outputs=["shared.db", "two.jsonl"])
    add(tmp_path, url, "five", outputs=["./job.jsonl", "five.jsonl.gz"])  # the job's, and one more
    result = skitter(*RUN, "-o", "job.jsonl", "--workers", 2, "--summary", "sum.json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert urls_of(tmp_path / "job.jsonl") == sorted(pages(url, "one", "five"))
    assert urls_of(tmp_path / "two.jsonl") == sorted(pages(url, "two", "four"))
    with (tmp_path / "two.csv").open() as file:
        assert sorted(row["url"] for row in csv.DictReader(file)) == pages(url, "two")
    with gzip.open(tmp_path / "five.jsonl.gz", "rt") as file:
        assert sorted(json.loads(line)["url"] for line in file) == pages(url, "five")
    with closing(sqlite3.connect(tmp_path / "shared.db")) as db:
        rows = db.execute("SELECT url FROM items ORDER BY url").fetchall()
    assert [row[0] for row in rows] == sorted(pages(url, "three", "four"))
    assert not (tmp_path / "unused.jsonl").exists()
    named = json.loads((tmp_path / "sum.json").read_text())["outputs"]
    assert named == ["job.jsonl", "two.jsonl", "two.csv", "shared.db", "five.jsonl.gz"]
    first = {name: (tmp_path / name).read_bytes() for name in ("job.jsonl", "two.jsonl", "two.csv")}
    assert skitter(*RUN, "-o", "job.jsonl", cwd=tmp_path).returncode == 0
    assert {name: (tmp_path / name).read_bytes() for name in first} == first
    exported = skitter("export", "job", "-o", "all.jsonl", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    in_files = sorted(pages(url, "one", "two", "four", "five"))  # those of the database are in the database
    assert urls_of(tmp_path / "all.jsonl") == in_files


def test_an_output_of_a_task_that_is_taken_or_of_no_kind_is_refused_before_anything_is_fetched(
    serve, tmp_path
):
    site = site_of("one")
    add(tmp_path, serve(site).url, "one", outputs=["items.jsonl"])
    (tmp_path / "items.jsonl").write_text('{"somebody": "else"}\n')
    assert "did not write" in usage_error(*RUN, "-o", "other.jsonl", cwd=tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE.format(name="two", url="http://x/", more=""))
    assert "unknown kind of output" in usage_error(
        "task", "add", "task_file", "r.yaml", "-o", "items.xyz", cwd=tmp_path
    )
    assert site.visits == []
    assert skitter(*RUN, "-o", "other.jsonl", "--fresh", cwd=tmp_path).returncode == 0
    assert len(lines_of(tmp_path / "items.jsonl")) == 2


def test_an_output_of_a_later_task_that_cannot_be_filled_is_reported_at_the_end_and_filled_by_the_next_run(
    serve, tmp_path
):
    began, came = threading.Event(), threading.Event()

    def set_on_visit(event):
        def page(_visit):
            event.set()
            return Answer(b"")

        return page

    site = Scripted({"/one": ["/one/1"], "/one/1": set_on_visit(began), "/late": set_on_visit(came)})
    url = serve(site).url
    add(tmp_path, url, "one")
    (tmp_path / "late.jsonl").write_text('{"somebody": "else"}\n')
    watching = (*RUN, "-o", "job.jsonl", "-a", "watch=yes", "--workers", 2)
    with Running(*watching, cwd=tmp_path) as running:
        assert began.wait(60)
        add(tmp_path, url, "late", outputs=["late.jsonl"])
        assert came.wait(60)
        running.interrupt()
        status, _, errors = running.end()
    assert status == 1
    assert "late.jsonl holds something that job 'job' did not write" in errors
    assert urls_of(tmp_path / "job.jsonl") == pages(url, "one")
    assert lines_of(tmp_path / "late.jsonl") == [{"somebody": "else"}]
    (tmp_path / "late.jsonl").unlink()
    ended = skitter(*RUN, "-o", "job.jsonl", cwd=tmp_path)  # other arguments mean another job
    assert "was started with other arguments" in ended.stderr
    with Running(*watching, cwd=tmp_path) as running:
        wait_for(lambda: json.loads(skitter("status", "job", "--json", cwd=tmp_path).stdout)["live"])
        running.interrupt()
        running.end()
    assert urls_of(tmp_path / "late.jsonl") == [f"{url}late"]


async def test_items_whose_outputs_cannot_be_opened_by_a_worker_are_dead_letters_and_other_tasks_continue(
    serve, tmp_path
):
    def read(context):
        return {"task": context.task}

    url = serve(Scripted({"/one": [], "/two": []})).url
    folder = tmp_path / "gone"
    tasks = [
        Task("one", start=[f"{url}one"], rules={"page": read}),
        Task("two", start=[f"{url}two"], rules={"page": read}, outputs=[f"sqlite:{folder}/items.db"]),
    ]
    ran = await run_spider(TaskSpider(tasks), tmp_path)
    assert ran.items == [{"task": "one"}]
    assert list(ran.letters) == ["/two"]
    assert ran.letters["/two"].startswith("store: ")
