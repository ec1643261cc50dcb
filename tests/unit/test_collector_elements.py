"""Elements, models that are filled from them, and methods of responses."""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import pydantic
import pytest

from crawl_harness import Scripted
from skitter import Collector, Request, Response
from skitter.errors import QueryError, UsageError
from skitter.frontends.collector import (
    CollectorRequest,
    CollectorResponse,
    Css,
    Element,
    UnmarshalError,
    XmlElement,
    XPath,
)
from skitter.html.query import in_any_namespace
from skitter.testing import Answer

BOOK = b"""<html><body><div class="book" data-id=" 7 "><h3><a href="/7" title="A title">A t...</a></h3>
<p class="price"> 12.50 EUR </p><span class="tag"> a </span><span class="tag">b</span>
<div class="author"><b>Ann</b><i>1970</i></div><div class="author"><b>Bob</b></div>
<em></em></div></body></html>"""


def response_of(body, url="http://h/list", **options):
    response = Response(url, body=body, request=Request(url), **options)
    return CollectorResponse(CollectorRequest(Collector(), response.request, None, response), response)


@pytest.fixture
def book():
    response = response_of(BOOK)
    return Element(response, response.css(".book")[0], 0)


@pytest.fixture
def xml_book():
    response = response_of(BOOK)
    return XmlElement(response, response.xpath("//div[@class='book']")[0], 0)


def test_an_element_has_its_name_text_and_attributes(book):
    assert (book.name, book.attr("data-id"), book.attr("none")) == ("div", " 7 ", "")
    assert book.text.split() == ["A", "t...", "12.50", "EUR", "a", "b", "Ann1970", "Bob"]
    assert repr(book) == "<Element div of http://h/list>"


def test_children_by_css(book):
    assert book.child_text(".tag") == "a b"
    assert (book.child_texts(".tag"), book.child_texts(".none")) == (["a", "b"], [])
    assert (book.child_attr("a", "title"), book.child_attr("a", "x"), book.child_attr(".none", "x")) == (
        "A title",
        "",
        "",
    )
    assert book.child_attrs("span", "class") == ["tag", "tag"]
    assert book.child_text("em") == ""


def test_children_by_xpath(xml_book):
    assert (xml_book.child_text(".//span"), xml_book.child_text("//none")) == (
        "a",
        "",
    )  # the first one, as in Colly
    assert xml_book.child_texts(".//span/text()") == ["a", "b"]
    assert xml_book.child_attr("h3/a", "title") == "A title"
    assert xml_book.child_attrs(".//span", "class") == ["tag", "tag"]


def test_for_each_goes_through_all_and_with_break_as_long_as_it_is_true(book):
    texts, some = [], []
    book.for_each(".author b", lambda element: texts.append((element.index, element.text)))
    book.for_each_with_break("b, i", lambda element: some.append(element.text) or element.text == "Ann")
    assert texts == [(0, "Ann"), (1, "Bob")]
    assert some == ["Ann", "1970"]


@dataclass
class Author:
    name: Annotated[str, Css("b")]
    born: Annotated[int | None, Css("i")]


@dataclass
class Book:
    title: Annotated[str, Css("h3 a", attr="title")]
    id: Annotated[int, Css(attr="data-id")]
    price: Annotated[float, Css(".price", regex=r"[\d.]+")]
    tags: Annotated[list[str], XPath(".//span")]
    authors: Annotated[list[Author], Css(".author")]
    first: Annotated[Author, Css(".author")]
    missing: Annotated[list[str], Css(".none")]
    series: Annotated[str, Css(".none")] = "no series"
    seen: list[str] = field(default_factory=list)


def test_a_dataclass_is_filled_with_types_lists_and_nested_models(book):
    assert book.unmarshal(Book) == Book(
        title="A title",
        id=7,
        price=12.5,
        tags=["a", "b"],
        authors=[Author("Ann", 1970), Author("Bob", None)],
        first=Author("Ann", 1970),
        missing=[],
    )


class PydanticBook(pydantic.BaseModel):
    title: Annotated[str, Css("h3 a", attr="title"), pydantic.Field(max_length=10)]
    price: Annotated[float, Css(".price", regex=r"([\d.]+) EUR")]
    author: Annotated[Author, Css(".author")]


