"""Scope: which URLs belong to a crawl, and reasons for refusal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.errors import SettingsError
from skitter.scope import Scope
from skitter.web.urls import host_of, normalize

SEED = "http://www.shop.co.uk/books/index.html?x=/y/"


def refusal(scope, url):
    normal = normalize(url)
    return scope.refuse(normal, host_of(normal))


def test_without_bounds_every_http_url_is_admitted():
    assert refusal(Scope(), "http://h.test/") is None
    assert refusal(Scope(), "https://h.test:8443/x?y") is None


@pytest.mark.parametrize(
    "url", ["mailto:x@y.test", "ftp://h.test/", "javascript:x()", "data:,x", "file:///x"]
)
def test_other_schemes_are_refused(url):
    assert Scope().refuse(url, "") == "scheme"


@pytest.mark.parametrize(
    ("domain", "url", "admitted"),
    [
        ("h.test", "http://h.test/", True),
        ("h.test", "http://a.b.h.test/", True),
        ("h.test", "http://h.test:8080/", True),
        ("h.test", "http://xh.test/", False),
        ("h.test", "http://h.test.evil.test/", False),
        ("h.test", "http://evil.test/?h.test", False),
        ("*.h.test", "http://h.test/", True),
        (".H.Test ", "http://a.h.test/", True),
        ("h.test:8080", "http://h.test:8080/", True),
        ("h.test:8080", "http://h.test:8081/", False),
        ("127.0.0.1", "http://127.0.0.1:9/", True),
        ("M\u00fcnchen.test", "http://www.m\u00fcnchen.test/", True),
        ("=m\u00fcnchen.test:81", "http://xn--mnchen-3ya.test:81/", True),
        ("=m\u00fcnchen.test", "http://www.m\u00fcnchen.test/", False),
    ],
)
def test_an_allowed_domain_admits_itself_and_its_subdomains(domain, url, admitted):
    assert (refusal(Scope(allowed_domains=[domain]), url) is None) == admitted


@pytest.mark.parametrize(
    "text",
    ["", " ", "http://h.test/", "h.test/path", "*", "h.test,x.test", "h.test x.test", "=h.test, =x.test"],
)
def test_an_invalid_domain_is_rejected(text):
    with pytest.raises(SettingsError, match="invalid allowed domain"):
        Scope(allowed_domains=[text])


@pytest.mark.parametrize(
    ("scope", "admitted"),
    [
        ("any", {"same", "sibling", "other", "above", "https", "port"}),
        ("domain", {"same", "sibling", "above", "https", "port"}),
        ("host", {"same", "above", "https"}),
        ("prefix", {"same"}),
    ],
)
def test_a_scope_admits_what_the_seeds_have(scope, admitted):
    urls = {
        "same": "http://www.shop.co.uk/books/1.html",
        "sibling": "http://cdn.shop.co.uk/books/1.html",
        "other": "http://www.other.co.uk/books/1.html",
        "above": "http://www.shop.co.uk/",
        "https": "https://www.shop.co.uk/books/1.html",
        "port": "http://www.shop.co.uk:8080/books/1.html",
    }
    bounds = Scope(scope=scope, seeds=[SEED])
    assert {name for name, url in urls.items() if refusal(bounds, url) is None} == admitted


def test_a_prefix_ends_at_the_last_slash_of_the_path():
    bounds = Scope(scope="prefix", seeds=["http://h.test/a/b"])
    assert refusal(bounds, "http://h.test/a/c") is None
    assert refusal(bounds, "http://h.test/ab") == "pattern"


def test_several_seeds_widen_the_scope():
    bounds = Scope(scope="host", seeds=["http://a.test/", "http://b.test/"])
    assert [refusal(bounds, f"http://{name}.test/") for name in "abc"] == [None, None, "host"]


def test_allow_and_deny_are_searched_anywhere_and_deny_is_stronger():
    bounds = Scope(allow=[r"/books/", r"\.pdf$"], deny=[r"draft"])
    assert refusal(bounds, "http://h.test/books/1") is None
    assert refusal(bounds, "http://h.test/x.pdf") is None
    assert refusal(bounds, "http://h.test/other") == "pattern"
    assert refusal(bounds, "http://h.test/books/draft") == "pattern"


@pytest.mark.parametrize("text", ["http://**/cat/**", "*/cat/*"])
def test_a_glob_in_place_of_a_pattern_is_answered_with_what_to_change(text):
    with pytest.raises(SettingsError) as caught:
        Scope(allow=[text])
    assert caught.value.remedy.startswith("this is a glob: write .* in place of * and **")


@pytest.mark.parametrize("option", ["allow", "deny"])
def test_a_bad_pattern_is_named(option):
    with pytest.raises(SettingsError, match=r"regular expression '\('"):
        Scope(**{option: ["("]})


def test_a_url_may_be_as_long_as_the_limit():
    bounds = Scope(max_url_length=30)
    assert refusal(bounds, "http://h.test/".ljust(30, "x")) is None
    assert refusal(bounds, "http://h.test/".ljust(31, "x")) == "length"


@pytest.mark.parametrize(("limit", "deep"), [(None, None), (0, 1), (3, 4)])
def test_depth_has_a_limit_or_none(limit, deep):
    bounds = Scope(depth_limit=limit)
    assert not bounds.too_deep(10**6 if deep is None else deep - 1)
    assert deep is None or bounds.too_deep(deep)


@given(st.sampled_from(["h.test", "a.h.test", "x.test", "h.test:81"]), st.text("/ab?", max_size=8))
def test_host_and_path_may_be_checked_separately(host, rest):
    bounds = Scope(allowed_domains=["h.test"], deny=["b/"], max_url_length=22)
    url = normalize(f"http://{host}/{rest}")
    apart = "host" if not bounds.admits_host(host_of(url)) else bounds.refuse_path(url)
    assert bounds.refuse(url, host_of(url)) == apart


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://example.com/", True),
        ("http://example.com:8080/", True),
        ("http://www.example.com/", False),
        ("http://other.example/", False),
        ("http://a.wide.example/", True),
        ("http://port.example:81/", True),
        ("http://port.example/", False),
    ],
)
def test_an_exact_domain_does_not_include_its_subdomains(url, allowed):
    scope = Scope(allowed_domains=["=Example.com", "wide.example", "=port.example:81"])
    assert (scope.refusal(url, 0) is None) == allowed


@pytest.mark.parametrize("domain", ["=", "=*.example.com", "=http://example.com/"])
def test_an_exact_domain_that_is_not_a_host_is_rejected(domain):
    with pytest.raises(SettingsError):
        Scope(allowed_domains=[domain])


@pytest.mark.parametrize("scope", ["host", "domain", "prefix"])
def test_a_seed_without_a_scheme_does_not_widen_the_scope(scope):
    found = Scope(
        scope=scope, seeds=["h.test:8000", "http://h.test/a/"]
    )  # the first one has the scheme "h.test"
    assert refusal(found, "http://h.test/a/b") is None
