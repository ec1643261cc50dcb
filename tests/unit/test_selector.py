"""Selectors: behaviour that goes beyond parsel."""

import sys

import parsel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skitter.errors import QueryError, UsageError
from skitter.html.lexbor import LEXBOR
from skitter.html.query import Take, through_tbody
from skitter.html.selector import Selector, compile_css, from_parsel, load_engine, parsel_backed_selector
from skitter.html.serial import like_lxml
from skitter.html.turbo import TURBO

on_both_engines = pytest.mark.parametrize("engine", [TURBO, LEXBOR], ids=["turbo", "lexbor"])


def test_without_turbohtml_the_other_engine_is_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "skitter.html.turbo")
    monkeypatch.setitem(sys.modules, "turbohtml", None)
    monkeypatch.setitem(sys.modules, "turbohtml._html", None)
    assert load_engine() is LEXBOR


@on_both_engines
@pytest.mark.parametrize(
    ("css", "xpath"),
    [
        ("table > tbody > tr > td::text", "//table/tbody/tr/td/text()"),
        ("table > tr > td::text", "//table/tr/td/text()"),
        ("table.t > tr:first-child > td::text", "//table[@class='t' and @id][.//tr]/tr[1]/td/text()"),
        ("table > *::text, table > tr td::text", "//table/child::tr/td/text()"),
        (
            "table[class] > tr:has(b) td::text",
            "descendant::table[@x or (@id = 'a]/tr') or .//tr[td[1]]]/tr/td/text()",
        ),
        (
            "table > tr td:contains('1')::text",
            "//table[contains(., '/tr')]/tr/td/text() | //table/tr/td/text()",
        ),
    ],
)
def test_rows_are_children_of_a_table_with_and_without_its_tbody(engine, css, xpath):
    page = Selector("<table class=t id=a><tr><td>1<b></b></table>", engine=engine)
    assert page.css(css).getall() == page.xpath(xpath).getall() == ["1"]


@on_both_engines
def test_rows_are_children_of_a_table_that_a_query_starts_from(engine):
    table = Selector("<table><thead><tr><th>h</thead><tr><td>1<tr><td>2</table>", engine=engine).css("table")[
        0
    ]
    for query in (
        "tr/td/text()",
        "./tr/td/text()",
        "child::tr/td/text()",
        "tr[td]/td/text()",
        "tbody/tr/td/text()",
    ):
        assert table.xpath(query).getall() == ["1", "2"], query
    assert table.xpath("tr[2]/td/text()").getall() == ["2"]
    assert table.xpath("translate('abc', 'a', 'b')").get() == "bbc"


@pytest.mark.parametrize(
    "query", ["//a[@href='/table/tr']", "//my-table/tr", "//x:table/tr", "//@table/tr", "//table/track"]
)
def test_no_other_step_leads_through_a_tbody(query):
    assert through_tbody(query, "div") == query


PIECES = st.one_of(
    st.sampled_from(
        [
            "div",
            "p",
            "a",
            "b",
            "i",
            "span",
            "ul",
            "li",
            "table",
            "tr",
            "td",
            "tbody",
            "h1",
            "section",
            "form",
            "svg",
            "math",
            "title",
            "br",
        ]
    ).flatmap(
        lambda tag: st.tuples(
            st.sampled_from([f"<{tag}", f"<{tag}", f"</{tag}"]),
            st.sampled_from(
                ["", " id=1", " class='x y'", ' href="/\u00e4 b"', " checked", ' a"b=1', " @c=2", " x:y=3"]
            ),
            st.sampled_from([">", ">", "/>", ""]),
        ).map("".join)
    ),
    st.sampled_from(
        [
            "text",
            " ",
            "\n",
            "<!-- c -->",
            "<!--a--b-->",
            "<?pi?>",
            "&nbsp;",
            "\x01",
            "<o:p>",
            "<![CDATA[x]]>",
            "</p>",
            "</br>",
        ]
    ),
)


