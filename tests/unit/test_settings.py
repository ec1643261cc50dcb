"""Settings: layers, conversion of text, and a clear error for each mistake."""

import re
from typing import Any

import msgspec
import pytest

from skitter.errors import SettingsError
from skitter.settings import Settings, build_settings, declarations


def test_later_layers_are_stronger():
    settings = build_settings({"delay": 1.0, "concurrency": 4}, {"delay": 2.0})
    assert (settings.delay, settings.concurrency, settings.concurrency_per_slot) == (2.0, 4, 4)


def test_defaults_are_polite():
    settings = Settings()
    assert (settings.robots, settings.concurrency_per_slot, settings.delay) == (True, 4, None)
    assert settings.user_agent.startswith("skitter/")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("concurrency", "64", 64),
        ("delay", "0.5", 0.5),
        ("delay", "none", None),
        ("max_pages", "NULL", None),
        ("robots", "no", False),
        ("robots", "True", True),
        ("robots", "0", False),
        ("http2", "on", True),
        ("user_agent", "none", "none"),
        ("allow", "a, b ,", ("a", "b")),
        ("allow", '["a,b"]', ("a,b",)),
        ("allow", "", ()),
        ("allowed_statuses", "404,410", (404, 410)),
        ("rates", "1/2s,20/60s", ("1/2s", "20/60s")),
        ("headers", '{"X-A": "b"}', {"X-A": "b"}),
        ("queue_order", "lifo", "lifo"),
        ("limit_rules", '[{"domain_glob": "*", "delay": 2}]', ({"domain_glob": "*", "delay": 2},)),
    ],
)
def test_text_is_converted_to_the_type_of_the_setting(name, text, value):
    assert getattr(build_settings({name: text}), name) == value


