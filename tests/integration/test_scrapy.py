"""Scrapy projects with skitter's scheduler: they yield the same items as without it, and lose none."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from cli_command import Running, SlowingSite, skitter
from services.redis_servers import running
from sites.gated import GatedSite
from sites.scrapy_site import ENTRIES, ScrapySite
from skitter.testing import SiteServer

HERE = Path(__file__).parent
ADDON = {"ADDONS": '{"skitter.scrapy.Addon": 0}'}
OTHER_SCRAPY = os.environ.get("SKITTER_TEST_SCRAPY", "")
"""Folder with another version of Scrapy for the tests, created by ``pip install --target``."""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, (OTHER_SCRAPY, str(HERE)))),
    "SCRAPY_SETTINGS_MODULE": "scrapy_project.settings",
}


def command_of(*words, settings=(), arguments=()):
    command = [sys.executable, "-m", "scrapy", *words]
    for option, pairs in (("-s", dict(settings)), ("-a", dict(arguments))):
        for name, value in pairs.items():
            command += [option, f"{name}={value}"]
    return command


def scrapy(*words, cwd, settings=(), arguments=()):
    command = command_of(*words, settings=settings, arguments=arguments)
    return subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False
    )


def crawl(spider, site, cwd, *words, settings=(), **arguments):
    """Run a spider with the add-on. Return its log."""
    result = scrapy(
        "crawl",
        spider,
        *words,
        cwd=cwd,
        settings={**ADDON, **dict(settings)},
        arguments={"url": site.url, **arguments},
    )
    assert result.returncode == 0, result.stderr
    return result.stderr


def items_of(path):
    return sorted((json.loads(line) for line in path.read_bytes().splitlines()), key=repr)


@pytest.fixture
def site(serve):
    return serve(ScrapySite())


@pytest.mark.parametrize("spider", ["mixed", "ruled", "mapped", "sessions", "start-items"])
def test_a_project_yields_the_same_items_as_under_scrapy_alone(spider, tmp_path):
    found = {}
    for kind, settings in (("alone", {}), ("skitter", ADDON)):
        folder = tmp_path / kind
        folder.mkdir()
        with SiteServer(ScrapySite()) as site:
            arguments = {"url": site.url}
            result = scrapy(
                "crawl", spider, "-o", "items.jsonl", cwd=folder, settings=settings, arguments=arguments
            )
            assert "finish_reason': 'finished'" in result.stderr, result.stderr
            found[kind] = items_of(folder / "items.jsonl"), site.site.visits
    assert len(found["alone"][0]) >= 2
    assert found["skitter"] == found["alone"]


def test_feeds_of_item_classes_hold_what_they_hold_under_scrapy_alone(tmp_path):
    spiders, found = "scrapy_project.spiders", {}
    feeds = {
        "products.jsonl": {"format": "jsonlines", "item_classes": [f"{spiders}.Product"]},
        "others.jsonl": {"format": "jsonlines", "item_classes": ["builtins.dict", f"{spiders}.Note"]},
        "scrapy.jsonl": {"format": "jsonlines", "item_classes": ["scrapy.Item"]},
    }
    for kind, settings in (("alone", {}), ("skitter", ADDON)):
        folder = tmp_path / kind
        folder.mkdir()
        with SiteServer(ScrapySite()) as site:
            named = {**settings, "FEEDS": json.dumps(feeds)}
            result = scrapy("crawl", "mixed", cwd=folder, settings=named, arguments={"url": site.url})
        assert "finish_reason': 'finished'" in result.stderr, result.stderr
        assert "is written by Scrapy" not in result.stderr
        found[kind] = {name: items_of(folder / name) for name in feeds}
    assert found["skitter"] == found["alone"]
    assert all(found["alone"].values())
    assert found["alone"]["products.jsonl"] == found["alone"]["scrapy.jsonl"]


def test_failed_requests_are_dead_letters_that_can_be_retried(site, tmp_path):
    crawl("mixed", site, tmp_path, "-o", "items.jsonl")
    letters = json.loads(skitter("failures", "list", "mixed", "--json", cwd=tmp_path).stdout)
    errors = {
        letter["url"].partition(str(site.port))[2] or letter["url"]: letter["error"] for letter in letters
    }
    assert {path: error.partition(":")[0] for path, error in errors.items()} == {
        "/always-busy": "status/503", "/gone": "status/404", "/raises": "callback", "/items": "pipeline", "/heavy": "item",
        "http://127.0.0.1:9/unreachable": "connect",
    }  # fmt: skip
    (raising,) = [letter for letter in letters if letter["url"].endswith("/raises")]
    assert raising["request"]["callback"] == "parse_raising"
    assert "a callback that fails" in raising["traceback"]
    before = site.site.visits["/gone"]
    retried = skitter("failures", "retry", "mixed", "--kind", "status/404", cwd=tmp_path)
    assert retried.stderr.startswith("queued again: 1; the next run of mixed (Scrapy")
    crawl("mixed", site, tmp_path, "-o", "items.jsonl")
    assert site.site.visits["/gone"] == before + 1


def test_a_finished_job_is_not_crawled_again_unless_asked(site, tmp_path):
    crawl("ruled", site, tmp_path, "-o", "items.jsonl")
    visits, items = site.site.visits.total(), items_of(tmp_path / "items.jsonl")
    log = crawl("ruled", site, tmp_path, "-o", "items.jsonl")
    assert "SKITTER_FRESH=1" in log
    assert "'scheduler/enqueued': 0" in log  # user code compares it with limits
    assert items_of(tmp_path / "items.jsonl") == items
    assert site.site.visits.total() == visits
    crawl("ruled", site, tmp_path, "-o", "items.jsonl", settings={"SKITTER_FRESH": 1})
    assert items_of(tmp_path / "items.jsonl") == items
    assert site.site.visits.total() > visits


def test_a_request_that_cannot_be_stored_is_a_dead_letter_with_the_key_and_the_callback(site, tmp_path):
    crawl("unstorable", site, tmp_path, "-o", "items.jsonl")
    assert [item["path"] for item in items_of(tmp_path / "items.jsonl")] == ["/", "/plain"]
    letters = json.loads(skitter("failures", "list", "unstorable", "--json", cwd=tmp_path).stdout)
    errors = {letter["url"].rpartition("/")[2]: letter["error"] for letter in letters}
    assert errors.keys() == {"lock", "lambda", "start"}
    assert "for parse cannot be stored: meta['lock']['inner'] is an object" in errors["lock"]
    assert all("unstorable: " in error and "plain values" in error for error in errors.values())


def test_start_requests_are_stored_once(site, tmp_path):
    command = command_of(
        "crawl", "starting", "-o", "items.jsonl", settings=ADDON | {"DOWNLOAD_DELAY": 0.02, "RANDOMIZE_DOWNLOAD_DELAY": 0},
        arguments={"url": site.url, "number": 300},
    )  # fmt: skip
    for _ in range(2):
        with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
            before = site.site.visits.total()
            while site.site.visits.total() < before + 20 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
    crawl(
        "starting",
        site,
        tmp_path,
        "-o",
        "items.jsonl",
        settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 16},
        number=300,
    )
    numbers = [item["number"] for item in items_of(tmp_path / "items.jsonl")]
    assert sorted(numbers) == list(range(300))


def test_two_processes_share_a_job_and_one_output(serve, tmp_path):
    site = SlowingSite(ScrapySite(), after=20, delay=2.0)
    command = command_of(
        "crawl",
        "starting",
        "-o",
        "items.jsonl",
        settings=ADDON,
        arguments={"url": serve(site).url, "number": 200},
    )
    logs = [tmp_path / f"{number}.log" for number in range(2)]
    processes = []
    for path in logs:
        with path.open("wb") as log:
            processes.append(subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=log))
    # The first process must not finish the job before the other one has started.
    while not any("joined job starting" in path.read_text() for path in logs):
        assert any(process.poll() is None for process in processes), [path.read_text() for path in logs]
        time.sleep(0.05)
    site.released.set()
    assert [process.wait(100) for process in processes] == [0, 0], [path.read_text() for path in logs]
    assert sum("joined job starting" in path.read_text() for path in logs) == 1
    assert all("Spider closed (finished)" in path.read_text() for path in logs)
    assert sorted(item["number"] for item in items_of(tmp_path / "items.jsonl")) == list(range(200))


class Waiting:
    """A database with numbers of pages that a spider must still crawl."""

    def __init__(self, path, numbers):
        self.path = path
        self._run("CREATE TABLE waiting (number INTEGER PRIMARY KEY)")
        self.add(numbers)

    def add(self, numbers):
        self._run(f"INSERT INTO waiting VALUES {', '.join(f'({number})' for number in numbers)}")

    def _run(self, statement):
        with closing(sqlite3.connect(self.path, timeout=30)) as file, file:
            file.execute(statement)


def entries(numbers):
    return [f"/entry/{number}" for number in sorted(numbers, key=str)]


def paths(folder):
    return sorted((item["path"] for item in items_of(folder / "items.jsonl")), key=str)


@pytest.fixture
def waiting(tmp_path):
    return Waiting(tmp_path / "waiting.db", range(1, 31))


def feeding(site, tmp_path, settings=(), **arguments):
    """Start the spider that takes requests from a database when it is idle."""
    arguments = {"url": site.url, "_database": tmp_path / "waiting.db", **arguments}
    quick = {"DOWNLOAD_DELAY": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 16, **dict(settings)}
    command = command_of("crawl", "feeding", "-o", "items.jsonl", settings=ADDON | quick, arguments=arguments)
    return subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def end_of(process):
    log = process.communicate(timeout=100)[1]
    assert process.returncode == 0, log
    return log


def has_visited(site, numbers):
    """Return whether all these entries have been requested."""
    return site.site.visits.keys() >= set(entries(numbers))


def until(fact, process):
    while not fact():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_requests_of_a_handler_of_spider_idle_are_crawled_batch_by_batch(site, tmp_path, waiting):
    log = end_of(feeding(site, tmp_path))
    assert paths(tmp_path) == entries(range(31))
    assert "Spider closed (finished)" in log
    assert "'idle_signals': 4" in log
    assert "takes no further request" not in log


def test_the_status_names_the_scrapy_spider_and_its_project(site, tmp_path):
    crawl("ruled", site, tmp_path, "-o", "items.jsonl")
    assert "ruled (Scrapy project project)" in skitter("status", "ruled", cwd=tmp_path).stdout
    assert "ruled (Scrapy project project)" in skitter("jobs", cwd=tmp_path).stdout


def test_a_later_run_calls_the_handlers_again(site, tmp_path, waiting):
    end_of(feeding(site, tmp_path))
    log = end_of(feeding(site, tmp_path))
    assert "'idle_signals': 1" in log
    assert "SKITTER_FRESH=1" in log
    waiting.add(range(40, 45))
    log = end_of(feeding(site, tmp_path))
    assert "SKITTER_FRESH=1" not in log
    assert paths(tmp_path) == entries([*range(31), *range(40, 45)])


@pytest.mark.parametrize(("frontier", "seconds"), [("sqlite:", 3), ("valkey", 12)])
def test_no_process_ends_while_a_handler_of_another_may_add_requests(
    site, tmp_path, waiting, frontier, seconds
):
    url = running("valkey").url if frontier == "valkey" else frontier
    settings = {"SKITTER_FRONTIER": url, "SKITTER_JOB": f"feeding-{tmp_path.name}"}
    slow = feeding(site, tmp_path, settings, _slow=seconds)
    until(lambda: site.site.visits["/entry/0"], slow)
    known = Waiting(tmp_path / "known.db", [0])
    quick = feeding(site, tmp_path, settings, _database=known.path)
    logs = [end_of(quick)]
    visits = site.site.visits.copy()
    logs.append(end_of(slow))
    assert site.site.visits == visits
    assert paths(tmp_path) == entries(range(31))
    assert all("Spider closed (finished)" in log for log in logs)


def test_dont_close_spider_keeps_the_spider_open(site, tmp_path, waiting):
    process = feeding(site, tmp_path, _keep=tmp_path / "enough")
    until(lambda: has_visited(site, range(31)), process)
    waiting.add(range(40, 45))
    until(lambda: has_visited(site, range(40, 45)), process)
    (tmp_path / "enough").touch()
    assert "Spider closed (finished)" in end_of(process)
    assert paths(tmp_path) == entries([*range(31), *range(40, 45)])


def status_of(folder, job="feeding"):
    return json.loads(skitter("status", job, "--json", cwd=folder).stdout)


def test_a_finished_job_runs_again_while_a_handler_keeps_its_spider_open(site, tmp_path, waiting):
    end_of(feeding(site, tmp_path))
    assert status_of(tmp_path)["state"] == "finished"
    process = feeding(site, tmp_path, _keep=tmp_path / "enough")
    until(lambda: status_of(tmp_path)["workers"], process)
    found = status_of(tmp_path)
    assert (found["state"], found["counts"]["state"]) == ("running", "finished")
    (tmp_path / "enough").touch()
    end_of(process)
    assert status_of(tmp_path)["state"] == "finished"


def test_monitors_judge_the_requests_that_a_handler_adds_to_a_finished_job(site, tmp_path, waiting):
    settings = {"SKITTER_SETTINGS": json.dumps({"monitors": ["pages >= 5"]})}

    def passes():
        return [(found["number"], found["figures"]["pages"]) for found in status_of(tmp_path)["passes"]]

    end_of(feeding(site, tmp_path, settings))
    assert passes() == [(1, 31)]
    end_of(feeding(site, tmp_path, settings))
    assert passes() == [(1, 31)]
    waiting.add(range(40, 43))
    log = end_of(feeding(site, tmp_path, settings))
    assert passes() == [(2, 3), (1, 31)]
    assert "monitor violated: pages >= 5" in log


def test_ctrl_c_ends_a_spider_that_a_handler_keeps_open(site, tmp_path, waiting):
    process = feeding(site, tmp_path, _keep=tmp_path / "enough")
    until(lambda: has_visited(site, range(31)), process)
    process.send_signal(signal.SIGINT)
    assert "Spider closed (shutdown)" in end_of(process)
    assert paths(tmp_path) == entries(range(31))


def test_a_process_that_dies_when_it_is_idle_is_continued(site, tmp_path, waiting):
    process = feeding(site, tmp_path, _kill=2)
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    end_of(feeding(site, tmp_path))
    assert paths(tmp_path) == entries(range(31))


def test_a_killed_process_does_not_keep_the_others_open(site, tmp_path, waiting):
    idle = feeding(site, tmp_path, _keep=tmp_path / "enough")
    until(lambda: has_visited(site, range(31)), idle)
    other = feeding(site, tmp_path)
    until(lambda: "joined job feeding" in other.stderr.readline(), other)
    idle.kill()
    idle.communicate()
    assert "Spider closed (finished)" in end_of(other)
    assert paths(tmp_path) == entries(range(31))


@pytest.mark.parametrize("frontier", ["sqlite:", "valkey"])
def test_a_process_resumed_after_the_end_calls_its_handlers(site, tmp_path, waiting, frontier):
    url = running("valkey").url if frontier == "valkey" else frontier
    job = f"feeding-{tmp_path.name}"
    settings = {"SKITTER_FRONTIER": url, "SKITTER_JOB": job}
    other = feeding(site, tmp_path, settings, _database=Waiting(tmp_path / "known.db", [0]).path, _slow=20)
    until(lambda: site.site.visits["/entry/0"], other)
    suspended = feeding(site, tmp_path, settings, _keep=tmp_path / "enough")
    # Otherwise the other process would wait for its uncommitted pages.
    until(lambda: status_of(tmp_path, job)["counts"]["done"] == 31, suspended)
    suspended.send_signal(signal.SIGSTOP)
    try:
        assert "Spider closed (finished)" in end_of(other)
        waiting.add(range(40, 45))
        (tmp_path / "enough").touch()
    finally:
        suspended.send_signal(signal.SIGCONT)
    log = end_of(suspended)
    assert "Spider closed (finished)" in log
    assert paths(tmp_path) == entries([*range(31), *range(40, 45)])


def test_a_handler_of_spider_idle_closes_the_spider_with_its_reason(site, tmp_path, waiting):
    log = end_of(feeding(site, tmp_path, _stop="enough"))
    assert "Spider closed (enough)" in log
    assert paths(tmp_path) == entries(range(31))


def test_skitter_pauses_and_stops_a_running_project(serve, tmp_path):
    gate = GatedSite(ScrapySite(), answers=10)
    site = serve(gate)
    arguments = {"url": site.url, "number": 60}
    command = command_of("crawl", "starting", "-o", "items.jsonl", settings=ADDON, arguments=arguments)
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        until(gate.reached.is_set, process)
        assert "is paused" in skitter("pause", "starting", cwd=tmp_path).stderr
        assert json.loads(skitter("status", "starting", "--json", cwd=tmp_path).stdout)["state"] == "paused"
        assert "is running" in skitter("resume", "starting", cwd=tmp_path).stderr
        with Running("stop", "starting", cwd=tmp_path) as stopping:
            until(lambda: status_of(tmp_path, "starting")["state"] == "stopping", process)
            gate.released.set()
            stopping.end()
        log = process.communicate(timeout=100)[1]
    assert "Spider closed (stopped)" in log, log
    before = len(items_of(tmp_path / "items.jsonl"))
    assert 0 < before < 60
    crawl("starting", site, tmp_path, "-o", "items.jsonl", number=60)
    assert sorted(item["number"] for item in items_of(tmp_path / "items.jsonl")) == list(range(60))


def test_delays_hold_over_all_processes(site, tmp_path):
    delay = 0.05
    settings = ADDON | {"DOWNLOAD_DELAY": delay, "RANDOMIZE_DOWNLOAD_DELAY": 0, "ROBOTSTXT_OBEY": 0}
    command = command_of(
        "crawl", "starting", "-o", "items.jsonl", settings=settings, arguments={"url": site.url, "number": 80}
    )
    processes = [
        subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(100) for process in processes] == [0, 0]
    times = sorted(hit.received for hit in site.log.hits)
    assert times[-1] - times[0] >= (len(times) - 1) * delay * 0.9


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"SCHEDULER": "scrapy.core.scheduler.Scheduler"}, "remove the setting SCHEDULER"),
        ({"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}, "TWISTED_REACTOR"),
        ({"SKITTER_OUTPUT": "items.jsonl"}, "unknown setting SKITTER_OUTPUT"),
        ({"SKITTER_SETTINGS": '{"robots": true}'}, "'robots' in SKITTER_SETTINGS has no effect"),
        ({"SKITTER_FRONTIER": "nosuch://"}, "nosuch"),
    ],
)  # fmt: skip
def test_settings_that_the_scheduler_cannot_work_with_are_refused_with_a_remedy(
    site, tmp_path, settings, words
):
    result = scrapy(
        "crawl", "ruled", cwd=tmp_path, settings={**ADDON, **settings}, arguments={"url": site.url}
    )
    assert words in result.stderr
    assert not site.site.visits
    assert not (tmp_path / ".skitter/ruled/frontier.db").exists()


def test_a_login_holds_after_a_kill_and_in_every_process(site, tmp_path):
    settings = ADDON | {"DOWNLOAD_DELAY": 0.02, "RANDOMIZE_DOWNLOAD_DELAY": 0, "ROBOTSTXT_OBEY": 0}
    command = command_of(
        "crawl", "members", "-o", "items.jsonl", settings=settings, arguments={"url": site.url}
    )
    with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        until(lambda: len(site.site.visits) > 5, process)
        process.send_signal(signal.SIGKILL)
    processes = [
        subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(100) for process in processes] == [0, 0]
    assert site.site.visits["/login"] == 1
    items = items_of(tmp_path / "items.jsonl")
    assert len(items) == 40
    assert {item["text"].split()[0] for item in items} == {"user=a"}


def test_items_of_start_are_in_the_output_once_whenever_scrapy_is_killed(site, tmp_path):
    arguments = {"url": site.url, "number": 300}
    command = command_of("crawl", "start-items", "-o", "items.jsonl", settings=ADDON, arguments=arguments)
    for visits in (1, 4, 8):
        with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
            until(lambda visits=visits: len(site.site.visits) > visits, process)
            process.send_signal(signal.SIGKILL)
    crawl("start-items", site, tmp_path, "-o", "items.jsonl", number=300)
    items = items_of(tmp_path / "items.jsonl")
    numbers = [item["number"] for item in items if "number" in item]
    assert sorted(numbers) == list(range(300))
    others = sorted(item["path"] for item in items if "number" not in item)
    assert others == sorted(["note", "product", *(f"/entry/{number}" for number in range(30))])
    assert all(item["checked"] for item in items)


def test_items_of_start_that_fail_are_dead_letters_that_can_be_retried(site, tmp_path):
    crawl("failing-start-items", site, tmp_path, "-o", "items.jsonl")
    letters = json.loads(skitter("failures", "list", "failing-start-items", "--json", cwd=tmp_path).stdout)
    errors = {letter["url"]: letter["error"] for letter in letters}
    assert errors.keys() == {"start-item://1", "start-item://2"}
    assert errors["start-item://1"].startswith("pipeline: ")
    assert "item 2 of start() cannot be stored: item['lock'] is an object" in errors["start-item://2"]
    retried = skitter("failures", "retry", "failing-start-items", "--kind", "pipeline", cwd=tmp_path)
    assert "queued again: 1" in retried.stderr
    crawl("failing-start-items", site, tmp_path, "-o", "items.jsonl")
    assert [item["path"] for item in items_of(tmp_path / "items.jsonl")] == ["whole"]


def test_a_job_is_not_continued_with_other_arguments_of_the_spider(site, tmp_path):
    crawl("categories", site, tmp_path, "-o", "items.jsonl", category=1, _job="a")
    other = scrapy(
        "crawl", "categories", cwd=tmp_path, settings=ADDON, arguments={"url": site.url, "category": 2}
    )
    assert other.returncode != 0
    (line,) = [line for line in other.stderr.splitlines() if "[skitter.scrapy] ERROR" in line]
    assert "job 'categories' was started with other arguments of the spider: " in line
    assert "-a category=1; repeat them to continue it" in line
    assert "SKITTER_JOB" in line
    crawl("categories", site, tmp_path, "-o", "items.jsonl", category=1, _job="b")
    named = ADDON | {"SKITTER_JOB": "%(name)s-%(category)s"}
    for category in (1, 2):
        crawl("categories", site, tmp_path, "-o", f"{category}.jsonl", settings=named, category=category)
        assert [item["path"] for item in items_of(tmp_path / f"{category}.jsonl")] == [f"/entry/{category}"]
    assert (tmp_path / ".skitter/categories-2").is_dir()


SCRIPT = """
import sys
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

