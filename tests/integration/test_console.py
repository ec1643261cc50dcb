"""The web console in a real browser: every view and action, live, with hostile text, for users with different scopes.

``SKITTER_SCREENSHOTS=1`` writes the pictures of the documentation.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from browsers import require_browser
from services.service_nodes import TOKEN, ServiceNode
from skitter.browser.executable import find_executable
from skitter.service.models import JobRecord
from skitter.service.storage.sqlite import SqliteKeyValueStore
from skitter.settings import Settings
from skitter.testing import Answer, SiteServer

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src/skitter/service/console/static"
PICTURES = ROOT / "docs/assets"
READER = "a-token-for-reading-only"
PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)
MARKUP = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>"
HOSTILE = f"{MARKUP}\x1b[31m\u202etxt.exe\u2066</title>'\"&lt;{{{{7*7}}}}"
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
RECIPE = """name: shop
start: {url}
allowed_domains: any
settings: {{delay: 0, concurrency: 2, robots: false, max_retries: 0}}
pages:
  page:
    items:
      fields:
        title: {{css: "title::text"}}
        price: {{css: ".price::text"}}
        url: {{value: "{{url}}"}}
    follow: [{{css: "a", page: page}}]
"""
PAGES = 40_000

pytestmark = pytest.mark.timeout(240)


class Shop:
    """A site of many hosts and pages with hostile titles. It waits while its gate is closed."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, visit):
        found = re.fullmatch(r"/(\d*)", visit.path)
        if found is None:
            return Answer(b"gone", status=404 if "missing" in visit.path else 503)
        number = int(found[1] or 0)
        children = [child for child in range(number * 8 + 1, number * 8 + 9) if child < PAGES]
        links = "".join(
            f'<a href="http://{visit.origins[child % len(visit.origins)]}/{child}">x</a>'
            for child in children
        )
        if number % 10 == 3:
            links += f'<a href="/missing/{number}">x</a><a href="/busy/{number}?q=%3Cscript%3Ealert(1)%3C/script%3E">x</a>'
        title = MARKUP.replace("<", "&lt;") + "\u202etxt" if number == 57 else f"Article {number}"
        return Answer(
            f"<title>{title}</title><p class=price>{number / 10:.2f}</p>{links}".encode(),
            delay=0.06 if self.gate.is_set() else 2.0,
        )


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    require_browser()
    folder = tmp_path_factory.mktemp("console")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN} name=ada\n{READER} name=rita scope=read\n")
    shop = Shop()
    with SiteServer(shop, hosts=6) as site, ServiceNode(folder, "--token-file", str(tokens)) as node:
        recipe = RECIPE.format(url=f"http://{site.origins[0]}/")
        node.done("PUT", "/recipes/shop", recipe, kind="application/yaml")
        node.site, node.shop, node.recipe = site, shop, recipe
        yield node


@pytest.fixture(scope="module")
def chromium(service):
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_executable(Settings()), args=["--no-sandbox"])
        yield browser
        browser.close()