class StructBook(msgspec.Struct):
    title: Annotated[str, Css("h3 a")]
    price: Annotated[float, Css(".price", regex=r"[\d.]+")]


def test_pydantic_and_msgspec_models_are_filled_and_check_their_values(book):
    filled = book.unmarshal(PydanticBook)
    assert (filled.title, filled.price, filled.author) == ("A title", 12.5, Author("Ann", 1970))
    assert book.unmarshal(StructBook) == StructBook("A t...", 12.5)
    with pytest.raises(UnmarshalError, match=r"PydanticBook.*title"):
        book.unmarshal(PydanticBook, {"title": ".price, .tag, h3 a, .author"} | {"title": XPath("string(.)")})


def test_queries_of_the_call_replace_those_of_the_model(book):
    @dataclass
    class Plain:
        name: str
        tags: list[str]

    assert book.unmarshal(Plain, {"name": "b", "tags": XPath(".//span")}) == Plain("Ann", ["a", "b"])
    assert book.unmarshal(Author, {"name": Css("h3 a")}).name == "A t..."


def test_a_field_that_is_missing_or_of_another_type_is_named(book):
    with pytest.raises(UnmarshalError, match=r"Author.*name"):
        book.unmarshal(Author, {"name": ".none"})
    with pytest.raises(UnmarshalError, match=r"born|int"):
        book.unmarshal(Author, {"born": "b"})
    with pytest.raises(UsageError, match="'nome'"):
        book.unmarshal(Author, {"nome": "b"})
    with pytest.raises(UsageError, match="not a model"):
        book.unmarshal(dict)


def test_a_model_without_queries_is_made_of_its_parts_around_the_same_element(book):
    @dataclass
    class Price:
        amount: Annotated[float, Css(".price", regex=r"[\d.]+")]

    offer = msgspec.defstruct("Offer", [("price", Price), ("tag", Annotated[str, Css(".tag")])])
    assert book.unmarshal(offer) == offer(Price(12.5), "a")


@pytest.mark.parametrize(
    ("url", "headers", "name"),
    [
        ("http://h/a/b.pdf?x=1", {}, "b.pdf"),
        ("http://h/", {"content-type": "text/html"}, "index.html"),
        ("http://h/", {"content-type": "image/png"}, "index"),
        ("http://h/x", {"content-disposition": 'attachment; filename="r 1.csv"'}, "r 1.csv"),
        ("http://h/x", {"content-disposition": "attachment; filename*=UTF-8''%c3%bc.csv"}, "ü.csv"),
        ("http://h/x", {"content-disposition": 'attachment; filename="../../etc/passwd"'}, "passwd"),
        ("http://h/x", {"content-disposition": 'attachment; filename="c:\\\\win\\\\x.dll"'}, "x.dll"),
        ("http://h/%2e%2e%2fsecret", {}, "secret"),
        ("http://h/..%5c..", {"content-type": "text/html"}, "index.html"),
        ("http://h/" + "a" * 300 + ".txt", {}, "a" * 196 + ".txt"),
    ],
)
def test_the_file_name_is_the_servers_without_its_folders(url, headers, name):
    assert response_of(b"", url, headers=headers).file_name == name


async def test_save_writes_the_body_whole(tmp_path):
    await response_of(BOOK).save(tmp_path / "a.html")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert (tmp_path / "a.html").read_bytes() == BOOK


def test_a_response_offers_what_that_of_the_engine_has():
    response = response_of(b'{"a": 1}', headers={"Content-Type": "application/json", "X-A": "b"}, latency=0.5)
    assert (response.status, response.json(), response.headers["x-a"]) == (200, {"a": 1}, "b")
    assert (response.text, response.latency, response.ctx) == ('{"a": 1}', 0.5, {})


