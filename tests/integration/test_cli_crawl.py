"""`skitter crawl` and `skitter run`, as real processes with sites on this machine."""

import contextlib
import json
import os
import pty
import socket
import subprocess
import threading

import pytest
import trustme

from cli_command import (
    SKITTER,
    Running,
    SlowingSite,
    expected_urls,
    lines_of,
    lines_without_progress,
    skitter,
    urls_of,
    usage_error,
)
from servers.tls import server_side
from skitter.testing import Answer, GeneratedSite

SPIDER = """
from skitter import Spider

class Titles(Spider):
    name = "All titles"

    def __init__(self, url, word="none"):
        super().__init__(word=word)
        self.start_urls = [url]

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get(), "word": self.word}
        yield response.follow_all("a")
"""


KEEPER = """
import os
from skitter import Spider

log = open(f"log-{os.getpid()}", "w")

class Keeper(Spider):
    def __init__(self, url, folder):
        super().__init__(start_urls=[url])
        self.file = open(f"{folder}/kept-{os.getpid()}", "w")

    def parse(self, response):
        print(response.url, file=self.file)
        print(response.url, file=log)
        yield response.follow_all("a")
"""


def counts(path):
    return json.loads(path.read_text())


def test_a_crawl_without_an_output_prints_each_page_once_as_json_lines_and_nothing_else(serve, tmp_path):
    site = GeneratedSite(pages=20, links_per_page=12)
    server = serve(site)
    result = skitter("crawl", server.url, "--delay", 0, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    items = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(item["url"] for item in items) == expected_urls(site, server)
    assert list(items[0]) == [
        "url",
        "status",
        "title",
        "depth",
        "links",
        "content_type",
        "size",
        "fetched_at",
    ]
    assert "is finished" in result.stderr


def test_the_files_of_a_job_are_private_to_its_user(serve, tmp_path):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    assert skitter("crawl", server.url, "--delay", 0, "--job", "mine", cwd=tmp_path).returncode == 0
    assert (tmp_path / ".skitter" / "mine").stat().st_mode & 0o077 == 0


def test_a_crawl_from_a_closed_network_is_refused_if_seeds_open_nothing(serve, tmp_path):
    server = serve(GeneratedSite(pages=2, links_per_page=12))
    arguments = (server.url, "--delay", 0, "--summary", "s.json", "-s", "seeds_open_networks=false")
    assert skitter("crawl", *arguments, cwd=tmp_path).returncode == 1  # no page could be fetched
    assert counts(tmp_path / "s.json")["failed_by_kind"] == {"forbidden": 1}
    assert not server.log.hits
    assert (
        skitter("crawl", *arguments, "--allow-network", "127.0.0.1", "--fresh", cwd=tmp_path).returncode == 0
    )
    assert counts(tmp_path / "s.json")["pages"] == 2


def test_every_page_has_the_title_and_the_number_of_links_that_it_has(serve, tmp_path):
    site = GeneratedSite(pages=20, links_per_page=12)
    server = serve(site)
    skitter("crawl", server.url, "--delay", 0, "-o", "items.jsonl", cwd=tmp_path)
    found = {item["url"]: (item["title"], item["links"]) for item in lines_of(tmp_path / "items.jsonl")}
    assert found == {
        url: (page.title, page.links) for url, page in site.expected_pages(server.origins).items()
    }


def test_depth_0_crawls_only_the_start_page(serve, tmp_path):
    server = serve(GeneratedSite(pages=20, links_per_page=12))
    skitter("crawl", server.url, "--delay", 0, "--depth", 0, "-o", "items.jsonl", cwd=tmp_path)
    assert urls_of(tmp_path / "items.jsonl") == [server.url]


def test_a_crawl_stays_on_its_start_host_by_default(serve, tmp_path):
    site = GeneratedSite(pages=24, hosts=2, links_per_page=12)
    server = serve(site, hosts=2)
    home, both = tmp_path / "home.jsonl", tmp_path / "both.jsonl"
    assert skitter("crawl", server.url, "--delay", 0, "-o", home, cwd=tmp_path).returncode == 0
    assert skitter(
        "crawl", server.url, "--delay", 0, "-o", both, "--job", "both", "--scope", "any", "--deny", "outside",
        cwd=tmp_path,
    ).returncode == 0  # fmt: skip
    assert {item["url"].split("/")[2] for item in lines_of(home)} == {server.origins[0]}
    assert urls_of(both) == expected_urls(site, server)


def test_deny_and_allow_exclude_pages(serve, tmp_path):
    server = serve(GeneratedSite(pages=40, links_per_page=12))
    skitter(
        "crawl", server.url, "--delay", 0, "--deny", r"[?]", "-o", "plain.jsonl", "--job", "a", cwd=tmp_path
    )
    skitter(
        "crawl", server.url, "--delay", 0, "--allow", "/$", "-o", "root.jsonl", "--job", "b", cwd=tmp_path
    )
    plain = urls_of(tmp_path / "plain.jsonl")
    assert len(plain) > 1
    assert not [url for url in plain if "?" in url]
    assert urls_of(tmp_path / "root.jsonl") == [server.url]


def test_a_spider_file_runs_on_two_workers_with_its_arguments_and_names_its_job(serve, tmp_path):
    site = GeneratedSite(pages=60, links_per_page=12)
    server = serve(site)
    (tmp_path / "titles.py").write_text(SPIDER)
    result = skitter(
        "run", "titles.py", "-a", f"url={server.url}", "-a", "word=a=b", "--workers", 2, "--delay", 0,
        "-o", "items.jsonl", "-o", "items.csv", "-s", "allow=" + server.origins[0].replace(".", "[.]"),
        cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)
    assert {item["word"] for item in lines_of(tmp_path / "items.jsonl")} == {"a=b"}
    assert len((tmp_path / "items.csv").read_text().splitlines()) == 61
    assert (tmp_path / ".skitter" / "All-titles" / "job.json").is_file()


def test_a_spider_in_a_package_of_the_working_folder_runs_on_two_workers(serve, tmp_path):
    server = serve(GeneratedSite(pages=10, links_per_page=12))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "words.py").write_text("WORD = 'found'\n")
    (tmp_path / "shop" / "spiders.py").write_text("from shop.words import WORD\n" + SPIDER)
    for reference in ("shop.spiders:Titles", "shop/spiders.py"):
        result = skitter(
            "run", reference, "-a", f"url={server.url}", "-s", "depth_limit=0", "--workers", 2,
            "-o", "items.jsonl", "--fresh", cwd=tmp_path,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert urls_of(tmp_path / "items.jsonl") == [server.url]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_a_spider_does_not_close_is_written(serve, tmp_path, workers):
    site = GeneratedSite(pages=20, links_per_page=12)
    server = serve(site)
    (tmp_path / "keeper.py").write_text(KEEPER)
    options = ("--workers", workers, "--delay", 0, "-a", f"url={server.url}", "-a", f"folder={tmp_path}")
    assert skitter("run", "keeper.py", "-o", "items.jsonl", *options, cwd=tmp_path).returncode == 0
    for files in ("kept-*", "log-*"):
        kept = [line for file in tmp_path.glob(files) for line in file.read_text().splitlines()]
        assert sorted(kept) == expected_urls(site, server)


def test_a_finished_job_is_reported_with_fresh_as_remedy_and_keeps_its_output(serve, tmp_path):
    site = GeneratedSite(pages=10, links_per_page=12)
    server = serve(site)
    command = ("crawl", server.url, "--delay", 0, "-o", "items.jsonl")
    skitter(*command, cwd=tmp_path)
    hits = len(server.log.hits)
    result = skitter(*command, cwd=tmp_path)
    assert result.returncode == 0
    assert "already finished" in result.stderr
    assert "--fresh" in result.stderr
    assert len(server.log.hits) == hits
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_fresh_crawls_again_and_replaces_the_output_also_of_a_frontier_elsewhere(serve, tmp_path):
    site = GeneratedSite(pages=10, links_per_page=12)
    server = serve(site)
    command = (
        "crawl",
        server.url,
        "--delay",
        0,
        "-o",
        "items.jsonl",
        "--frontier",
        "sqlite:place.db",
        "--fresh",
    )
    for _ in range(2):
        assert skitter(*command, cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)
    assert len([hit for hit in server.log.hits if hit.target == "/"]) == 2


def test_another_job_of_the_same_name_is_rejected_and_the_first_is_kept(serve, tmp_path):
    server = serve(GeneratedSite(pages=10, links_per_page=12))
    skitter("crawl", server.url, "--depth", 0, "-o", "items.jsonl", cwd=tmp_path)
    result = skitter("crawl", server.url_of("/other"), "--depth", 0, "-o", "items.jsonl", cwd=tmp_path)
    assert result.returncode == 2
    assert "--job" in result.stderr
    assert "skitter resume" in result.stderr
    assert urls_of(tmp_path / "items.jsonl") == [server.url]


def test_a_limit_stops_the_job_and_a_larger_one_continues_to_the_end(serve, tmp_path):
    site = GeneratedSite(pages=40, links_per_page=12)
    server = serve(site)
    command = ("crawl", server.url, "--delay", 0, "-o", "items.jsonl")
    result = skitter(*command, "--limit", 15, "--summary", "s.json", cwd=tmp_path)
    assert result.returncode == 0
    assert "limit reached: 15 pages" in result.stderr
    assert counts(tmp_path / "s.json")["state"] == "stopped"
    assert len(lines_of(tmp_path / "items.jsonl")) == 15
    assert skitter(*command, "--limit", 1000, cwd=tmp_path).returncode == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def broken_site(visit):
    if visit.path == "/":
        return Answer(b'<title>Home</title><a href="/gone">gone</a><a href="/here">here</a>')
    return Answer(b"<title>Here</title>") if visit.path == "/here" else Answer(status=404)


def test_dead_letters_fail_a_run_only_if_requested_and_are_in_the_summary(serve, tmp_path):
    server = serve(broken_site)
    command = ("crawl", server.url, "-o", "items.jsonl", "--summary", "sum.json")
    assert skitter(*command, cwd=tmp_path).returncode == 0
    assert skitter(*command, "--fail-on-errors", "--fresh", cwd=tmp_path).returncode == 1
    summary = counts(tmp_path / "sum.json")
    assert summary["state"] == "finished"
    assert summary["exit_code"] == 1
    assert (summary["pages"], summary["pages_this_run"], summary["items"], summary["failed"]) == (2, 2, 2, 1)
    assert summary["failed_by_kind"] == {"status/404": 1}
    assert summary["statuses"] == {"200": 2, "404": 1}
    assert summary["outputs"] == ["items.jsonl"]
    assert summary["added"] == sum(
        summary[state] for state in ("queued", "delayed", "in_flight", "done", "failed")
    )


def test_quiet_prints_nothing(serve, tmp_path):
    server = serve(GeneratedSite(pages=5, links_per_page=12))
    result = skitter("crawl", server.url, "--quiet", "-o", "items.jsonl", cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_with_a_json_log_every_line_on_standard_error_is_json(serve, tmp_path):
    server = serve(broken_site)
    result = skitter("crawl", server.url, "--log-format", "json", "--log-level", "debug", cwd=tmp_path)
    records = [json.loads(line) for line in result.stderr.splitlines()]
    assert records[-1]["message"].startswith("job ")
    assert records[-1]["summary"]["pages"] == 2


def test_a_crawl_that_fails_while_it_runs_reports_the_cause_in_one_line_and_exits_with_1(serve, tmp_path):
    server = serve(GeneratedSite(pages=5, links_per_page=12))
    (tmp_path / "failing.py").write_text(
        "from skitter import Spider\n"
        "class Failing(Spider):\n"
        "    async def start(self):\n"
        f"        yield {server.url!r}\n"
        "        raise RuntimeError('the list of shops\\nis gone')\n"
    )
    result = skitter("run", "failing.py", "-o", "items.jsonl", "--summary", "sum.json", cwd=tmp_path)
    assert result.returncode == 1
    (line,) = lines_without_progress(result.stderr)
    assert "RuntimeError: the list of shops is gone" in line
    summary = counts(tmp_path / "sum.json")
    assert (summary["state"], summary["exit_code"]) == ("failed", 1)
    assert "the list of shops" in summary["reason"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("pass", "has no start requests"),
        ("async def start(self): yield 7", "unsupported int"),
    ],
)
def test_a_mistake_in_the_seeds_is_reported_in_one_line_and_exits_with_2(tmp_path, start, expected, workers):
    (tmp_path / "wrong.py").write_text(f"from skitter import Spider\nclass Wrong(Spider):\n    {start}\n")
    options = ("--workers", workers, "--summary", "sum.json", "-s", "deny=127[.]0")
    line = usage_error("run", "wrong.py", "-o", "items.jsonl", *options, cwd=tmp_path)
    assert expected in line
    summary = counts(tmp_path / "sum.json")
    assert (summary["state"], summary["exit_code"]) == ("failed", 2)


def test_a_reader_of_standard_output_that_goes_away_ends_the_crawl_quietly(serve, tmp_path):
    slow = SlowingSite(GeneratedSite(pages=2000, links_per_page=12), after=30, delay=0.05)
    server = serve(slow)
    with Running("crawl", server.url, "--delay", 0, cwd=tmp_path) as running:
        assert json.loads(running.process.stdout.readline())["status"] == 200
        running.process.stdout.close()
        running.process.stdout = None
        code, _, stderr = running.end()
    assert code == 0
    assert "Traceback" not in stderr
    assert "the reader of - has closed it" in stderr


def test_on_a_terminal_a_table_shows_the_progress_and_disappears_at_the_end(serve, tmp_path):
    slow = SlowingSite(GeneratedSite(pages=40, links_per_page=12), after=20, delay=1.0)
    server = serve(slow)
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [*SKITTER, "crawl", server.url, "--delay", "0", "-o", "items.jsonl"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    try:
        shown = read_until(screen, b"in flight")
        slow.released.set()
        shown += read_until(screen, b"is finished")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert b"pages/s" in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), "the cursor is shown again"


def read_until(screen, text):
    shown = b""
    while text not in shown:
        try:
            shown += os.read(screen, 65_536)
        except OSError:  # the terminal was closed
            break
    assert text in shown
    return shown


def test_without_a_terminal_the_terminal_library_is_not_loaded(serve, tmp_path):
    server = serve(lambda _: Answer(b"<title>Home</title>"))
    (tmp_path / "looking.py").write_text(
        "import sys\n"
        "from skitter import Spider\n"
        "class Looking(Spider):\n"
        f"    start_urls = [{server.url!r}]\n"
        "    def parse(self, response):\n"
        "        yield {'rich': 'rich' in sys.modules}\n"
    )
    assert json.loads(skitter("run", "looking.py", cwd=tmp_path).stdout) == {"rich": False}


@pytest.mark.parametrize(("options", "embedded"), [([], set()), (["--iframes"], {"/embedded"})])
def test_a_crawl_follows_areas_frames_and_refreshes_and_iframes_if_asked_to(
    serve, tmp_path, options, embedded
):
    def site(visit):
        pages = {
            "/": b"<frameset><frame src=/menu><frame src=/main></frameset>",
            "/menu": b"<map><area href=/area></map>",
            "/main": b'<meta http-equiv=refresh content="3; url=/moved">',
            "/area": b"<iframe src=/embedded></iframe><a>no link</a>",
        }
        return Answer(b"<!doctype html><title>x</title>" + pages.get(visit.target, b""))

    server = serve(site)
    result = skitter("crawl", server.url, "--delay", 0, *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    items = {
        item["url"][len(server.url) - 1 :]: item["links"]
        for item in map(json.loads, result.stdout.splitlines())
    }
    assert set(items) == {"/", "/menu", "/main", "/area", "/moved"} | embedded
    assert (items["/"], items["/menu"], items["/area"]) == (2, 1, len(embedded))


@pytest.mark.parametrize("workers", [1, 2])
def test_seeds_that_are_all_refused_are_named_with_their_reasons(tmp_path, workers):
    (tmp_path / "wrong.py").write_text(
        "from skitter import Spider\n"
        "class Wrong(Spider):\n"
        "    start_urls = ['http://127.0.0.1:9/', 'shop.test/a', 'ftp://shop.test/']\n"
        "    def parse(self, response):\n"
        "        yield {}\n"
    )
    options = ("--workers", workers, "-s", "deny=127[.]0")
    for _ in range(2):  # nothing is stored, so the same command with a corrected spider can load its seeds
        result = skitter("run", "wrong.py", "-o", "items.jsonl", *options, cwd=tmp_path)
        assert result.returncode == 1
        (line,) = [line for line in result.stderr.splitlines() if "no seed can be crawled" in line]
        for seed, reason in (
            ("http://127.0.0.1:9/", "pattern"),
            ("shop.test/a", "unparsable"),
            ("ftp://shop.test/", "scheme"),
        ):
            assert f"'{seed}' ({reason}" in line


@pytest.mark.parametrize("workers", [1, 2])
def test_a_seed_that_is_refused_is_counted_and_named_and_the_others_are_crawled(serve, tmp_path, workers):
    server = serve(GeneratedSite(pages=20, links_per_page=12))
    (tmp_path / "some.py").write_text(
        "from skitter import Spider\n"
        "class Some(Spider):\n"
        f"    start_urls = ['shop.test/a', {server.url!r}, 'ftp://shop.test/']\n"
        "    def parse(self, response):\n"
        "        yield {'url': response.url}\n"
    )
    result = skitter(
        "run", "some.py", "-o", "items.jsonl", "--summary", "sum.json", "--workers", workers, cwd=tmp_path
    )
    assert result.returncode == 0
    assert "'shop.test/a' (unparsable: did you mean https://shop.test/a?)" in result.stderr
    assert "'ftp://shop.test/' (scheme: only http and https are crawled)" in result.stderr
    summary = counts(tmp_path / "sum.json")
    assert summary["refused_by_reason"] == {"scheme": 1, "unparsable": 1}
    assert (summary["pages"], summary["items"]) == (1, 1)


class Unfetchable:
    """A site whose pages all fail in the same way."""

    def __init__(self, robots, status):
        self.robots, self.status = robots, status

    def __call__(self, visit):
        if visit.target == "/robots.txt":
            return Answer(self.robots)
        return Answer(b"x", status=self.status)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("404", "status/404"),
        ("robots", "forbidden by robots.txt"),
        ("refused", "connect"),
        ("dns", "dns"),
        ("tls", "tls"),
    ],
)
def test_a_run_that_could_fetch_none_of_its_seeds_fails_and_names_each(
    serve, tmp_path, free_port, authority, how, reason
):
    site = Unfetchable(b"User-agent: *\nDisallow: /" if how == "robots" else b"", 404)
    urls = {
        "refused": f"http://127.0.0.1:{free_port}/",
        "dns": "http://no-such-name.invalid/",
        "tls": authority,
    }
    url = urls.get(how) or serve(site).url
    result = skitter(
        "crawl", url, "-o", "items.jsonl", "--job", "none", "-s", "retry_delay=0.01", cwd=tmp_path
    )
    assert result.returncode == 1
    seeds = [line for line in result.stderr.splitlines() if f"seed {url}" in line]
    assert len(seeds) == 1
    assert reason in seeds[0]
    if how == "tls":
        assert "name its authority in ca_file" in seeds[0]
    assert "no page could be fetched" in result.stderr
    if how != "robots":
        assert "skitter failures list none" in result.stderr
        listed = skitter("failures", "list", "none", "--json", cwd=tmp_path)
        assert json.loads(listed.stdout)[0]["error"].startswith(reason)