class User:
    """A person at a browser. Everything that the browser complains about is kept."""

    def __init__(self, chromium, node, token, **options):
        self.context = chromium.new_context(viewport={"width": 1280, "height": 860}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints = []
        self.page.on(
            "console",
            lambda message: message.type in {"error", "warning"} and self.complaints.append(message.text),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.base = f"http://127.0.0.1:{node.port}/console/"
        self.page.goto(f"{self.base}#token={token}")
        expect(self.page.get_by_role("heading", name="Jobs")).to_be_visible()
        assert token not in self.page.url

    def open(self, place):
        self.page.goto(f"{self.base}#{place}")

    def close(self):
        self.context.close()
        assert self.complaints == []


@pytest.fixture
def user(chromium, service):
    users = []

    def enter(token=TOKEN, **options):
        users.append(User(chromium, service, token, **options))
        return users[-1]

    yield enter
    for one in users:
        one.close()


def figure(page, name):
    return page.locator(f'dd[data-figure="{name}"]')


def number_of(page, name):
    return int(figure(page, name).inner_text().replace(",", ""))


def picture(user, name):
    if os.environ.get("SKITTER_SCREENSHOTS"):
        user.page.screenshot(path=PICTURES / f"console-{name}.png")


def accessibility_faults(page):
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]


def test_a_recipe_is_tried_and_its_job_is_watched_live(service, user):
    """Recipe editor, trial, a new job, live figures and plots, workers and hosts."""
    ada = user()
    page = ada.page

    # a recipe: a mistake is named while it is typed, a trial shows items, and it is saved
    ada.open("/recipes/shop")
    area = page.get_by_label("Text of the recipe")
    expect(page.get_by_text("The recipe is valid.")).to_be_visible()
    area.fill(service.recipe.replace("pages:", "pagez:"))
    expect(page.get_by_text(re.compile("mistake"))).to_be_visible()
    area.fill(service.recipe)
    expect(page.get_by_text("The recipe is valid.")).to_be_visible()
    page.get_by_label("URL").fill(f"http://{service.site.origins[1]}/1")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#result")).to_contain_text("1 items, 8 requests")
    picture(ada, "recipe")
    page.get_by_label("URL").fill(f"http://{service.site.origins[3]}/57")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#result")).to_contain_text("<img src=x onerror")
    assert accessibility_faults(page) == []
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("was saved")).to_be_visible()

    # a job
    ada.open("/jobs")
    page.get_by_role("button", name="New job").click()
    page.get_by_label("Name", exact=True).fill("daily-shop")
    page.get_by_label("Recipe").select_option("shop")
    page.get_by_label("Processes on each node").fill("2")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#state")).to_have_text("running")
    expect(figure(page, "Workers")).to_have_text("2")

    # live: a figure changes without a click; one more page of the site is seen within a few events
    before = number_of(page, "Pages")
    page.wait_for_function(
        "before => Number(document.querySelector('dd[data-figure=Pages]').textContent.replaceAll(',', '')) > before",
        arg=before,
    )
    known = service.done("GET", "/jobs/daily-shop")["counts"]["counters"]["pages"]
    page.wait_for_function(
        "known => Number(document.querySelector('dd[data-figure=Pages]').textContent.replaceAll(',', '')) >= known",
        arg=known,
    )
    for title in (
        "Throughput",
        "Queue",
        "Errors per second by kind",
        "Pages by depth",
        "Responses by status",
    ):
        expect(page.locator("figcaption .title").get_by_text(title, exact=True)).to_be_visible()
    page.wait_for_function("() => document.querySelector('path.line').getAttribute('d').length > 40")
    assert accessibility_faults(page) == []

    # tabs
    page.get_by_role("link", name="Workers", exact=True).click()
    expect(page.get_by_role("region", name="Workers").locator("tbody tr")).to_have_count(2)
    picture(ada, "workers")
    page.get_by_role("link", name="Hosts", exact=True).click()
    expect(page.get_by_role("region", name="Hosts").locator("tbody tr").first).to_be_visible()
    page.get_by_label("Order").select_option("failed")


VIEWS = [
    "/jobs", "/jobs/evil/overview", "/jobs/evil/hosts", "/jobs/evil/workers", "/jobs/evil/failures", "/jobs/evil/items",
    "/jobs/evil/log", "/jobs/evil/settings", "/recipes", "/recipes/shop", "/nodes", "/audit",
]  # fmt: skip
PLAIN = {
    "state",
    "level",
    "scope",
    "csrf",
    "csrf_header",
    "time",
    "failed_at",
    "syntax",
    "features",
    "jobs",
    "help",
    "type",
}
"""Fields whose values the server chooses from a fixed set."""


def hostile(value, key=""):
    """A JSON value in which every text that a stranger might have chosen is hostile, keys of counts included."""
    if isinstance(value, dict):
        return {
            (f"{name}{HOSTILE}" if "/" in name else name): hostile(one, name) for name, one in value.items()
        }
    if isinstance(value, list):
        return (
            value
            if key in PLAIN and value and isinstance(value[0], str)
            else [hostile(one, key) for one in value]
        )
    return f"{value}{HOSTILE}" if isinstance(value, str) and key not in PLAIN else value