PAGE = b"""<ul id="list"><li class="first">a</li>text<li>b</li><!-- no element --><li class="x">c <b>d</b></li><p>e</p></ul>"""


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_a_page_is_walked_from_an_element(kind):
    if kind == "html":
        response = response_of(b"<html><body>" + PAGE)
        element = Element(response, response.css("li")[1], 0)
        li, x, b, ul = "li", ".x", "b", "ul, body"
    else:
        response = response_of(PAGE, headers={"Content-Type": "application/xml"})
        element = XmlElement(response, response.xpath("//li")[1], 0)
        li, x, b, ul = "self::li", "self::*[@class='x']", "self::b", "self::ul or self::body"

    def texts(elements):
        return [(each.index, each.text) for each in elements]

    assert element.position == 1
    assert element.parent().attr("id") == "list"
    assert [each.name for each in element.parents()][:1] == ["ul"]
    assert [each.index for each in element.parents(ul)] == list(range(2 if kind == "html" else 1))
    assert (element.parent(x), element.parent().parent(x)) == (None, None)
    assert texts(element.parent().children()) == [(0, "a"), (1, "b"), (2, "c d"), (3, "e")]
    assert texts(element.parent().children(x)) == [(0, "c d")]
    assert texts(element.siblings()) == [(0, "a"), (1, "c d"), (2, "e")]
    assert texts(element.siblings(li)) == [(0, "a"), (1, "c d")]
    assert (element.next().text, element.prev().text, element.prev().prev()) == ("c d", "a", None)
    assert (element.next(x).text, element.prev(x)) == ("c d", None)
    assert texts(element.next_all()) == [(0, "c d"), (1, "e")]
    assert texts(element.next().next().prev_all(li)) == [(0, "c d"), (1, "b"), (2, "a")]
    inner = element.next().children()[0]
    assert (inner.name, inner.closest(x).text, inner.closest(b).name, inner.closest("q")) == (
        "b",
        "c d",
        "b",
        None,
    )
    assert element.matches(li) and not element.matches(x)
    assert type(element.next()) is type(element)


def test_an_element_matches_a_query_by_where_it_is_on_the_page(book):
    [link] = book.find("h3 a")
    assert link.matches(".book h3 > a") and not link.matches("p a")
    assert link.matches(".book a:contains('A t')") and not link.matches("a:contains('no')")
    assert not Element(book.response, book.response.css("a::text")[0], 0).matches("a")


def test_selectors_of_cascadia_are_translated_or_refused_with_their_equivalent():
    page = response_of(
        b"<div><p class=x>own <b>text</b></p><p class=y>2</p><p>3</p><input><select></select></div>"
    )

    def found(query):
        return [(each.tag, each.text_content()) for each in page.css(query)]

    assert found('p:containsOwn("own")') == [("p", "own text")] and found("p:containsOwn(text)") == []
    assert found("p:haschild(b)") == [("p", "own text")] and found("div:haschild(b)") == []
    assert [tag for tag, _ in found("div :input")] == ["input", "select"]
    assert found("p:not(.x, .y)") == [("p", "3")]
    crawler = Collector()
    for query, xpath in {
        r"a[href#=(\d+$)]": r"//a[re:test(@href, '\d+$')]",
        "p:matches(^[ab])": "//p[re:test(., '^[ab]')]",
        "p:matches(abc)": "//p[re:test(., 'abc')]",
        ":matchesOwn('own')": "//*[text()[re:test(., 'own')]]",
        "a[href#=[0-9]]": "//a[re:test(@href, '[0-9]')]",
        "a[href#=x], p:matches(y)": "//a[re:test(@href, 'x')] | //p[re:test(., 'y')]",
    }.items():
        with pytest.raises(QueryError) as caught:
            crawler.on_html(query)
        assert caught.value.field == "query" and caught.value.remedy.endswith(f": {xpath}")
        crawler.on_xml(xpath, print)
    assert page.xpath("//*[text()[re:test(., 'own')]]")[0].tag == "p"


@pytest.mark.parametrize("query", [":only-of-type", "div > :first-of-type", "*:nth-last-of-type(2)"])
def test_a_type_that_is_not_named_is_refused_with_the_remedy(query):
    with pytest.raises(QueryError, match="not implemented") as caught:
        Collector().on_html(query)
    assert "p:first-of-type" in caught.value.remedy


def test_the_remedy_for_a_regular_expression_of_cascadia_keeps_the_rest_of_the_query():
    page = response_of(
        b"<div><a class=k href=/a1>1</a><a href=/a2>2</a><p><a class=k href=/a3>3</a></p></div><p>4</p>"
    )
    for query, texts in {
        "div > a[href#=^/a].k": ["1"],
        "a:not(.k):matches([0-9])": ["2"],
        "p:has(a[href#=3$])": ["3"],
        'a[href="/a2"], p:matches(4)': ["2", "4"],
    }.items():
        with pytest.raises(QueryError) as caught:
            Collector().on_html(query)
        _, _, xpath = caught.value.remedy.partition("XPath: ")
        assert [element.text_content() for element in page.xpath(xpath)] == texts, xpath