settings = get_project_settings()
settings.set("ADDONS", {"skitter.scrapy.Addon": 0})
settings.set("FEEDS", {sys.argv[2]: {"format": "jsonlines"}})
settings.set("SKITTER_JOB", sys.argv[3])
process = CrawlerProcess(settings)
for category in (1, 2):
    process.crawl("categories", url=sys.argv[1], category=category)
process.start()
"""


@pytest.mark.parametrize(
    ("feed", "job", "crawled", "message"),
    [
        ("items-%(category)s.jsonl", "%(name)s-%(category)s", {1, 2}, ""),
        ("items-%(category)s.jsonl", "", {1}, "another crawl of this process runs job 'categories'"),
        ("items.jsonl", "%(name)s-%(category)s", {1}, "another crawl of this process writes the feed"),
    ],
)
def test_crawls_of_one_script_share_neither_a_job_nor_a_feed(site, tmp_path, feed, job, crawled, message):
    command = [sys.executable, "-c", SCRIPT, site.url, feed, job]
    result = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False
    )
    assert message in result.stderr
    items = [item for file in tmp_path.glob("items*.jsonl") for item in items_of(file)]
    assert [item["path"] for item in sorted(items, key=repr)] == [f"/entry/{number}" for number in crawled]


def test_a_project_without_a_duplicate_filter_repeats_its_requests(site, tmp_path):
    crawl("repeating", site, tmp_path, "-o", "once.jsonl")
    assert len(items_of(tmp_path / "once.jsonl")) == 1
    unfiltered = ADDON | {"DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter", "SKITTER_FRESH": 1}
    crawl("repeating", site, tmp_path, "-o", "all.jsonl", settings=unfiltered)
    assert sorted(item["number"] for item in items_of(tmp_path / "all.jsonl")) == [0, 1, 2, 3]


def test_a_duplicate_filter_of_the_project_is_named(site, tmp_path):
    named = ADDON | {"DUPEFILTER_CLASS": "scrapy_project.pipelines.OddFilter"}
    log = crawl("categories", site, tmp_path, settings=named, category=1)
    assert "DUPEFILTER_CLASS=scrapy_project.pipelines.OddFilter is not used" in log


def test_start_requests_is_fetched_or_named(site, tmp_path):
    log = crawl("older", site, tmp_path, "-o", "older.jsonl")
    is_called = "'item_scraped_count': 1" in log
    assert (
        "does not call start_requests of spider older: define async def start(self)" in log
    ) is not is_called
    assert "start_requests" not in crawl("opaque", site, tmp_path)


def test_a_middleware_of_older_start_requests_is_named(site, tmp_path):
    middlewares = json.dumps({"scrapy_project.pipelines.OlderStart": 500})
    settings = {**ADDON, "SPIDER_MIDDLEWARES": middlewares}
    log = scrapy(
        "crawl", "starting", cwd=tmp_path, settings=settings, arguments={"url": site.url, "number": 1}
    )
    (line,) = [
        line for line in log.stderr.splitlines() if "[skitter.scrapy]" in line and "OlderStart" in line
    ]
    assert "define process_start" in line or "define async def process_start" in line


def test_files_of_items_keep_the_delay_of_the_project(site, tmp_path):
    delay = 0.1
    settings = ADDON | {"DOWNLOAD_DELAY": delay, "RANDOMIZE_DOWNLOAD_DELAY": 0}
    crawl("with-files", site, tmp_path, settings=settings)
    times = [hit.received for hit in site.log.hits if "/file/" in hit.target]
    assert len(times) == 6
    assert times[-1] - times[0] >= (len(times) - 1) * delay * 0.9


def test_a_project_without_outputs_counts_items_that_no_output_can_hold(site, tmp_path):
    log = crawl("opaque", site, tmp_path)
    assert "'item_scraped_count': 1" in log
    assert "failed requests" not in log
    status = skitter("status", "opaque", cwd=tmp_path).stdout.split()
    assert status[status.index("items") + 1] == "1"


def test_a_pipeline_that_returns_no_item_is_named(site, tmp_path):
    crawl("forgetful", site, tmp_path, "-o", "items.jsonl")
    letters = json.loads(skitter("failures", "list", "forgetful", "--json", cwd=tmp_path).stdout)
    assert ["end process_item() with `return item`" in letter["error"] for letter in letters] == [True]
    assert site.site.visits["/plain"] == 1


def test_the_folder_of_a_feed_is_created(site, tmp_path):
    crawl("categories", site, tmp_path, "-o", "new/folder/items.jsonl", category=1)
    assert len(items_of(tmp_path / "new/folder/items.jsonl")) == 1


def test_a_file_of_others_is_replaced_only_if_the_feed_overwrites(site, tmp_path):
    (tmp_path / "items.jsonl").write_text('{"path": "older"}\n')
    kept = scrapy(
        "crawl", "categories", "-o", "items.jsonl", cwd=tmp_path, settings=ADDON, arguments={"url": site.url}
    )
    assert kept.returncode != 0
    (line,) = [line for line in kept.stderr.splitlines() if "[skitter.scrapy] ERROR" in line]
    assert "holds something that job 'categories' did not write" in line
    assert "SKITTER_FRESH=1" in line
    assert paths(tmp_path) == ["older"]
    crawl("categories", site, tmp_path, "-O", "items.jsonl", category=1)
    assert paths(tmp_path) == ["/entry/1"]
    crawl("categories", site, tmp_path, "-O", "items.jsonl", category=1)
    assert paths(tmp_path) == ["/entry/1"]
    assert site.site.visits["/entry/1"] == 1


def test_feeds_that_scrapy_has_to_write_are_named(site, tmp_path):
    log = crawl("ruled", site, tmp_path, "-o", "items.xml", "-o", "items.jsonl")
    assert "feed items.xml is written by Scrapy" in log
    assert (tmp_path / "items.xml").read_text().count("<item>") == ENTRIES
    assert len(items_of(tmp_path / "items.jsonl")) == ENTRIES


def test_commands_that_fetch_a_single_page_do_not_touch_the_job(site, tmp_path):
    result = scrapy("fetch", "--nolog", f"{site.url}plain", cwd=tmp_path, settings=ADDON)
    assert result.stdout.strip() == "<title>/plain</title>"
    assert not (tmp_path / ".skitter").exists()


def test_skitter_does_not_run_the_job_of_a_scrapy_project(site, tmp_path):
    crawl("mixed", site, tmp_path, "-o", "items.jsonl")
    skitter("failures", "retry", "mixed", cwd=tmp_path)
    visits = site.site.visits.total()
    resumed = skitter("resume", "mixed", cwd=tmp_path)
    assert resumed.returncode != 0
    assert "continue it with `scrapy crawl mixed`" in resumed.stderr
    assert "correct the hook" not in resumed.stderr
    assert site.site.visits.total() == visits
