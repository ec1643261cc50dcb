"""URLs: normalised form, identity, batches, hosts."""

import sys
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skitter.errors import RequestError
from skitter.web import urls
from skitter.web.urls import (
    AdaParser,
    UpaParser,
    absolute_text,
    ascii_domain,
    canonical,
    canonical_all,
    host_of,
    join_all,
    normalize,
    origin_of,
    registered_domain,
    scheme_of,
    url_base,
)

BASE = "http://user@Example.com:8080/a/b/c.html?q=1#top"

NASTY = [
    # Reference, and the result of the WHATWG standard with BASE (None: invalid).
    ("d.html", "http://user@example.com:8080/a/b/d.html"),
    ("./d/../e", "http://user@example.com:8080/a/b/e"),
    ("../../../../up", "http://user@example.com:8080/up"),
    ("/root", "http://user@example.com:8080/root"),
    ("//other.org/x", "http://other.org/x"),
    ("///x//y", "http://x//y"),
    ("?only=query", "http://user@example.com:8080/a/b/c.html?only=query"),
    ("#fragment", "http://user@example.com:8080/a/b/c.html?q=1"),
    ("", "http://user@example.com:8080/a/b/c.html?q=1"),
    ("   spaced out .html  ", "http://user@example.com:8080/a/b/spaced%20out%20.html"),
    ("\tta\nb\r.html", "http://user@example.com:8080/a/b/tab.html"),
    ("\\back\\slash", "http://user@example.com:8080/back/slash"),
    ("HTTP:\\\\Other.ORG\\x", "http://other.org/x"),
    ("http:relative", "http://user@example.com:8080/a/b/relative"),
    ("https:other.org", "https://other.org/"),
    ("http://other.org:80/", "http://other.org/"),
    ("https://other.org:443/x#y", "https://other.org/x"),
    ("http://other.org:0080/", "http://other.org/"),
    ("http://other.org:99999/", None),
    ("http://other.org:x/", None),
    ("http://a b/", None),
    ("http://", None),
    ("http://[::1", None),
    ("http://[2001:DB8::0:1]:81/p", "http://[2001:db8::1]:81/p"),
    ("http://0x7f.1/", "http://127.0.0.1/"),
    ("http://256.256.256.256/", None),
    ("http://bücher.example/ä?ö#ü", "http://xn--bcher-kva.example/%C3%A4?%C3%B6"),
    ("http://\uff27\uff2f.com/", "http://go.com/"),
    ("http://u:p@other.org/", "http://u:p@other.org/"),
    ("http://@other.org/", "http://other.org/"),
    ("http://other.org/%7e%2E%2e%zz%", "http://other.org/%7e%2E%2e%zz%"),
    ("http://other.org/a/%2e%2e/b", "http://other.org/b"),
    ("http://other.org?x", "http://other.org/?x"),
    ("http://other.org/?a='b\"<>", "http://other.org/?a=%27b%22%3C%3E"),
    ("mailto:a@b.c", "mailto:a@b.c"),
    ("javascript:void(0)", "javascript:void(0)"),
    ("javascript:go() #x", "javascript:go()%20"),
    ("data:text/html,<p>", "data:text/html,<p>"),
    ("\ud800", None),
    ("http://other.org/\udfff", None),
    ("\x00nul", "http://user@example.com:8080/a/b/nul"),
    ("a\x00b", "http://user@example.com:8080/a/b/a%00b"),
]

PARSERS = pytest.mark.parametrize("parser", [UpaParser(), AdaParser()], ids=["upa", "ada"])


@PARSERS
@pytest.mark.parametrize(("reference", "expected"), NASTY)
def test_both_parsers_resolve_nasty_references_as_the_standard_says(parser, reference, expected):
    assert parser.join_all(BASE, [reference]) == [expected]


@PARSERS
def test_a_batch_keeps_order_and_length_with_bad_links_in_it(parser):
    references = [reference for reference, _ in NASTY]
    assert parser.join_all(BASE, references) == [expected for _, expected in NASTY]


@PARSERS
def test_no_url_resolves_against_an_invalid_base(parser):
    assert parser.join_all("nowhere", ["x", "http://a/"]) == [None, None]
    assert parser.parse("http://a/", "nowhere") is None


def test_without_upa_the_fallback_parser_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "upa_url", None)
    parser = urls.load_parser()
    assert isinstance(parser, AdaParser)
    assert parser.join_all("http://h/a/", ["b#c"]) == ["http://h/a/b"]


