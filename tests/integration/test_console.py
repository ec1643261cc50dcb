"""The web console in a real browser: all views and actions, live updates, hostile text, and users with different scopes.

``make screenshots`` takes the screenshots of the documentation.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
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
OPERATOR = "a-token-for-operating-only"
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

pytestmark = pytest.mark.timeout(600)


class Shop:
    """A site of many hosts with one slow host, and of pages with hostile titles."""

    slow_host = "127.0.0.4"

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
            delay=0.18 if visit.host == self.slow_host else 0.06,
        )


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    require_browser()
    folder = tmp_path_factory.mktemp("console")
    tokens = folder / "tokens"
    tokens.write_text(
        f"{TOKEN} name=ada\n{READER} name=rita scope=read\n{OPERATOR} name=otto scope=operate\n"
    )
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
    """A user of the console. All errors that the browser reports are recorded."""

    def __init__(self, chromium, node, token, **options):
        self.context = chromium.new_context(
            viewport={"width": 1280, "height": 860}, reduced_motion="reduce", **options
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints, self._expected = [], []
        self.page.on(
            "console",
            lambda message: message.type in {"error", "warning"} and self._record_error(message.text),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.base = f"http://127.0.0.1:{node.port}/console/"
        self.page.goto(f"{self.base}#token={token}")
        expect(self.page.get_by_role("heading", name="Jobs")).to_be_visible()
        assert token not in self.page.url

    def _record_error(self, text):
        if not any(part in text for part in self._expected):
            self.complaints.append(text)

    def expect_error(self, part):
        """From now on, the browser may report this error at any time: the console sends several requests at once."""
        self._expected.append(part)

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


def picture(user, name, *, dark=False):
    """Take a screenshot for the documentation, and with ``dark`` one of the dark view."""
    if os.environ.get("SKITTER_SCREENSHOTS"):
        user.page.screenshot(path=PICTURES / f"console-{name}.png")
        if dark:
            user.page.emulate_media(color_scheme="dark")
            user.page.screenshot(path=PICTURES / f"console-{name}-dark.png")
            user.page.emulate_media(color_scheme="light")


def accessibility_faults(page):
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]


def test_a_recipe_is_tried_and_its_job_is_watched_live(service, user):
    """Recipe editor, trial, a new job, live values and plots, workers and hosts."""
    ada = user()
    page = ada.page

    # Recipe: an error is shown while typing, a trial shows items, and the recipe is saved.
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

    # Create a job.
    ada.open("/jobs")
    page.get_by_role("button", name="New job").click()
    page.get_by_label("Name", exact=True).fill("daily-shop")
    page.get_by_label("Recipe").select_option("shop")
    page.get_by_label("Processes on each node").fill("2")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#state")).to_have_text("running")
    expect(figure(page, "Workers")).to_have_text("2")

    # Live updates: a value changes without a click. One more page of the site shows within a few events.
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
        "Fetch time",
        "Fullest hosts by queued requests",
        "Pages by depth",
        "Responses by status",
    ):
        expect(page.locator("figcaption .title").get_by_text(title, exact=True)).to_be_visible()
    page.wait_for_function("() => document.querySelector('path.line').getAttribute('d').length > 40")
    fetch_times = page.locator("figure", has_text="Fetch time").locator(".legend b")
    expect(fetch_times).to_have_text([re.compile(r"^\d+ ms$|^[\d.]+ s$")] * 3)
    assert accessibility_faults(page) == []
    if os.environ.get("SKITTER_SCREENSHOTS"):  # plots with some history
        expect(page.locator(".axis").first).to_have_text(re.compile(r"^[5-9]\d s ago"), timeout=90_000)
    picture(ada, "job", dark=True)

    # Tabs.
    page.get_by_role("link", name="Workers", exact=True).click()
    expect(page.get_by_role("region", name="Workers").locator("tbody tr")).to_have_count(2)
    picture(ada, "workers")
    page.get_by_role("link", name="Hosts", exact=True).click()
    expect(page.get_by_role("region", name="Hosts").locator("tbody tr").first).to_be_visible()
    page.get_by_label("Order").select_option("fetch_time")
    slowest = page.get_by_role("region", name="Hosts").locator("tbody th").first
    expect(slowest).to_have_text(service.shop.slow_host)
    picture(ada, "hosts", dark=True)


def choose(page, button, answer=None):
    """Press a button, and answer its question."""
    page.get_by_role("button", name=button, exact=True).click()
    if answer is not None:
        page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()


def wait_for_no_leases(service, job):
    """Wait until the fetches that were in progress at the pause have ended, some of them as dead letters."""
    service.wait_for(
        f"/jobs/{job}", lambda found: not found["counts"]["leased"], "the end of the fetches in progress"
    )


def settle_dead_letters(service, user):
    """Drop one dead letter, retry one, and drop those of a kind."""
    page, letters = user.page, "/jobs/acted/failures?limit=1000"
    wait_for_no_leases(service, "acted")
    known = service.done("GET", letters)["failures"]
    page.get_by_role("link", name="Dead letters", exact=True).click()
    boxes = page.get_by_role("checkbox", name=re.compile("^Select "))
    expect(boxes).to_have_count(min(100, len(known)))
    boxes.first.check()
    picture(user, "dead-letters")
    choose(page, "Drop selected", "Cancel")
    choose(page, "Drop selected", "Drop")
    expect(page.get_by_text("1 requests were dropped.")).to_be_visible()
    expect(boxes).to_have_count(min(100, len(known) - 1))
    assert service.done("GET", letters)["failures"] == known[1:]
    queued = service.done("GET", "/jobs/acted")["counts"]["queued"]
    boxes.first.check()
    choose(page, "Retry selected")
    expect(page.get_by_text("1 requests were queued again.")).to_be_visible()
    assert service.done("GET", "/jobs/acted")["counts"]["queued"] == queued + 1
    page.get_by_label("Kind of error").select_option("status/404")
    choose(page, "Drop all that match", "Drop")
    expect(page.get_by_text("No dead letters.")).to_be_visible()
    left = service.done("GET", letters)["failures"]
    assert left == [letter for letter in known[2:] if not letter["error"].startswith("status/404")]


def refuse_by_scope(service, user):
    """Check that an operator may not delete, and that a reader may change nothing."""
    otto = user(OPERATOR)
    otto.open("/jobs/acted/overview")
    expect(otto.page.locator("#state")).to_have_text("running")
    assert otto.page.locator(".head button").all_inner_texts() == ["Pause", "Stop"]
    assert service.call("DELETE", "/jobs/acted", token=OPERATOR)[0] == 403
    steering = [
        ("POST", "start"), ("POST", "pause"), ("POST", "resume"), ("POST", "stop"), ("POST", "failures/retry"), ("POST", "failures/drop"),
        ("PATCH", "settings"), ("PUT", "schedule"), ("POST", "seeds"), ("DELETE", ""),
    ]  # fmt: skip
    for method, action in steering:
        status, _ = service.call(method, f"/jobs/acted/{action}".rstrip("/"), {}, token=READER)
        assert status == 403, action
    for method, path in (
        ("POST", "/jobs"),
        ("PUT", "/recipes/x"),
        ("POST", "/recipes/shop/try"),
        ("GET", "/audit"),
    ):
        assert service.call(method, path, None if method == "GET" else {}, token=READER)[0] == 403, path


def test_each_action_works_in_the_browser_and_is_denied_without_permission(service, user):
    service.done("POST", "/jobs", {"name": "acted", "recipe": "shop"})
    service.wait_for("/jobs/acted", lambda job: job.get("fleet"), "the worker")
    missing = [f"http://{service.site.origins[0]}/missing/{number}" for number in range(4)]
    seeds = {"seeds": [*missing, "http://127.0.0.1:1/closed"], "priority": 10}
    service.done("POST", "/jobs/acted/seeds", seeds)
    service.wait_for("/jobs/acted", lambda job: job["counts"]["failed"] >= 5, "dead letters")
    ada = user()
    page, state = ada.page, ada.page.locator("#state")
    ada.open("/jobs/acted/overview")
    run = service.done("GET", "/jobs/acted")["run"]["id"]

    choose(page, "Pause")
    expect(state).to_have_text("paused")
    settle_dead_letters(service, ada)

    # Items: a preview, and all of them as a file.
    page.get_by_role("link", name="Items", exact=True).click()
    expect(page.get_by_role("region", name="Items").locator("tbody")).to_contain_text("Article")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as JSON Lines").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert [json.loads(line) for line in lines] == service.all_items("acted", 1000)

    # Change a setting during the run, and change it back.
    choose(page, "Resume")
    expect(state).to_have_text("running")
    service.wait_for("/jobs/acted", lambda job: job["fleet"], "the worker")
    page.get_by_role("link", name="Settings", exact=True).click()
    page.get_by_label("delay", exact=True).fill("0.5")
    page.get_by_role("row", name=re.compile("^delay ")).get_by_role("button", name="Apply").click()
    expect(page.get_by_role("row", name=re.compile("^delay "))).to_contain_text("changed live")
    assert service.done("GET", "/jobs/acted")["changes"]["delay"] == 0.5
    choose(page, "Undo all changes")
    expect(page.get_by_role("row", name=re.compile("^delay "))).not_to_contain_text("changed live")
    assert service.done("GET", "/jobs/acted")["changes"] == {}

    choose(page, "Stop")
    expect(state).to_have_text("stopped")
    choose(page, "Start again")
    expect(state).to_have_text("running")
    assert service.done("GET", "/jobs/acted")["run"]["id"] != run

    refuse_by_scope(service, user)

    ada.open("/jobs")
    expect(page.get_by_role("region", name="Jobs")).to_contain_text("acted")
    picture(ada, "jobs")
    ada.open("/jobs/acted/overview")
    choose(page, "Delete", "Delete")
    expect(page.get_by_text("Job acted was deleted.")).to_be_visible()
    assert service.call("GET", "/jobs/acted")[0] == 404


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
    """Return a JSON value in which every text that an untrusted site might have chosen is hostile, including keys of counts."""
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
    "/jobs/evil/hosts": {"hosts": [{"host": "x", "pages": 1, "items": 1, "bytes": 1, "failed": 1, "retried": 0, "failures": 0.5, "fetch_time": 0.1,
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
    "changes": {"rates": ["x"]}, "banned": ["x"], "queues_without_workers": {"x": 1}, "nodes": ["x"], "node_errors": {"x": {"error": "x", "remedy": "x"}},
    "run": {"id": "evil.1", "reason": "x", "began": 1.0, "ended": ""}, "previous": None,
    "figures": {"at": 1e9, "pages": 1, "items": 1, "bytes": 1, "queued": 1, "delayed": 1, "leased": 1, "failed": 1, "errors": {"x/y": 1},
                "workers": 1, "pages_per_second": 1.0, "latency": {"p50": 0.1, "p95": 0.2, "p99": 0.3}},
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


def test_untrusted_text_has_no_effect_in_any_view(user):
    ada = user()
    page = ada.page
    page.route("**/*", answer_with_hostile_text)
    for view in VIEWS:
        ada.open(view)
        if view == "/recipes/shop":  # a field shows the text of a recipe unchanged
            expect(page.get_by_label("Text of the recipe")).to_have_value(re.compile("onerror"))
        shown = page.locator("main").get_by_text("<img src=x onerror", exact=False)
        expect(shown.first).to_be_attached()
        assert page.locator("main img, main script, main iframe, main style").count() == 0, view
        assert "broken in" not in page.title()
        text = page.locator("body").inner_text()
        assert "onerror" in text or view == "/recipes/shop"
        assert not HIDDEN.search(text.replace("\n", "").replace("\t", "")), view
        assert accessibility_faults(page) == [], view


# The focused element: whether it is visible, and its position among all focusable elements.
FOCUS = """() => {
    const found = document.activeElement, style = getComputedStyle(found), box = found.getBoundingClientRect();
    const isShown = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
        .filter((one) => !one.disabled && one.checkVisibility());
    return {
        place: all.indexOf(found), count: all.length, tag: found.tagName, text: found.innerText || found.ariaLabel || found.value || "",
        isMarked: isShown && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
        isInDialog: found.closest("dialog") !== null,
    };
}"""


class Keyboard:
    """A user without a mouse."""

    def __init__(self, page):
        self.page = page

    @property
    def focus(self):
        return self.page.evaluate(FOCUS)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def go_to(self, wanted):
        """Press Tab until an element has the focus. Fail if all others had it before."""
        expect(wanted).to_be_visible()
        for _ in range(2 * self.focus["count"] + 2):
            if wanted.evaluate("one => one === document.activeElement"):
                assert self.focus["isMarked"], self.focus
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not reach {wanted}")

    def use(self, role, name, key="Enter"):
        self.go_to(self.page.get_by_role(role, name=name, exact=isinstance(name, str)).first)
        self.press(key)

    def walk(self):
        """Press Tab through the whole view: each control gets the focus once, in order, and is visible then."""
        self.page.evaluate("() => { document.activeElement.blur(); getSelection().removeAllRanges(); }")
        self.page.locator(".skip").focus()
        stops = [self.focus]
        while stops[-1]["place"] + 1 < stops[-1]["count"]:
            self.press("Tab")
            stops.append(self.focus)
            if stops[-1]["count"] != stops[0]["count"]:  # the view was still being drawn
                return self.walk()
            assert stops[-1]["place"] == len(stops) - 1, (stops[-2:], self.page.url)
            assert stops[-1]["isMarked"], (stops[-1], self.page.url)
        return len(stops)


def type_a_job(keys):
    """Skip the header and sign in first. Fill in the form of a job, which takes the focus and returns it."""
    page = keys.page
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(TOKEN)
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()

    keys.use("link", "Nodes")
    expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
    keys.use("link", "Skip to content")
    expect(page.get_by_role("main", name="Nodes")).to_be_focused()
    assert page.url.endswith("#/nodes") and page.title() == "Nodes · skitter"

    keys.use("link", "Jobs")
    keys.use("button", "New job")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    keys.use("button", "Cancel")
    expect(page.get_by_role("button", name="New job")).to_be_focused()
    keys.press("Enter")
    page.keyboard.type("typed")
    keys.use("button", "Create")
    expect(page.locator("#state")).to_have_text("running")
    expect(page).to_have_title("Overview · typed · skitter")


def check_that_nothing_moves(service, keys):
    """Check that nothing changes while the user reads."""
    page = keys.page
    service.wait_for("/jobs/typed", lambda job: job.get("fleet"), "the worker")
    expect(figure(page, "Pages")).to_be_visible()  # the API may report the worker before this view does
    keys.use("button", "Live updates")
    shown = number_of(page, "Pages")
    found = service.wait_for(
        "/jobs/typed", lambda job: job["counts"]["counters"].get("pages", 0) > shown + 60, "more pages"
    )
    assert number_of(page, "Pages") == shown
    keys.press("Enter")
    page.wait_for_function(
        "known => Number(document.querySelector('dd[data-figure=Pages]').textContent.replaceAll(',', '')) >= known",
        arg=found["counts"]["counters"]["pages"],
    )


def answer_a_dialog(service, keys):
    """A dialog keeps the focus. Its button is redrawn meanwhile, and gets the focus again."""
    page, state = keys.page, keys.page.locator("#state")
    keys.use("button", "Delete")
    dialog = page.get_by_role("dialog", name=re.compile("^Delete job typed"))
    expect(dialog).to_be_visible()
    for _ in range(5):
        # From the body, Tab moves to the browser's own buttons.
        assert keys.focus["isInDialog"] or keys.focus["tag"] == "BODY", keys.focus
        keys.press("Tab")
    before = (
        page.get_by_role("button", name="Delete", exact=True)
        .and_(page.locator("main button"))
        .element_handle()
    )
    service.done("POST", "/jobs/typed/pause")
    expect(state).to_have_text("paused")
    assert not before.evaluate("one => one.isConnected")
    keys.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_focused()
    keys.use("button", "Resume")
    expect(state).to_have_text("running")
    keys.use("button", "Pause")
    expect(state).to_have_text("paused")
    expect(page.get_by_role("button", name="Resume")).to_be_focused()


def settle_by_keys(service, keys):
    """Drop a dead letter, and read another one."""
    page, state = keys.page, keys.page.locator("#state")
    missing = [f"http://{service.site.origins[0]}/missing/{number}" for number in range(3)]
    service.done("POST", "/jobs/typed/seeds", {"seeds": missing, "priority": 10})
    service.done("POST", "/jobs/typed/resume")
    service.wait_for("/jobs/typed", lambda job: job["counts"]["failed"] >= 3, "dead letters")
    service.done("POST", "/jobs/typed/pause")
    expect(state).to_have_text("paused")
    wait_for_no_leases(service, "typed")
    known = service.done("GET", "/jobs/typed")["counts"]["failed"]
    keys.use("link", "Dead letters")
    keys.use("checkbox", re.compile("^Select "), "Space")
    keys.use("button", "Drop selected")
    keys.use("button", "Drop")
    expect(page.get_by_role("status").get_by_text("1 requests were dropped.")).to_be_visible()
    assert service.done("GET", "/jobs/typed")["counts"]["failed"] == known - 1
    keys.go_to(page.get_by_text("Details", exact=True).first)
    keys.press("Enter")
    expect(page.locator("details[open] pre")).to_be_visible()


def edit_by_keys(service, keys):
    """Change a setting and a recipe. Tab leaves the recipe's text."""
    page = keys.page
    keys.use("link", "Settings")
    keys.go_to(page.get_by_label("delay", exact=True))
    keys.press("Control+a", *"0.5", "Enter")
    expect(page.get_by_role("row", name=re.compile("^delay "))).to_contain_text("changed live")
    keys.use("link", "Recipes")
    keys.use("link", "shop")
    expect(page.get_by_text("The recipe is valid.")).to_be_visible()
    keys.go_to(page.get_by_label("Text of the recipe"))
    keys.press("Control+End", "Enter", *"# typed")
    keys.use("button", "Try")
    expect(page.locator("#result").get_by_role("status")).to_contain_text("requests.")
    keys.use("button", "Save")
    expect(page.get_by_text("was saved")).to_be_visible()
    service.done("PUT", "/recipes/shop", service.recipe, kind="application/yaml")


