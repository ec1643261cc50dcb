"""`skitter add`, `set`, `drop-host`, `counters`, `status --watch`, `top` and `export`, as users run them."""

import asyncio
import fcntl
import gzip
import json
import os
import pty
import select
import shutil
import subprocess
import termios
import time

import pytest

from cli_command import (
    SHOP,
    SKITTER,
    Running,
    SlowingSite,
    expected_urls,
    lines_of,
    skitter,
    urls_of,
    usage_error,
)
from skitter.cli.live_view import watch_jobs
from skitter.cli.main import run
from skitter.errors import UsageError
from skitter.testing import Answer, GeneratedSite

PAGES = 40


@pytest.fixture
def site():
    return GeneratedSite(pages=PAGES, links_per_page=12)


@pytest.fixture
def server(site, serve):
    return serve(site)


@pytest.fixture
def shop(server, tmp_path):
    """A job that has crawled the whole site."""
    result = skitter("crawl", server.url, "--delay", 0, "--job", "shop", "-o", "items.jsonl", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    return tmp_path


def status(folder, job="shop"):
    return json.loads(skitter("status", job, "--json", cwd=folder).stdout)


def wait_until(fact, what):
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


# --- add ------------------------------------------------------------------------------------------------------


def test_a_file_in_place_of_a_url_is_answered_with_its_option(shop):
    (shop / "seeds.txt").write_text("http://127.0.0.1:9/\n")
    line = usage_error("add", "shop", "seeds.txt", cwd=shop)
    assert line.endswith("seeds.txt is a file, not a URL; write --file seeds.txt")
    assert "'none.txt' was refused" in usage_error("add", "shop", "none.txt", cwd=shop)


def test_seeds_are_added_once_to_a_job_that_does_not_run_and_fetched_by_its_next_run(site, server, tmp_path):
    first, *others = expected_urls(site, server)
    start = ("crawl", first, "--depth", 0, "--delay", 0, "--job", "shop", "-o", "items.jsonl")
    assert skitter(*start, cwd=tmp_path).returncode == 0
    added = skitter("add", "shop", first, *others[:5], cwd=tmp_path)
    assert added.stderr == "added: 5, known before: 1; `skitter resume shop` fetches them\n"
    assert skitter("add", "shop", others[0], cwd=tmp_path).stderr == "added: 0, known before: 1\n"
    assert skitter("resume", "shop", cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == sorted([first, *others[:5]])


def test_a_file_of_thousands_of_seeds_is_added_with_every_line(server, shop):
    (shop / "seeds").write_text("".join(f"{server.url}?{number}\n" for number in range(2_500)))
    assert skitter("add", "shop", "--file", "seeds", cwd=shop).stderr.startswith("added: 2500;")
    assert skitter("add", "shop", "--file", "seeds", cwd=shop).stderr == "added: 0, known before: 2500\n"


def test_a_file_of_seeds_may_be_a_pipe(server, shop):
    result = skitter("add", "shop", "--file", "/dev/stdin", cwd=shop, stdin=f"{server.url}?pipe\n")
    assert result.stderr.startswith("added: 1;")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_kept_alive_takes_seeds_while_it_waits_and_ends_when_it_is_stopped(
    site, server, tmp_path, workers
):
    first, *others = expected_urls(site, server)
    command = (
        "crawl",
        first,
        "--depth",
        0,
        "--delay",
        0,
        "--job",
        "shop",
        "-o",
        "items.jsonl",
        "--wait-for-seeds",
    )
    with Running(*command, "--workers", workers, cwd=tmp_path) as running:
        wait_until((tmp_path / ".skitter/shop/job.json").exists, "the job")
        wait_until(lambda: (status(tmp_path)["counts"] or {}).get("done") == 1, "the first page")
        assert status(tmp_path)["state"] == "running"
        lines = "\n".join(others[:5])
        assert skitter("add", "shop", "--file", "-", cwd=tmp_path, stdin=lines).stderr == "added: 5\n"
        wait_until(lambda: status(tmp_path)["counts"]["done"] == 6, "the seeds")
        assert running.process.poll() is None
        assert skitter("stop", "shop", cwd=tmp_path).returncode == 0
        code, _, _ = running.end()
    assert code == 0
    assert urls_of(tmp_path / "items.jsonl") == sorted([first, *others[:5]])


def test_a_job_ends_by_itself_after_its_idle_time(server, tmp_path):
    command = (
        "crawl",
        server.url,
        "--delay",
        0,
        "--job",
        "shop",
        "-o",
        "items.jsonl",
        "-s",
        "wait_for_seeds=0.5",
    )
    assert skitter(*command, cwd=tmp_path).returncode == 0
    assert status(tmp_path)["state"] == "finished"


def test_json_seeds_reach_the_page_as_they_were_written(serve, tmp_path):
    seen = []

    def echo(visit):
        seen.append((visit.method, visit.target, visit.headers.get("x-a"), visit.body))
        return Answer(b"<title>x</title>")

    server = serve(echo)
    (tmp_path / "spider.py").write_text(
        "from skitter import Spider\n"
        "class Echo(Spider):\n"
        "    async def start(self):\n"
        "        return\n"
        "        yield\n"
        "    def parse(self, response):\n"
        "        yield {'by': 'parse', 'depth': response.request.depth}\n"
        "    def detail(self, response):\n"
        "        yield {'by': 'detail', 'depth': response.request.depth, 'meta': response.request.meta}\n"
    )
    command = ("run", "spider.py", "-o", "items.jsonl", "--no-robots", "--delay", 0)
    assert skitter(*command, cwd=tmp_path).returncode == 0
    (tmp_path / "seeds").write_text(
        f"# seeds\n\n{server.url}plain\n"
        f'{{"url": "{server.url}json", "method": "POST", "body": "{{}}", "headers": {{"X-A": "b"}}, "callback": "detail",'
        ' "depth": 3, "meta": {"k": [1]}}\n'
    )
    assert skitter("add", "echo", "--file", "seeds", cwd=tmp_path).stderr.startswith("added: 2")
    assert skitter(*command, cwd=tmp_path).returncode == 0
    items = sorted(lines_of(tmp_path / "items.jsonl"), key=lambda item: item["by"])
    assert items == [{"by": "detail", "depth": 3, "meta": {"k": [1]}}, {"by": "parse", "depth": 0}]
    assert ("POST", "/json", "b", b"{}") in seen
    line = usage_error("add", "echo", f'{{"url": "{server.url}x", "callback": "nothing"}}', cwd=tmp_path)
    assert "URL 1: the spider has no method 'nothing'" in line


def test_invalid_lines_are_named_by_number_and_no_seed_is_added_unless_requested(shop, server):
    lines = [
        f"{server.url}?a",
        "",
        "ftp://x/",
        "# note",
        '{"url": 1}',
        f"{server.url}?b",
        "http://elsewhere.test/",
    ]
    (shop / "seeds").write_text("\n".join(lines))
    before = status(shop)["counts"]
    line = usage_error("add", "shop", "--file", "seeds", cwd=shop)
    assert "nothing was added; invalid: 3 of 5 seeds" in line
    assert all(
        text in line
        for text in (
            "line 3: ",
            "only http and https",
            "line 5: the seed has no url",
            "line 7: ",
            "allowed_domains",
        )
    ), line
    assert status(shop)["counts"] == before
    result = skitter("add", "shop", "--file", "seeds", "--skip-bad", cwd=shop)
    assert result.returncode == 0
    assert result.stderr.splitlines()[-1].startswith("added: 2;")
    assert "skipped, line 5: the seed has no url" in result.stderr


MISUSE = {
    ("add", "shop"): "--file",
    ("add", "shop", "--file", "none.txt"): "none.txt",
    ("add", "nojob", "http://x.test/"): "nojob",
    ("add", "shop", "http://x.test/", "--frontier", "sqlite:"): "sqlite:",
    ("config", "shop", "user_agent=x"): "user_agent",
    ("config", "shop", "dealy=1"): "dealy",
    ("config", "shop", "concurrency_per_slot=0"): "concurrency_per_slot",
    ("config", "shop", "delay=fast"): "fast",
    ("config", "shop", "delay"): "delay",
    ("purge", "shop", "h", "--ban", "--unban"): "--unban",
    ("purge", "shop", "http://x.test/page"): "http://x.test/page",
    ("purge", "shop", "no such host", "--ban"): "no such host",
    ("purge", "shop", ""): "host",
    ("top", "--frontier", "sqlite:"): "sqlite:",
    ("jobs", "--frontier", "sqlite:"): "sqlite:",
    ("export", "shop", "-o", "-"): "not a file for items",
}


def test_misuse_is_one_line(shop, monkeypatch, capsys):
    monkeypatch.chdir(shop)
    for command, words in MISUSE.items():
        assert run(list(command)) == 2, command
        shown = capsys.readouterr()
        assert shown.out == ""
        (line,) = shown.err.splitlines()
        assert line.startswith("skitter: ")
        assert words in line, line


# --- set, drop-host -------------------------------------------------------------------------------------------


def test_settings_are_changed_while_a_job_runs_and_hold_for_later_runs(site, serve, tmp_path):
    slow = SlowingSite(site, after=5, delay=1.0)
    server = serve(slow)
    command = (
        "crawl",
        server.url,
        "--delay",
        0,
        "--concurrency-per-slot",
        1,
        "--job",
        "shop",
        "-o",
        "items.jsonl",
    )
    with Running(*command, cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        assert skitter("pause", "shop", cwd=tmp_path).returncode == 0
        slow.released.set()
        result = skitter("config", "shop", "max_pages=38", "concurrency=2", cwd=tmp_path)
        assert result.stderr == "job shop: max_pages=38, concurrency=2\n"
        assert skitter("resume", "shop", cwd=tmp_path).returncode == 0
        code, _, stderr = running.end()
    assert code == 0
    assert "limit reached: 38 pages" in stderr
    assert len(lines_of(tmp_path / "items.jsonl")) == 38
    assert skitter("config", "shop", cwd=tmp_path).stderr == "job shop: max_pages=38, concurrency=2\n"
    assert status(tmp_path)["changes"] == {"max_pages": 38, "concurrency": 2}
    assert skitter("resume", "shop", "-q", cwd=tmp_path).returncode == 0
    assert len(lines_of(tmp_path / "items.jsonl")) == 38, "the limit holds for a later run"
    assert skitter("config", "shop", "--reset", cwd=tmp_path).stderr == "job shop: no changes\n"
    assert skitter("resume", "shop", "-q", cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_a_host_is_dropped_banned_and_allowed_again(shop, server):
    more = [f"{server.url}?{number}" for number in range(3)]
    assert skitter("add", "shop", *more, cwd=shop).returncode == 0
    assert (
        skitter("purge", "shop", "127.0.0.1", "--ban", cwd=shop).stderr
        == "127.0.0.1: removed 3 requests, banned\n"
    )
    assert status(shop)["banned"] == ["127.0.0.1"]
    assert status(shop)["counts"]["counters"]["refused/dropped"] == 3
    assert skitter("add", "shop", f"{server.url}?new", cwd=shop).stderr == "added: 0, of a banned host: 1\n"
    assert (
        skitter("purge", "shop", "127.0.0.1", "--unban", cwd=shop).stderr == "removed the ban of 127.0.0.1\n"
    )
    assert skitter("add", "shop", f"{server.url}?new", cwd=shop).stderr.startswith("added: 1;")


def test_a_host_is_banned_however_it_is_written(shop):
    assert skitter("purge", "shop", "http://BÜCHER.test/", "--ban", cwd=shop).returncode == 0
    assert status(shop)["banned"] == ["xn--bcher-kva.test"]
    result = skitter("purge", "shop", "xn--bcher-kva.test", "--unban", cwd=shop)
    assert result.stderr == "removed the ban of xn--bcher-kva.test\n"


# --- status and counters --------------------------------------------------------------------------------------


def test_a_job_that_cannot_be_read_hides_none_of_the_others(shop, free_port):
    lost = shop / ".skitter" / "lost"
    lost.mkdir()
    note = json.loads((shop / ".skitter" / "shop" / "job.json").read_text())
    lost_note = note | {"job": "lost", "frontier": f"redis://127.0.0.1:{free_port}/0"}
    (lost / "job.json").write_text(json.dumps(lost_note))
    for name in ("broken", "no name of a job"):
        (shop / ".skitter" / name).mkdir()
        (shop / ".skitter" / name / "job.json").write_text("{")
    for command in ("jobs", "top"):
        result = skitter(command, cwd=shop)
        assert result.returncode == 0
        states = [line.split()[:2] for line in result.stdout.splitlines()[1:]]
        assert states == [["broken", "unknown"], ["lost", "unknown"], ["shop", "finished"]]
        broken, away = result.stderr.splitlines()
        assert broken.startswith("job broken: ")
        assert away.startswith("job lost: ")
        assert "does not respond" in away


async def test_watching_a_missing_job_fails_at_once():
    async def look():
        raise UsageError("there is no such job")

    with pytest.raises(UsageError, match="no such job"):
        async with asyncio.timeout(20):
            await watch_jobs(look, 0.1, detailed=True)


def test_counters_are_shown_by_prefix_and_by_worker_and_host(shop):
    assert skitter("stats", "shop", "pages", cwd=shop).stdout == f"pages  {PAGES}\n"
    known = json.loads(skitter("stats", "shop", "--json", cwd=shop).stdout)
    assert (known["pages"], known["status/200"]) == (PAGES, PAGES)
    (host,) = json.loads(skitter("stats", "shop", "--by", "host", "--json", cwd=shop).stdout)
    assert host["responses"] >= host["pages"]
    assert host["fetch_us"] > 0
    assert (host["key"], host["pages"], host["items"]) == ("127.0.0.1", PAGES, PAGES)
    workers = json.loads(skitter("stats", "shop", "--by", "worker", "--json", cwd=shop).stdout)
    assert sum(worker["pages"] for worker in workers) == PAGES
    assert "127.0.0.1" in skitter("stats", "shop", "127.", "--by", "host", cwd=shop).stdout


def test_items_are_counted_per_task_and_links_stay_in_the_task_of_their_page(site, server, tmp_path):
    (tmp_path / "spider.py").write_text(
        "from skitter import Request, Spider\n"
        "class Tasks(Spider):\n"
        "    async def start(self):\n"
        f"        yield Request({server.url!r}, meta={{'task': 'books'}})\n"
        "    def parse(self, response):\n"
        "        yield {'url': response.url}\n"
        "        yield response.follow_all('a')\n"
    )
    command = ("run", "spider.py", "-o", "i.jsonl", "--no-robots", "--delay", 0, "-s", "group_key=task", "-s", "scope=any",
           "-s", f"allow={server.url}")  # fmt: skip
    assert skitter(*command, cwd=tmp_path).returncode == 0
    (task,) = json.loads(skitter("stats", "tasks", "--by", "group", "--json", cwd=tmp_path).stdout)
    assert (task["key"], task["items"], task["pages"]) == ("books", PAGES, PAGES)
    assert "books" in skitter("stats", "tasks", "--by", "group", cwd=tmp_path).stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_the_workers_of_a_running_job_are_shown_and_top_shows_all_jobs(server, tmp_path, workers):
    command = ("crawl", server.url, "--delay", 0, "--job", "shop", "-o", "items.jsonl", "--wait-for-seeds")
    with Running(*command, "--workers", workers, cwd=tmp_path) as running:
        wait_until((tmp_path / ".skitter/shop/job.json").exists, "the job")
        pids = set()

        def are_there():
            reports = [one["report"] for one in status(tmp_path)["workers"]]
            pids.update(report["pid"] for report in reports)
            return sum(report["pages"] for report in reports) == PAGES and len(reports) == workers

        wait_until(are_there, "all pages, and every worker")
        assert len(pids) == workers
        assert (running.process.pid in pids) == (workers == 1)
        assert "PAGES/S" in skitter("status", "shop", cwd=tmp_path).stdout
        watched = json.loads(skitter("top", "--json", cwd=tmp_path).stdout)
        assert [(job["job"], len(job["workers"])) for job in watched] == [("shop", workers)]
        row = skitter("top", cwd=tmp_path).stdout.splitlines()[1].split()
        assert row[:3] == ["shop", "running", str(workers)]
        with Running("status", "shop", "--watch", "--json", "--interval", 0.1, cwd=tmp_path) as watch:
            assert json.loads(watch.process.stdout.readline())["live"] is True
            assert skitter("stop", "shop", cwd=tmp_path).returncode == 0
            code, seen, _ = watch.end()
        assert code == 0
        assert json.loads(seen.splitlines()[-1])["live"] is False
        running.end()
    assert status(tmp_path)["workers"] == []


@pytest.mark.parametrize("key", [b"q", b"\x03"])
@pytest.mark.parametrize("command", [("top",), ("status", "shop", "--watch")])
def test_a_live_view_ends_by_a_key_and_leaves_the_terminal_as_it_was(shop, command, key):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*SKITTER, *command], cwd=shop, stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread of ours holds a lock
    )  # fmt: skip
    try:
        shown = b""
        deadline = time.monotonic() + 60
        while b"q: quit" not in shown:
            assert time.monotonic() < deadline, shown
            if select.select([leader], [], [], 0.1)[0]:
                shown += os.read(leader, 65536)
        assert b"shop" in shown
        os.write(leader, key)
        while process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([leader], [], [], 0.05)[0]:
                shown += os.read(leader, 65536)
        assert process.returncode == 0, shown
        assert shown.rfind(b"\x1b[?1049l") > shown.rfind(b"\x1b[?1049h"), "the alternate screen was left"
        assert b"Traceback" not in shown
    finally:
        process.kill()
        process.wait()
        os.close(leader)
        os.close(follower)


# --- export ---------------------------------------------------------------------------------------------------


def test_items_are_exported_whole_also_of_a_job_that_runs(site, serve, tmp_path):
    slow = SlowingSite(site, after=20, delay=1.0)
    server = serve(slow)
    command = ("crawl", server.url, "--delay", 0, "--job", "shop", "-o", "items.jsonl", "--workers", 2)
    with Running(*command, cwd=tmp_path) as running:
        assert slow.reached.wait(60)
        assert skitter("export", "shop", "-o", "part.jsonl", cwd=tmp_path).returncode == 0
        some = urls_of(tmp_path / "part.jsonl")
        assert len(some) == len(set(some))
        assert set(some) <= set(expected_urls(site, server))
        slow.released.set()
        running.end()
    assert skitter("export", "shop", "-o", "all.csv.gz", cwd=tmp_path).returncode == 0
    with gzip.open(tmp_path / "all.csv.gz", "rt") as file:
        assert len(file.read().splitlines()) == PAGES + 1
    assert "already exists" in usage_error("export", "shop", "-o", "all.csv.gz", cwd=tmp_path)
    assert skitter("export", "shop", "-o", "part.jsonl", "--force", cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "part.jsonl") == expected_urls(site, server)


def test_an_export_refers_to_the_database_with_the_items(server, tmp_path):
    command = ("crawl", server.url, "--delay", 0, "--job", "shop", "-o", "items.db")
    assert skitter(*command, cwd=tmp_path).returncode == 0
    line = usage_error("export", "shop", "-o", "all.jsonl", cwd=tmp_path)
    assert "its items are in items.db; read the items there" in line
    assert not (tmp_path / "all.jsonl").exists()


def test_missing_part_files_are_named_and_found_in_a_copy(site, server, tmp_path):
    command = ("crawl", server.url, "--delay", 0, "--job", "shop", "-o", "items.jsonl", "--workers", 2)
    assert skitter(*command, cwd=tmp_path).returncode == 0
    parts = tmp_path / ".skitter/shop/parts"
    elsewhere = tmp_path / "copy"
    (elsewhere / "items").mkdir(parents=True)
    taken = next(part for part in sorted((parts / "items").iterdir()) if part.stat().st_size)
    shutil.move(taken, elsewhere / "items" / taken.name)
    result = skitter("export", "shop", "-o", "all.jsonl", cwd=tmp_path)
    assert result.returncode == 1
    assert f"items/{taken.name}" in result.stderr
    assert "--parts" in result.stderr
    assert len(lines_of(tmp_path / "all.jsonl")) < PAGES
    cut_short = tmp_path / "cut"
    shutil.copytree(elsewhere, cut_short)
    os.truncate(cut_short / "items" / taken.name, 10)
    line = usage_error("export", "shop", "-o", "all.jsonl", "--force", "--parts", cut_short, cwd=tmp_path)
    assert "copy it again" in line
    for copies in ([elsewhere], [cut_short, elsewhere], [elsewhere, cut_short]):
        named = [word for copy in copies for word in ("--parts", copy)]
        again = skitter("export", "shop", "-o", "all.jsonl", "--force", *named, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert urls_of(tmp_path / "all.jsonl") == expected_urls(site, server)


def test_a_job_is_incomplete_until_its_outputs_contain_all_committed_items(server, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "shop.py").write_text(
        SHOP.format(url=server.url) + "        pathlib.Path('out').exists() and shutil.rmtree('out')\n"
    )
    (tmp_path / "shop.py").write_text("import pathlib, shutil\n" + (tmp_path / "shop.py").read_text())
    command = ("run", "shop.py", "--job", "shop", "-s", "delay=0", "-o", "out/items.jsonl")
    failed = skitter(*command, cwd=tmp_path)
    assert failed.returncode == 1, failed.stderr
    found = status(tmp_path)
    assert (found["state"], found["counts"]["done"]) == ("incomplete", PAGES)
    assert found["unwritten"] > PAGES
    assert "in no output" in skitter("status", "shop", cwd=tmp_path).stdout
    folder.mkdir()
    assert skitter(*command, cwd=tmp_path).returncode == 0
    assert len(lines_of(folder / "items.jsonl")) == PAGES
    found = status(tmp_path)
    assert (found["state"], found["unwritten"]) == ("finished", 0)
