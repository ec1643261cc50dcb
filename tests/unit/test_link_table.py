"""LinkTable: the compiled table and its Python version give the same answers."""

from collections import defaultdict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skitter.web.urls import absolute_text, normalize, url_base
from skitter.worker.links import LinkTable, PythonLinkTable, is_ambiguous

IS_COMPILED = LinkTable is not PythonLinkTable
PAGE = url_base("http://h.test/dir/page.html?q=1")
HREFS = st.lists(
    st.one_of(
        st.sampled_from(
            ["", "#", "#top", "/", "//", "///", "../", "..", "./", "?", "?q=2", "a:b", "a/b:c", ":", "1:", "\ud800", "/é", "x" * 5000]
        ),
        st.text("/.#?:ah-+1é \\", max_size=8),
        st.text(max_size=4),
    ),
    max_size=150,
)  # fmt: skip


@pytest.fixture
def table(link_table):
    return link_table("own")


def unknown(table, hrefs, prefixes=PAGE.prefixes):
    counts = defaultdict(int)
    return table.unknown(hrefs, prefixes, counts), dict(counts)


def test_links_are_found_by_their_absolute_text(table):
    table.add(
        ["http://h.test/a", "http://h.test/dir/b", "http://h.test/dir/page.html?c", "http://o.test/"], "known"
    )
    hrefs = ["/a", "../a", "b", "http://h.test/dir/b#d", "?c", "//o.test/", "#top", "#", "", "a", "/b", "?d"]
    assert unknown(table, hrefs) == (["", "a", "/b", "?d"], {"known": 6, "own": 2})


def test_absolute_urls_belong_to_no_page(table):
    table.add(["http://h.test/a", "http://h.test/dir/b"], "known")
    hrefs = ["http://h.test/a", "http://h.test/a#top", "b", "/a", "#top", "", "http://h.test/b"]
    assert unknown(table, hrefs, None) == (["b", "/a", "#top", "", "http://h.test/b"], {"known": 2})


def test_a_link_with_leading_white_space_is_unknown(table):
    table.add(["http://h.test/dir/ /x", "http://h.test/dir/\x1f/x"], "known")
    assert unknown(table, [" /x", "\x1f/x"]) == ([" /x", "\x1f/x"], {})  # they lead to http://h.test/x


def test_each_text_has_its_last_reason(table):
    table.add(("http://h.test/a", "http://h.test/b"), "known")
    table.add(["http://h.test/b"], "host")
    assert [table.get(f"http://h.test/{name}") for name in "abc"] == ["known", "host", None]
    assert unknown(table, ["/a", "/b", "/b", "/c"]) == (["/c"], {"known": 1, "host": 2})
    assert len(table) == 2
    assert table.has_any(["http://h.test/c"] * 100 + ["http://h.test/b"])
    assert not table.has_any(["http://h.test/c"] * 100)
    assert not table.has_any(())


def test_a_table_grows_and_is_cleared(table):
    urls = [f"http://h.test/{number}" for number in range(20_000)]
    table.add(urls, "known")
    assert (len(table), unknown(table, urls)) == (20_000, ([], {"known": 20_000}))
    assert unknown(table, [f"{url}/" for url in urls]) == ([f"{url}/" for url in urls], {})
    table.clear()
    assert (len(table), unknown(table, urls)) == (0, (urls, {}))


def test_a_text_may_be_long_or_no_unicode(table):
    long = "http://h.test/" + "x" * 100_000
    table.add([long, "http://h.test/日本"], "known")
    assert unknown(table, [long, long[13:], long + "x", "/日本", "\ud800"]) == (
        [long + "x", "\ud800"],
        {"known": 3},
    )


def test_counts_are_added_to_those_of_the_caller(table):
    counts = defaultdict(int, own=5)
    assert table.unknown(("#a", "#b"), PAGE.prefixes, counts) == []
    assert counts == {"own": 7}


@given(HREFS, HREFS, st.sampled_from(["http://h.test/", "http://h.test/a/ah?1", "https://a.test:1/a/a/"]))
@example(["//h", "/h", "../h"], ["h", "http:h"], "http://h.test/")
def test_both_tables_give_the_same_answers(added, hrefs, base):
    page, tables = url_base(base), (PythonLinkTable("own"), LinkTable("own"))
    texts = [absolute_text(href, page.prefixes) for href in added if href and "\ud800" not in href]
    for table in tables:
        table.add(texts, "known")
    for prefixes in (page.prefixes, None):
        one, other = (unknown(table, hrefs, prefixes) for table in tables)
        assert one == other
    assert [tables[0].get(href) for href in hrefs] == [tables[1].get(href) for href in hrefs]
    assert len(tables[0]) == len(tables[1])


PARTS = ["/", "//", "..", "../", ".", "?", "#", ":", "@", "%2e", "%", "a", "é", "日", " ", "\\", "\t", "\n", "\0", "\x1f", "\x7f",
    "http:", "http://", "HTTP://", "https:", "mailto:", "javascript:", "file:", "//h", "[", ";", "|", "\u3000", "\ufeff", "x.html"]  # fmt: skip
BASES = ["http://h.test/", "http://h.test/a/b", "https://h.test:81/a/b/?q=1", "http://h.test/a/%C3%A4", "http://h.test/a//b;c",
    "http://u:p@h.test/a/b", "http://[::1]/a/b", "http://h.test/a/../b/c", "http://h.test?x", "http://h.test/a|b/c d"]  # fmt: skip


@settings(max_examples=1000)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join), st.sampled_from(BASES))
@example("x #part", "http://h.test/a/b")
@example("/ #part", "http://h.test/a/b")
def test_the_absolute_text_of_a_link_leads_to_its_url_unless_the_link_is_ambiguous(href, base):
    page = url_base(base)
    if page.prefixes is not None and not is_ambiguous(href):
        assert normalize(absolute_text(href, page.prefixes)) == normalize(href, base)


@pytest.mark.skipif(not IS_COMPILED, reason="the table was not compiled")
@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.add(["a"]),
        lambda table: table.add(["a"], 7, 8),
        lambda table: table.add([7], "known"),
        lambda table: table.add(7, "known"),
        lambda table: table.get(7),
        lambda table: table.has_any([7]),
        lambda table: table.has_any(7),
        lambda table: table.unknown(["a"]),
        lambda table: table.unknown([7], PAGE.prefixes, {}),
        lambda table: table.unknown(["a"], ["no", "tuple"], {}),
        lambda table: table.unknown(["a"], ("too", "short"), {}),
        lambda table: table.unknown(["#a"], PAGE.prefixes, {}),
        lambda table: type(table)(),
    ],
)
def test_wrong_arguments_raise_an_exception(call):
    with pytest.raises((TypeError, KeyError)):
        call(LinkTable("own"))


@pytest.mark.skipif(not IS_COMPILED, reason="the table was not compiled")
def test_a_table_has_at_most_255_reasons():
    table = LinkTable("own")
    for number in range(254):
        table.add([f"{number}"], f"reason {number}")
    assert [table.get(f"{number}") for number in (0, 253)] == ["reason 0", "reason 253"]
    with pytest.raises(ValueError, match="255"):
        table.add(["one more"], "one more")
