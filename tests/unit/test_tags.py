"""Tags of unparsed pages: tags that prove a tree to be small, and tags with a name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter import response
from skitter.html import limits, selector
from skitter.html.limits import proven_size
from skitter.html.selector import Selector
from skitter.html.turbo import TURBO

pytestmark = pytest.mark.skipif(
    limits.tree_bound is None, reason="the bound was not compiled: install a C compiler, then skitter again"
)
ELEMENT, TEXT, ATTRIBUTE = 101, 81, 26
"""Measured bytes of a node."""
FORMATTING = ("a", "b", "i", "font", "nobr", "tt")
BLOCKS = ("p", "div", "li", "ul", "h1", "span", "br", "img", "section")
OTHERS = ("table", "td", "tr", "caption", "select", "option", "template", "svg", "math", "script", "title", "body", "object", "colgroup", "x-y")  # fmt: skip
MARKS = ("<!-- ", "-->", "<!-- c -->", "<!x>", "<?y>", "</>", "<![CDATA[", "]]>", " ", "text", "&amp;", "< ")


@st.composite
def tags(draw, names):
    name = draw(st.sampled_from(names))
    if draw(st.booleans()):
        return f"</{name}>"
    attributes = draw(st.sampled_from(["", "", " a=1", " b", " a=2 b=3 c=4", " a='1'b='2'"]))
    return f"<{name}{attributes}>"


@st.composite
def pages(draw):
    """Generate pages that repeat two short sequences of tags, which makes trees grow. Each tag may have an attribute."""
    names = draw(
        st.lists(
            st.sampled_from(FORMATTING + FORMATTING + BLOCKS + OTHERS), min_size=1, max_size=6, unique=True
        )
    )
    part = st.lists(st.one_of(tags(names), tags(names), st.sampled_from(MARKS)), min_size=1, max_size=9)
    first, second = draw(part), draw(part)
    times = draw(st.integers(1, 60))
    pieces = draw(st.sampled_from([(first + second) * times, first * times + second * times]))
    if draw(st.booleans()):
        pieces = [
            f"{piece[:-1]} n{number}>" if piece[0] == "<" and piece[1].isalpha() else piece
            for number, piece in enumerate(pieces)
        ]
    return "<!DOCTYPE html>" + "".join(pieces)


@given(pages())
def test_no_tree_takes_more_than_its_bound(page):
    bound = limits.tree_bound(page, 2**40)
    if bound >= 0:
        document = TURBO.parse(page)
        elements = TURBO.select(document, "*")
        attributes = sum(len(TURBO.attributes(element)) for element in elements)
        used = len(elements) * ELEMENT + len(TURBO.deep_texts(document)) * TEXT + attributes * ATTRIBUTE
        assert used <= bound + 3 * ELEMENT  # html, head and body


@pytest.mark.parametrize(
    "tag",
    [
        "<p title='>'>", '<p title="<">', '<p a="b"=>', "<p a=\"b\"'>", "<p a=b'c>", "<p a =b>", "<p 'a>", "<p/a>", "<p a=>", "<p/ >", "<p",
        "</p a>", "</p/a>", "<p\x0ba>", "<p" + " a" * 33 + ">", "<body a b c d e f g h i j k l m n o p q>" * 4, "\0",
    ],
)  # fmt: skip
def test_a_tag_that_may_hide_another_proves_nothing(tag):
    assert proven_size("<p>word" * 10) is not None
    assert proven_size("<p>word" * 10 + tag) is None


@pytest.mark.parametrize(
    ("page", "is_small"),
    [
        ("<a href='/page.html'>next</a><p class=x>text</p>\n" * 20_000, True),
        ("<ul>" + "<li><a href=/x><img src=y><b>name</b> <i>text</i></a></li>" * 4_000 + "</ul>", True),
        ("<tr><td>漢字</td><!-- comment --><td>é</td></tr>" * 8_000, True),
        ("<P CLASS=x>text</P>" * 20_000, True),
        ("""<p a="b"c='d'e>text</p><br a=""/>""" * 10_000, True),
        ("<b><p>text</p>" * 10_000, False),  # opened again in each paragraph
        ("<b><p></b>" * 10, True),
        ("<b><table></b></table><p>x</p>" * 3_000, False),  # the table keeps the end tag from its element
        ("<b><!--</b>--><p>x</p>" * 3_000, False),  # as does a comment
        ("<b><script></b></script><p>x</p>" * 3_000, False),
        ("<b>" + "<p></p>" * 8 + "</b>" + "<p>x</p>" * 5_000, True),
        (("<b>" + "<p></p>" * 8 + "</b>") * 3_000, False),  # too far from its end tag
        ("<div>" * 40_000, False),  # deep
        ("<div><!--</div>-->" * 20_000, False),
        ("<div></div>" * 40_000, True),
        ("<p>" + "x" * 1_300_000, False),  # long
    ],
)
def test_pages_with_many_tags_are_recognised(page, is_small):
    assert (proven_size(page) is not None) == is_small


def test_a_small_page_is_parsed_in_one_step_with_the_same_tree(monkeypatch):
    text = "<title>t</title>" + "<p>Grüße<a href=y>z</a></p>" * 12_000
    at_once = Selector(text, engine=TURBO)
    assert at_once.memory > len(text)
    monkeypatch.setattr(selector, "proven_size", lambda _: None)
    assert Selector(text, engine=TURBO).get() == at_once.get()


def test_a_page_is_measured_if_it_may_take_less_than_its_bound(monkeypatch):
    text = "<p>word" * 10_000
    parsed = []
    monkeypatch.setattr(selector, "_parse_metered", lambda *page: parsed.append(page) or (TURBO.parse(""), 1))
    Selector(text, engine=TURBO, max_memory=1_000_000)
    assert len(parsed) == 1


def test_a_page_with_a_lone_surrogate_is_parsed():
    text = "<p>word</p>" * 10_000 + "\ud800"
    assert proven_size(text) is not None
    assert len(Selector(text, engine=TURBO).css("p")) == 10_000


@pytest.mark.parametrize("encoding", ["utf-8", "gbk"])
@pytest.mark.parametrize(
    ("page", "base"),
    [
        ("<p>漢字</p><base href=/f/>", "/f/"),
        ("<<BaSe href=/f/>", "/f/"),
        ("<p>base</p><bas href=/f/>", "/"),
        ("<bas", "/"),
        ("", "/"),
    ],
)
def test_a_page_without_base_needs_no_tree_to_join_links(page, base, encoding):
    headers = {"Content-Type": f"text/html; charset={encoding}"}
    answer = response.Response("http://a.test/", headers=headers, body=page.encode(encoding))
    assert answer.follow("x").url == f"http://a.test{base}x"
    assert (answer._selector is None) == (base == "/")


@given(st.lists(st.sampled_from(["<", "b", "B", "a", "A", "s", "S", "e", "E", "<base", "é"])))
def test_a_tag_is_found_as_by_a_regular_expression(pieces):
    page = "".join(pieces)
    assert response.has_tag(page, "base") == (re.search("<base", page, re.IGNORECASE) is not None)
