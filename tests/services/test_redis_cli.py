"""A fleet on a server, controlled from a machine that never ran the job."""

import json
import time
import uuid

import pytest

from cli_command import Running, urls_of
from services.redis_servers import running
from skitter.cli.main import run
from skitter.testing import GeneratedSite

PAGES = 30


def shared_file(frontier, job):
    """Return a file that contains the items of all machines."""
    return f"shared.jsonl?parts={frontier}/{job}:parts"


@pytest.fixture
def fleet(serve, tmp_path):
    """A job that two machines keep alive, and the URL of its frontier."""
    site = GeneratedSite(pages=PAGES, links_per_page=12)
    server, frontier, job = serve(site), running("valkey").url, f"shop{uuid.uuid4().hex[:8]}"
    items = f"{frontier}/{job}:items"
    command = ("crawl", server.url, "--delay", 0, "--job", job, "--frontier", frontier, "--wait-for-seeds", "-o",
               "items.jsonl", "-o", items, "-o", shared_file(frontier, job), "--summary", "summary.json")  # fmt: skip
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    with Running(*command, cwd=tmp_path / "one") as one, Running(*command, cwd=tmp_path / "two") as two:
        yield job, frontier, sorted(site.expected_pages(server.origins)), (one, two)


def test_a_fleet_is_steered_from_a_machine_that_never_ran_it(
    fleet, tmp_path, monkeypatch, capsys, no_blocking_calls
):
    no_blocking_calls.deactivate()  # a command may block its own loop
    job, frontier, truth, machines = fleet
    monkeypatch.chdir(tmp_path / "three")

    def skitter(*words):
        code = run([*map(str, words), "--frontier", frontier])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    def status():
        code, out, _ = skitter("status", job, "--json")
        return json.loads(out) if code == 0 else {}

    def wait_until(fact, what):
        deadline = time.monotonic() + 90
        while not fact(status()):
            assert time.monotonic() < deadline, (what, status())
            time.sleep(0.1)

    wait_until(lambda now: (now.get("counts") or {}).get("done") == PAGES, "all pages")
    wait_until(lambda now: len(now["workers"]) == 2, "two workers")
    assert status()["state"] == "running"
    assert skitter("config", job, "max_items=1000", "concurrency=3")[0] == 0
    assert skitter("config", job)[2] == f"job {job}: max_items=1000, concurrency=3\n"
    wait_until(
        lambda now: {one["report"]["concurrency"] for one in now["workers"]} == {3}, "the workers obey"
    )
    assert f"`skitter resume {job} --frontier {frontier}` continues it" in skitter("pause", job)[2]
    seeds = [f"{truth[0]}?seed={number}" for number in range(3)]
    assert skitter("add", job, *seeds, truth[1])[2] == "added: 3, known before: 1\n"
    assert status()["counts"]["queued"] == 3
    assert skitter("purge", job, "127.0.0.1", "--ban")[2] == "127.0.0.1: removed 3 requests, banned\n"
    assert skitter("add", job, seeds[0])[2] == "added: 0, of a banned host: 1\n"
    assert skitter("purge", job, "127.0.0.1", "--unban")[2] == "removed the ban of 127.0.0.1\n"
    hosts = json.loads(skitter("stats", job, "--by", "host", "--json")[1])
    assert [(host["key"], host["pages"], host["items"]) for host in hosts] == [("127.0.0.1", PAGES, PAGES)]
    assert job in {found["job"] for found in json.loads(skitter("top", "--json")[1])}
    assert skitter("resume", job)[2] == f"job {job} is running\n"
    assert skitter("stop", job)[0] == 0
    for machine in machines:
        assert machine.end()[0] == 0
    assert skitter("status", f"{job}x")[0] == 2
    assert skitter("resume", job)[2].startswith(f"skitter: job {job!r} is not running")
    for name in ("one", "two"):
        assert urls_of(tmp_path / name / "shared.jsonl") == truth, "the items of both machines"
    assert skitter("export", job, "-o", shared_file(frontier, job))[0] == 0
    assert urls_of(tmp_path / "three" / "shared.jsonl") == truth
    assert "elsewhere" in skitter("status", job)[1]
    _check_summaries(tmp_path, status()["elsewhere"])
    pushed = tmp_path / "pushed.jsonl"
    code, _, err = skitter("export", job, "-o", "all.jsonl")
    assert (code, "incomplete: " in err) == (1, True)
    parts = [
        part for name in ("one", "two") for part in ("--parts", tmp_path / name / ".skitter" / job / "parts")
    ]
    assert skitter("export", job, "-o", "all.jsonl", "--force", *parts)[0] == 0
    assert urls_of(tmp_path / "three" / "all.jsonl") == truth
    import redis

    with redis.Redis.from_url(frontier, protocol=2) as client:
        pushed.write_bytes(b"".join(item + b"\n" for item in client.lrange(f"{job}:items", 0, -1)))
    assert urls_of(pushed) == truth
    assert not list((tmp_path / "three").glob(".skitter/*")), "nothing is begun where it was only steered"


def _check_summaries(folder, size):
    """Check that each machine counts the items of both and the missing bytes. ``size``: bytes of all items."""
    assert size > PAGES
    summaries = [json.loads((folder / name / "summary.json").read_text()) for name in ("one", "two")]
    assert [summary["items"] for summary in summaries] == [PAGES, PAGES]
    assert sum(summary["elsewhere"] for summary in summaries) == size
