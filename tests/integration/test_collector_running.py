"""A collector as a script, on an event loop, in threads, and on the command line with several workers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cli_command import SlowingSite, expected_urls, lines_of, skitter, urls_of, usage_error
from crawl_harness import QUICK, Scripted
from skitter import Collector, JobSpec, Request
from skitter.errors import SkitterError, SpiderError, UsageError
from skitter.frontends.collector.spider import pack_request, unpack_request
from skitter.frontier.records import JobState
from skitter.run.job import JobFolder
from skitter.testing import GeneratedSite

FILE = """
import sys
from skitter import Collector

crawler = Collector(allowed_domains=["127.0.0.1"], settings={"delay": 0, "robots": False})
crawler.limit(domain_glob="*", concurrency_per_slot=8)


@crawler.on_response
def page(response):
    response.request.ctx["seen"] = 1
    return {"url": response.url, "depth": response.request.depth}


@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@crawler.seeds
def begin(site=""):
    return [site] if site else []


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    result = crawler.run(outputs=["items.jsonl"], workers=int(sys.argv[2]), frontier=sys.argv[3], home=".skitter")
    print(result.state, result.counters["pages"])
"""

STOPPED_BY_HOOK = """
from skitter import HookAction, Spider


class Pages(Spider):
    custom_settings = {"robots": False}

    def __init__(self, site):
        self.start_urls = [site]

    def after_request(self, response):
        return HookAction.STOP

    def parse(self, response):
        yield from response.follow_all(css="a")
