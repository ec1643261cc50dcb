"""Regular expressions of users: the same matches as `re`, and no long backtracking."""

import re

import pytest

from skitter._utils.patterns import LimitedPattern, SlowPattern, compile_pattern
from skitter.errors import SettingsError
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.source import RecipeProblems
from skitter.scope import SLOW_PATTERN, Scope
from skitter.settings import Settings, build_settings

SLOW = "^(?:(?:a|a)|(?:a|aa))+$"
TEXT = "a" * 4000 + "b"


@pytest.mark.parametrize(
    ("pattern", "is_limited"),
    [
        (r"/item/\d+", False),
        (r"\.(?:jpg|png)$", False),
        (r"^https?://(?:www\.)?example\.com/[^/]+$", False),
        (r"/\d{4}/\d{2}/", False),
        (r"[*+]*\+\*", False),
        (r"[]+*]+", False),
        (r"a{3,}", False),
        (r"\d{1,3}\.\d{1,3}-[0-9a-f]{32}-[0-9a-f]{16}-a{0,999}", False),
        (r"(a+)+$", True),
        (r"(a|a)*$", True),
        (r"(a+){10}$", True),
        (r"(?:ab){2}", True),
        (r".*a.*b", True),
        (r"a{2,}b{3,}", True),
        (r"a{0,10}b{,99}", True),
        (r".{0,200}a.*", True),
        (r"\\++a+", True),
    ],
)
def test_only_patterns_that_can_backtrack_for_long_have_a_limit(pattern, is_limited):
    assert isinstance(compile_pattern(pattern), LimitedPattern) is is_limited


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(\w+)\s+(\w+)", "Größe  XL 12"),
        (r"(?i)(?P<a>[a-z]+)-(?P<b>\d+)*", "AbC-12 x-"),
        (r"(?<!\d)(\d+)[.,](\d+)(?!\d)", "9 1.250,50 €"),
        (r"(a+)(b+)?", "aab a"),
        (r"^(\s*\S+)+$", "a b\nc"),
        (r"(\d+)(?:\D+\1)+", "7 7 8"),
        (r"x*y*", "axyb"),
    ],
)
def test_a_limited_pattern_finds_and_replaces_the_same_as_re(pattern, text):
    limited, plain = compile_pattern(pattern), re.compile(pattern)
    assert isinstance(limited, LimitedPattern)
    found, expected = limited.search(text), plain.search(text)
    assert (found is None) is (expected is None)
    if expected is not None:
        assert (found.span(), found.groups()) == (expected.span(), expected.groups())
    assert limited.groups == plain.groups
    assert limited.sub("-", text) == plain.sub("-", text)


@pytest.mark.parametrize("pattern", ["(", "a**", "(?P<a>x)(?P<a>y)", "(a+)+[", "\\"])
def test_an_invalid_pattern_is_an_error_as_in_re(pattern):
    with pytest.raises(re.error):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", [SLOW])
def test_a_pattern_that_backtracks_gives_up(pattern):
    limited = compile_pattern(pattern)
    with pytest.raises(SlowPattern):
        limited.search(TEXT if pattern == SLOW else "word " * 2000 + "!")
    with pytest.raises(SlowPattern):
        limited.sub("", TEXT if pattern == SLOW else "word " * 2000 + "!")
    assert limited.search("aa")


@pytest.mark.parametrize("kind", ["allow", "deny"])
def test_a_url_that_occupies_a_pattern_is_refused(kind):
    scope = Scope(**{kind: [SLOW.replace("^", "/").replace("$", "!")]})
    assert scope.refuse(f"http://x.test/{TEXT}", "x.test") == SLOW_PATTERN
    with pytest.raises(SettingsError):
        Scope(**{kind: ["(a+)+["]})


def test_the_patterns_of_a_recipe_have_the_limit():
    context = CompileContext(recipe="shop", problems=RecipeProblems(), pages=[])
    assert all(isinstance(pattern, LimitedPattern) for pattern in context.patterns([SLOW, "(a+)+"], "match"))


@pytest.mark.parametrize("value", ["/ads/, (", ["*.js"]])
def test_a_setting_with_a_broken_pattern_is_refused_before_the_crawl(value):
    with pytest.raises(SettingsError, match="invalid regular expression") as caught:
        build_settings({"blocked_urls": value})
    assert caught.value.field == "blocked_urls"
    assert Settings(blocked_urls=(r"/ads/\d+\.js",)).blocked_urls == (r"/ads/\d+\.js",)
