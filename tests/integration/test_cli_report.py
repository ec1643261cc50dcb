"""`skitter report` and `skitter status --plot`: the values of `skitter status --json`, and no code that a page can inject."""

import json
import re

import pytest
from lxml import html
from playwright.sync_api import sync_playwright

from browsers import require_browser
from cli_command import SHOP, skitter, usage_error
from skitter.browser.executable import find_executable
from skitter.observe.figures import milliseconds
from skitter.settings import Settings
from skitter.testing import Answer
from skitter.worker.timings import BOUNDS, quantile

HOSTILE = '/<script>alert("x")</script>\u202e'


@pytest.fixture
def shop(serve, tmp_path):
    links = (
        "".join(f'<a href="/{n}">x</a>' for n in range(12))
        + f"<a href='{HOSTILE}'>x</a><a href='/gone'>y</a>"
    )
    site = serve(
        lambda visit: (
            Answer(b"", status=404) if "gone" in visit.path or "%" in visit.path else Answer(links.encode())
        )
    )
    (tmp_path / "shop.py").write_text(SHOP.format(url=site.url))
    assert (
        skitter("run", "shop.py", "--job", "shop", "-o", "x.jsonl", "-s", "delay=0", cwd=tmp_path).returncode
        == 0
    )
    return tmp_path


def charted(counts):
    """Return the values of each chart, calculated from the output of ``status --json``."""
    states = {
        "done": counts["done"], "queued": counts["queued"], "delayed": counts["delayed"],
        "in flight": counts["leased"], "failed": counts["failed"],
    }  # fmt: skip
    found = {"Requests": {name: count for name, count in states.items() if count}}
    groups = {
        "Pages by depth": "depth", "Responses by status": "status", "Failed requests by kind": "failed",
        "Refused URLs by reason": "refused",
    }  # fmt: skip
    for title, group in groups.items():
        found[title] = {
            name.removeprefix(f"{group}/"): count
            for name, count in counts["counters"].items()
            if name.startswith(f"{group}/")
        }
        assert found[title], title
    buckets = [counts["counters"].get(f"time/fetch/{index}", 0) for index in range(len(BOUNDS) + 1)]
    used = [index for index, count in enumerate(buckets) if count]
    names = [f"up to {milliseconds(bound)}" for bound in BOUNDS] + [f"over {milliseconds(BOUNDS[-1])}"]
    found["Fetches by time to the first byte"] = dict(
        list(zip(names, buckets, strict=True))[used[0] : used[-1] + 1]
    )
    return found


def test_the_report_has_the_figures_of_the_status_and_loads_nothing(shop):
    result = skitter("report", "shop", "-o", "report.html", cwd=shop)
    assert result.returncode == 0, result.stderr
    page = html.parse(shop / "report.html").getroot()
    tables = {table.findtext("caption"): table for table in page.iter("table")}
    counts = json.loads(skitter("status", "shop", "--json", cwd=shop).stdout)["counts"]
    figures = {row.findtext("th"): row.findtext("td") for row in tables["Figures"].iter("tr")}
    assert figures["Pages"] == f"{counts['counters']['pages']:,}" == "13"
    assert figures["Items"] == f"{counts['counters']['items']:,}"
    for caption, values in charted(counts).items():
        shown = {
            row.findtext("th"): int(row.findtext("td").replace(",", "")) for row in tables[caption].iter("tr")
        }
        assert shown == values, caption
    for caption, name in (
        ("Fetch (to the first byte)", "fetch"),
        ("Callback", "callback"),
        ("Store", "store"),
    ):
        buckets = [counts["counters"].get(f"time/{name}/{index}", 0) for index in range(len(BOUNDS) + 1)]
        shown = {
            row.findtext("th"): [cell.text for cell in row.iter("td")] for row in tables["Times"].iter("tr")
        }[caption]
        assert shown == [
            f"{sum(buckets):,}",
            *(milliseconds(quantile(buckets, share)) for share in (0.5, 0.95, 0.99)),
        ]
    assert len(tables["Dead letters"].findall("tbody/tr")) == counts["failed"] == 2
    assert not list(page.iter("script", "img", "link", "iframe"))
    assert "\u202e" not in (shop / "report.html").read_text()
    policy = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_a_browser_shows_the_report_without_requests_and_errors(shop):
    require_browser()
    assert skitter("report", "shop", "-o", "report.html", cwd=shop).returncode == 0
    requests, complaints, program = [], [], find_executable(Settings())
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto((shop / "report.html").as_uri(), wait_until="networkidle")
        bars = page.locator("table:has(caption:text-is('Fetches by time to the first byte')) rect")
        assert max(bar.bounding_box()["width"] for bar in bars.all()) > 100
        assert "404" in page.get_by_role("table", name="Dead letters").inner_text()
        browser.close()
    assert requests == [(shop / "report.html").as_uri()]
    assert complaints == []


def test_the_terminal_plots_the_same_figures(shop):
    counts = json.loads(skitter("status", "shop", "--json", cwd=shop).stdout)["counts"]
    shown = skitter("status", "shop", "--plot", cwd=shop, environment={"COLUMNS": "60"}).stdout
    for title, values in charted(counts).items():
        lines = shown.partition(f"\n{title}\n")[2].partition("\n\n")[0].splitlines()
        parts = [re.fullmatch(r"(.+?) +([\d,]+)  (█*)", line).groups() for line in lines]
        assert {name: int(count.replace(",", "")) for name, count, _ in parts} == values, title
        assert max(len(bar) for *_, bar in parts) == 40
    assert "200  13  " + "█" * 40 in shown
    assert max(map(len, shown.splitlines())) < 120


def test_a_file_that_cannot_be_written_and_a_job_that_is_not_there_are_refused(shop):
    assert "cannot write" in usage_error("report", "shop", "-o", "nowhere/report.html", cwd=shop)
    usage_error("report", "none", "-o", "report.html", cwd=shop)
