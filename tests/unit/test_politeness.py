"""The slot of a host, and the limits of a slot."""

import pytest

from skitter.errors import SettingsError
from skitter.politeness import DEFAULT_CONCURRENCY_PER_SLOT, HostLimits, LimitRule, Politeness, Rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("20/60s", Rate(20, 60.0)),
        ("1/2s", Rate(1, 2.0)),
        ("500/h", Rate(500, 3600.0)),
        ("3/m", Rate(3, 60.0)),
        ("5/0.5s", Rate(5, 0.5)),
        (" 7 / 1.5 m ", Rate(7, 90.0)),
    ],
)
def test_a_rate_is_read(text, rate):
    assert Rate.parse(text) == rate


@pytest.mark.parametrize(
    "text", ["", "20", "20/", "/s", "20/60", "-1/s", "0/s", "1/0s", "1.5/s", "1/2d", "x/s"]
)
def test_a_wrong_rate_is_an_error_with_a_remedy(text):
    with pytest.raises(SettingsError) as error:
        Rate.parse(text)
    assert "20/60s" in error.value.remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"delay": float("nan")},
        {"jitter": float("inf")},
        {"delay": -1.0},
        {"jitter": -0.1},
        {"concurrency_per_slot": 0},
    ],
)
def test_a_wrong_policy_is_an_error_with_a_remedy(fields):
    with pytest.raises(SettingsError) as error:
        HostLimits(**fields)
    assert error.value.remedy


def test_a_single_rate_needs_no_list():
    assert HostLimits(rates="1/2s") == HostLimits(rates=["1/2s"]) == HostLimits(rates=("1/2s",))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"domain_glob": "*", "domain_regexp": ".*"},
        {"domain_regexp": "("},
        {"domain_glob": "*", "delay": -1.0},
        {"domain_glob": "*", "concurrency_per_slot": 0},
    ],
)
def test_a_wrong_rule_is_an_error_with_a_remedy(fields):
    with pytest.raises(SettingsError) as error:
        LimitRule(**fields)
    assert error.value.remedy


def delay_of(politeness: Politeness, host: str) -> float | None:
    return politeness.limits_of(politeness.slot_of(host)).delay


@pytest.mark.parametrize(
    ("rule", "matching", "others"),
    [
        (
            {"domain_glob": "*.example.com"},
            ["www.example.com", "a.b.example.com", "www.example.com:8080"],
            ["example.com", "www.example.com.evil.test", "example.org"],
        ),
        (
            {"domain_glob": "example.com"},
            ["example.com", "example.com:81"],
            ["www.example.com", "xexample.com"],
        ),
        (
            {"domain_regexp": r"(?:www|shop)\d*\.example\.com"},
            ["www.example.com", "shop12.example.com", "www.example.com:8080"],
            ["example.com", "www.example.com.evil.test", "awww.example.com"],
        ),
        ({"domain_glob": "127.0.0.1:8001"}, ["127.0.0.1:8001"], ["127.0.0.1:8002", "127.0.0.1"]),
        ({"domain_regexp": r"h\.test:80\d\d"}, ["h.test:8001", "h.test:8099"], ["h.test:9001", "h.test"]),
        ({"domain_glob": "*.m\u00fcnchen.test"}, ["www.xn--mnchen-3ya.test"], ["www.m.test"]),
        ({"domain_regexp": r"\[::1\]"}, ["[::1]", "[::1]:8080"], ["[::2]"]),
    ],
)
@pytest.mark.parametrize("unit", ["host", "domain", "rule"])
def test_a_rule_holds_for_the_hosts_that_it_matches(rule, matching, others, unit):
    politeness = Politeness(HostLimits(delay=1.0), [LimitRule(**rule, delay=9.0, unit=unit)])
    assert [delay_of(politeness, host) for host in matching] == [9.0] * len(matching)
    assert [delay_of(politeness, host) for host in others] == [1.0] * len(others)