@pytest.fixture
def authority():
    """URL of a server whose certificate no authority has signed."""
    context = server_side(trustme.CA())
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with (
                        contextlib.suppress(OSError),
                        connection,
                        context.wrap_socket(connection, server_side=True),
                    ):
                        pass

        threading.Thread(target=accept, daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}/"


def test_the_summary_shows_the_command_that_lists_failures(serve, tmp_path):
    def site(visit):
        return Answer(
            b"<a href='/gone'>x</a>" if visit.target == "/" else b"",
            status=200 if visit.target == "/" else 404,
        )

    result = skitter("crawl", serve(site).url, "-o", "items.jsonl", "--job", "partly", cwd=tmp_path)
    assert result.returncode == 0
    assert "skitter failures list partly" in result.stderr


LOGIN_SPIDER = """
from skitter import Request, Spider

class Private(Spider):
    def __init__(self, url, other):
        super().__init__()
        self.start_urls = [url]
        self.other = other

    def parse(self, response):
        yield {"url": response.url, "request": response.request.url, "status": response.status}
        yield response.follow_all("a")
        if self.other:
            yield Request(self.other)
"""


def test_a_password_in_a_url_is_sent_to_its_origin_and_shown_nowhere(serve, tmp_path):
    def site(visit):
        wanted = {0: "Basic dXNlcjpodW50ZXIy", 1: "Basic bWU6aHVudGVyMw=="}[
            visit.origins.index(f"{visit.host}:{visit.port}")
        ]
        if visit.headers.get("authorization") != wanted:
            return Answer(status=401)
        links = f'<a href=/a>1</a><a href="http://user:hunter2@{visit.host}:{visit.port}/b">2</a><a href=/gone>3</a>'
        return Answer(links.encode()) if visit.target != "/gone" else Answer(status=404)

    server = serve(site, hosts=2)
    secret, other = (
        f"http://{login}@{server.url_of('/', host)[7:]}"
        for host, login in ((0, "user:hunter2"), (1, "me:hunter3"))
    )
    options = ("--delay", 0, "--no-robots", "--workers", 2)
    crawled = skitter("crawl", secret, *options, "--job", "c", "-o", "c.jsonl", cwd=tmp_path)
    (tmp_path / "login.py").write_text(LOGIN_SPIDER)
    ran = skitter("run", "login.py", "-a", f"url={server.url}", "-a", "other=", *options, "--job", "r", "-s", f'credentials={{"{server.url}": "env:SITE"}}',
                  "-o", "r.jsonl", cwd=tmp_path, environment={"SITE": "user:hunter2"})  # fmt: skip
    explicit = skitter("run", "login.py", "-a", f"url={server.url}", "-a", f"other={other}", *options, "--job", "e", "-s", f'credentials={{"{server.url}": "env:SITE"}}',
                       "-o", "e.jsonl", cwd=tmp_path, environment={"SITE": "user:hunter2"})  # fmt: skip
    paths = {f"{server.url}{path}" for path in ("", "a", "b")}
    assert urls_of(tmp_path / "c.jsonl") == urls_of(tmp_path / "r.jsonl") == sorted(paths)
    assert server.url_of("/", 1) in urls_of(tmp_path / "e.jsonl")
    shown = [
        skitter("failures", command, "c", *more, cwd=tmp_path).stdout
        for command, more in (("list", ()), ("show", ()), ("list", ("--json",)))
    ]
    assert all("/gone" in text for text in shown)
    stored = [
        path.read_bytes()
        for job in ("c", "r")
        for path in (tmp_path / ".skitter" / job).rglob("*")
        if path.is_file()
    ]
    texts = [text.encode() for result in (crawled, ran, explicit) for text in (result.stdout, result.stderr)]
    outputs = [path.read_bytes() for path in tmp_path.glob("*.jsonl")]
    for text in [*stored, *texts, *outputs, *(one.encode() for one in shown)]:
        assert b"hunter" not in text
        assert b"dXNlcjpodW50ZXIy" not in text
    refused = skitter("resume", "c", cwd=tmp_path)
    assert "credentials" in refused.stderr + refused.stdout


