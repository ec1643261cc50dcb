"""Every example runs and has the documented result."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from cli_command import lines_of, skitter, urls_of
from distances import assert_distance
from manual import ROOT
from sites.changing import ChangingSite
from skitter.testing import Answer, SiteProcess
from skitter.testing.demo_site import DemoSite, demo_server

EXAMPLES = ROOT / "examples"
PLUGINS = EXAMPLES / "plugins"


def address(site):
    """Return the URL of a site as the examples use it, without a slash at its end."""
    return site.url.rstrip("/")


def members(site):
    """Return all pages behind the login."""
    return [f"{address(site)}/members/", *(f"{address(site)}/members/{number}" for number in range(1, 6))]


@pytest.fixture
def site():
    """The site of the examples in a separate process, which is ended with the test."""
    with SiteProcess("quotes_site:Site", search=[EXAMPLES]) as process:
        yield process


@pytest.fixture
def run(tmp_path, site):
    """Run an example to its end. Return the folder in which it ran."""

    def run_example(name, *arguments, **options):
        result = skitter(
            "run",
            EXAMPLES / name,
            "-a",
            f"site={address(site)}",
            *arguments,
            "--fail-on-errors",
            cwd=tmp_path,
            **options,
        )
        assert result.returncode == 0, result.stderr
        return tmp_path

    return run_example


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """Install the plug-ins with pip, as a separate package, in a folder of the test."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copytree(PLUGINS, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", folder / "installed"]
    result = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, folder / "source"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return importing_from(folder / "installed")


def importing_from(*folders):
    """Return an environment in which modules of these folders can be imported."""
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), *([before] if before else [])])}


def test_quotes_yields_each_detail_once(run):
    assert len(set(urls_of(run("quotes.py", "-o", "out.jsonl") / "out.jsonl"))) == 24