@on_both_engines
@given(st.lists(PIECES, max_size=30).map("".join))
@settings(max_examples=150, deadline=None)
def test_xpath_on_an_element_found_by_css_is_about_that_element(engine, text):
    """Compares its name, its attributes, its content and its position among all elements of the page."""
    page = Selector(text, engine=engine)
    elements = page.css("*")
    assert page.xpath("count(//*)").get() == f"{len(elements)}.0"
    for place, element in enumerate(elements):
        (same,) = element.xpath(".")
        assert (same.tag, same.attrib, same.get()) == (element.tag, element.attrib, element.get())
        assert element.xpath("count(preceding::*) + count(ancestor::*)").get() == f"{place}.0"
        assert element.xpath("@href").get() == element.attrib.get("href")
        text_inside = "".join(element.css("::text").getall())
        if engine is LEXBOR:
            text_inside = text_inside.replace("\x01", "\ufffd")  # XML has no such character
        assert "".join(element.xpath(".//text()").getall()) == text_inside
        assert element.root.attrib.get("href") == element.attrib.get("href")
        assert len(element.root.xpath("preceding::* | ancestor::*")) == place


@on_both_engines
def test_values_are_those_of_the_page_wherever_the_query_starts(engine):
    page = Selector('<p>1<div>2</div></p><p><a href="/\u00e4 b" checked>x</a></p>', engine=engine)
    last = page.css("p")[-1]
    assert last.xpath("a/@href").get() == last.css("a").attrib["href"] == "/\u00e4 b"
    assert last.xpath("a/@checked").get() == last.css("a::attr(checked)").get() == ""
    assert last.xpath("preceding-sibling::div/text()").get() == "2"
    assert last.xpath("..").css("div::text").get() == "2"


@on_both_engines
def test_pseudo_classes_are_those_of_browsers(engine):
    page = Selector(
        "<p> </p><p></p><p><!--c--></p><ul><li>1<a class=x><b>q</b></a><li>2<li>3<b></b></ul>", engine=engine
    )
    assert page.xpath("count(//p)").get() == "3.0"
    assert [p.get() for p in page.css("p:empty")] == ["<p></p>", "<p><!--c--></p>"]
    for query, found in {
        "li:has(a)": ["1"],
        "li:has(> b)": ["3"],
        "li:has(a, b)": ["1", "3"],
        "li:has(> a.x b)": ["1"],
        "li:has(+ li)": ["1", "2"],
        "li:not(:has(a))": ["2", "3"],
        "li:is(:has(a), :last-child)": ["1", "3"],
        "html:nth-child(1) li:first-child": ["1"],
        "html:nth-child(2) li": [],
    }.items():
        assert page.css(query).xpath("text()").getall() == found, query
        assert (
            page.css("ul").css(query.removeprefix("html:nth-child(1) ")).xpath("text()").getall() == found
        ), query


@on_both_engines
def test_a_selector_group_has_each_element_once_and_in_the_order_of_the_page(engine):
    page = Selector("<div><i class=a>1</i><b>2</b><i>3</i></div>", engine=engine)
    assert page.css("i, .a").css("::text").getall() == ["1", "3"]
    assert (
        page.css("b, i").css("::text").getall()
        == page.css("div").css("b, i, .a").css("::text").getall()
        == ["1", "2", "3"]
    )


@on_both_engines
def test_results_of_xpath_are_of_all_kinds(engine):
    page = Selector("<p class='a b'>1<!--c-->2</p>", engine=engine)
    kinds = page.xpath("//p/node()")
    assert kinds.getall() == ["1", "<!--c-->", "2"]
    comment = kinds[1]
    assert (comment.tag, comment.attrib, comment.link, comment.css("p").getall()) == ("", {}, None, [])
    if engine is TURBO:  # lxml evaluates no XPath on a comment
        assert comment.xpath("..").css("p::text").getall() == ["1", "2"]
    assert page.xpath("count(//p)")[0].root == 1.0
    assert page.xpath("true()").get() == "1"
    assert page.xpath("string(//p)").get() == "12"
    assert page.xpath("//p[has-class('b', 'a')]").css("p").attrib == {"class": "a b"}
    assert page.xpath("//p[has-class('c')]").getall() == []
    assert page.xpath("//p[re:test(., '(?<=1)2')]").get() is not None
    assert page.xpath("re:replace('abc', 'b', 'g', 'x')").get() == "axc"
    assert page.xpath("re:match('a1b2', '[0-9]', 'g')").getall() == [
        "<match>1</match>",
        "<match>2</match>",
    ]  # new elements
    assert page.xpath("//n:p", {"n": "urn:x"}).getall() == []