def test_normalize_keeps_the_order_of_the_query_and_drops_the_fragment():
    assert normalize("HTTP://h/?b=2&a=1#x") == "http://h/?b=2&a=1"
    assert normalize("x?b&a", "http://h/") == "http://h/x?b&a"
    assert normalize("no url") is None


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        ("http://H", "http://h/"),
        ("http://h/?b=2&a=1&a=0", "http://h/?a=0&a=1&b=2"),
        ("http://h/?a=b&a-=1", "http://h/?a=b&a-=1"),
        ("http://h/?b&a&&a=", "http://h/?&a&a=&b"),
        ("http://h/?a=x+y%20z", "http://h/?a=x+y%20z"),
        ("http://h/%7Euser/%e9?q=%2f%61", "http://h/~user/%E9?q=%2Fa"),
        ("http://h/100%?b=%41&a=1", "http://h/100%?a=1&b=%41"),
        ("http://h/%%34%31", "http://h/%%34%31"),
        ("http://h/?", "http://h/?"),
        ("http://h/%2541", "http://h/%2541"),
    ],
)
def test_identity_sorts_the_query_and_spells_escapes_one_way(url, identity):
    assert canonical(url) == identity


def test_different_resources_keep_different_identities():
    """An escaped delimiter is data, an unescaped one is structure."""
    assert canonical("http://h/a%2Fb") != canonical("http://h/a/b")
    assert canonical("http://h/?a=1%262") != canonical("http://h/?a=1&2")
    assert canonical("http://h/?a") != canonical("http://h/?a=")
    assert canonical("http://h/%2541") != canonical("http://h/A")


def test_a_url_that_does_not_parse_has_no_identity():
    with pytest.raises(RequestError) as caught:
        canonical("/relative")
    assert "/relative" in str(caught.value)
    assert caught.value.remedy


REFERENCES = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="ab/.?#&=%:@ \\[]0127eEfF~éü\t;+", max_size=30),
    st.builds(
        "http://{}/{}?{}#{}".format,
        st.sampled_from(["h", "H.é", "127.1", "[::1]:8"]),
        *[st.text(max_size=9)] * 3,
    ),
)


@settings(max_examples=500)
@given(REFERENCES)
@example("javascript:a #b")
@example("http://h/%%34%31")
@example("data: ?#")
def test_an_identity_is_its_own_identity(reference):
    url = normalize(reference, "http://h/a/b?c")
    if url is not None:
        once = canonical(url)
        assert canonical(once) == once
        assert canonical_all([url]) == [once]
        assert canonical_all([once]) == [once]


@settings(max_examples=500)
@given(REFERENCES)
def test_a_normalised_url_is_normal(reference):
    url = normalize(reference, "http://h/a/b?c")
    if url is not None:
        assert normalize(url) == url


@settings(max_examples=500)
@given(REFERENCES)
def test_joining_alone_and_in_a_batch_is_the_same(reference):
    assert join_all("http://h/a/b?c", [reference, "ok"]) == [
        normalize(reference, "http://h/a/b?c"),
        "http://h/a/ok",
    ]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=5), st.randoms())
def test_the_order_of_parameters_does_not_matter(parameters, random):
    written = [f"{quote(name)}={quote(value)}" for name, value in parameters]
    shuffled = random.sample(written, len(written))
    assert canonical("http://h/?" + "&".join(written)) == canonical("http://h/?" + "&".join(shuffled))


PLAIN_BASES = [
    "http://h.example:80/a/b",
    "http://h.example",
    "http://h.example?a/b",
    "http://h.example/a/..",
    "http://h.example/a/%2e%2E",
    "http://h.example/a/.\t.",
    "http://h.example/a/\t..",
    "http://h.example\\a\\b\\c",
    "http://h.example/a/../b/./c#/d/e",
    "HTTP://H.example/A/b/?c=/d/e",
    "http:h.example/a/b",
    "mailto:a/b",
    "a/b",
    "http://h.example",
    "https://h.example:8080/?a=/b",
    "http://u@h.example/a",
    "http://h.example/a/b/c/?d#e",
]
NEARLY_PLAIN = st.builds(
    str.__add__,
    st.sampled_from(
        ["", "", "http://h.example", "http://h.example/", "https://h.example:8080/", "http://h.example:80/"]
    ),
    st.text("abA0/.?#~_-%=&+:\\ \n;@|!$()*,'", max_size=12),
)


@settings(max_examples=500)
@given(NEARLY_PLAIN, st.sampled_from(PLAIN_BASES))
@example("", PLAIN_BASES[3])
@example("?a", PLAIN_BASES[3])
@example("../", PLAIN_BASES[2])
@example("../../a", PLAIN_BASES[3])
@example("a/..", PLAIN_BASES[3])
@example("a/%2e%2e/b", PLAIN_BASES[3])
@example("//a", PLAIN_BASES[1])
def test_links_that_are_joined_without_a_parser_are_what_the_parser_makes_of_them(reference, base):
    assert join_all(base, [reference, "x.html"]) == [normalize(reference, base), normalize("x.html", base)]