SAMPLES = {
    "/jobs/evil/items": {"items": [{"title": "x", MARKUP: "x", "n": {"x": "y"}}, "x", 5, None], "next": None},
    "/jobs/evil/hosts": {"hosts": [{"host": "x", "pages": 1, "items": 1, "bytes": 1, "failed": 1, "retried": 0, "failures": 0.5,
                                    "queued": None, "leased": None, "delay": None, "paused_for": None}], "total": 1},
    "/jobs/evil/failures": {"failures": [{"id": 1, "url": "x", "error": "x", "attempts": 1, "failed_at": "now",
                                          "request": {"url": "x", "headers": {"X": "y"}}}]},
    "/jobs/evil/log": {"run": "x", "next": 1, "lines": [{"number": 1, "time": "2030-01-01T00:00:00.000Z", "level": "error", "logger": "x",
                                                         "node": "x", "worker": "x", "message": "x", "traceback": "x"}]},
    "/nodes": {"nodes": [{"name": "x", "host": "x", "pid": 1, "version": "x", "began": 1.0, "running": ["x.1"],
                          "errors": {"x.1": {"error": "x"}}}]},
    "/audit": {"entries": [{"number": 1, "time": 1.0, "caller": "x", "session": True, "node": "x", "method": "POST", "path": "/x",
                            "status": 200, "details": {"name": "x"}}], "next": None},
    "/recipes": {"recipes": [{"name": "x", "syntax": "yaml", "stored": 1.0}]},
    "/recipes/shop": {"name": "shop", "syntax": "yaml", "stored": 1.0, "text": "x"},
    "/recipes/shop/check": {"valid": False, "errors": ["x line 1: x"], "remedy": "x"},
}  # fmt: skip
JOB = {
    "name": "evil", "state": "running", "recipe": "x", "spider": "", "tasks": False, "schedule": "", "settings": {"max_pages": 5},
    "changes": {"rates": ["x"]}, "banned": ["x"], "unserved": {"x": 1}, "nodes": ["x"], "node_errors": {"x": {"error": "x", "remedy": "x"}},
    "run": {"id": "evil.1", "reason": "x", "began": 1.0, "ended": ""}, "previous": None,
    "figures": {"at": 1e9, "pages": 1, "items": 1, "bytes": 1, "queued": 1, "delayed": 1, "leased": 1, "failed": 1, "errors": {"x/y": 1},
                "workers": 1, "pages_per_second": 1.0},
    "counts": {"state": "running", "added": 9, "queued": 1, "delayed": 1, "leased": 1, "done": 5, "failed": 1, "seeds_loading": False,
               "counters": {"pages": 5, "items": 5, "bytes": 5, "failed/x": 1, "retried/x": 2, "refused/x": 1, "status/200": 5, "depth/0": 1},
               "slots": 1, "busiest": [{"key": "x", "queued": 1, "leased": 0, "delay": 0.0, "paused_for": 0.0}], "oldest_lease": 1.0,
               "reason": "x", "queues": {"x": 1}},
    "violated": [{"monitor": "x", "rule": "x", "passed": False, "values": {"x": 1.0}, "at": 1.0}],
    "passes": [{"number": 1, "verdicts": [{"monitor": "x", "rule": "x", "passed": True, "values": {}, "at": 0.0}]}],
    "fleet": [{"report": {"name": "x", "host": "x", "pid": 1, "version": "x", "age": 1.0, "concurrency": 8, "fetching": 1, "held": 1, "pages": 1,
                          "items": 1, "bytes": 1, "pages_per_second": 1.0, "queues": ["x"]}, "heard": 1.0}],
}  # fmt: skip


def answer_with_hostile_text(route):
    path = route.request.url.partition("127.0.0.1")[2].partition("/")[2].partition("?")[0]
    path = f"/{path}"
    if path.startswith("/console") or path in {"/session", "/settings"}:
        route.continue_()
    elif path == "/jobs" or path.endswith("events"):
        job = hostile(JOB)
        found = {"jobs": [job], "total": 1, "states": {"running": 1}} if "evil" not in path else job
        event = f"retry: 200\nevent: update\ndata: {json.dumps(found)}\n\n"
        if path == "/jobs":
            route.fulfill(json=found)
        else:
            route.fulfill(body=event, content_type="text/event-stream")
    else:
        route.fulfill(json=hostile(SAMPLES[path]))


def test_text_of_strangers_has_no_effect_in_any_view(user):
    ada = user()
    page = ada.page
    page.route("**/*", answer_with_hostile_text)
    for view in VIEWS:
        ada.open(view)
        if view == "/recipes/shop":  # the text of a recipe is shown as it is, in a field
            expect(page.get_by_label("Text of the recipe")).to_have_value(re.compile("onerror"))
        shown = page.locator("main").get_by_text("<img src=x onerror", exact=False)
        expect(shown.first).to_be_attached()
        assert page.locator("main img, main script, main iframe, main style").count() == 0, view
        assert "broken in" not in page.title()
        text = page.locator("body").inner_text()
        assert "onerror" in text or view == "/recipes/shop"
        assert not HIDDEN.search(text.replace("\n", "").replace("\t", "")), view
        assert accessibility_faults(page) == [], view


