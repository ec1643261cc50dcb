"""A job continues after its folder or its spider was moved, renamed or copied, with the command that started it."""

import json
import shutil
import sqlite3
import uuid
from contextlib import closing

import pytest

from cli_command import SHOP, expected_urls, skitter, urls_of, usage_error
from services.redis_servers import running
from skitter.testing import GeneratedSite

PAGES, FIRST = 24, 8
OPTIONS = ("--no-robots", "--delay", 0, "--quiet")


@pytest.fixture
def web():
    return GeneratedSite(pages=PAGES, links_per_page=12, page_bytes=2000)


@pytest.fixture
def server(web, serve):
    return serve(web)


@pytest.fixture
def project(tmp_path, server):
    """A folder with a job that is partly done."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP.format(url=server.url))
    run(folder, "-s", f"max_pages={FIRST}")
    assert FIRST <= len(urls_of(folder / "items.jsonl")) < PAGES
    return folder


def run(folder, *more, spider="shop.py", output="items.jsonl"):
    result = skitter("run", spider, "-o", output, *OPTIONS, *more, cwd=folder)
    assert result.returncode == 0, result.stderr


def resume(folder, *more):
    """Resume the job without the limit that has stopped it."""
    note = folder / ".skitter/shop/job.json"
    stored = json.loads(note.read_text())
    del stored["settings"]["max_pages"]
    note.write_text(json.dumps(stored))
    result = skitter("resume", "shop", "--quiet", *more, cwd=folder)
    assert result.returncode == 0, result.stderr


def check_whole(folder, web, server, job="shop"):
    assert urls_of(folder / "items.jsonl") == expected_urls(web, server)
    status = json.loads(skitter("status", job, "--json", cwd=folder).stdout)
    assert (status["state"], status["counts"]["done"]) == ("finished", PAGES), "pages were fetched again"


def copied(folder, target):
    shutil.copytree(folder, target, copy_function=shutil.copyfile)  # without times
    return target


def renamed(folder, target):
    return folder.rename(target)


@pytest.mark.parametrize(("change", "command"), [(renamed, "run"), (copied, "run"), (renamed, "resume")])
def test_a_folder_that_was_renamed_or_copied(project, tmp_path, web, server, change, command):
    new = change(project, tmp_path / "elsewhere")
    if command == "run":
        run(new)
    else:
        resume(new)
    check_whole(new, web, server)


def test_a_copy_and_its_original_both_continue(project, tmp_path, web, server):
    copy = copied(project, tmp_path / "copy")
    for folder in (copy, project):
        run(folder)
        check_whole(folder, web, server)


def test_a_spider_file_that_was_renamed(project, web, server):
    (project / "shop.py").rename(project / "store.py")
    line = usage_error("resume", "shop", cwd=project)
    assert "skitter resume shop --spider" in line
    run(project, spider="store.py")
    check_whole(project, web, server)


def test_a_spider_file_that_was_moved_out_of_the_folder(project, tmp_path, web, server):
    (project / "shop.py").rename(tmp_path / "shop.py")
    run(project, spider="../shop.py")
    check_whole(project, web, server)


def test_another_spider_continues_a_job_only_on_demand(project, web, server):
    shutil.copy(project / "shop.py", project / "better.py")
    line = usage_error("run", "better.py", "-o", "items.jsonl", cwd=project)
    assert f"skitter resume shop --spider {project / 'better.py'}:Shop" in line
    assert "--fresh" not in line
    resume(project, "--spider", "better.py")
    check_whole(project, web, server)
    run(project, spider="better.py")  # from now on it is the spider of the job


def test_other_arguments_or_another_frontier_are_refused_with_a_remedy_that_keeps_the_data(project):
    for option in (["-a", "depth=2"], ["--frontier", "sqlite:other.db"]):
        line = usage_error("run", "shop.py", "-o", "items.jsonl", *option, cwd=project)
        assert "--job" in line
        assert "--fresh" not in line


def test_an_output_that_was_renamed_still_belongs_to_the_job(project, web, server):
    (project / "items.jsonl").rename(project / "pages.jsonl")
    run(project, output="pages.jsonl")
    (project / "pages.jsonl").rename(project / "items.jsonl")
    check_whole(project, web, server)


def test_a_copied_output_that_was_edited_is_not_replaced(project, tmp_path):
    copy = copied(project, tmp_path / "copy")
    items = copy / "items.jsonl"
    items.write_bytes(items.read_bytes().replace(b"http", b"HTTP"))
    line = usage_error("run", "shop.py", "-o", "items.jsonl", cwd=copy)
    assert "did not write" in line


def test_a_job_that_was_renamed_keeps_the_ids_of_its_items(tmp_path, web, server):
    """A row that was written before the renaming is replaced, not duplicated."""
    (tmp_path / "shop.py").write_text(SHOP.format(url=server.url))
    run(tmp_path, "-s", f"max_pages={FIRST}", output="items.db")
    (tmp_path / ".skitter/shop").rename(tmp_path / ".skitter/books")
    run(tmp_path, "--job", "books", output="items.db")
    (tmp_path / ".skitter/books").rename(tmp_path / ".skitter/texts")
    run(tmp_path, "--job", "texts", output="items.db")
    with closing(sqlite3.connect(tmp_path / "items.db")) as file, file:
        ids, jobs = file.execute(
            "select count(*), count(distinct substr(_id, 1, instr(_id, ':'))) from items"
        ).fetchone()
    assert (ids, jobs) == (PAGES, 1)
    status = json.loads(skitter("status", "texts", "--json", cwd=tmp_path).stdout)
    assert status["counts"]["done"] == PAGES


def test_a_job_on_a_server_continues_under_its_name_there(tmp_path, web, server):
    job_name = f"job{uuid.uuid4().hex}"
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP.format(url=server.url))
    options = ("--frontier", running("valkey").url)
    run(folder, "--job", job_name, *options, "-s", f"max_pages={FIRST}")
    (folder / ".skitter" / job_name).rename(folder / ".skitter/shop")
    new = folder.rename(tmp_path / "new")
    run(new, *options)
    check_whole(new, web, server)


@pytest.mark.parametrize("damage", ["emptied", "removed"])
def test_an_empty_frontier_does_not_start_the_job_again(project, web, server, damage):
    frontier = project / ".skitter/shop/frontier.db"
    for file in frontier.parent.glob("frontier.db*"):
        file.unlink()
    if damage == "emptied":
        frontier.touch()
    before = (project / "items.jsonl").read_bytes()
    assert "frontier.db" in usage_error("run", "shop.py", "-o", "items.jsonl", *OPTIONS, cwd=project)
    assert (project / "items.jsonl").read_bytes() == before
    run(project, "--fresh")
    assert urls_of(project / "items.jsonl") == expected_urls(web, server)
