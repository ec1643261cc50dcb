"""Queries have the same results as in parsel: CSS and XPath on pages and on elements, with both engines."""

import re
from pathlib import Path

import parsel
import pytest

from skitter.html.lexbor import LEXBOR
from skitter.html.selector import Selector
from skitter.html.turbo import TURBO

PAGES = {
    path.stem: path.read_text(encoding="utf-8") for path in (Path(__file__).parent / "pages").glob("*.html")
}

CSS = """
title::text
h1 a::text
a::attr(href)
a
div.quote
div.quote span.text::text
.author::text
small[itemprop=author]::text
[itemprop]::attr(itemprop)
.tags a.tag::text
.tags > .tag
a.tag.featured::attr(class)
a[href^="/tag"]::attr(href)
a[href$="/"]::text
a[href*=author]::attr(href)
[class~=tag]::text
li.next a::text
li.next > a > span::text
li::attr(class)
div.quote:first-child a::text
div.quote:nth-child(2) .text::text
div:nth-child(2n+1)::attr(class)
div:nth-child(-n+2)::attr(class)
div:nth-last-child(1)::attr(class)
span:not(.text)::text
span:not([class])
h1, h2
h1::text, h2::text
h1 a::text, h2::text
title, h2, a.tag
title::text, a::attr(href)
body > p, td::text
div.quote, div.quote span
link[rel=stylesheet]::attr(href)
meta::attr(content)
div *::text
div ::text
.tags *::text
div *::attr(class)
body *::attr(href)
div > *::text
*::attr(style)
div.row > div
span + a
small + a::text
dt + dd p::text
li ~ li::text
p ~ p::text
p:empty
:root > body::attr(class)
html::attr(lang)
html > head > title::text
ul > li > a::text
ul ul a::text
#menu > li > a::text
#menu li::text
li li::text
ul ::text
tr.odd td::text
tr:nth-of-type(2) td::text
table#products tbody tr td.price::text
td.price
td:last-child::text
th:first-of-type::text
tr[data-sku|=K]::attr(data-sku)
tr::attr(data-json)
tr
.price::text
.Price::text
p
p::text
input[type=text]::attr(value)
input[type=TEXT]::attr(value)
input[TYPE=submit]
INPUT
option[selected]::text
form
textarea::text
img
img::attr(alt)
script::text
script
style
td a b::text
a[title]
dl dt::attr(id)
div.inner::text
div.inner
div.outer ::text
pre::text
pre
ol li::text
li:nth-last-of-type(1)::text
:is(h1, h2)::text
:where(.tag)::text
div :is(em, code) span::text
a.reference:not(.internal)::text
*:not(div):not(p)::attr(class)
[lang|=de]::text
section:only-child::attr(id)
span:only-of-type::text
em:only-child
svg a::attr(href)
noscript p::text
nope
p.nope::text
a:contains("Next")::text
li:has(a)
p:has(> em)
[class!="x"]::attr(class)
input:checked::attr(name)
p:lang(de)::text
a:link::text
""".strip().splitlines()

# On an element: it is included itself, no part of the query matches outside it.
SCOPED_CSS = """
a::text
a
::text
*::attr(class)
div a::text
div > a::attr(href)
span + a::text
td + td::text
dt + dd::text
li li::text
li > a::text
li + li ::text
div div::text
div *::text
* > *::text
p ~ p::text
p
p::text
tr td::text
td, tr
td:nth-child(2) a::text
div.inner div.inner::text
section section h2::text
li, ul li
html a
body a
li:has(a)::text
a:contains(a)::text
""".strip().splitlines()

XPATH = """
//title/text()
//a/@href
//a[@class='tag']/text()
//div[@class='quote']
//div[contains(@class, 'quote')]//small/text()
//li[last()]/a/text()
//a[starts-with(@href, '/tag')]/@href
//h1/following-sibling::*[1]
//td[2]/a/text()
//tr[td/del]/@data-sku
//p/text()
//ul[@id='menu']//a/@href
//*[@id]/@id
count(//a)
string(//h1)
normalize-space(//p[1])
boolean(//nope)
//comment()
//nope
//section[.//h2]/@id
//a[not(@class)]/text()
//dt/following-sibling::dd[1]/p/text()
//span/parent::*/@class
//li[position() < 3]
//a | //h2
//img/@alt
//input[@type='checkbox']/@checked
//*[self::h1 or self::h2]/text()
//option[@selected]/text()
//body/*[1]
//pre//text()
//div[has-class('quote')]/span/text()
//a[re:test(@href, '\\d+')]/@href
""".strip().splitlines()

SCOPED_XPATH = """
.
..
./a/@href
.//a/text()
../@class
../../@id
following-sibling::*[1]
preceding-sibling::*
ancestor::*/@class
descendant::text()
text()
string(.)
count(.//a)
self::div
name()
//title/text()
""".strip().splitlines()

CONTEXTS = ["div", "li", "tr", "p", "section", "a", "ul", "dd", "body *"]