def test_files_with_chosen_suffixes_are_downloaded_and_not_crawled(serve, tmp_path):
    def site(visit):
        if visit.path.endswith((".pdf", ".PNG", ".zip")):
            return Answer(visit.path.encode(), content_type="application/octet-stream")
        return Answer(b"<a href=/a.pdf?x=1>a</a><a href=/b.html>b</a><a href=c.zip>c</a><img src=/d.PNG>")

    server = serve(site)
    result = skitter("crawl", server.url, "--files", "pdf, .png", "-o", "x.jsonl", "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    items = {item["url"].removeprefix(server.url): item for item in lines_of(tmp_path / "x.jsonl")}
    assert sorted(items) == ["", "b.html", "c.zip"]
    assert items[""]["file_urls"] == [f"{server.url}a.pdf?x=1", f"{server.url}d.PNG"]
    stored = [(tmp_path / "files" / file["path"]).read_bytes() for file in items[""]["files"]]
    assert stored == [b"/a.pdf", b"/d.PNG"]
    assert items["c.zip"]["files"] == []


def without_streams(closed, *arguments, cwd):
    """Run a command whose standard streams are closed. Return its exit status."""
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *SKITTER, *arguments]
    return subprocess.run(shell, cwd=cwd, timeout=100, check=False).returncode


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_crawl_whose_standard_streams_are_closed_is_complete(serve, tmp_path, closed, workers):
    site = GeneratedSite(pages=20)
    server = serve(site)
    arguments = ["crawl", server.url, "-o", "items.jsonl", "--workers", workers, "-s", "delay=0"]
    assert without_streams(closed, *arguments, cwd=tmp_path) == 0
    assert urls_of(tmp_path / "items.jsonl") == expected_urls(site, server)


def test_closed_standard_output_is_refused_as_an_output_before_anything_is_fetched(serve, tmp_path):
    server = serve(GeneratedSite(pages=20))
    assert without_streams(">&-", "crawl", server.url, "--quiet", cwd=tmp_path) == 2
    assert not server.log.hits