@on_both_engines
def test_dropped_elements_are_gone_for_all_queries(engine):
    page = Selector("<div>a<p>1<b>x</b></p>b<p>2</p></div>", engine=engine)
    first = page.css("p")[0]
    assert len(page.root.xpath("//p")) == 2
    first.drop()
    assert first.root.tag == "p"  # a dropped element stays usable
    assert "".join(page.css("div ::text").getall()) == "".join(page.xpath("//div//text()").getall()) == "ab2"
    assert [p.text for p in page.root.xpath("//p")] == ["2"]
    assert first.css("b::text").getall() == first.xpath("b/text()").getall() == ["x"]
    page.css("p").drop()
    assert page.css("p").getall() == []
    for undroppable in (page, page.css("div::text")[0]):
        with pytest.raises(UsageError):
            undroppable.drop()


@on_both_engines
def test_root_and_type_are_those_of_parsel(engine):
    page = Selector("<form action=x><input name=a></form>", engine=engine, base_url="http://h/d/")
    form = page.css("form")[0]
    assert form.root.tag == "form"
    assert form.root.base_url == "http://h/d/"
    assert page.css("form").xpath("input/@name")[0].root == "a"
    assert (page.type, page.css("input::attr(name)")[0].type) == ("html", "text")
    assert parsel_backed_selector("<a/>", "xml").root.tag == "a"
    assert parsel_backed_selector('{"a": 1}', "json").root == {"a": 1}


SITEMAP = "<urlset xmlns='urn:s' xmlns:i='urn:i'><url><loc>1</loc><i:image i:k='v'>2</i:image></url></urlset>"


def test_css_on_xml_finds_names_in_any_namespace():
    page = parsel_backed_selector(SITEMAP, "xml")
    assert page.css("loc::text").getall() == page.css("url > loc::text").getall() == ["1"]
    assert page.css("url image::text").getall() == ["2"]
    assert page.css("url")[0].css("loc::text").getall() == ["1"]
    page.remove_namespaces()
    assert page.xpath("//loc/text()").getall() == ["1"]
    assert page.xpath("//image/@k").get() == "v"
    assert page.css("loc:first-of-type::text").getall() == ["1"]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("//loc/text()", "<loc>"),
        ("/urlset/url[loc='1' and loc=\"none\"]/loc", "<urlset>"),
        ("//url[@k = 'loc']", "<url>"),
        ("//nothing", ""),
        ("//@loc", ""),
        ("//s:loc[. = 'loc']", ""),
        ("//*[local-name() = 'none']", ""),
        ("//plain/none", ""),
    ],
)
def test_a_query_that_misses_a_namespace_is_warned_of_once(query, named, caplog, monkeypatch):
    monkeypatch.setattr("skitter.html.query._checked", set())
    for _ in range(3):
        page = parsel_backed_selector(SITEMAP.replace("<loc>", "<plain xmlns=''/><loc>"), "xml")
        page.register_namespace("s", "urn:s")
        assert page.xpath(query).getall() == []
    assert len(caplog.records) == bool(named)
    assert named in caplog.text


def test_xpath_on_xml_takes_registered_namespaces():
    page = parsel_backed_selector(SITEMAP, "xml")
    page.register_namespace("s", "urn:s")
    assert page.xpath("//s:loc/text()").get() == "1"
    page.css("image").drop()
    assert page.css("image").getall() == []
    with pytest.raises(UsageError):
        page.drop()


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
def test_scripts_noscript_and_svg_contain_their_text(engine):
    page = Selector(
        "<body><script>if (a<b) '<a href=no>'</script><noscript><a href=yes>n</a></noscript>"
        "<svg viewBox='0 0 1 1'><a href=svg>s</a></svg></body>",
        engine=engine,
    )
    assert page.css("script::text").get() == "if (a<b) '<a href=no>'"
    assert page.css("a::attr(href)").getall() == ["yes", "svg"]
    assert page.attribute_on_page("a", "href") == ["yes", "svg"]
    assert page.is_on_page("svg")
    assert not page.is_on_page("base")


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


def test_a_value_has_no_descendants():
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
def test_an_invalid_css_query_is_rejected_with_a_remedy(query):
    for selector in (
        Selector("<p>x</p>"),
        Selector("<p>x</p>").css("p"),
        Selector("<p>x</p>").css("p::text")[0],
    ):
        with pytest.raises(QueryError) as caught:
            selector.css(query)
        assert isinstance(caught.value, ValueError)
        assert repr(query) in str(caught.value)
        assert caught.value.remedy


@pytest.mark.parametrize("query", ["//a[", "//p[nope()]", "$x"])
def test_an_invalid_xpath_query_is_rejected_with_a_remedy(query):
    with pytest.raises(QueryError) as caught:
        Selector("<p>x</p>").xpath(query)
    assert query in str(caught.value)
    assert caught.value.remedy