def test_every_action_is_taken_without_a_mouse(service, chromium):
    """Sign-in, a new job, its actions, a redrawn dialog, dead letters, and all Tab stops of each view."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
    page = context.new_page()
    keys = Keyboard(page)
    page.goto(f"http://127.0.0.1:{service.port}/console/")
    type_a_job(keys)
    check_that_nothing_moves(service, keys)
    answer_a_dialog(service, keys)
    settle_by_keys(service, keys)
    edit_by_keys(service, keys)

    # All controls of all views, from the first to the last.
    keys.use("button", "Live updates")
    for view in [view.replace("evil", "typed") for view in VIEWS]:
        page.goto(f"http://127.0.0.1:{service.port}/console/#{view}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        expect(page.locator("#notices .notice")).to_have_count(0)
        assert keys.walk() > 8, view
    service.done("DELETE", "/jobs/typed")
    context.close()


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
    expect(rita.page.locator(".notice")).to_have_text(["limit reached: 20 pages"])
    expect(rita.page.locator(".notice.error")).to_have_count(0)  # a limit that was set is not an error
    assert accessibility_faults(rita.page) == []
    picture(rita, "phone")
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    for view in ("/jobs", "/jobs/kept/overview", "/jobs/kept/hosts", "/jobs/kept/failures", "/jobs/kept/items", "/jobs/kept/log",
                 "/jobs/kept/settings", "/recipes", "/recipes/shop", "/nodes"):  # fmt: skip
        rita.open(view)
        expect(rita.page.get_by_role("heading", level=1)).to_be_visible()
        expect(rita.page.get_by_text("Loading")).to_have_count(0)
        assert not rita.page.evaluate(wide), view
        if view.startswith("/jobs/"):
            expect(rita.page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.95)
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
    rita.expect_error("403")  # the browser reports the refusal
    status = rita.page.evaluate(
        """async () => {
            const session = await (await fetch("/session")).json();
            const headers = {[session.csrf_header]: session.csrf};
            return (await fetch("/jobs/kept/start", {method: "POST", headers})).status;
        }"""
    )
    assert status == 403
    rita.page.get_by_role("button", name="Sign out").click()
    expect(rita.page.get_by_label("Token")).to_be_visible()


def test_a_thousand_jobs_are_shown_in_pages_and_again_after_a_restart_of_the_service(
    tmp_path, chromium, service, free_port
):
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
    port = str(free_port)  # no other process gets it while the service restarts
    with ServiceNode(tmp_path, "--port", port) as node:
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
        ada.expect_error("ERR_")  # the browser reports the lost connection
        node.kill()
        expect(ada.page.get_by_text("No connection to the server")).to_be_visible()
    with ServiceNode(tmp_path, "--port", port) as node:
        expect(ada.page.get_by_text("No connection to the server")).to_have_count(0)
        node.done("DELETE", "/jobs/job-0098")
        expect(rows.filter(has_text="job-0098")).to_have_count(0)

        # An address that is not valid text names no job.
        ada.expect_error("status of 4")
        ada.open("/jobs/%E0%A4%A/overview")
        expect(ada.page.locator("main .empty")).to_be_visible()
        ada.open("/jobs")
        expect(rows).to_have_count(50)

        # A session that has ended leads to the sign-in; each request in progress is answered with 401.
        ada.context.clear_cookies()
        ada.page.get_by_label("Search by name").fill("97")
        expect(ada.page.get_by_label("Token")).to_be_visible()
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
