"""The language of monitors: the meaning of rules, and errors with their position."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.errors import SettingsError
from skitter.monitors import MAX_LENGTH, CompiledMonitor, MonitorRule, compile_monitors

FIGURES = {
    "items": 50.0, "pages": 100.0, "failed": 1.0, "retried": 0.0, "duration": 3600.0, "coverage(price)": 0.5,
    "coverage(offer.price)": 0.97, "new_values(category)": 1.0, "status(403)": 4.0, "responses": 105.0,
    "stat(sold out)": 7.0, "stat(sold in 24h)": 9.0, 'stat(sold in "24h")': 10.0, "refused": 0.0,
}  # fmt: skip
HISTORY = [{"items": 100.0}, {"items": 90.0}, {"items": 20.0}, {}]


def judged(rule, figures=None, history=HISTORY):
    return CompiledMonitor(MonitorRule(rule)).judge(FIGURES if figures is None else figures, history)


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        ("items >= 0.8 * median(items, 5)", False),
        ("items >= 0.5 * median(items, 5)", True),
        ("median(items, 2) == 95 and mean(items, 2) == 95", True),
        ("min(items, 3) == 20 and max(items, 3) == 100 and previous(items) == 100", True),
        ("coverage(price) >= 0.95", False),
        ("coverage(offer.price) >= 0.95", True),
        ("failed / pages <= 0.02", True),
        ("duration <= 2h", True),
        ("duration <= 59.5min", False),
        ("duration == 60m and duration < 1d and duration > 500ms", True),
        ("new_values(category) == 0", False),
        ("status(403) / responses <= 0.05", True),
        ('stat("sold out") < 8', True),
        ("""stat("sold in 24h") == 9 and duration < 24h and stat('sold in "24h"') == 10""", True),
        ("10 < items <= 50", True),
        ("10 < items < 50", False),
        ("not items < 50 or pages == 0", True),
        ("-items + 2 * (pages - 25) == 100", True),
        ("items\n>= 50", True),
    ],
)
def test_rules_are_evaluated_as_documented(rule, passed):
    assert judged(rule).passed is passed


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        ("coverage(title) >= 0.95", None),
        ("median(pages, 5) > 0", None),
        ("retried / refused <= 0.02", None),  # the ratio is undefined
        ("failed / refused <= 0.02", False),  # everything failed
        ("coverage(title) >= 0.95 and items > 90", False),
        ("coverage(title) >= 0.95 or items > 40", True),
        ("not coverage(title) >= 0.95", None),
    ],
)
def test_a_rule_without_its_figures_is_not_judged(rule, passed):
    assert judged(rule).passed is passed


def test_a_verdict_holds_the_figures_that_it_used():
    assert judged("items >= 0.8 * median(items, 5)").values == {"items": 50.0, "median(items, 5)": 90.0}


@pytest.mark.parametrize(
    ("rule", "position"),
    [
        ("itms > 3", 1),
        ("pages > 1h and foo > 2", 16),
        ("  pages > 1 and itms > 3", 15),
        ("é > 1", 1),
        ("items > 'é' and x > 1", 9),
        ("items > (", 9),
        ("items >> 3", 1),
        ("items > [1]", 9),
        ("items > 2 ** 9", 9),
        ("items > 7 % 2", 9),
        ("items > True", 9),
        ("items > 1e400", 9),
        ("items > None", 9),
        ("items is 3", 1),
        ("items.real > 3", 1),
        ("items > (3 if pages else 4)", 10),
        ("coverage(price, title) > 1", 1),
        ("coverage(1 + 1) > 1", 10),
        ("coverage(open('x')) > 1", 10),
        ("coverage > 3", 1),
        ("median(items) > 3", 1),
        ("median(items, 0) > 3", 15),
        ("median(items, 9999) > 3", 15),
        ("failed(timeuot) < 1", 8),
        ('retried("Too_Large/x") < 1', 9),
        ('failed("status/4xx") < 1', 8),
        ('status("5XX") < 1', 8),
        ("median(items, n=5) > 3", 1),
        ("__import__('os').system('x') > 1", 1),
        ("(lambda: 3)() > 1", 1),
        ("f'{items}' > 1", 1),
        ("(x := 3) > 1", 2),
        ("items", 1),
        ("items > 1 and pages", 15),
        ("", 1),
        ("(" * 300, 201),
    ],
)
def test_a_mistake_is_named_with_its_field_and_position(rule, position):
    with pytest.raises(SettingsError) as refused:
        compile_monitors(["items > 1", rule])
    assert refused.value.field == "monitors[1]"
    assert refused.value.remedy
    assert int(re.search(r"at character (\d+)$", str(refused.value))[1]) == position


@pytest.mark.parametrize(
    "given_monitor",
    ["a" * (MAX_LENGTH + 1), {"rule": "items > 1", "during": "often"}, {"name": "x"}, {"rule": "items > 1", "at": 3}, 7,
     "+".join(["1"] * 150) + "> items"],
)  # fmt: skip
def test_an_invalid_monitor_is_rejected(given_monitor):
    with pytest.raises(SettingsError) as refused:
        compile_monitors([given_monitor])
    assert refused.value.field == "monitors[0]"


def test_a_rule_may_name_every_documented_kind_of_error_and_those_of_other_packages():
    guide = (Path(__file__).parents[2] / "docs/guides/failures.md").read_text()
    table = re.search(r"starts with its kind:\n\n(.*?)\n\n", guide, re.DOTALL)[1]
    cells = " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    kinds = re.findall("`([a-z_/0-9]+)[.`]", cells)
    assert {"status/404", "timeout", "redirect/loop", "hook/", "page_limit", "internal"} < {*kinds}
    for kind in (*kinds, "status/999", "captcha", "captcha/timeout"):
        CompiledMonitor(MonitorRule(f'failed("{kind}") + retried("{kind}") < 1'))


def test_two_monitors_need_two_names():
    with pytest.raises(SettingsError) as refused:
        compile_monitors(["items > 1", {"rule": "pages > 1", "name": "items > 1"}])
    assert refused.value.field == "monitors[1]"


@given(st.text(max_size=60) | st.text("items()<>=.,0123456789+-*/ andort'\"[]:\\\n\t", max_size=80))
def test_any_text_is_a_rule_or_refused(text):
    try:
        rule = CompiledMonitor(MonitorRule(text))
    except SettingsError as error:
        assert error.field == "monitors"
    else:
        assert rule.judge(FIGURES, HISTORY).passed in {True, False, None}