@pytest.mark.parametrize("field", msgspec.structs.fields(Settings), ids=lambda field: field.name)
def test_every_default_passes_as_a_value(field):
    default = getattr(Settings(), field.name)
    assert getattr(build_settings({field.name: default}), field.name) == default


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", "many"), ("concurrency", 1.5), ("delay", "soon"), ("robots", "perhaps"),
        ("queue_order", "best"), ("allow", 7), ("headers", "x"), ("headers", '{"X"'), ("max_pages", [1]),
        ("allowed_statuses", "404,x"), ("user_agent", None),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_named(name, value):
    with pytest.raises(SettingsError) as caught:
        build_settings({name: value})
    assert caught.value.field == name
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0), ("concurrency_per_slot", -1), ("max_pages", 0), ("timeout", 0), ("lease_seconds", 0),
        ("delay", -0.1), ("max_retries", -1), ("depth_limit", -1), ("max_redirects", -1), ("jitter", -1),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_named(name, value):
    with pytest.raises(SettingsError, match=str(value)) as caught:
        build_settings({name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("name", ["delay", "timeout", "jitter", "lease_seconds"])
def test_a_number_that_is_not_finite_is_rejected(name, value):
    with pytest.raises(SettingsError) as caught:
        build_settings({name: value})
    assert caught.value.field == name


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(SettingsError) as caught:
        build_settings({"concurency_per_slot": 3})
    assert caught.value.field == "concurency_per_slot"
    assert "concurrency_per_slot" in caught.value.remedy


def test_a_setting_unlike_any_other_points_to_the_manual():
    with pytest.raises(SettingsError) as caught:
        build_settings({"zzz": 3})
    assert (caught.value.field, bool(caught.value.remedy)) == ("zzz", True)


def test_politeness_is_made_of_the_settings():
    rules = [{"domain_glob": "*.slow.test", "delay": 3, "jitter": 1, "rates": ["1/2s"], "unit": "rule"}]
    settings = build_settings(
        {"delay": 0.5, "jitter": 0.1, "concurrency_per_slot": 2, "rates": "9/1m", "limit_rules": rules}
    )
    politeness = settings.politeness()
    default, slow = politeness.limits_of("h.test"), politeness.limits_of(politeness.slot_of("a.slow.test"))
    assert (default.delay, default.jitter, default.concurrency_per_slot, default.rates) == (
        0.5,
        0.1,
        2,
        ("9/1m",),
    )
    assert (slow.delay, slow.jitter, slow.concurrency_per_slot, slow.rates) == (3.0, 1.0, 2, ("1/2s",))


@pytest.mark.parametrize(
    "rule",
    [
        {}, {"domain_glob": "*", "domain_regexp": ".*"}, {"domain_regexp": "("}, {"domain_glob": "*", "speed": 3},
        {"domain_glob": "*", "delay": "soon"}, {"domain_glob": "*", "rates": ["often"]},
        {"domain_glob": "*", "delay": -1}, {"domain_glob": "*", "concurrency_per_slot": 0}, {"domain_glob": "*", "unit": "x"},
    ],
)  # fmt: skip
def test_a_bad_limit_rule_is_refused(rule):
    with pytest.raises(SettingsError) as caught:
        build_settings({"limit_rules": [rule]}).politeness()
    assert caught.value.field in {"limit_rules", *rule}
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", "often", "5", "0/1s", "5/0s", "-1/1s", "5/1d", "1/s x"])
def test_a_bad_rate_is_refused(text):
    with pytest.raises(SettingsError):
        build_settings({"rates": [text]}).politeness()


@pytest.mark.parametrize(
    ("rule", "host", "delay"),
    [
        ({"domain_glob": "h.test"}, "h.test:8080", 3.0),
        ({"domain_glob": "h.test:81"}, "h.test:81", 3.0),
        ({"domain_glob": "h.test:81"}, "h.test:82", 1.0),
        ({"domain_glob": "*.slow.test", "unit": "domain"}, "a.slow.test", 3.0),
        ({"domain_glob": "slow.test"}, "a.slow.test", 1.0),
        ({"domain_regexp": r"(?:a|b)\.test"}, "b.test:9", 3.0),
        ({"domain_glob": "*", "unit": "rule"}, "h.test:1", 3.0),
    ],
)
@pytest.mark.parametrize("slot", ["host", "domain"])
def test_the_key_of_a_slot_leads_to_the_limits_of_its_rule(rule, host, delay, slot):
    settings = build_settings({"delay": 1, "slot": slot, "limit_rules": [{**rule, "delay": 3}]})
    politeness = settings.politeness()
    assert politeness.limits_of(politeness.slot_of(host)).delay == delay


def test_a_slot_of_a_rule_that_is_gone_has_the_limits_of_the_job():
    assert build_settings({"delay": 1}).politeness().limits_of("rule:3").delay == 1.0


@pytest.mark.parametrize("budget", ["max_pages_per_slot", "max_bytes_per_slot", "max_queued_per_slot"])
def test_a_job_that_remembers_pages_has_no_budget_of_a_host(budget):
    """A page that a budget refuses is not visited, and would count as gone: its items would be removed."""
    assert getattr(build_settings({budget: 30}), budget) == 30
    with pytest.raises(SettingsError) as refused:
        build_settings({budget: 30, "changes": "all"})
    assert refused.value.field == budget


@pytest.mark.parametrize(
    "server",
    [
        "x",
        "",
        "dns.example",
        "192.0.2.1:",
        "192.0.2.1:x",
        "[::1",
        "192.0.2.1:53:53",
        "192.0.2.1:65536",
        "[::1]:0",
    ],
)
def test_a_name_server_without_an_address_is_refused(server):
    with pytest.raises(SettingsError, match="invalid name server in dns_servers"):
        Settings(dns_servers=(server,))


def test_name_servers_are_addresses_with_or_without_a_port():
    servers = (
        "192.0.2.1",
        "192.0.2.1:5353",
        "::1",
        "[::1]",
        "[::1]:5353",
        "fe80::1%eth0",
        "[fe80::1]:53%eth0",
    )
    assert Settings(dns_servers=servers).dns_servers == servers


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image_thumbnails", {"../../outside": [5, 5]}),
        ("image_thumbnails", {"a/b": [5, 5]}),
        ("image_thumbnails", {"": [5, 5]}),
        ("image_thumbnails", {"small": [100, 0]}),
        ("files_fields", {"file_urls": "files", "image_urls": "files"}),
    ],
)
def test_places_of_files_that_cannot_be_right_are_refused(field, value):
    with pytest.raises(SettingsError) as refused:
        build_settings({field: value})
    assert refused.value.field == field
    assert build_settings({"image_thumbnails": {"größe-1_x": [1, 1]}}).image_thumbnails == {
        "größe-1_x": (1, 1)
    }


def test_name_servers_that_would_not_be_asked_are_refused():
    with pytest.raises(SettingsError, match="dns_cache_ttl=0"):
        Settings(dns_servers=("192.0.2.1",), dns_cache_ttl=0)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("allowed_statuses", "200-299", "give a list of integers, such as [404, 410]"),
        ("files_fields", ["image_urls"], 'give an object in JSON, such as {"image_urls": "images"}'),
        ("allow", 5, "give a list of texts"),
        ("image_thumbnails", '{"small": [100', "check its quotes, commas and brackets"),
        ("max_pages", 2**63, f"give {2**63 - 1} or less"),
        ("max_pages", str(10**30), f"give {2**63 - 1} or less"),
        (
            "initial_cookies",
            "a=b",
            'give an object in JSON, such as {"https://example.com/": ["id=7; Path=/"]}',
        ),
    ],
)
def test_a_value_of_another_type_is_refused_in_plain_words(name, value, remedy):
    with pytest.raises(SettingsError) as refused:
        build_settings({name: value})
    assert refused.value.remedy == remedy
    assert "Expected" not in str(refused.value)


@pytest.mark.parametrize(
    "declared", [d for d in declarations(Settings).values() if d.type is not Any], ids=lambda d: d.name
)
def test_the_remedy_for_a_value_of_another_type_describes_the_right_one(declared):
    with pytest.raises(SettingsError, match=declared.name) as refused:
        declared.convert(object())
    assert re.fullmatch("give .+", refused.value.remedy)
    assert "typing" not in refused.value.remedy
    assert "a value of type" not in refused.value.remedy
