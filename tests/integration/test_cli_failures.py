"""`skitter failures`: dead letters are listed, shown, retried and dropped."""

import json

import pytest

from cli_command import skitter, urls_of
from skitter.testing import Answer


class ShakySite:
    """Three pages that fail until they are repaired: two with 404, one with 500."""

    def __init__(self):
        self.repaired = False

    def __call__(self, visit):
        if visit.path == "/":
            return Answer(b'<title>Home</title><a href="/a">a</a><a href="/b">b</a><a href="/c">c</a>')
        if self.repaired:
            return Answer(b"<title>Here</title>")
        return Answer(status=500 if visit.path == "/c" else 404)


@pytest.fixture
def shaky():
    return ShakySite()


@pytest.fixture
def job(shaky, serve, tmp_path):
    server = serve(shaky)
    command = ("crawl", server.url, "--delay", 0, "--job", "j", "-o", "items.jsonl", "-s", "max_retries=0")
    assert skitter(*command, cwd=tmp_path).returncode == 0
    return server


def listed(folder, *more):
    result = skitter("failures", "list", "j", "--json", *more, cwd=folder)
    assert result.returncode == 0, result.stderr
    return {letter["url"].rpartition("/")[2]: letter for letter in json.loads(result.stdout)}


def test_failures_are_listed_with_their_errors_and_requests(job, tmp_path):
    letters = listed(tmp_path)
    assert {name: letter["error"].partition(":")[0] for name, letter in letters.items()} == {
        "a": "status/404", "b": "status/404", "c": "status/500",
    }  # fmt: skip
    assert letters["a"]["request"]["referer"] == job.url
    lines = skitter("failures", "list", "j", cwd=tmp_path).stdout.splitlines()
    assert lines[0].split()[0] == "ID"
    assert len(lines) == 4


def test_show_prints_everything_about_a_failure(job, tmp_path):
    number = listed(tmp_path)["c"]["id"]
    shown = skitter("failures", "show", "j", number, cwd=tmp_path).stdout
    assert job.url_of("/c") in shown
    assert f"referer      {job.url}" in shown


def test_a_kind_chooses_by_the_error_or_its_group(job, tmp_path):
    assert set(listed(tmp_path, "--kind", "status/404")) == {"a", "b"}
    assert set(listed(tmp_path, "--kind", "status")) == {"a", "b", "c"}
    assert set(listed(tmp_path, "--kind", "stat")) == set()


def test_replayed_requests_are_crawled_by_the_next_run(job, shaky, tmp_path):
    shaky.repaired = True
    result = skitter("failures", "retry", "j", "--kind", "status/404", cwd=tmp_path)
    assert result.stderr == "queued again: 2; `skitter resume j` fetches them\n"
    assert skitter("resume", "j", cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == [job.url, job.url_of("/a"), job.url_of("/b")]
    assert set(listed(tmp_path)) == {"c"}


def test_dropped_dead_letters_are_removed(job, tmp_path):
    number = listed(tmp_path)["a"]["id"]
    assert skitter("failures", "drop", "j", number, cwd=tmp_path).stderr == "dropped: 1\n"
    assert set(listed(tmp_path)) == {"b", "c"}
    assert skitter("failures", "drop", "j", cwd=tmp_path).stderr == "dropped: 2\n"
    assert skitter("failures", "list", "j", cwd=tmp_path).stderr == "job j has no failed request\n"
    assert skitter("failures", "retry", "j", "--kind", "status", cwd=tmp_path).stderr == (
        "queued again: 0; job j has no failed request\n"
    )


def test_a_kind_that_no_failure_has_is_answered_with_those_that_occur(job, tmp_path):
    kinds = "job j has no such failure; its kinds: status/404, status/500\n"
    for command, done in (
        ("list", ""),
        ("show", ""),
        ("retry", "queued again: 0; "),
        ("drop", "dropped: 0; "),
    ):
        result = skitter("failures", command, "j", "--kind", "ValueError", cwd=tmp_path)
        assert (result.returncode, result.stderr) == (0, done + kinds)
    assert len(listed(tmp_path)) == 3
    assert "its commands are drop, list, retry, show; see" in skitter("failures", "j", cwd=tmp_path).stderr


def test_an_unknown_id_is_rejected_without_effect(job, tmp_path):
    number = listed(tmp_path)["a"]["id"]
    result = skitter("failures", "retry", "j", number, 999_999, cwd=tmp_path)
    assert result.returncode == 2
    assert "no failure 999999" in result.stderr
    assert len(listed(tmp_path)) == 3


def test_a_failure_that_is_retried_and_fails_again_is_one_failure(serve, tmp_path):
    def site(visit):
        return Answer(b"<a href='/gone'>x</a>") if visit.target == "/" else Answer(b"", status=404)

    url = serve(site).url
    options = ("-o", "items.jsonl", "--job", "again", "--summary", "sum.json")
    assert skitter("crawl", url, *options, cwd=tmp_path).returncode == 0
    for _ in range(2):
        assert skitter("failures", "retry", "again", cwd=tmp_path).returncode == 0
        result = skitter("resume", "again", "--summary", "sum.json", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        summary = json.loads((tmp_path / "sum.json").read_text())
        assert (summary["failed"], summary["failed_by_kind"]) == (1, {"status/404": 1})