on_every_page = pytest.mark.parametrize("page", PAGES)
on_both_engines = pytest.mark.parametrize("engine", [TURBO, LEXBOR], ids=["turbo", "lexbor"])


def outcome(found, engine):
    """Only the default engine spells outer HTML like lxml; the other engine must return the same number of results."""
    values = found.getall()
    return (
        [value[: value.find(" ")] for value in values]
        if engine is LEXBOR and values and found[0].tag
        else values
    )


def expected(found, engine):
    values = found.getall()
    elements = bool(values) and isinstance(getattr(found[0].root, "tag", None), str)
    return [value[: value.find(" ")] for value in values] if engine is LEXBOR and elements else values


def at_the_end_of_body(values):
    """HTML5 moves the line breaks after ``</body>`` into the body, libxml2 does not."""
    return [re.sub(r"\n+</body>", "</body>", value) for value in values]


@on_every_page
@on_both_engines
@pytest.mark.parametrize("query", CSS)
def test_css_on_a_page(page, engine, query):
    ours, theirs = Selector(PAGES[page], engine=engine), parsel.Selector(text=PAGES[page], type="html")
    assert outcome(ours.css(query), engine) == expected(theirs.css(query), engine)


@on_every_page
@on_both_engines
@pytest.mark.parametrize("context", CONTEXTS)
def test_css_on_elements(page, engine, context):
    ours, theirs = Selector(PAGES[page], engine=engine), parsel.Selector(text=PAGES[page], type="html")
    for element, twin in zip(ours.css(context), theirs.css(context), strict=True):
        for query in SCOPED_CSS:
            assert outcome(element.css(query), engine) == expected(twin.css(query), engine), (
                str(twin)[:80],
                query,
            )


@on_every_page
@on_both_engines
@pytest.mark.parametrize("query", XPATH)
def test_xpath_on_a_page(page, engine, query):
    ours, theirs = Selector(PAGES[page], engine=engine), parsel.Selector(text=PAGES[page], type="html")
    assert outcome(ours.xpath(query), engine) == expected(theirs.xpath(query), engine)


@on_every_page
@on_both_engines
@pytest.mark.parametrize("context", CONTEXTS)
def test_xpath_on_elements_found_by_css_sees_the_whole_page(page, engine, context):
    ours, theirs = Selector(PAGES[page], engine=engine), parsel.Selector(text=PAGES[page], type="html")
    for element, twin in zip(ours.css(context), theirs.css(context), strict=True):
        for query in SCOPED_XPATH:
            found, wanted = outcome(element.xpath(query), engine), expected(twin.xpath(query), engine)
            assert at_the_end_of_body(found) == at_the_end_of_body(wanted), (str(twin)[:80], query)


@on_every_page
def test_css_after_css_after_xpath_and_the_reverse(page):
    ours, theirs = Selector(PAGES[page]), parsel.Selector(text=PAGES[page], type="html")
    for chain in (
        lambda root: root.css("div, ul, table").css("a, td").xpath("..").css("::text"),
        lambda root: root.xpath("//li | //tr").css("a").xpath("@href"),
        lambda root: (
            root.css("section, ul")[0:2]
            .css("li, p")[1:]
            .xpath("./following-sibling::*[1]")
            .css("*::attr(class)")
        ),
    ):
        assert chain(ours).getall() == chain(theirs).getall()


@on_every_page
def test_attributes(page):
    ours, theirs = Selector(PAGES[page]), parsel.Selector(text=PAGES[page], type="html")
    assert [element.attrib for element in ours.css("*")] == [element.attrib for element in theirs.css("*")]


@on_every_page
@pytest.mark.parametrize("regex", [r"href=.(\S+)", r"\w+@?", r"(?P<extract>a\w+)", "&amp;", r"(\w)(\d)"])
def test_regular_expressions(page, regex):
    ours, theirs = Selector(PAGES[page]), parsel.Selector(text=PAGES[page], type="html")
    for query in ("a", "a::text", "p", "tr", "nope"):
        assert ours.css(query).re(regex) == theirs.css(query).re(regex)
        assert ours.css(query).re_first(regex, "none") == theirs.css(query).re_first(regex, "none")
        assert ours.css(query).re(regex, replace_entities=False) == theirs.css(query).re(
            regex, replace_entities=False
        )


def test_the_text_of_nested_matches_comes_in_document_order():
    page = "<div>1<div>2<p>x</p>3</div>4<div>5</div></div><div>6</div>"
    for engine in (TURBO, LEXBOR):
        assert Selector(page, engine=engine).css("div::text").getall() == list("123456")
        assert Selector(page, engine=engine).css("div ::text").getall() == list("12x3456")


def test_white_space_around_head_and_body_is_as_html5_has_it():
    """The only difference in text nodes: libxml2 keeps a line break that the standard drops."""
    for page in PAGES.values():
        ours, theirs = Selector(page), parsel.Selector(text=page, type="html")
        kept = [text for text in ours.css("*::text").getall() if text.strip()]
        assert kept == [text for text in theirs.css("*::text").getall() if text.strip()]
