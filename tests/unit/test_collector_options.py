"""CollectorOptions, set in code and by environment variables."""

import re

import pytest

from skitter import Collector, Settings
from skitter.errors import SettingsError, UsageError
from skitter.frontends.collector.options import (
    CLONE_OPTIONS,
    METHODS_OF_COLLY,
    OPTION_NAMES,
    OPTIONS_OF_COLLY,
    CollectorOptions,
    read_options,
)
from skitter.settings import build_settings


def settings_of(crawler):
    return build_settings(crawler.__spider__("crawler", "test").custom_settings)


def test_options_become_settings_of_the_job():
    crawler = Collector(
        user_agent="bot/1", headers={"X": "1"}, depth_limit=2, max_requests=9, max_body_size=1000, ignore_robots_txt=True,
        timeout=3, proxy="http://p:1", concurrency=5, settings={"delay": 1, "concurrency": 6},
    )  # fmt: skip
    found = settings_of(crawler)
    assert (found.user_agent, found.headers, found.depth_limit, found.max_pages) == (
        "bot/1",
        {"X": "1"},
        2,
        9,
    )
    assert (found.max_body, found.robots, found.timeout, found.proxy) == (1000, False, 3, "http://p:1")
    assert (found.delay, found.concurrency) == (1, 6)


def test_without_options_the_settings_of_the_job_are_left_alone():
    assert Collector().__spider__("crawler", "test").custom_settings == {}


def test_the_environment_wins_over_the_code(monkeypatch):
    for name, value in {
        "ALLOWED_DOMAINS": "a.com, b.com", "DISALLOWED_DOMAINS": "c.com", "IGNORE_ROBOTSTXT": "yes", "DEPTH_LIMIT": "3",
        "MAX_REQUESTS": "8", "MAX_BODY_SIZE": "100", "PARSE_HTTP_ERROR_RESPONSE": "true", "FOLLOW_REDIRECTS": "no",
        "USER_AGENT": "env/1", "DISABLE_COOKIES": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"SKITTER_{name}", value)
    crawler = Collector(user_agent="code/1", depth_limit=1, allowed_domains=["z.com"])
    found = settings_of(crawler)
    assert crawler.__spider__("crawler", "test").allowed_domains == ("a.com", "b.com")
    assert (found.user_agent, found.depth_limit, found.max_pages, found.max_body) == ("env/1", 3, 8, 100)
    assert (found.robots, len(found.deny), found.cookies) == (False, 1, "none")
    assert {302, 404, 503} <= set(found.allowed_statuses)
    assert crawler.clone(user_agent="clone/1").options.user_agent == "clone/1"


def test_an_empty_variable_counts_as_missing():
    assert read_options({"depth_limit": 2}, {"SKITTER_DEPTH_LIMIT": ""}).depth_limit == 2


@pytest.mark.parametrize(
    ("given", "environment", "field", "detail"),
    [
        ({"max_dept": 2}, {}, "max_dept", "'max_dept'"),
        ({"depth_limit": "deep"}, {}, "depth_limit", "'deep'"),
        ({"depth_limit": -1}, {}, "depth_limit", "-1"),
        ({"allowed_domains": 5}, {}, "allowed_domains", "5"),
        ({}, {"SKITTER_DEPTH_LIMIT": "deep"}, "depth_limit", "SKITTER_DEPTH_LIMIT"),
        ({}, {"SKITTER_IGNORE_ROBOTSTXT": "perhaps"}, "ignore_robots_txt", "SKITTER_IGNORE_ROBOTSTXT"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_name(given, environment, field, detail):
    with pytest.raises(SettingsError, match=detail) as caught:
        read_options(given, environment)
    assert caught.value.field == field


@pytest.mark.parametrize("domains", [[""], ["http://x/"], ["*"]])
def test_an_invalid_disallowed_domain_is_refused(domains):
    with pytest.raises(SettingsError) as caught:
        read_options({"disallowed_domains": domains}, {}).scope_settings()
    assert caught.value.field == "disallowed_domains"


def test_every_option_of_a_clone_is_an_option_of_a_collector():
    assert set(CollectorOptions.__struct_fields__) >= CLONE_OPTIONS


def test_an_option_of_colly_is_refused_with_the_name_of_ours():
    with pytest.raises(SettingsError) as caught:
        Collector(max_depth=2)
    assert "write depth_limit" in caught.value.remedy
    own = {*CollectorOptions.__struct_fields__, "name"}
    written = {
        remedy.split()[1].rstrip(",") for remedy in OPTIONS_OF_COLLY.values() if remedy.startswith("write ")
    }
    assert written <= own
    assert own.isdisjoint(OPTIONS_OF_COLLY)


def test_an_option_cannot_be_set_as_an_attribute_where_it_would_have_no_effect():
    crawler = Collector()
    for name in ("user_agent", "allowed_domains", "max_depth"):
        with pytest.raises(UsageError) as caught:
            setattr(crawler, name, "x")
        assert caught.value.field == name
        assert "when you create the collector" in caught.value.remedy
    crawler.name = "books"
    crawler.note = "an attribute of a subclass"
    assert crawler.name == "books"


def test_a_method_of_colly_that_is_missing_is_an_error_that_names_what_to_use():
    crawler = Collector()
    for name, remedy in METHODS_OF_COLLY.items():
        with pytest.raises(AttributeError, match="a collector has no attribute") as caught:
            getattr(crawler, name)
        assert str(caught.value).endswith(f"{name!r}; {remedy}")
        for option in re.findall(r"Collector\((?!settings|debugger)(\w+)=", remedy):
            assert option in OPTION_NAMES
        for setting in re.findall(r"'(\w+)': ", remedy):
            assert setting in Settings.__struct_fields__
    with pytest.raises(AttributeError) as caught:
        _ = crawler.on_htm
    assert (str(caught.value), caught.value.name) == ("a collector has no attribute 'on_htm'", "on_htm")