def test_a_reader_sees_everything_and_can_change_nothing(service, user):
    if service.call("GET", "/jobs/kept")[0] != 200:
        service.done("POST", "/jobs", {"name": "kept", "recipe": "shop", "settings": {"max_pages": 20}})
    service.wait_for("/jobs/kept", lambda job: job["state"] == "stopped", "the limit")
    rita, ada = user(READER, color_scheme="dark"), user()
    rita.page.set_viewport_size({"width": 390, "height": 844})
    for one, buttons in ((ada, ["Resume", "Start again", "Delete"]), (rita, [])):
        one.open("/jobs/kept/overview")
        expect(one.page.locator("#state")).to_have_text("stopped")
        assert one.page.locator(".head button").all_inner_texts() == buttons
        expect(figure(one.page, "Pages")).to_have_text(re.compile("2"))
    assert accessibility_faults(rita.page) == []
    picture(rita, "phone")
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    for view in ("/jobs", "/jobs/kept/overview", "/jobs/kept/hosts", "/jobs/kept/failures", "/jobs/kept/items", "/jobs/kept/log",
                 "/jobs/kept/settings", "/recipes", "/recipes/shop", "/nodes"):  # fmt: skip
        rita.open(view)
        expect(rita.page.get_by_role("heading", level=1)).to_be_visible()
        expect(rita.page.get_by_text("Loading")).to_have_count(0)
        assert not rita.page.evaluate(wide), view
        actions = [
            "Save",
            "New",
            "Resume",
            "Pause",
            "Stop",
            "Delete",
            "Retry",
            "Drop",
            "Apply",
            "Create",
            "Try",
            "Change",
        ]
        shown = " ".join(rita.page.locator("main button").all_inner_texts())
        assert not [action for action in actions if action in shown], (view, shown)
    assert rita.page.get_by_role("link", name="Audit log", exact=True).count() == 0
    status = rita.page.evaluate(
        """async () => {
            const session = await (await fetch("/session")).json();
            const headers = {[session.csrf_header]: session.csrf};
            return (await fetch("/jobs/kept/start", {method: "POST", headers})).status;
        }"""
    )
    assert status == 403
    rita.complaints = [one for one in rita.complaints if "403" not in one]  # the browser reports the refusal
    rita.page.get_by_role("button", name="Sign out").click()
    expect(rita.page.get_by_label("Token")).to_be_visible()


def test_a_thousand_jobs_are_shown_in_pages(tmp_path, chromium, service):
    names = [f"job-{number:04}" for number in range(990)]
    store = SqliteKeyValueStore(tmp_path / "node" / "service.db")

    async def fill():
        for name in names:
            await store.compare_and_swap(
                "jobs", name, None, msgspec.json.encode(JobRecord(name=name, recipe="x"))
            )
        await store.close()

    with ThreadPoolExecutor() as pool:  # the driver of the browser has an event loop in this thread
        pool.submit(lambda: asyncio.run(fill())).result()
    with ServiceNode(tmp_path) as node:
        ada = User(chromium, node, TOKEN)
        rows = ada.page.get_by_role("region", name="Jobs").locator("tbody tr")
        expect(rows).to_have_count(50)
        expect(ada.page.locator(".pager")).to_contain_text("of 990")
        ada.page.get_by_role("button", name="Next").click()
        expect(rows.first).to_contain_text("job-0050")
        ada.page.get_by_label("Search by name").fill("98")
        expect(ada.page.locator(".pager")).to_contain_text(
            f"of {len([name for name in names if '98' in name])}"
        )
        ada.close()


def test_a_single_run_serves_its_console_with_a_token_for_one_session(tmp_path, chromium):
    shop = Shop()
    with SiteServer(shop, hosts=2) as site:
        recipe = RECIPE.format(url=f"http://{site.origins[0]}/")
        (tmp_path / "shop.yaml").write_text(recipe)
        run = subprocess.Popen(
            [sys.executable, "-m", "skitter", "run", "shop.yaml", "--console", "-o", "x.jsonl", "-s", "concurrency=1"],
            cwd=tmp_path, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            url = re.search(r"http://127\.0\.0\.1:\d+/console/#token=\S+", run.stderr.readline())[0]
            context = chromium.new_context()
            page = context.new_page()
            page.goto(url)
            page.get_by_role("link", name="shop").click()
            expect(page.locator("#state")).to_have_text("running")
            expect(figure(page, "Pages")).not_to_have_text("0")
            page.get_by_role("button", name="Pause", exact=True).click()
            expect(page.locator("#state")).to_have_text("paused")
            page.get_by_role("link", name="Hosts", exact=True).click()
            expect(page.get_by_role("region", name="Hosts")).to_contain_text("127.0.0.1")
            assert page.get_by_role("link", name="Recipes", exact=True).count() == 0
            other = chromium.new_context().new_page()
            other.goto(url)
            expect(other.get_by_label("Token")).to_be_visible()
            page.get_by_role("button", name="Stop", exact=True).click()
            assert run.wait(60) == 0
            context.close()
        finally:
            if run.poll() is None:
                run.kill()
                run.wait()
            run.stderr.close()


def test_the_scripts_never_turn_text_into_markup():
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|setHTML|\beval\(|new Function|javascript:"
    files = sorted(STATIC.iterdir())
    assert len(files) > 8
    for path in files:
        text = path.read_text()
        assert not re.search(sinks, text), path
        assert not re.search(r"https?://(?!www\.w3\.org|example\.com)", text), f"{path} names another server"
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|<script(?![^>]*src=)|\son[a-z]+=", page)