def test_json_is_selected_by_jmespath_and_by_nothing_else():
    data = parsel_backed_selector('{"items": [{"n": 1}, {"n": 2}]}', "json")
    assert data.jmespath("items[*].n").getall() == [1, 2]
    assert data.jmespath("items").jmespath("n").get() == 1
    with pytest.raises(QueryError):
        data.css("p")
    with pytest.raises(QueryError):
        data.xpath("//p")
    with pytest.raises(QueryError):
        data.jmespath("a[")
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


@pytest.mark.parametrize("kind", ["turbo", "lexbor", "xml"])
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("//b[ends-with(., 'one')]/@id", ["1"]),
        ("//b[matches(., '^t.o$')]/@id", ["2"]),
        ("//b[matches(@id, '[13]')]/@id", ["1"]),
        ("matches('ABC', 'b', 'i')", ["1"]),
        ("lower-case(//b)", ["the one"]),
        ("upper-case(//b[2])", ["TWO"]),
        ("replace(//b, '(o)(n)', '$2$1\\')", ["The no\\e"]),
        ("replace('aXbx', 'x', '-', 'i')", ["a-b-"]),
        ("string-join(//b/@id, ', ')", ["1, 2"]),
        ("string-join(//b)", ["The onetwo"]),
        ("string-join('a', '-')", ["a"]),
    ],
)
def test_string_functions_of_xpath_2_work_on_html_and_xml(kind, query, found):
    text = "<p><b id='1'>The one</b><b id='2'>two</b></p>"
    engine = {"turbo": TURBO, "lexbor": LEXBOR}.get(kind)
    page = parsel_backed_selector(text, "xml") if engine is None else Selector(text, engine=engine)
    assert page.xpath(query).getall() == found


@pytest.mark.parametrize("query", ["matches('a', '(')", "matches('a', 'a', 'q')", "ends-with('a')"])
def test_an_invalid_call_of_such_a_function_is_an_error_of_the_query(query):
    with pytest.raises(QueryError):
        parsel_backed_selector("<a/>", "xml").xpath(query)


@on_both_engines
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("main p", ["<p>1</p>"]),
        ("main > div > p", ["<p>1</p>"]),
        ("p + b", ["<b>2</b>"]),
        ("h1 ~ div b", ["<b>2</b>"]),
        ("main p:contains('1'), div b", ["<p>1</p>", "<b>2</b>"]),
        ("main b::text", []),
        ("div b::text", ["2"]),
        ("> b", ["<b>2</b>"]),
        ("div", []),
        ("div div:has(p), nav p", []),
    ],
)
def test_descendants_match_by_their_place_on_the_whole_page(engine, query, found):
    page = Selector("<main><h1>0</h1><div><p>1</p><b>2</b></div><p>3</p></main>", engine=engine)
    assert page.css("div")[0].descendants(query).getall() == found


@on_both_engines
def test_descendants_and_matches_notice_that_an_element_was_dropped(engine):
    page = Selector("<div><i>x</i><p>a</p></div><div><p>b</p></div>", engine=engine)
    first, second = page.css("div")
    with_i = "div:has(i) p:contains('a')"
    assert (first.descendants(with_i).getall(), second.descendants(with_i).getall()) == (["<p>a</p>"], [])
    assert (first.matches("div:has(i):contains('a')"), second.matches("div:has(i):contains('a')")) == (
        True,
        False,
    )
    page.css("i").drop()
    assert first.descendants(with_i).getall() == []
    assert not first.matches("div:has(i):contains('a')")


def test_descendants_of_xml_and_of_a_value_match_by_their_place_in_it():
    element = parsel_backed_selector("<a><b><c>1</c></b></a>", "xml").css("b")[0]
    assert [element.descendants(query).getall() for query in ("c", "b c", "b")] == [
        ["<c>1</c>"],
        ["<c>1</c>"],
        [],
    ]
    assert Selector("<p id=x>1").css("p::attr(id)")[0].descendants("> p").getall() == []


def test_the_root_of_a_page_is_the_same_as_its_element_and_no_value_is():
    page, other = Selector("<p id=a>x</p>"), Selector("<p id=a>x</p>")
    (root,), (element,), (value,) = page.css("html"), page.css("p"), page.css("p::attr(id)")
    assert page.is_same(root)
    assert root.is_same(page)
    assert element.is_same(page.xpath("//p")[0])
    for different in (page, value, other.css("p")[0], page.css("body")[0]):
        assert not element.is_same(different)
