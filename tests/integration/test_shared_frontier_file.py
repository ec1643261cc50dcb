"""Two jobs with the same frontier file: the second one is refused, and the first one is not changed."""

import json

import pytest

from cli_command import skitter, usage_error
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.embedded.repair import repair_file
from skitter.testing import GeneratedSite

FILE = ("--frontier", "sqlite:shared.db")


@pytest.fixture
def server(serve):
    return serve(GeneratedSite(pages=12, links_per_page=12))


def crawl(server, folder, job, *more, frontier=FILE):
    output = () if "-o" in more else ("-o", f"{job}.jsonl")
    return skitter("crawl", server.url, "--job", job, *output, *frontier, *more, cwd=folder)


def refusal(server, folder, job, *more):
    return usage_error("crawl", server.url, "--job", job, "-o", f"{job}.jsonl", *FILE, *more, cwd=folder)


def status_of(job, folder):
    return json.loads(skitter("status", job, "--json", cwd=folder).stdout)


@pytest.mark.parametrize("more", [(), ("--fresh",), ("--recrawl",)])
def test_a_second_job_is_refused_and_the_first_one_continues(server, tmp_path, more):
    assert crawl(server, tmp_path, "first", "--limit", "5").returncode == 0
    before = status_of("first", tmp_path)
    line = refusal(server, tmp_path, "second", *more)
    for word in ("shared.db", "'first'", "'second'", "--frontier", "--job first"):
        assert word in line
    assert status_of("first", tmp_path) == before
    listed = skitter("jobs", cwd=tmp_path).stdout
    assert "first" in listed
    assert "second" not in listed
    assert not (tmp_path / "second.jsonl").exists()
    assert crawl(server, tmp_path, "first").returncode == 0
    assert len((tmp_path / "first.jsonl").read_text().splitlines()) == 12


def test_an_existing_job_keeps_its_data_if_it_is_started_afresh_with_the_file_of_another(server, tmp_path):
    assert crawl(server, tmp_path, "first").returncode == 0
    assert crawl(server, tmp_path, "second", frontier=()).returncode == 0
    before = status_of("second", tmp_path)
    assert "'first'" in refusal(server, tmp_path, "second", "--fresh")
    assert status_of("second", tmp_path) == before


def test_the_job_of_the_file_may_start_afresh(server, tmp_path):
    assert crawl(server, tmp_path, "first").returncode == 0
    assert crawl(server, tmp_path, "first", "--fresh").returncode == 0
    assert status_of("first", tmp_path)["counts"]["done"] == 12


def test_the_same_job_in_another_folder_continues(server, tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    shared = ("--frontier", f"sqlite:{tmp_path / 'shared.db'}")
    items = ("-o", f"sqlite:{tmp_path / 'items.db'}")
    assert crawl(server, folders[0], "job", "--limit", "5", *items, frontier=shared).returncode == 0
    assert crawl(server, folders[1], "job", *items, frontier=shared).returncode == 0
    assert status_of("job", folders[1])["counts"]["done"] == 12


def test_a_job_that_was_renamed_keeps_its_file(server, tmp_path):
    assert crawl(server, tmp_path, "old", "--limit", "5").returncode == 0
    (tmp_path / ".skitter" / "old").rename(tmp_path / ".skitter" / "new")
    assert crawl(server, tmp_path, "new", "-o", "old.jsonl").returncode == 0
    assert status_of("new", tmp_path)["counts"]["done"] == 12


def test_a_repaired_file_still_belongs_to_its_job(server, tmp_path):
    assert crawl(server, tmp_path, "first").returncode == 0
    data = bytearray((tmp_path / "shared.db").read_bytes())
    data[-4096:] = bytes(4096)
    (tmp_path / "shared.db").write_bytes(data)
    assert repair_file(tmp_path / "shared.db").damage
    assert "'first'" in refusal(server, tmp_path, "second")


async def test_a_file_without_a_name_gets_that_of_the_first_job_with_one(tmp_path):
    path = tmp_path / "frontier.db"
    for name in ("", "job", "job", ""):
        frontier = EmbeddedFrontier(path=path, job=name)
        await frontier.open()
        await frontier.close()
