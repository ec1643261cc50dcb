"""Groups of near duplicates: exact groups of a generated corpus, independence of the order, and files of items."""

import io
import random
import re
from collections import defaultdict

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from sites.texts import Corpus, pairs_of
from skitter.content.duplicate_items import DuplicateItems, digest_of
from skitter.content.near_duplicates import (
    SIGNATURE_BYTES,
    Text,
    find_duplicates,
    shingles,
    signature_of,
    similarity,
)
from skitter.errors import StoreError
from skitter.store.merge import Format, fill
from skitter.store.outputs import open_output, with_duplicates


def text_of(url, text):
    return Text(url, int.from_bytes(digest_of(text)[:8], "big"), signature_of(shingles(text)), text)


def groups_of(texts):
    """Return the URLs of each group by the URL that is kept."""
    found = find_duplicates(lambda: iter(texts))
    groups = defaultdict(list)
    for number, text in enumerate(texts):
        groups[found.get(number, text.url)].append(text.url)
    return dict(groups)


@given(st.text(st.characters(codec="ascii")), st.sampled_from(["", "é", "ß", "漢字"]))
@example("One_2 three\x1cFOUR's\x85 five\0six", "")
def test_shingles_are_the_hashes_of_three_words(text, end):
    words = re.findall(r"[漢字]|[^\W漢字]+", (text + end).casefold())
    runs = [" ".join(words[start : start + 3]) for start in range(max(1, len(words) - 2))]
    assert shingles(text + end) == ({xxh3_64_intdigest(run.encode()) for run in runs} if words else set())


@pytest.mark.parametrize("seed", range(3))
def test_known_duplicates_are_found_and_pages_of_a_template_are_not(seed):
    corpus = Corpus(2_000, seed)
    truth = defaultdict(list)
    for url, group, _ in corpus.pages:
        truth[group].append(url)
    true, found = pairs_of(truth), pairs_of(groups_of([text_of(url, text) for url, _, text in corpus.pages]))
    assert len(true) > 500
    assert len(true & found) / len(true) >= 0.95  # recall
    assert len(true & found) / len(found) >= 0.99  # precision


def test_the_groups_do_not_depend_on_the_order():
    texts = [text_of(url, text) for url, _, text in Corpus(500).pages]
    wanted = {kept: sorted(members) for kept, members in groups_of(texts).items()}
    for seed in range(5):
        random.Random(seed).shuffle(texts)
        assert {kept: sorted(members) for kept, members in groups_of(texts).items()} == wanted


def test_the_page_with_the_shortest_url_is_kept_and_the_first_in_the_alphabet_among_several():
    text = "one two three four five six seven"
    texts = [text_of(url, text) for url in ("http://h/long", "http://h/b", "http://h/a")]
    assert find_duplicates(lambda: iter(texts)) == {0: "http://h/a", 1: "http://h/a"}


def test_similar_texts_are_in_one_group_also_by_way_of_a_third():
    words = [f"word{number}" for number in range(100)]
    texts = [" ".join(words[start:] + [f"new{number}" for number in range(start)]) for start in (0, 8, 16)]
    hashes = [shingles(text) for text in texts]
    assert similarity(hashes[0], hashes[1]) > 0.75 > similarity(hashes[0], hashes[2])
    assert len(groups_of([text_of(f"http://h/{place}", text) for place, text in enumerate(texts)])) == 1


def test_a_large_family_of_pages_with_common_text_is_compared_in_bounded_steps():
    frame = " ".join(f"frame{number}" for number in range(100))
    texts = [
        text_of(f"http://h/{page}", f"{frame} {' '.join(f'own{page}x{number}' for number in range(60))}")
        for page in range(2_000)
    ]
    assert len(groups_of(texts)) == 2_000


def test_case_space_and_punctuation_do_not_count_and_scripts_without_spaces_have_words():
    assert shingles("A  b, C! d") == shingles("a b c d")
    assert shingles("a b c") != shingles("a b d")
    assert shingles(" .!\n") == frozenset()
    assert len(shingles("one")) == 1
    assert len(shingles("今日は良い天気です")) == 7
    assert len(signature_of(shingles("one"))) == SIGNATURE_BYTES


SAME = "the same text of some length that occurs on more than one page"
ITEMS = [
    {"url": "http://h/1", "content": SAME},
    {"url": "http://h/22", "content": f"{SAME.title()}."},
    {"url": "http://h/3", "content": "another text that has nothing to do with any other one"},
    {"url": "http://h/4", "content": None},
    {"url": "http://h/5", "content": None},
    {"other": 1},
    {"url": 7, "content": ["x"]},
    {},
]


class Lines:
    def __init__(self, items):
        self._items = items

    def lines(self):
        return map(msgspec.json.encode, self._items)


def written(items, **options):
    file = io.BytesIO()
    fill(file, Lines(items), Format(**options), "items.jsonl")
    return [msgspec.json.decode(line) for line in file.getvalue().splitlines()]


def test_a_file_marks_near_duplicates_and_keeps_all_other_items_as_they_are():
    marks = [None, "http://h/1", None, None, None, None, None, None]
    assert written(ITEMS, duplicates="mark") == [
        {**item, "duplicate_of": mark} for item, mark in zip(ITEMS, marks, strict=True)
    ]


def test_a_file_without_duplicates_holds_one_page_of_each_group():
    assert written(ITEMS, duplicates="drop") == [item for item in ITEMS if item.get("url") != "http://h/22"]
    assert written(ITEMS, duplicates="mark", fields=("url", "duplicate_of"))[1] == {
        "url": "http://h/22", "duplicate_of": "http://h/1",
    }  # fmt: skip


def test_the_mark_of_an_earlier_search_is_replaced():
    old = [{"duplicate_of": "http://h/old", **item} for item in ITEMS]
    assert written(old, duplicates="mark") == written(ITEMS, duplicates="mark")
    assert written(old, duplicates="drop") == written(ITEMS, duplicates="drop")


def test_stored_signatures_give_the_same_groups_as_the_texts():
    pages = [{"url": url, "content": text} for url, _, text in Corpus(300).pages]
    signed = [
        {
            **page,
            "digest": digest_of(page["content"]).hex(),
            "signature": signature_of(shingles(page["content"])).hex(),
        }
        for page in pages
    ]
    without = list(DuplicateItems(Lines(pages).lines, "mark").lines())
    assert [msgspec.json.decode(line)["duplicate_of"] for line in without] == [
        item["duplicate_of"] for item in written(signed, duplicates="mark")
    ]
    broken = [{**page, "digest": "x", "signature": "00"} for page in pages]
    assert [item["duplicate_of"] for item in written(broken, duplicates="mark")] == [
        msgspec.json.decode(line)["duplicate_of"] for line in without
    ]


def test_the_option_of_an_output_is_checked_and_given_to_files_of_items_only():
    for name in ("a.jsonl", "a.parquet", "a.csv.gz", "file:///tmp/a.jsonl"):
        assert with_duplicates(name, "mark") == f"{name}?duplicates=mark"
    assert with_duplicates("a.jsonl?fields=url", "mark") == "a.jsonl?fields=url&duplicates=mark"
    for name in ("-", "a.db", "a.warc.gz", "a.jsonl?duplicates=keep", "postgresql://h/d"):
        assert with_duplicates(name, "mark") == name
    with pytest.raises(StoreError, match="duplicates=all") as caught:
        open_output("a.jsonl?duplicates=all")
    assert caught.value.remedy == "write keep, mark or drop"
    with pytest.raises(StoreError, match="unknown option 'duplicates'"):
        open_output("a.db?duplicates=mark")
