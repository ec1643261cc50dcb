"""Plain links: the compiled functions and their Python versions join links like the parser."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skitter.web import urls
from skitter.web.urls import join_all_plain_in_python, join_plain_in_python, normalize, url_base

IS_COMPILED = urls.join_plain is not join_plain_in_python
HREFS = st.builds(
    str.__add__,
    st.sampled_from(
        ["", "/", "../", "//", "http://h.test/", "https://h.test/", "http://h.test", "?", "#", "x"]
    ),
    st.text("aZ0_~!$&()*+,;=@-./?:%#'\"<>[]^`{}|\\ \t\n\x7fé日\ud800", max_size=12),
)
BASES = st.sampled_from(
    [
        "http://h.test/",
        "http://h.test/a/b.html?q=/1",
        "https://h.test:81/a/b/",
        "http://h.test/a/%C3%A4",
        "http://h.test/a/b;c/d",
        "http://u@h.test/a/b",
    ]
)


@settings(max_examples=1000)
@given(HREFS, BASES)
@example("", "http://h.test/")
@example("a#\ud800", "http://h.test/")
@example("a\ud800#b", "http://h.test/")
@example("http://h.test/?a", "http://h.test/a/")
@example("../../a", "http://h.test/a/b/c")
@example("a/b/", "http://h.test/a/b/c")
@example("a/.b", "http://h.test/a/b/c")
@example("a?/../b:c%2e", "http://h.test/a/b/c")
def test_a_plain_link_is_joined_like_any_other(href, base):
    prefixes = url_base(base).prefixes
    url = join_plain_in_python(href, prefixes)
    assert urls.join_plain(href, prefixes) == url
    assert url is None or url == normalize(href.partition("#")[0], base)


@given(st.lists(HREFS, max_size=80), BASES)
def test_many_links_are_joined_like_single_ones(hrefs, base):
    prefixes = url_base(base).prefixes
    expected = [join_plain_in_python(href, prefixes) for href in hrefs]
    assert urls.join_all_plain(hrefs, prefixes) == expected == join_all_plain_in_python(hrefs, prefixes)
    assert urls.join_all_plain(tuple(hrefs), prefixes) == expected


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("/wiki/Foo_(bar)?a=b/c:d;e,f%20#part", "http://h.test/wiki/Foo_(bar)?a=b/c:d;e,f%20"),
        ("../x.html", "http://h.test/x.html"),
        ("x", "http://h.test/a/x"),
        ("/", "http://h.test/"),
        ("http://h.test/x", "http://h.test/x"),
        ("/x y", None),
        ("//other.test/x", None),
        ("mailto:x", None),
        ("?x", None),
        ("#x", None),
    ],
)
@pytest.mark.parametrize("join", [join_plain_in_python, urls.join_plain])
def test_which_links_are_plain(join, href, url):
    assert join(href, url_base("http://h.test/a/b").prefixes) == url
    assert join(href, None) is None


@pytest.mark.skipif(not IS_COMPILED, reason="the functions were not compiled")
@pytest.mark.parametrize(
    "call",
    [
        lambda prefixes: urls.join_plain(7, prefixes),
        lambda prefixes: urls.join_plain("a"),
        lambda prefixes: urls.join_plain("a", ("too", "short")),
        lambda prefixes: urls.join_plain("a", (1, 2, 3, 4, 5)),
        lambda prefixes: urls.join_plain("a", list(prefixes)),
        lambda prefixes: urls.join_all_plain(["a", 7], prefixes),
        lambda prefixes: urls.join_all_plain(7, prefixes),
        lambda prefixes: urls.join_all_plain(["a"]),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(call):
    with pytest.raises(TypeError):
        call(url_base("http://h.test/a/b").prefixes)


@pytest.mark.skipif(not IS_COMPILED, reason="the functions were not compiled")
def test_a_prefix_without_a_form_in_utf_8_is_refused():
    with pytest.raises(ValueError, match="lone surrogate"):
        urls.join_plain("a", ("http:", "\ud800", "", "", ""))
