"""Selectors: behaviour beyond the results of parsel."""

import sys

import parsel
import pytest

from skitter.errors import UsageError
from skitter.html.css import compile_css
from skitter.html.lexbor import LEXBOR
from skitter.html.query import Take
from skitter.html.selector import Selector, from_parsel, load_engine, parsel_backed_selector
from skitter.html.serial import like_lxml
from skitter.html.turbo import TURBO

on_both_engines = pytest.mark.parametrize("engine", [TURBO, LEXBOR], ids=["turbo", "lexbor"])


def test_without_turbohtml_the_other_engine_is_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "skitter.html.turbo")
    monkeypatch.setitem(sys.modules, "turbohtml", None)
    assert load_engine() is LEXBOR


@on_both_engines
def test_a_table_has_the_tbody_of_html5(engine):
    page = Selector("<table><tr><td>1</table>", engine=engine)
    assert page.css("table > tbody > tr > td::text").get() == "1"
    assert page.css("table > tr").get() is None


@on_both_engines
def test_where_the_trees_disagree_xpath_works_on_the_element_alone(engine):
    """libxml2 adds no tbody here, so the element cannot be found in its tree."""
    page = Selector("<table><tr><td>1</td><td>2</td></tr></table>", engine=engine)
    cells = page.css("tbody")[0].xpath(".//td/text()")
    assert cells.getall() == ["1", "2"]
    assert page.css("tbody")[0].xpath("name()").get() == "tbody"


@on_both_engines
def test_names_and_classes_keep_their_case_without_a_doctype(engine):
    page = Selector("<p class=Price id=A>1</p><p class=price id=a>2</p>", engine=engine)
    assert page.css(".price::text").getall() == ["2"]
    assert page.css("#A::text").getall() == ["1"]


@on_both_engines
@pytest.mark.parametrize(
    "text", ["", "   ", "\x00", "just text", "<", "</p>", "<!-- c", "<p>\ud800</p>", "<a href>x"]
)
def test_any_text_is_a_page(engine, text):
    page = Selector(text, engine=engine)
    assert len(page.css("html > body")) == 1
    assert page.css("nope").getall() == []


@on_both_engines
def test_an_attribute_without_a_value_is_empty_and_a_missing_one_is_not_there(engine):
    page = Selector("<a href>1</a><a href=''>2</a><a>3</a>", engine=engine)
    assert page.css("a::attr(href)").getall() == ["", ""]
    assert [link.attrib for link in page.css("a")] == [{"href": ""}, {"href": ""}, {}]


@on_both_engines
def test_scripts_and_noscript_and_svg_hold_what_a_reader_expects(engine):
    page = Selector(
        "<body><script>if (a<b) '<a href=no>'</script><noscript><a href=yes>n</a></noscript>"
        "<svg viewBox='0 0 1 1'><a href=svg>s</a></svg></body>",
        engine=engine,
    )
    assert page.css("script::text").get() == "if (a<b) '<a href=no>'"
    assert page.css("a::attr(href)").getall() == ["yes", "svg"]
    assert page.attribute_on_page("a", "href") == ["yes", "svg"]


def test_the_content_of_a_template_is_found():
    page = Selector("<template><p>a</p><template><p>b</p></template></template><p>c</p>")
    assert page.css("p::text").getall() == ["a", "b", "c"]


def test_nothing_is_lost_of_a_page_nested_too_deep():
    """Below 512 levels, elements become siblings, as in browsers."""
    page = Selector("<div>" * 5000 + "<a href=x>deep</a>")
    assert page.css("a::attr(href)").get() == "x"
    assert page.css("::text").getall() == ["deep"]


def test_defaults_and_older_names():
    page = Selector("<p>1</p><p>2</p>")
    assert page.css("p::text").get() == "1"
    assert page.css("b::text").get() is None
    assert page.css("b::text").get("none") == page.css("b").get(default="none") == "none"
    assert page.css("p::text").extract() == page.css("p").xpath("text()").extract() == ["1", "2"]
    assert page.css("p::text").extract_first() == "1"
    assert page.css("b").extract_first("none") == "none"
    assert page.css("b").attrib == {}
    assert page.css("p")[0].getall() == ["<p>1</p>"] == [page.css("p")[0].extract()]


def test_a_list_of_selectors_is_a_sequence():
    page = Selector("<p>1</p><p>2</p><p>3</p>")
    for found in (page.css("p"), page.css("p::text"), page.xpath("//p")):
        assert len(found) == 3
        assert bool(found)
        assert not found[3:]
        assert found[-1].get() == found.getall()[-1]
        assert [one.get() for one in found] == found.getall()
        assert found[::2].getall() == found.getall()[::2]
        assert (found + found[:1]).getall() == [*found.getall(), found[0].get()]
        with pytest.raises(IndexError):
            found[3]


def test_a_value_has_nothing_in_it_but_itself():
    value = Selector("<p class=c>1</p><p></p>").css("p::text")[0]
    assert value.xpath(".").getall() == ["1"]
    assert value.xpath("..").getall() == value.css("p").getall() == []
    assert bool(value)
    assert not Selector("<p class=''>").css("p::attr(class)")[0]
    with pytest.raises(UsageError, match="attributes") as caught:
        value.attrib  # noqa: B018 - the access is what raises
    assert caught.value.field == "query"