"""


@pytest.fixture(autouse=True)
def uvloop_looks_at_the_socket(no_blocking_calls):
    """uvloop checks once whether a file exists at the path of the socket."""
    no_blocking_calls.functions["os.stat"].can_block_in("skitter/frontier/rpc/server.py", "start")


@pytest.fixture
def site(serve):
    site = GeneratedSite(pages=60, hosts=1)
    return site, serve(site)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "crawl.py"
    path.write_text(FILE)
    return path


def quick(**options):
    crawler = Collector(settings=QUICK, allowed_domains=["127.0.0.1"], **options)
    crawler.on_html("a[href]", lambda element: element.request.visit(element.attr("href")))
    return crawler


def script(file, *arguments):
    return subprocess.run(
        [sys.executable, file, *map(str, arguments)], cwd=file.parent, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip


def test_a_script_visits_and_waits_and_cleans_up(site, tmp_path, monkeypatch):
    site, server = site
    monkeypatch.chdir(tmp_path)
    crawler, seen = quick(), []
    crawler.on_response(lambda response: seen.append(response.url))
    crawler.visit(server.url)
    result = crawler.wait()
    assert (result.state, sorted(seen)) == (JobState.FINISHED, expected_urls(site, server))
    assert result.counters["pages"] == len(seen)
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_crawls_pages_visited_since_the_first(site):
    _, server = site
    crawler, seen = Collector(settings=QUICK), []
    crawler.on_response(lambda response: seen.append(response.url))
    for _ in range(2):
        crawler.visit(server.url)
        assert crawler.run().state is JobState.FINISHED
    assert seen == [server.url, server.url]
    with pytest.raises(SkitterError, match="start requests"):
        crawler.run()


def test_a_script_that_runs_again_replaces_its_file_only_on_request(serve, tmp_path):
    server, output = serve(Scripted({"/": []})), tmp_path / "items.jsonl"

    def run(number, **options):
        crawler = Collector(settings=QUICK)
        crawler.on_response(lambda response: {"run": number})
        crawler.visit(server.url)
        crawler.run(outputs=[str(output)], **options)

    run(1)
    with pytest.raises(UsageError) as caught:
        run(2)
    assert "fresh=True" in caught.value.remedy
    assert json.loads(output.read_text()) == {"run": 1}
    run(3, fresh=True)
    assert json.loads(output.read_text()) == {"run": 3}


async def test_on_an_event_loop_it_is_awaited(site):
    site, server = site
    crawler, seen = quick(), []
    crawler.on_response(lambda response: seen.append(response.url))
    crawler.visit(server.url)
    with pytest.raises(UsageError, match="event loop"):
        crawler.run()
    result = await crawler.crawl(settings={"max_pages": 10})
    assert (result.state, result.reason) == (JobState.STOPPING, "limit reached: pages 10 of 10") or len(
        seen
    ) >= 10
    assert len(seen) == 10


async def test_two_runs_of_one_collector_at_a_time_are_refused_and_many_collectors_are_not(site):
    site, server = site
    crawlers = [quick() for _ in range(3)]
    for crawler in crawlers:
        crawler.visit(server.url)
    running = [asyncio.create_task(crawler.crawl()) for crawler in crawlers]
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="already running"):
        await crawlers[0].crawl()
    results = await asyncio.gather(*running)
    assert [result.counters["pages"] for result in results] == [len(expected_urls(site, server))] * 3


def test_threads_run_collectors_of_their_own(site):
    site, server = site

    def crawl(_):
        crawler = quick()
        crawler.visit(server.url)
        return crawler.run().counters["pages"]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(crawl, range(3))) == [len(expected_urls(site, server))] * 3


async def test_stop_from_outside_and_cancelling_end_a_run(serve):
    site = SlowingSite(GeneratedSite(pages=500, hosts=1), after=10)
    server = serve(site)
    crawler = quick()
    crawler.visit(server.url)
    running = asyncio.create_task(crawler.crawl())
    await asyncio.to_thread(site.reached.wait, 60)
    crawler.stop("seen enough")
    result = await running
    assert result.state is not JobState.FINISHED
    begun = asyncio.Event()
    crawler.on_request(lambda request: begun.set())
    crawler.visit(server.url)
    running = asyncio.create_task(crawler.crawl())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(UsageError, match="no crawl is running"):
        crawler.stop()


async def test_methods_that_need_a_running_crawl_raise_an_error_without_one():
    with pytest.raises(UsageError, match="no crawl is running"):
        await Collector().has_visited("http://h/")
    with pytest.raises(UsageError, match="/relative"):
        Collector().post("/relative", {})


def test_a_durable_job_of_a_script_resumes_and_its_visits_are_its_identity(site, file, tmp_path):
    site, server = site
    first = script(file, server.url, 1, "sqlite:")
    assert first.stdout.split() == ["finished", str(len(expected_urls(site, server)))], first.stderr
    again = script(file, server.url, 2, "sqlite:")
    assert again.stdout == first.stdout, again.stderr
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)
    other = script(file, server.url + "?else", 1, "sqlite:")
    assert "other arguments" in other.stderr


def test_worker_processes_of_a_script_find_its_callbacks_and_its_visits(site, file, tmp_path):
    site, server = site
    result = script(file, server.url, 2, "memory:")
    assert result.stdout.split() == ["finished", str(len(expected_urls(site, server)))], result.stderr
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_line_runs_a_collector_like_any_spider(site, file, tmp_path, workers):
    site, server = site
    name = f"{file.name}:crawler" if workers == 2 else file.name
    result = skitter(
        "run",
        name,
        "-a",
        f"site={server.url}",
        "-o",
        "out.jsonl",
        "--workers",
        workers,
        "--fail-on-errors",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert urls_of(tmp_path / "out.jsonl") == expected_urls(site, server)
    assert {item["depth"] for item in lines_of(tmp_path / "out.jsonl")} >= {1, 2}
    assert JobFolder("crawl", tmp_path / ".skitter").read().spider == f"{file}:crawler"


def test_visits_at_the_top_of_a_file_begin_the_crawl_in_every_process(site, file, tmp_path):
    site, server = site
    file.write_text(FILE.replace('if __name__ == "__main__":', f"crawler.visit({server.url!r})\nif False:"))
    result = skitter("run", file.name, "-o", "out.jsonl", "--workers", 2, cwd=tmp_path)
    assert urls_of(tmp_path / "out.jsonl") == expected_urls(site, server), result.stderr


def test_a_collector_that_was_stopped_says_so_in_its_result(serve):
    site = GeneratedSite(pages=200, hosts=1)
    crawler = Collector(concurrency=1, settings=QUICK)
    crawler.on_html("a[href]", lambda element: element.request.visit(element.attr("href")))
    crawler.on_response(lambda response: crawler.stop("enough is enough"))
    crawler.visit(serve(site).url)
    result = crawler.run()
    assert (result.state, result.reason) == (JobState.STOPPED, "enough is enough")
    assert result.counters["pages"] < 200


@pytest.mark.parametrize("point", ["on_request", "on_scraped"])
def test_the_reason_of_a_stop_in_one_of_several_worker_processes_is_in_the_result(
    serve, file, tmp_path, point
):
    server = serve(GeneratedSite(pages=300, hosts=1, links_per_page=12))
    stop = f'crawler.{point}(lambda subject: crawler.stop("enough is enough"))'
    text = FILE.replace("@crawler.seeds", f"{stop}\n\n\n@crawler.seeds")
    file.write_text(text.replace('counters["pages"])', 'counters["pages"], result.reason, sep=";")'))
    result = script(file, server.url, 2, "sqlite:")
    state, pages, reason = result.stdout.strip().split(";")
    assert (state, reason) == ("stopped", "enough is enough"), result.stderr
    assert int(pages) < 300


@pytest.mark.parametrize("workers", [1, 2])
def test_the_reason_of_a_stop_by_a_hook_is_in_the_last_line_and_in_the_summary(serve, tmp_path, workers):
    server = serve(GeneratedSite(pages=300, hosts=1, links_per_page=12))
    (tmp_path / "spider.py").write_text(STOPPED_BY_HOOK)
    result = skitter(
        "run", "spider.py", "-a", f"site={server.url}", "-s", "delay=0", "--job", "job",
        "--workers", workers, "--summary", "summary.json", cwd=tmp_path,
    )  # fmt: skip
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["state"], summary["reason"]) == ("stopped", f"hook after_request at {server.url}"), (
        result.stderr
    )
    assert f"job job has stopped, {summary['reason']}; `skitter resume job` continues it" in result.stderr


def test_cookies_set_before_a_run_reach_every_worker_and_are_not_stored_with_the_job(serve, file, tmp_path):
    site = Scripted({"/": ["/a", "/b", "/c"]} | {f"/{name}": [] for name in "abc"})
    server = serve(site)
    file.write_text(
        FILE.replace(
            "    crawler.visit(",
            "    crawler.set_cookies(sys.argv[1], {'token': 'secret'})\n    crawler.visit(",
        )
    )
    result = subprocess.run(
        [sys.executable, file, server.url, "2", "sqlite:"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "finished 4\n"), result.stderr
    assert [visit.headers.get("cookie") for visit in site.visits] == ["token=secret"] * 4
    stored = b"".join(path.read_bytes() for path in (tmp_path / ".skitter").rglob("*.json"))
    assert b"initial_cookies" in stored and b"secret" not in stored


def test_a_clone_has_no_spider_of_its_own(file, tmp_path):
    file.write_text(FILE.replace("@crawler.seeds", 'detail = crawler.clone("detail")\n\n\n@crawler.seeds'))
    assert "detail" in usage_error("run", f"{file.name}:detail", cwd=tmp_path)
    assert "@crawler.seeds" in skitter("run", file.name, cwd=tmp_path).stderr


def test_a_file_that_runs_its_collector_when_it_is_imported_is_reported(file, tmp_path):
    file.write_text(FILE.partition("if __name__")[0] + "crawler.run()\n")
    assert '__name__ == "__main__"' in usage_error("run", file.name, cwd=tmp_path)


def test_several_collectors_in_a_file_have_to_be_named(file, tmp_path):
    file.write_text(FILE + "\nother = Collector()\n")
    assert "several spiders" in usage_error("run", file.name, cwd=tmp_path)


def test_an_output_in_place_of_a_list_is_refused():
    crawler = Collector()
    crawler.visit("http://127.0.0.1:1/")
    with pytest.raises(UsageError, match=r"outputs of job .* is not a list: 'a.jsonl'"):
        crawler.run(outputs="a.jsonl")


def test_workers_of_a_collector_that_no_file_holds_are_refused():
    crawler = Collector()
    crawler.visit("http://127.0.0.1:1/")
    with pytest.raises(UsageError, match="worker processes"):
        crawler.run(workers=2)


def test_ctrl_c_stops_a_script_gracefully(serve, file, tmp_path):
    site = SlowingSite(GeneratedSite(pages=500, hosts=1), after=10)
    server = serve(site)
    process = subprocess.Popen(
        [sys.executable, file, server.url, "1", "sqlite:"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, env={**os.environ},
    )  # fmt: skip
    try:
        assert site.reached.wait(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    state, pages = out.split()
    assert (state[:4], process.returncode, err) == ("stop", 0, "")
    assert len(lines_of(tmp_path / "items.jsonl")) == int(pages)


async def test_seeds_are_streamed_from_generators_of_any_kind(serve):
    site = Scripted({f"/{number}": [] for number in range(6)})
    server = serve(site)
    crawler = Collector(settings=QUICK)
    detail = crawler.clone("detail")
    seen = []
    crawler.on_response(lambda response: seen.append(("crawler", response.url[-2:])))
    detail.on_response(lambda response: seen.append(("detail", response.url[-2:])))

    @crawler.seeds
    async def begin(count):
        for number in range(int(count)):
            yield f"{server.url}{number}"
            detail.visit(f"{server.url}{number + 3}")
            await asyncio.sleep(0)

    await crawler.crawl(arguments={"count": 3})
    assert sorted(seen) == [
        *(("crawler", f"/{number}") for number in range(3)),
        *(("detail", f"/{number}") for number in range(3, 6)),
    ]


@pytest.mark.parametrize(
    "request_", [Request("http://h/"), Request("http://h/", method="POST", body=b"\xff", meta={"a": b"\x00"})]
)
def test_visits_survive_the_way_to_other_processes(request_):
    assert unpack_request(pack_request(request_)) == request_


def test_requests_of_a_clone_that_is_gone_are_dead_letters_with_a_reason(serve, tmp_path):
    server = serve(Scripted({"/": ["/1"], "/1": []}))

    def run(clone):
        crawler = Collector("job", settings={**QUICK, "max_pages": 1 if clone else 9})
        if clone:
            detail = crawler.clone("detail")
            crawler.on_html("a", lambda element: element.request.visit(element.attr("href"), via=detail))
        crawler.visit(server.url)
        return crawler.run(frontier="sqlite:", home=tmp_path)

    assert run(clone=True).status.queued == 1
    assert run(clone=False).status.failed == 1


# The race at the end


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_crawl_does_not_end_while_the_last_callback_is_about_to_add_requests(serve, kind):
    """The race described in the article on distributed Colly.

    There, consumers see an empty queue and leave while the last callback is still running. The requests that it adds are
    never fetched. Here, a page stays leased until it is committed together with its new requests.
    """
    hops = 25
    server = serve(Scripted({f"/{number}": [] for number in range(hops)}))
    crawler, seen = Collector(settings={**QUICK, "concurrency": 8}), []

    @crawler.on_response
    async def last(response):
        number = int(response.url.rpartition("/")[2])
        seen.append(number)
        # Long enough for idle workers to check the empty queue many times.
        await (asyncio.sleep(0.02) if kind == "async" else asyncio.to_thread(threading.Event().wait, 0.02))
        if number + 1 < hops:
            response.request.visit(f"/{number + 1}")

    crawler.visit(f"{server.url}0")
    result = await crawler.crawl()
    assert (seen, result.state) == (list(range(hops)), JobState.FINISHED)


def test_several_processes_do_not_race_for_the_end_either(serve, tmp_path):
    hops = 12
    server = serve(Scripted({f"/{number}": [] for number in range(hops)}))
    (tmp_path / "chain.py").write_text(
        f"""