NESTED = b"<div id=a><div id=b><p>x</p></div><p>y</p></div><p>z</p>"


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("div", ["x"]),
        ("> p", ["y"]),
        (" > div > p", ["x"]),
        ("div:contains(x)", ["x"]),
        ("div p", ["x", "y"]),
        ("body p", ["x", "y"]),
        ("body > div > div p", ["x"]),
        ("body p:contains(y)", ["y"]),
    ],
)
def test_the_methods_of_an_element_search_below_it_as_in_colly(query, texts):
    response = response_of(NESTED)
    element = Element(response, response.css("#a")[0], 0)
    assert element.child_texts(query) == [found.text for found in element.find(query)] == texts

    @dataclass
    class Texts:
        found: Annotated[list[str], Css(query)]

    assert element.unmarshal(Texts) == Texts(texts)


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("(//p)[1]", ["y"]),
        ("(//p)[last()] | //b", ["y", "c"]),
        ("p[count(//p) = 2]", ["y"]),  # a path in a predicate begins at the page
        ("concat(//b, '//p')", ["c//p"]),
        ("//p/..", ["yc"]),
        ("/ | /b", ["yc", "c"]),
        ("string(/)", ["yc"]),
    ],
)
def test_every_path_of_an_xpath_query_begins_at_the_element_as_in_colly(query, texts):
    response = response_of(b"<p>x</p><div id=a><p>y</p><b>c</b></div>")
    element = XmlElement(response, response.xpath("//div")[0], 0)
    assert [text.replace("\n", "") for text in element.child_texts(query)] == texts
    assert element.child_text(query).replace("\n", "") == texts[0]


def test_a_model_and_an_element_read_the_same_text():
    response = response_of(b"<ul><li>a</li><li>b</li></ul>")

    @dataclass
    class Texts:
        whole: Annotated[str, Css("ul")]

    element = Element(response, response.css("body")[0], 0)
    assert element.unmarshal(Texts).whole == element.child_text("ul") == "a\nb"


FEED = b"""<feed xmlns="urn:a" xmlns:m="urn:m" xmlns:x="urn:x"><title>F</title><entry><title>A</title>
<link x:href="/a"/><m:note>n</m:note></entry><m:entry><title>B</title></m:entry></feed>"""


@pytest.mark.parametrize(
    ("query", "text"),
    [("title", "A"), ("//title", "A"), ("/title", "A"), (".//title", "A"), ("m:note", "n"), ("link/@href", "/a"), ("entry", "")],
)  # fmt: skip
def test_queries_on_an_element_of_xml_begin_there_and_need_no_namespace(query, text, serve):
    crawler, found = Collector(), []

    @dataclass
    class Entry:
        text: Annotated[str, XPath(query)] = ""

    @crawler.on_xml("//entry")
    def read(element):
        found.append((element.name, element.child_text(query), element.unmarshal(Entry).text))
        if element.index == 0:
            assert element.child_attr("link", "href") == element.find("link")[0].attr("href") == "/a"
            assert element.matches("self::entry")

    crawler.visit(serve(Scripted({"/": Answer(FEED, content_type="application/xml")})).url)
    crawler.run()
    assert found[0] == ("entry", text, text)
    assert [name for name, _, _ in found] == ["entry", "entry"]


@pytest.mark.parametrize(
    ("query", "translated"),
    [
        ("a/@b", "*[local-name()='a']/@*[local-name()='b']"),
        ("*[mod mod 2 and and]", "*[*[local-name()='mod'] mod 2 and *[local-name()='and']]"),
        ("* * *", "* * *"),
        ("$v/text()|ancestor::node()", "$v/text()|ancestor::node()"),
        ("x:a/x:*", "x:a/x:*"),
        ("count('a b')", "count('a b')"),
    ],
)  # fmt: skip
def test_only_names_of_elements_and_attributes_lose_their_namespace(query, translated):
    assert in_any_namespace(query) == translated