def test_xpath_takes_variables_and_namespaces():
    page = Selector("<a class='it''s'>1</a><a class=x>2</a>")
    assert page.xpath("//a[@class=$wanted]/text()", wanted="x").get() == "2"
    feed = parsel_backed_selector("<r xmlns='urn:a'><i>1</i></r>", "xml")
    assert feed.xpath("//n:i/text()", namespaces={"n": "urn:a"}).get() == "1"
    assert feed.xpath("//n:i", {"n": "urn:a"}).xpath("n:x", {"n": "urn:a"}).getall() == []


@pytest.mark.parametrize("query", ["a,,b", "a[", "", "p::nope", "p:nope", "a::attr(", ">", "a::attr(1)"])
def test_a_query_that_is_no_css_is_refused_with_a_remedy(query):
    for selector in (
        Selector("<p>x</p>"),
        Selector("<p>x</p>").css("p"),
        Selector("<p>x</p>").css("p::text")[0],
    ):
        with pytest.raises(UsageError) as caught:
            selector.css(query)
        assert repr(query) in str(caught.value)
        assert caught.value.remedy


@pytest.mark.parametrize("query", ["//a[", "//p[nope()]", "$x"])
def test_a_query_that_is_no_xpath_is_refused_with_a_remedy(query):
    with pytest.raises(UsageError) as caught:
        Selector("<p>x</p>").xpath(query)
    assert query in str(caught.value)
    assert caught.value.remedy


def test_json_is_selected_by_jmespath_and_by_nothing_else():
    data = parsel_backed_selector('{"items": [{"n": 1}, {"n": 2}]}', "json")
    assert data.jmespath("items[*].n").getall() == [1, 2]
    assert data.jmespath("items").jmespath("n").get() == 1
    with pytest.raises(UsageError):
        data.css("p")
    with pytest.raises(UsageError):
        data.xpath("//p")
    script = Selector('<script>{"a": {"b": "c"}}</script>')
    assert script.css("script::text").jmespath("a.b").get() == "c"


@on_both_engines
def test_where_an_element_or_a_value_leads(engine):
    page = Selector("<a href=1>x</a><img src=2><a>none</a><iframe src=3></iframe>", engine=engine)
    assert page.css("a, img, iframe").links() == ["1", "2", "3"]
    assert page.xpath("//a | //img").links() == ["1", "2"]
    assert page.xpath("//a/@href").links() == page.css("a::attr(href)").links() == ["1"]
    assert page.css("a")[1].link is None
    assert from_parsel(parsel.Selector(text="<img src=s>").css("img")[0]).link == "s"


def test_only_what_the_engine_cannot_say_is_left_to_parsel():
    """A query that silently runs on lxml would cost a second parse of every page."""
    for query in (
        "p",
        "a.b > c",
        "a + b::text",
        "a[x=y]::attr(z)",
        "li:nth-child(2n+1)",
        "a, b",
        "div *::text",
    ):
        assert compile_css(query).native, query
    for query in (
        "p:contains(x)",
        "p:has(a)",
        "svg|a",
        "a[x!=y]",
        "a::text, b",
        "* > *::text",
        "div *::attr(x)",
    ):
        assert not compile_css(query).native, query
    assert compile_css("div *::text").take is compile_css("::text").take is Take.DEEP_TEXT


def test_no_second_tree_is_built_for_plain_css(monkeypatch):
    monkeypatch.setattr(parsel, "Selector", None)
    page = Selector("<div><p class=a>1<b>2</b></p></div>")
    assert page.css("div").css("p.a ::text").getall() == ["1", "2"]
    assert page.css("div")[0].css("p > b").attrib == {}


@pytest.mark.parametrize(
    ("ours", "lxmls"),
    [
        ('<input checked="" value="">', '<input checked value="">'),
        ('<input checked="checked">', "<input checked>"),
        ('<script async="" src="a b"></script>', '<script async src="a%20b"></script>'),
        ('<p data-x="{&quot;a&quot;}">', "<p data-x='{\"a\"}'>"),
        ('<p title="it\'s &quot;x&quot;">', '<p title="it\'s &quot;x&quot;">'),
        ('<a name="ä" title="ä">', '<a name="%C3%A4" title="ä">'),
        ('<input name="ä" checked="">', '<input name="ä" checked>'),
        ('<!-- <a checked=""> --><b checked="">', '<!-- <a checked=""> --><b checked>'),
        ('<script>"<a checked="">"</script><b checked="">', '<script>"<a checked="">"</script><b checked>'),
        ('<p>a checked="" b</p>', '<p>a checked="" b</p>'),
    ],
)
def test_outer_html_is_spelled_as_lxml_does(ours, lxmls):
    assert like_lxml(ours) == lxmls


def test_a_selector_shows_itself():
    page = Selector("<p>" + "long " * 50 + "</p>")
    assert repr(page.css("p")[0]).startswith("<Selector '<p>long")
    assert len(repr(page.css("p")[0])) < 70
    assert str(page.css("p::text")[0]).startswith("long")
    assert repr(page.css("b")) == "[]"