import asyncio
from skitter import Collector

crawler = Collector(settings={{"delay": 0, "robots": False}})
crawler.visit("{server.url}0")


@crawler.on_response
async def last(response):
    number = int(response.url.rpartition("/")[2])
    await asyncio.sleep(0.05)
    if number < {hops - 1}:
        response.request.visit(f"/{{number + 1}}")
    yield {{"url": response.url}}
"""
    )
    result = skitter("run", "chain.py", "-o", "out.jsonl", "--workers", 3, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(lines_of(tmp_path / "out.jsonl")) == hops


def test_a_job_spec_names_a_collector_like_a_spider(serve, tmp_path, file):
    from skitter import Crawl

    server = serve(Scripted({"/": ["/b"], "/b": []}))
    spec = JobSpec(
        job="j",
        spider=f"{file}:crawler",
        arguments={"site": server.url},
        frontier="memory:",
        home=str(tmp_path),
    )
    assert asyncio.run(Crawl(spec).run()).counters["pages"] == 2


def test_running_while_a_file_is_imported_is_a_spider_error(file, tmp_path, monkeypatch):
    from skitter.run.loader import load_spider_class

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs_itself.py"
    path.write_text("from skitter import Collector\nCollector().run()\n")
    with pytest.raises(SpiderError, match="imports its file"):
        load_spider_class(str(path))