def test_host_names_have_no_case():
    politeness = Politeness(HostLimits(), [LimitRule(domain_glob="*.Example.COM", delay=9.0)])
    assert delay_of(politeness, "www.example.com") == 9.0


def test_the_first_rule_that_matches_wins():
    rules = [
        LimitRule(domain_glob="www.example.com", delay=1.0),
        LimitRule(domain_regexp=r".*\.example\.com", delay=2.0, unit="domain"),
        LimitRule(domain_glob="*", delay=3.0, unit="rule"),
    ]
    politeness = Politeness(HostLimits(), rules)
    hosts = ["www.example.com", "shop.example.com", "other.test"]
    assert [delay_of(politeness, host) for host in hosts] == [1.0, 2.0, 3.0]


def test_values_missing_in_a_rule_come_from_the_job():
    default = HostLimits(delay=5.0, jitter=0.5, concurrency_per_slot=7, rates=("1/1s",))
    rule = LimitRule(domain_glob="*", concurrency_per_slot=2)
    assert rule.over(default) == HostLimits(delay=5.0, jitter=0.5, concurrency_per_slot=2, rates=("1/1s",))
    own = LimitRule(domain_glob="*", delay=0.0, jitter=0.0, rates=("2/1s",))
    assert own.over(default) == HostLimits(delay=0.0, jitter=0.0, concurrency_per_slot=7, rates=("2/1s",))


def test_by_default_a_slot_is_a_host_whatever_its_port():
    politeness = Politeness()
    assert politeness.slot_of("www.example.com:8080") == politeness.slot_of("www.example.com")
    assert politeness.slot_of("www.example.com") != politeness.slot_of("example.com")
    assert politeness.limits_of("www.example.com") == HostLimits(
        jitter=0.0, concurrency_per_slot=DEFAULT_CONCURRENCY_PER_SLOT
    )


def test_a_slot_may_be_a_registered_domain():
    politeness = Politeness(unit="domain")
    keys = {politeness.slot_of(host) for host in ("www.bbc.co.uk", "news.bbc.co.uk:81", "bbc.co.uk")}
    assert len(keys) == 1
    assert politeness.slot_of("www.other.co.uk") not in keys


def test_a_rule_may_make_domains_its_slots():
    politeness = Politeness(HostLimits(), [LimitRule(domain_glob="*.test.com", delay=1.0, unit="domain")])
    assert politeness.slot_of("a.test.com") == politeness.slot_of("b.test.com")
    assert politeness.slot_of("a.other.com") != politeness.slot_of("b.other.com")


def test_a_rule_may_be_one_pool_for_all_its_hosts():
    rules = [
        LimitRule(domain_glob="*.one.test", unit="rule", delay=1.0),
        LimitRule(domain_glob="*.two.test", unit="rule", delay=2.0),
    ]
    politeness = Politeness(HostLimits(), rules)
    one = {politeness.slot_of(host) for host in ("a.one.test", "b.one.test", "c.one.test:8080")}
    two = {politeness.slot_of(host) for host in ("a.two.test", "b.two.test")}
    assert (len(one), len(two), one & two) == (1, 1, set())
    assert [politeness.limits_of(*keys).delay for keys in (one, two)] == [1.0, 2.0]


def test_a_domain_that_a_rule_names_does_not_lend_its_limits_to_other_hosts_of_it():
    """The slot ``example.com`` of www.example.com is not the host in the rule."""
    politeness = Politeness(
        HostLimits(delay=1.0), [LimitRule(domain_glob="example.com", delay=9.0)], "domain"
    )
    assert delay_of(politeness, "example.com") == 9.0
    assert delay_of(politeness, "www.example.com") == 1.0


def test_a_slot_of_a_rule_that_is_gone_gets_the_limits_of_the_job():
    rules = [LimitRule(domain_glob="*", unit="rule", delay=9.0)]
    slot = Politeness(HostLimits(), rules).slot_of("h.test")
    assert Politeness(HostLimits(delay=1.0)).limits_of(slot).delay == 1.0
