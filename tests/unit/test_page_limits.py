"""Limits of a page: what exceeds them is refused before it takes the memory, and all other pages are read as before."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sites.hostile import PAGES
from skitter import Request, Response
from skitter.errors import PageTooComplex
from skitter.frontier.records import Entry
from skitter.html import limits, selector
from skitter.html.lexbor import LEXBOR
from skitter.html.selector import Selector
from skitter.html.turbo import TURBO
from skitter.links import Links
from skitter.politeness import Politeness
from skitter.scope import Scope
from skitter.worker.callbacks import results_of
from skitter.worker.links import LinkCollector, in_batches

ENGINES = pytest.mark.parametrize("engine", [TURBO, LEXBOR], ids=["turbohtml", "lexbor"])
MB = 1_000_000
PIECES = (
    "<p>", "</p>", "<b>", "</b>", "<b a=1>", "<i class='x'>", "</i>", "<table>", "<td>", "</table>", "<div", ' a="1"', ">",
    "<script>", "</script>", "<!--", "-->", "&amp;", "&am", "\r\n", "\r", "<select><option>", "<svg>", "<title>", "</title>",
    "text ", "é", "漢字", "\U0001f600", "\0", "<a href=/x>", "</a>", "<![CDATA[", "]]>", "<br/>", "</br>", "<plaintext>", "<html x>",
)  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    """The memory of each large page is measured, as if no tags proved that it is small."""
    monkeypatch.setattr(selector, "proven_size", lambda _: None)


def page_of(name):
    answer = PAGES[name].answer()
    return Response("http://a.test/", headers={"Content-Type": answer.content_type}, body=answer.body)


@pytest.mark.parametrize("filling", ["x", "漢", "\U0001f600"])
def test_a_page_of_moderate_length_is_always_safe_with_few_tags(filling):
    texts = ["<a>" * tags + filling * (length - 3 * tags) for tags, length in
             [(1_500, 64_000), (1_501, 64_000), (1_501, 10_001), (3_333, 10_000)]]  # fmt: skip
    assert [limits.is_always_safe(text) for text in texts] == [True, False, False, True]


@pytest.mark.skipif(limits.count_tags is None, reason="tags are counted by a compiled module")
@pytest.mark.parametrize("length", [0, 1, 15, 16, 239, 240, 241, 10_000])
def test_tags_are_counted_in_the_bytes_of_a_page(length):
    body = (b"<p>\xe6\xbc\xa2<" * length)[:length]
    assert limits.count_tags(body) == body.count(b"<")
    assert limits.count_tags(b"<" * length) == length


@pytest.mark.skipif(limits.count_tags is None, reason="tags are counted by a compiled module")
@pytest.mark.parametrize(("tags", "length"), [(1_500, 64_000), (1_501, 64_000), (1_500, 64_001)])
def test_a_page_whose_bytes_have_few_tags_is_safe(tags, length):
    body = b"<a>" * tags + b"x" * (length - 3 * tags)
    assert (
        limits.has_few_tags(body)
        == limits.is_always_safe(body.decode())
        == ((tags, length) == (1_500, 64_000))
    )


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40), size=st.integers(1, 9))
def test_a_page_that_is_parsed_in_parts_has_the_same_tree(pieces, size):
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_FIRST_PART", size)
        patch.setattr(limits, "_PART", size)
        in_parts = TURBO.parse_metered(text, limits.MemoryMeter(limits.DEFAULT_MEMORY))
    assert TURBO.html(TURBO.root(in_parts)) == TURBO.html(TURBO.root(TURBO.parse(text)))


QUOTES = (
    "<a b='", '<a b="', "'", '"', '<a\x0bb="x c="', '<a b=x"y c="', "<a/b='>", "='", " c=", "/>", "<", "</a", "<!", "<?", "<!DOCTYPE html",
)  # fmt: skip
ATTRIBUTES = " hidden-attribute=1" * 3


@given(pieces=st.lists(st.sampled_from(PIECES + QUOTES), max_size=20))
def test_no_attribute_of_a_page_with_few_plain_tags_is_outside_of_what_is_counted(pieces):
    text = "".join(pieces)
    if text.rfind("<") > text.rfind(">"):  # the attributes would be counted
        text += ">"
    text += f"{ATTRIBUTES}><p>end"
    if limits.has_few_plain_tags(text):
        assert not Selector(text, engine=TURBO).css("[hidden-attribute]")


@pytest.mark.parametrize(
    ("page", "is_plain"),
    [
        ("<!DOCTYPE html><p class='a' id=\"b\">" + "words " * 100_000, True),
        ('<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN"><a href=x>' + "words " * 100_000, True),
        ("<p>word" * 500 + " " * 300_000, True),
        ("<p>word" * 1_001 + " " * 300_000, False),
        ('<p title=">' + " a" * 100_000, False),
        ("<p" + " a" * 100_000 + ">", False),
        (("<p" + " a" * 100 + ">") * 300 + " " * 300_000, False),
        ("<p>\0" + "words " * 100_000, False),
        ("<html a b c d>" * 400 + "words " * 100_000, False),
        ("<p>" + "words " * 1_000_000, False),
    ],
)
def test_a_page_with_few_plain_tags_is_recognised(page, is_plain):
    assert limits.has_few_plain_tags(page) == is_plain


def test_a_large_plain_page_is_parsed_at_once_with_the_same_tree():
    text = "<!DOCTYPE html><title>t</title><p class=x>" + "Grüße " * 60_000 + "<a href=y>z</a>"
    response = Response(
        "http://a.test/", headers={"Content-Type": "text/html; charset=utf-8"}, body=text.encode()
    )
    assert response.prepare_plain()
    assert response.css("p.x a::attr(href)").get() == "y"
    assert response.text == text
    assert response.selector.get() == Selector(text, engine=TURBO).get()


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html; charset=gbk", b"<p>" + b"word " * 100_000),
        ("text/html; charset=utf-8", b"<p>\xff" + b"word " * 100_000),
        ("application/pdf", b"word " * 100_000),
        ("text/html; charset=utf-8", b"<p>word" * 100_000),
    ],
)
def test_other_large_pages_are_left_to_a_thread(content_type, body):
    response = Response("http://a.test/", headers={"Content-Type": content_type}, body=body)
    assert not response.prepare_plain()


def test_a_large_page_that_takes_little_time_needs_no_thread():
    body = b"\xef\xbb\xbf<title>t</title>" + "<p>Grüße<a href=y>z</a>".encode() * 20_000
    response = Response("http://a.test/", headers={"Content-Type": "text/html; charset=utf-8"}, body=body)
    memory = response.prepare_within(60.0)
    # Memory that earlier tests have freed is used again, and not measured.
    assert memory is not None
    assert memory < limits.DEFAULT_MEMORY
    assert response.links() == ["http://a.test/y"]
    assert response.text == body.decode("utf-8-sig")


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("engine", [TURBO, LEXBOR], ids=["turbohtml", "lexbor"])
def test_a_page_that_takes_longer_is_left_to_a_thread(monkeypatch, engine):
    monkeypatch.setattr(limits, "_TURN", 0)
    monkeypatch.setattr("skitter.response.Selector", partial(Selector, engine=engine))
    body = b"<p>hello <b>world</b></p>" * 20_000
    response = Response("http://a.test/", headers={"Content-Type": "text/html; charset=utf-8"}, body=body)
    assert response.prepare_within(0.0) is None
    assert response.prepare() > len(body)
    assert len(response.css("p > b")) == 20_000


@pytest.mark.parametrize("name", ["html-attributes", "body-attributes", "reopened", "formatting"])
def test_a_page_that_exceeds_a_limit_on_the_event_loop_is_refused_by_a_thread(name):
    response = page_of(name)
    assert response.prepare_within(0.015) is None
    response.prepare()
    with pytest.raises(PageTooComplex):
        response.css("p")


@pytest.mark.parametrize("where", ["thread", "event loop"])
@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("length", "usual_seconds"), [(300_000, 0), (300_000, 1_000), (200_000, 0)])
def test_only_a_long_page_in_a_thread_pauses_after_the_usual_time(monkeypatch, where, length, usual_seconds):
    pauses = []
    monkeypatch.setattr(limits, "_TURN", 0)
    monkeypatch.setattr(limits, "_USUAL_SECONDS", usual_seconds)
    monkeypatch.setattr(limits.time, "sleep", pauses.append)
    text = "<p>hello world</p>\n" * (length // 19)
    if where == "thread":
        with ThreadPoolExecutor(1) as pool:
            pool.submit(Selector, text, engine=TURBO).result()
    else:
        Selector(text, engine=TURBO)
    assert pauses
    assert any(pauses) == (where == "thread" and length > 256 * 1024 and not usual_seconds)
    assert max(pauses) <= 0.05


@ENGINES
@pytest.mark.parametrize(
    "name", ["html-attributes", "body-attributes", "reopened", "formatting", "nested-div", "paragraphs"]
)
def test_a_page_whose_tree_would_fill_the_memory_is_refused(engine, name):
    text = page_of(name).text
    with pytest.raises(PageTooComplex):
        Selector(text, engine=engine)


@pytest.mark.parametrize("name", ["nested-div", "paragraphs", "text", "json-lists", "xml-elements"])
def test_a_page_that_exceeds_the_setting_names_it(name):
    response = page_of(name)
    with pytest.raises(PageTooComplex) as refused:
        response.json() if name.startswith("json") else response.css("p")
    assert refused.value.field == "max_page_memory"


@pytest.mark.parametrize("is_prepared", [False, True], ids=["in the callback", "prepared"])
@pytest.mark.parametrize(
    "name", ["html-attributes", "body-attributes", "reopened", "formatting", "json-tiny"]
)
def test_a_page_that_exceeds_another_limit_does_not_name_the_setting(name, is_prepared):
    response = page_of(name)
    response.max_memory = 10 * limits.DEFAULT_MEMORY
    if is_prepared:
        response.prepare()
    with pytest.raises(PageTooComplex) as refused:
        response.json() if name.startswith("json") else response.css("p")
    assert refused.value.field == ""
    assert "max_page_memory" not in refused.value.remedy


@pytest.mark.parametrize("name", ["html-attributes", "paragraphs", "text"])
def test_a_page_whose_refusal_is_certain_is_parsed_once(monkeypatch, name):
    meters = []
    meter_for = selector.meter_for
    monkeypatch.setattr(selector, "meter_for", lambda *args: meters.append(meter_for(*args)) or meters[-1])
    with pytest.raises(PageTooComplex):
        page_of(name).css("p")
    assert len(meters) == 1


@ENGINES
def test_an_ordinary_page_of_five_megabytes_is_read(engine):
    row = "<tr><td class=name>Name</td><td><a href='/item?a=1&amp;b=2'>a link</a></td></tr>\n"
    page = Selector(f"<table>{row * (5 * MB // len(row))}</table>", engine=engine)
    assert len(page.css("a::attr(href)")) == 5 * MB // len(row)


@pytest.mark.parametrize("name", ["text", "zeros", "less-than", "long-link", "one-tag-open"])
def test_a_long_text_is_refused_however_it_is_made(name):
    with pytest.raises(PageTooComplex):
        page_of(name).css("p")


def test_more_memory_admits_a_larger_page():
    response = Response("http://a.test/", headers={"Content-Type": "text/html"}, body=b"<p>" * 200_000)
    response.max_memory = len(response.body)
    with pytest.raises(PageTooComplex):
        response.css("p")
    response = response.replace()
    response.max_memory = limits.DEFAULT_MEMORY
    assert len(response.css("p")) == 200_000


def test_a_prepared_page_is_refused_when_it_is_used():
    response = page_of("reopened")
    response.prepare()
    assert response.text.startswith("<p>")
    for use in (response.css, response.xpath, response.links):
        with pytest.raises(PageTooComplex):
            use("a")


@pytest.mark.parametrize("name", ["json-lists", "xml-elements"])
def test_json_and_xml_are_refused_before_they_take_the_memory(name):
    response = page_of(name)
    tracemalloc.start()
    try:
        with pytest.raises(PageTooComplex):
            response.json() if name.startswith("json") else response.xpath("//a")
        assert tracemalloc.get_traced_memory()[1] < 3 * len(response.body) + MB
    finally:
        tracemalloc.stop()


def test_the_entities_of_an_xml_page_are_not_expanded():
    assert page_of("xml-entities").xpath("string(/*)").get() in {"", None}


def _names(tag, amount):
    return " ".join(f"a{number}x{tag}" for number in range(amount))


def test_only_attributes_outside_of_values_count():
    inside = "".join(f' data-{number}="a b c / d e f"' for number in range(500))
    limits.check_attributes(f'<p{inside}><img src="data:image/png;base64,{"a/b " * 50_000}">')
    for quote in ("", '"', "' '"):
        with pytest.raises(PageTooComplex):
            limits.check_attributes(f"<p {quote}{' a' * 3_000}{quote}>")
    with pytest.raises(PageTooComplex):
        limits.check_attributes("<p " + 'a=""' * 3_000 + ">")


ROOT_TAGS = {
    "many attributes in few tags": "".join(f"<html {_names(n, 2_000)}>" for n in range(10)),
    "many tags": "<BODY a>" * 10_001,
    "no spaces": "<html " + "".join(f'a{number}="x"' for number in range(20_000)) + ">",
    "signs in values": "<html " + "".join(f"a{number}='<>' " for number in range(20_000)) + ">",
    "no end": "<body/" + "a " * 100_000,
}


@pytest.mark.parametrize("page", ROOT_TAGS.values(), ids=ROOT_TAGS)
def test_the_attributes_of_all_root_tags_are_limited_together(page):
    with pytest.raises(PageTooComplex) as refused:
        Selector(page, engine=TURBO)
    assert refused.value.field == ""


@pytest.mark.parametrize(
    "page",
    [
        "<html lang=en><body class='" + "a " * 20_000 + "'>",
        '<html><body class=x">' + "<p class='a b c'>it's</p>" * 5_000,
        "<html />" * 20_000,
        "<p>html " + "a " * 20_000,
        "<htmlx " + "a " * 1_500 + ">" + "x" * 10_000,
    ],
    ids=["long value", "unpaired quote", "no attributes", "text", "other name"],
)
def test_other_attributes_do_not_count_as_those_of_root_tags(page):
    limits.RootCheck(page).advance(len(page))


def test_a_page_with_many_elements_has_no_copy_in_lxml():
    page = Selector("<p>x" * 300_000)
    assert len(page.xpath("//p")) == 300_000
    with pytest.raises(PageTooComplex):
        assert page.css("p")[0].root


# --- links ------------------------------------------------------------------------------------------------------


def collector(**options):
    return LinkCollector(Scope(), Politeness(), 1, **options)


def batch_of(amount):
    return Links("http://a.test/", [f"/{number}" for number in range(amount)], {})


def test_the_links_of_a_page_beyond_the_limit_are_counted():
    parent = Request("http://a.test/")
    single = [Request(f"http://a.test/single/{number}") for number in range(7)]
    found = collector(max_links=10).collect([batch_of(8), *single, batch_of(3)], parent)
    followed = sum(len(batch.urls) for batch in found.batches) + len(found.entries)
    assert (followed, found.links, found.refused["page_links"]) == (10, 18, 8)


def test_links_with_a_field_of_their_identity_are_limited_too():
    links = Links("http://a.test/", ["/1", "/2", "/3"], {"dont_filter": True})
    found = collector(max_links=2).collect([links], Request("http://a.test/"))
    assert [entry.url for entry in found.entries] == ["http://a.test/1", "http://a.test/2"]
    assert isinstance(found.entries[0], Entry)


def test_results_collected_in_turns_are_the_same():
    results = [
        {"a": 1},
        batch_of(5_000),
        {"a": 2},
        Request("http://a.test/x"),
        *({"b": 1} for _ in range(3_000)),
    ]
    parent = Request("http://a.test/")
    at_once, in_turns = collector(), collector()
    found = in_turns.collect((), parent)
    for part in in_batches(results):
        assert sum(len(result) if isinstance(result, Links) else 1 for result in part) <= 2_000
        in_turns.collect(part, parent, found)
    expected = at_once.collect(results, parent)
    assert found.items == expected.items
    assert found.links == expected.links == 5_001

    def urls(result):
        return [url for batch in result.batches for url in batch.urls] + [
            entry.url for entry in result.entries
        ]

    assert urls(found) == urls(expected)


@pytest.mark.parametrize("amount", [0, 1, 499, 500, 501, 1_500])
async def test_all_results_of_a_generator_are_taken(amount):
    assert await results_of(number for number in range(amount)) == list(range(amount))


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("is_certain", [False, True])
def test_only_memory_that_another_thread_may_have_taken_is_measured_again(monkeypatch, is_certain):
    resident, calls = limits.MemoryMeter.resident, []

    def disturbed(meter):
        calls.append(meter)
        return resident(meter) + (2**30 if len(calls) == 4 else 0)

    monkeypatch.setattr(limits.MemoryMeter, "resident", disturbed)
    monkeypatch.setattr(limits, "_TURN", 3600.0)  # on a busy machine, the fourth call might begin a turn
    if not is_certain:  # another thread uses as much CPU time
        monkeypatch.setattr(limits.time, "process_time", lambda: 2 * limits.time.thread_time())
    if is_certain:
        with pytest.raises(PageTooComplex):
            Selector("<p>text</p>" * 20_000)
        assert len(set(calls)) == 1
    else:
        assert len(Selector("<p>text</p>" * 20_000).css("p")) == 20_000
        assert len(set(calls)) == 2


@pytest.mark.parametrize("sign", [" ", "/", "\n", " /"])
def test_a_tag_may_contain_any_number_of_blanks(sign):
    """A pattern that looked for what separates attributes took a minute for 100 KB."""
    blanks = sign * (400_000 // len(sign))
    text = f"<html lang=en{blanks}><p title=x{blanks}>text"
    assert Selector(text, engine=TURBO).css("p::text").get() == "text"
    limits.check_attributes(text)


@pytest.mark.parametrize("before", range(8))
def test_a_root_tag_at_the_border_of_a_part_is_counted(before):
    text = "x" * (262_144 - before) + "<html" + " " * 20 + _names("x", 10_001) + ">"
    with pytest.raises(PageTooComplex):
        limits.RootCheck(text).advance(len(text))
