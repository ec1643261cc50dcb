"""Recrawls of a finished job, and warnings about outputs that were added later."""

import json
from collections import Counter

from cli_command import skitter
from crawl_harness import Scripted
from skitter.testing import GeneratedSite


def test_a_finished_job_visits_all_pages_again(serve, tmp_path):
    server = serve(GeneratedSite(pages=12, links_per_page=12, page_bytes=2000))
    command = ("crawl", server.url, "--delay", 0, "--no-robots", "-o", "items.db")
    assert skitter(*command, cwd=tmp_path).returncode == 0
    once = Counter(hit.target for hit in server.log.hits)
    assert skitter(*command, cwd=tmp_path).returncode == 0
    assert Counter(hit.target for hit in server.log.hits) == once, "a finished job fetches nothing"
    done = skitter(*command, "--recrawl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    twice = Counter(hit.target for hit in server.log.hits)
    assert twice == Counter({target: 2 * count for target, count in once.items()})


def test_with_a_long_ttl_a_recrawl_visits_nothing_again(serve, tmp_path):
    server = serve(GeneratedSite(pages=12, links_per_page=12, page_bytes=2000))
    command = ("crawl", server.url, "--delay", 0, "--no-robots", "-o", "items.db", "-s", "visited_ttl=9999")
    assert skitter(*command, cwd=tmp_path).returncode == 0
    hits = len(server.log.hits)
    assert skitter(*command, "--recrawl", cwd=tmp_path).returncode == 0
    assert len(server.log.hits) == hits


def test_an_output_that_is_new_to_the_job_is_announced(serve, tmp_path):
    server = serve(GeneratedSite(pages=12, links_per_page=12, page_bytes=2000))
    command = ("crawl", server.url, "--delay", 0, "--no-robots")
    assert skitter(*command, "-o", "items.db", cwd=tmp_path).returncode == 0
    late = skitter(*command, "-o", "items.db", "-o", "items.jsonl", cwd=tmp_path)
    assert "items.jsonl is a new output of job" in late.stderr
    assert "to get all items, start over with --fresh" in late.stderr
    assert "items.db is new" not in late.stderr


def test_an_output_that_comes_back_is_announced_if_it_lacks_items(serve, tmp_path):
    server = serve(GeneratedSite(pages=12, links_per_page=12, page_bytes=2000))

    def run(*options):
        done = skitter("crawl", server.url, "--delay", 0, "--no-robots", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / "items.jsonl").read_text().splitlines()
        return [line for line in done.stderr.splitlines() if " will lack " in line], len(lines)

    assert run("-o", "items.jsonl") == ([], 12)
    (late,), _ = run("-o", "items.db")
    assert "items.db is a new output of job" in late
    assert run("-o", "items.jsonl") == ([], 12), "no item was found in between"
    run("-o", "items.db", "--recrawl")
    (back,), lines = run("-o", "items.jsonl")
    assert "items.jsonl was not an output of the last runs of job" in back
    assert lines == 12, "the items of the second pass are not in the file"
    assert run("-o", "items.jsonl") == ([], 12), "the loss is reported once"


def test_an_output_that_is_new_to_a_job_without_items_is_not_announced(serve, tmp_path):
    server = serve(Scripted({"/": ["/gone"]}))
    command = ("crawl", f"{server.url}gone", "--delay", 0, "--no-robots")
    assert "status/404" in skitter(*command, "-o", "items.db", cwd=tmp_path).stderr
    assert "new output" not in skitter(*command, "-o", "items.jsonl", cwd=tmp_path).stderr


def test_failures_of_an_earlier_pass_whose_pages_were_met_again_are_settled(serve, tmp_path):
    pages = {"/": ["/broken", "/gone", "/once"], "/once": []}
    server = serve(Scripted(pages))
    command = ("crawl", server.url, "--delay", 0, "--no-robots", "-o", "items.jsonl", "--job", "daily",
               "--summary", "sum.json", "--monitor", "failed <= 1", "--recrawl")  # fmt: skip

    def run(*options):
        status = skitter(*command, *options, cwd=tmp_path).returncode
        summary = json.loads((tmp_path / "sum.json").read_text())
        letters = json.loads(skitter("failures", "list", "daily", "--json", cwd=tmp_path).stdout)
        return status, summary["failed_by_kind"], sorted(letter["url"] for letter in letters)

    broken, gone = f"{server.url}broken", f"{server.url}gone"
    assert run()[1:] == ({"status/404": 2}, [broken, gone])
    pages["/broken"] = []
    # The monitor counts the failures of this pass only. Settled ones do not reduce the number.
    assert run("--fail-on-errors") == (1, {"status/404": 1}, [gone])
    pages["/gone"] = []
    assert run("--fail-on-errors") == (0, {}, [])