def test_the_text_dataset_has_the_content_of_each_page_of_the_site_once(tmp_path):
    """On the site of the guide that shows it, which links to two more hosts."""
    pytest.importorskip("trafilatura", reason="trafilatura is not installed")
    outputs = ("-o", "all.jsonl?duplicates=mark", "-o", "kept.jsonl?duplicates=drop")
    with demo_server(DemoSite(pace=0)) as server:
        argument = f"site=http://{server.origins[0]}/"
        result = skitter("run", EXAMPLES / "text_dataset.py", "-a", argument, *outputs, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    items = lines_of(tmp_path / "all.jsonl")
    assert len({item["url"] for item in items}) == len(items) == 110
    assert all(item["content"] for item in items)
    kept = {item["url"] for item in lines_of(tmp_path / "kept.jsonl")}
    assert kept == {item["url"] for item in items if item["duplicate_of"] is None}
    assert len(kept) < len(items)


def test_login_reaches_all_members_pages(tmp_path, site):
    words = ("run", EXAMPLES / "login.py", "-a", f"site={address(site)}", "-o", "out.jsonl", "--quiet")
    result = skitter(*words, "--fail-on-errors", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert urls_of(tmp_path / "out.jsonl") == members(site)


def test_login_for_a_fleet_holds_in_other_processes_than_the_one_that_logged_in(run, site):
    run("login_fleet.py", "-o", "out.jsonl", "--limit", 3)
    folder = run("login_fleet.py", "-o", "out.jsonl", "--workers", 2)
    assert urls_of(folder / "out.jsonl") == members(site)


def test_a_login_in_one_process_holds_in_all_with_shared_cookies(run, site):
    folder = run("login.py", "-o", "out.jsonl", "-s", "cookies=shared", "--limit", 2)
    folder = run("login.py", "-o", "out.jsonl", "-s", "cookies=shared", "--workers", 2)
    assert urls_of(folder / "out.jsonl") == members(site)


def test_api_yields_each_record_of_each_page(run):
    found = lines_of(run("api.py", "-o", "out.jsonl") / "out.jsonl")
    assert sorted(item["id"] for item in found) == list(range(24))


def test_the_image_archive_holds_each_image_once(run, site):
    folder = run("image_archive.py", "-o", "out.jsonl", "--workers", 2)
    items = {item["page"]: item["images"] for item in lines_of(folder / "out.jsonl")}
    assert len(items) == 7
    assert items[f"{address(site)}/photos/"] == []
    archive = folder / "archive"
    files = {f"{path.relative_to(archive)}": path.read_bytes() for path in archive.glob("full/*/*")}
    assert len(files) == 3
    for number in range(6):
        images = items[f"{address(site)}/photos/{number}"]
        names = [f"{address(site)}/images/{one}.png" for one in (number, (number + 1) % 6)]
        assert [image["url"] for image in images] == names
        assert [hashlib.sha256(files[image["path"]]).hexdigest() for image in images] == [
            image["checksum"] for image in images
        ]
    asked = [hit.target for hit in site.hits() if hit.target.startswith("/images/")]
    assert sorted(asked) == [f"/images/{number}.png" for number in range(6)]


def test_hooks_send_the_token_change_items_and_leave_no_dead_letter(run):
    items = lines_of(run("hooks.py", "-o", "out.jsonl") / "out.jsonl")
    assert sorted(item["count"] for item in items if "count" in item) == [4, 10, 10]
    assert [item["error"] for item in items if "error" in item] == ["the server responded with 404"]
    assert {item["fetched_from"] for item in items} == {"127.0.0.1"}


def test_the_token_that_a_hook_sends_is_stored_nowhere(run):
    folder = run("hooks.py", "-o", "out.jsonl", "--limit", 1, "--job", "tokens")
    kept = b"".join(
        path.read_bytes() for path in (folder / ".skitter" / "tokens").rglob("*") if path.is_file()
    )
    assert b'{"after":20}' in kept
    assert b"X-Token" not in kept


def test_limits_keep_the_distance_that_their_rule_asks_for(run, site):
    folder = run("limits.py", "-o", "out.jsonl")
    assert len(lines_of(folder / "out.jsonl")) == 3
    hits = site.hits()
    assert [hit.target for hit in hits] == ["/robots.txt", "/quotes/", "/quotes/10", "/quotes/20"]
    assert_distance(hits, 0.1)


def test_embed_stops_at_its_limit(tmp_path, site):
    result = subprocess.run(
        [sys.executable, EXAMPLES / "embed.py", address(site)], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("stopped limit reached: 10 pages 10 ")


def test_a_producer_adds_urls_to_the_crawl_that_runs(tmp_path, site):
    quotes = [f"{site.url}quotes/{number}" for number in (1, 2)]
    result = subprocess.run(
        [sys.executable, EXAMPLES / "producer.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        input="\n".join([*quotes, "ftp://127.0.0.1/", quotes[0], ""]), check=True,
    )  # fmt: skip
    *told, last, end = result.stdout.splitlines()
    assert told[:2] == [f"new {quotes[0]}", f"new {quotes[1]}"]
    assert "'ftp://127.0.0.1/' was refused: scheme" in told[2]
    assert (last, end) == (f"known {quotes[0]}", "finished")
    assert urls_of(tmp_path / "titles.jsonl") == quotes


def test_stream_yields_all_items_in_both_ways(tmp_path, site):
    result = subprocess.run(
        [sys.executable, EXAMPLES / "stream.py", address(site)], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("async: {")
    assert result.stdout.endswith("blocking: 24 quotes\n")
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_a_test_passes(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / "test_quotes.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(EXAMPLES)}, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


def test_the_store_writes_the_items_of_each_page_once(run, plugins):
    folder = run("quotes.py", "-o", "folder:pages", "-o", "out.jsonl", "--workers", 2, environment=plugins)
    found = [json.loads(path.read_text())["url"] for path in (folder / "pages").iterdir()]
    assert sorted(found) == urls_of(folder / "out.jsonl")


def test_a_store_with_one_method_is_found_by_its_entry_point(run, plugins):
    folder = run("quotes.py", "-o", "rows:rows.db", "-o", "out.jsonl", "--workers", 2, environment=plugins)
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        found = [json.loads(item)["url"] for (item,) in database.execute("SELECT item FROM pages")]
    assert sorted(found) == urls_of(folder / "out.jsonl")


def test_a_user_defined_broker_delivers_each_request_once(run, plugins):
    from services.redis_servers import running

    frontier = f"zset://127.0.0.1:{running('valkey').port}/examples?state=sqlite:"
    folder = run("quotes.py", "--frontier", frontier, "-o", "out.jsonl", "--workers", 2, environment=plugins)
    found = urls_of(folder / "out.jsonl")
    assert len(found) == len(set(found)) == 24


def test_a_fresh_start_empties_the_store(run, plugins):
    run("quotes.py", "-o", "folder:pages", environment=plugins)
    folder = run("quotes.py", "-o", "folder:pages", "--fresh", "--limit", 5, environment=plugins)
    assert len(list((folder / "pages").iterdir())) <= 5


def test_the_fetcher_answers_the_second_crawl_from_its_folder(run, plugins, site):
    run("quotes.py", "-o", "one.jsonl", "-s", "fetcher=kept:pages", environment=plugins)
    before = len(site.hits())
    folder = run(
        "quotes.py", "-o", "two.jsonl", "-s", "fetcher=kept:pages", "--job", "again", environment=plugins
    )
    asked = [hit.target for hit in site.hits()[before:]]
    assert asked == ["/robots.txt"]  # a 404 is not stored
    assert urls_of(folder / "two.jsonl") == urls_of(folder / "one.jsonl")


@pytest.mark.parametrize("part", sorted(PLUGINS.glob("*.py")), ids=lambda path: path.stem)
def test_a_user_defined_part_takes_at_most_40_lines(part):
    lines = [line for line in part.read_text().splitlines() if line.strip()]
    assert len(lines) <= 40
    assert f'"examples/plugins/{part.name}"' in (ROOT / "docs" / "guides" / "extending.md").read_text()


def test_the_user_agents_contain_a_contact(tmp_path, plugins, serve):
    asked = []

    def site(visit):
        asked.append((visit.headers["user-agent"], visit.headers["from"]))
        return Answer(b"<title>x</title>")

    mail = "me@example.org"
    result = skitter(
        "crawl", serve(site).url, "-s", f"user_agents=contact:{mail}", cwd=tmp_path, environment=plugins
    )
    assert result.returncode == 0, result.stderr
    assert set(asked) == {(f"research-crawler (+mailto:{mail})", mail)}


def test_a_part_is_opened_once_in_each_worker_when_all_settings_are_known(run, tmp_path):
    (tmp_path / "noting.py").write_text(
        "import os\n"
        "class Agents:\n"
        "    def __init__(self, context):\n"
        "        self.delay = context.settings.delay\n"
        "    async def open(self):\n"
        f"        descriptor = os.open({str(tmp_path / 'opened')!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)\n"
        "        os.write(descriptor, f'{os.getpid()} {self.delay}\\n'.encode())\n"
        "    def headers(self, request):\n"
        "        return {'User-Agent': 'noting'}\n"
    )
    part = ("-s", "user_agents=noting:Agents", "-s", "delay=0.01")
    run("quotes.py", *part, "-o", "out.jsonl", "--workers", 2, environment=importing_from(tmp_path))
    opened = [line.split() for line in (tmp_path / "opened").read_text().splitlines()]
    assert [delay for _, delay in opened] == ["0.01", "0.01"]
    assert len({process for process, _ in opened}) == 2


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("-s", "fetcher=kept_fetcher:KeptFetcher:pages"),
        ("-s", "user_agents=contact_agents:ContactAgents:me@example.org"),
        ("--frontier", "audit_frontier:AuditFrontier:log.txt"),
        ("-o", "folder_store:FolderOutput:pages"),
        ("-o", "row_store:RowStore:rows.db"),
    ],
)
def test_a_part_that_is_not_installed_is_named_by_its_dotted_path(run, option, part):
    folder = run("quotes.py", option, part, "-o", "out.jsonl", environment=importing_from(PLUGINS))
    assert len(urls_of(folder / "out.jsonl")) == 24


@pytest.mark.parametrize(
    ("option", "part", "words"),
    [
        ("-s", "fetcher=keept:x", "use one of: adaptive, browser, http, kept"),
        ("--frontier", "audit_frontier:Missing", "has no 'Missing'"),
    ],
)
def test_a_part_that_is_not_there_ends_the_command_before_it_begins(tmp_path, plugins, option, part, words):
    spider = tmp_path / "spider.py"
    spider.write_text(
        "from skitter import Spider\nclass One(Spider):\n    start_urls = ['http://127.0.0.1:1/']\n"
    )
    result = skitter("run", spider, "-o", "out.jsonl", option, part, cwd=tmp_path, environment=plugins)
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert words in result.stderr
    assert not list(tmp_path.glob(".skitter/*/job.json"))


def test_the_frontier_notes_how_each_request_ended(run, plugins):
    folder = run("quotes.py", "-o", "out.jsonl", "--frontier", "audit:log.txt", environment=plugins)
    notes = (folder / "log.txt").read_text().splitlines()
    assert len(notes) == 27
    assert {note.partition(" ")[0] for note in notes} == {"done"}


@pytest.fixture
def blog():
    """The site of the small programs in a separate process, which is ended with the test."""
    with SiteProcess("blog_site:Site", search=[EXAMPLES]) as process:
        yield address(process)


POSTS = 30


@pytest.mark.parametrize(
    "name",
    [
        "link_checker", "price_watch", "image_archive", "docs_markdown", "sitemap_audit", "login", "api", "search_form",
        "broken_links_ci", "newsletter",
    ],
)  # fmt: skip
def test_an_everyday_program_has_fewer_than_40_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 40


def program(name, *arguments, folder):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], cwd=folder, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip


def test_the_link_checker_names_each_broken_link_with_all_its_pages_and_ci_fails(blog, tmp_path):
    checked = program("link_checker.py", f"{blog}/", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    found = [block.split("\n  ") for block in checked.stdout.rstrip().split(f"\n{blog}")]
    assert [[block[0].removeprefix(blog), *block[1:]] for block in found] == [
        ["/docs/missing.html: the server responded with 404", f"{blog}/docs/usage.html"],
        [
            "/gone: the server responded with 404",
            *sorted([f"{blog}/moved", *(f"{blog}/post/{n}" for n in range(POSTS))]),
        ],
    ]
    assert program("broken_links_ci.py", f"{blog}/", "report.md", "gone$", folder=tmp_path).returncode == 1
    report = (tmp_path / "report.md").read_text()
    assert report == (
        "# 1 broken links, 1 allowed\n\n"
        f"- {blog}/docs/missing.html (the server responded with 404), on 1 pages, such as {blog}/docs/usage.html\n"
    )
    checked = program("broken_links_ci.py", f"{blog}/", "report.md", "gone$", "missing", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr


def started(name, *arguments, folder):
    result = skitter("run", EXAMPLES / name, *arguments, cwd=folder)
    assert result.returncode == 0, result.stderr


def test_a_manual_becomes_markdown_files(blog, tmp_path):
    started("docs_markdown.py", "-a", f"site={blog}/docs/", "-a", "folder=manual", folder=tmp_path)
    assert {path.name: path.read_text() for path in (tmp_path / "manual").iterdir()} == {
        "index.md": f"# Manual\n\nStart [here]({blog}/docs/install.html).\n\n[Usage]({blog}/docs/usage.html)",
        "install.md": f"# Install\n\n```\npip install thing\n```\n\n[Up]({blog}/docs/)",
        "usage.md": f"# Usage\n\n- one\n- two\n\n[More]({blog}/docs/missing.html)",
    }


def test_the_sitemap_audit_reports_every_problem(blog, tmp_path):
    started("sitemap_audit.py", "-a", f"site={blog}", "-o", "audit.csv", folder=tmp_path)
    assert sorted((tmp_path / "audit.csv").read_text().splitlines()[1:]) == [
        f"{blog}/lost.xml,sitemap returns 404",
        f"{blog}/post/30,page returns 404",
        f"{blog}/post/31,page returns 404",
        f"{blog}/post/7,page is not to be indexed",
    ]


def test_a_search_form_yields_all_results_of_all_pages(blog, tmp_path):
    started("search_form.py", "-a", f"site={blog}", "-a", "words=2,17,x", "-o", "x.jsonl", folder=tmp_path)
    found = sorted((item["word"], item["url"]) for item in lines_of(tmp_path / "x.jsonl"))
    wanted = [("2", n) for n in range(POSTS) if "2" in str(n)] + [("17", 17)]
    assert len(wanted) == 13
    assert found == sorted((word, f"{blog}/post/{n}") for word, n in wanted)


def test_a_newsletter_has_each_post_of_three_feeds_once(blog, tmp_path):
    feeds = [f"{blog}/feed.{kind}" for kind in ("rss", "atom", "json")]
    for chosen in (feeds, feeds[:1], feeds[1:2], feeds[2:]):
        result = program("newsletter.py", "2026-11-28", *chosen, folder=tmp_path)
        assert result.stdout.splitlines() == [
            f"- 2026-11-29 [Post 29]({blog}/post/29)",
            f"- 2026-11-28 [Post 28]({blog}/post/28)",
        ]


def test_the_price_watch_delivers_new_and_changed_prices(tmp_path, serve):
    site = ChangingSite(300, page_bytes=2000)
    server = serve(site)
    command = ("run", EXAMPLES / "price_watch.py", "-a", f"site={address(server)}", "--recrawl", "--quiet")

    def changes():
        done = skitter(*command, "-o", "changes.jsonl", "-s", "delay=0", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return {item["name"]: item["price"] for item in lines_of(tmp_path / "changes.jsonl")}

    def named(prices):
        return {f"Product {number}": price for number, price in prices.items()}

    before, after = site.prices(1), site.prices(2)
    assert changes() == named(before)
    assert changes() == {}
    site.version = 2
    assert changes() == named({n: price for n, price in after.items() if before.get(n) != price})
    assert changes() == {}