@settings(max_examples=500)
@given(NEARLY_PLAIN, st.sampled_from(PLAIN_BASES), st.integers(0, 70))
@example("/a\n/b", PLAIN_BASES[1], 3)
@example("/a?b=//c", PLAIN_BASES[1], 3)
@example("/a?b=c/.", PLAIN_BASES[1], 3)
@example("http://h.example//b", PLAIN_BASES[1], 3)
def test_plain_links_that_are_joined_together_are_what_the_parser_makes_of_them(reference, base, place):
    links = [f"/a/b-{number}.html?c=d&e" for number in range(35)]
    links += [f"http://h.example/a/{number}" for number in range(35)]
    links.insert(place, reference)
    assert join_all(base, links) == [normalize(link, base) for link in links]


@settings(max_examples=500)
@given(NEARLY_PLAIN.filter(bool), st.sampled_from([PLAIN_BASES[0], *PLAIN_BASES]))
@example("..//a", "http://h.example/b/c")
@example("//h.example/a", PLAIN_BASES[0])
@example("/\\a", PLAIN_BASES[0])
@example("///a", PLAIN_BASES[0])
@example("?a", "http://h.example/a/b?c")
@example("../a#b", PLAIN_BASES[0])
@example("%2e%2e/a", "http://h.example/b/%C3%A4")
def test_an_absolute_text_that_is_a_normalized_url_is_the_url_of_the_link(link, base):
    prefixes = url_base(base).prefixes
    if prefixes is not None and not link.startswith("#"):
        text = absolute_text(link, prefixes)
        assert normalize(text) != text or normalize(link, base) == text


def test_absolute_texts_of_common_spellings():
    links = ["/a?b", "../a", "http://h/a#c", "//h/a#c", "x.html", "?z", "x:y", "x/y:z", "./x y"]
    prefixes = url_base("http://h/d/e.html?f").prefixes
    assert [absolute_text(link, prefixes) for link in links] == [
        "http://h/a?b", "http://h/a", "http://h/a", "http://h/a", "http://h/d/x.html",
        "http://h/d/e.html?z", "x:y", "http://h/d/x/y:z", "http://h/d/./x y",
    ]  # fmt: skip
    assert url_base("http://h/d/%2E.").prefixes is None
    assert url_base("http://h/wiki/%C3%A4").prefixes is not None


def test_a_long_link_is_joined_in_linear_time():
    href = "/a" * 50_000 + "-" * 50_000 + "!"
    assert join_all("http://h.example/", [href]) == [f"http://h.example{href}"]


def test_an_absolute_link_without_a_fragment_is_not_copied():
    links = ["http://h/x/y.html", "http://h/", "http://h/x?y=1", "http://h/x#y", "http://other/x"]
    joined = join_all("http://h/a/b", links)
    assert joined == [link.partition("#")[0] for link in links]
    assert [one is other for one, other in zip(joined, links, strict=True)][:4] == [True, True, True, False]


@settings(max_examples=500)
@given(REFERENCES)
def test_the_two_parsers_agree_on_ascii(reference):
    """Outside ASCII, the parsers may use different versions of the Unicode tables."""
    if reference.isascii():
        base = "http://user@h.example:8080/a/b?c"
        assert UpaParser().join_all(base, [reference]) == AdaParser().join_all(base, [reference])


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://h/", "h"),
        ("http://h:8080/x//y", "h:8080"),
        ("https://user:p%40ss@h.example/@x", "h.example"),
        ("http://[::1]:81/", "[::1]:81"),
        ("foo://h?q/", "h"),
        ("mailto:a@b", ""),
        ("data:a/b/c", ""),
    ],
)
def test_host_of_a_normalised_url(url, host):
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("news.bbc.co.uk", "bbc.co.uk"),
        ("bbc.co.uk", "bbc.co.uk"),
        ("bbc.co.uk:8080", "bbc.co.uk"),
        ("co.uk", "co.uk"),
        ("a.b.someone.github.io", "someone.github.io"),
        ("www.xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("localhost:8000", "localhost"),
        ("127.0.0.1:8000", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:8000", "[::1]"),
        ("[::1]", "[::1]"),
        ("", ""),
    ],
)
def test_registered_domain(host, domain):
    assert registered_domain(host) == domain


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("Example.com:81", "Example.com:81"),
        ("*.m\u00fcnchen.test", "*.xn--mnchen-3ya.test"),
        ("M\u00dcNCHEN:81", "xn--mnchen-3ya:81"),
        ("m\u00fcn*.test", "m\u00fcn*.test"),
        ("\u200d.test", "\u200d.test"),
        ("", ""),
    ],
)
def test_a_domain_is_spelled_as_in_urls(domain, expected):
    assert ascii_domain(domain) == expected


def test_scheme_of():
    assert [scheme_of(url) for url in ("https://h/", "mailto:a@b:c")] == ["https", "mailto"]


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.test/x/y?z", "http://a.test"),
        ("https://a.test:8443", "https://a.test:8443"),
        ("http://u:p@a.test:81/x@y", "http://a.test:81"),
        ("http://a.test?x=/b", "http://a.test"),
        ("http://[::1]:8/", "http://[::1]:8"),
    ],
)
def test_the_origin_of_a_url(url, origin):
    assert origin_of(url) == origin
