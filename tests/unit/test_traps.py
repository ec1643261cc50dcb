"""Rules for single URLs, and patterns of URLs that grow like traps."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.settings import Settings
from skitter.worker.traps import (
    PARAMETERS,
    PATH_REPEATS,
    PATH_SEGMENTS,
    PATTERN,
    PATTERN_URLS,
    TrapDetector,
    _runs,
)

HOST = "http://h.test"


def admit(traps, url, depth, parent):
    """Judge a single link."""
    [(_, decision)] = traps.admit_all([url], depth, parent)
    return decision


@pytest.fixture
def traps():
    return TrapDetector(Settings(stripped_parameters=("utm_*", "gclid")))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/a/b/c/d/e/f/g", None),
        ("/2024/01/01/x", None),
        ("/a/b/a/b/a/b", None),
        ("/a/b/a/b/a/b/a/", PATH_REPEATS),
        ("/x/x/x/x", PATH_REPEATS),
        ("/a//b//c//d//e", None),
        ("/" + "/".join(f"s{n}" for n in range(25)), None),
        ("/" + "/".join(f"s{n}" for n in range(26)), PATH_SEGMENTS),
        ("/p?" + "&".join(f"a{n}=1" for n in range(20)), None),
        ("/p?" + "&".join(f"a{n}=1" for n in range(21)), PARAMETERS),
    ],
)
def test_a_url_is_refused_by_its_form(traps, path, reason):
    assert admit(traps, HOST + path, 1, None)[0] == reason


def test_rules_that_are_off_refuse_nothing():
    traps = TrapDetector(Settings(max_path_repeats=None, max_path_segments=None, max_query_parameters=None))
    assert admit(traps, HOST + "/x" * 40 + "?" + "a=1&" * 40, 1, None)[0] is None


@pytest.mark.parametrize(
    ("link", "stripped"),
    [
        ("/p?id=3&PHPSESSID=abc", "/p?id=3"),
        ("/p?phpsessid=abc", "/p"),
        ("/p;jsessionid=0A1B?id=3", "/p?id=3"),
        ("/p?ASPSESSIONIDQABC=x&id=3", "/p?id=3"),
        ("/p?sid=17&session=4", "/p?sid=17&session=4"),
        ("/p?sid=0123456789abcdef0123", "/p"),
        ("/p?a=1&sid=0123456789abcdef0123&b=2", "/p?a=1&b=2"),
        ("/p?utm_source=x&utm_medium=y", "/p"),
        ("/p?gclid=1&q=utm_source", "/p?q=utm_source"),
        ("/p?notgclid=1&sidney=0123456789abcdef0123", "/p?notgclid=1&sidney=0123456789abcdef0123"),
        ("/p?", "/p?"),
        ("/p?q=a;b&c=;sid=x", "/p?q=a;b&c="),
        ("/a/..;jsessionid=1/b", "/b"),
    ],
)
def test_session_ids_and_tracking_parameters_are_removed(traps, link, stripped):
    assert traps.strip(HOST + link) == HOST + stripped


def test_a_session_id_in_place_of_a_host_stays(traps):
    link = "http://;sid=1/x"
    assert traps.strip(link) == link


def test_nothing_is_removed_if_the_settings_say_so():
    traps = TrapDetector(Settings(strip_session_ids=False, stripped_parameters=()))
    link = HOST + "/p;jsessionid=1?PHPSESSID=2&utm_source=x"
    assert traps.strip(link) == link


def follow_chain(traps, text, pages):
    """Visit pages of a pager one after the other. Return the number of pages until the next link is refused."""
    admit(traps, f"{HOST}/news?page=1", 0, None)
    own = traps.path_of(f"{HOST}/news?page=1")
    for number in range(1, pages):
        refusal, _, is_own = admit(traps, f"{HOST}/news?page={number + 1}", number, own)
        assert is_own
        if refusal is not None:
            assert refusal == PATTERN
            return number
        body = text(number).encode()
        traps.record_page(f"{HOST}/news?page={number}", number, body, 1, is_duplicate=False)
    return pages


def letters(number):
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}")


def test_a_pager_whose_pages_differ_only_in_numbers_is_refused(traps):
    assert 64 < follow_chain(traps, lambda number: f"<h1>Page {number}</h1>", 5000) < 200
    assert traps.has_closed
    assert traps.is_closed(f"{HOST}/news?page=77")
    assert not traps.is_closed(f"{HOST}/news?id=77")
    assert not traps.is_closed(f"{HOST}/news")


@pytest.mark.parametrize("content", ["<p>{}</p>", '<img src="/photos/{}.jpg">', "<title>{}</title>"])
def test_a_pager_with_new_content_is_followed_to_its_end(traps, content):
    assert follow_chain(traps, lambda number: content.format(letters(number)), 3000) == 3000


def test_a_pager_with_some_pages_without_content_is_followed(traps):
    def text(number):
        return f"<p>{letters(number) if number % 40 < 20 else ''}</p>"

    assert follow_chain(traps, text, 3000) == 3000


def test_pages_without_new_links_of_their_pattern_are_not_a_trap(traps):
    for number in range(2000):
        url = f"{HOST}/product?id={number}"
        assert admit(traps, url, 2, None)[0] is None
        traps.record_page(url, 2, b"<h1>Product</h1>", 0, is_duplicate=False)
    assert not traps.has_closed


def test_combinations_of_filters_are_refused(traps):
    names = ("color", "size", "brand", "sort")
    admit(traps, f"{HOST}/list?color=1", 2, None)
    own = traps.path_of(f"{HOST}/list?color=1")
    admitted = 0
    for number in range(3000):
        chosen = [name for bit, name in enumerate(names) if number >> bit & 1]
        url = f"{HOST}/list?" + "&".join(f"{name}={number}" for name in chosen)
        if admit(traps, url, 3, own)[0] is None:
            admitted += 1
            traps.record_page(url, 3, b"<p>the same products</p>", 5, is_duplicate=False)
    assert admitted < 200
    assert admit(traps, f"{HOST}/product?color=1", 3, None)[0] is None


def test_links_of_a_pattern_lose_priority_until_its_pages_prove_it(traps):
    def penalty(number, own=None):
        return admit(traps, f"{HOST}/product?id={number}", 2, own)[1]

    assert {penalty(number) for number in range(64)} == {0}
    own = traps.path_of(f"{HOST}/product?id=1")
    assert (penalty(64, own), penalty(65)) == (-1, 0)
    for number in range(3):
        body = f"<p>{letters(number)}</p>".encode()
        traps.record_page(f"{HOST}/product?id={number}", 2, body, 0, is_duplicate=False)
    assert penalty(66, own) == 0
    for number in range(2000):
        traps.record_page(f"{HOST}/product?id={number}", 2, b"<p>same</p>", 0, is_duplicate=False)
    assert penalty(67) == -2


def test_a_pattern_is_disproved_if_few_of_its_first_pages_have_new_words(traps):
    for number in range(64):
        admit(traps, f"{HOST}/day/{number}", 2, None)
    for number in range(12):
        month = f"<p>{letters(number) if number % 3 == 0 else ''}</p>".encode()
        traps.record_page(f"{HOST}/day/{number}", 2, month, 1, is_duplicate=False)
    assert admit(traps, f"{HOST}/day/64", 2, None)[1] == -2


def test_workers_share_their_comparisons(traps):
    other = TrapDetector(Settings())
    urls = [f"{HOST}/product?id={number}" for number in range(64)]
    for url in urls:
        admit(traps, url, 2, None)
    other.count_urls(urls)
    own = other.path_of(urls[0])
    for number, url in enumerate(urls[:3]):
        assert admit(other, f"{HOST}/product?id={64 + number}", 2, own)[1] == -1
        traps.record_page(url, 2, f"<p>{letters(number)}</p>".encode(), 0, is_duplicate=False)
        other.learn(traps.take_compared())
    assert admit(other, f"{HOST}/product?id=67", 2, own)[1] == 0
    other.record_page(urls[3], 2, f"<p>{letters(0)}</p>".encode(), 0, is_duplicate=False)
    assert other.take_compared()[0].new_words == [], "the other worker had them before"
    assert traps.take_compared() == []


def test_a_pattern_of_unknown_urls_is_learned_from_another_worker(traps):
    """The pages of a trap are divided between two workers, whose comparisons disprove its pattern together."""
    other = TrapDetector(Settings())
    admit(traps, f"{HOST}/news?page=0", 0, None)
    for number in range(200):
        workers = (traps, other) if number % 2 else (other, traps)
        url = f"{HOST}/news?page={number}"
        admit(workers[0], f"{HOST}/news?page={number + 1}", number + 1, workers[0].path_of(url))
        workers[1].count_urls([f"{HOST}/news?page={number + 1}"])
        workers[0].record_page(url, number, b"<h1>Page</h1>", 1, is_duplicate=False)
        workers[1].learn(workers[0].take_compared())
        if traps.has_closed:
            break
    assert other.has_closed
    assert number < 64 + 1 + 50 + 1


def test_links_that_another_worker_has_queued_count_for_the_probation_of_their_path():
    traps = TrapDetector(Settings(max_urls_per_pattern=10))
    traps.count_urls([f"{HOST}/unknown?id={number}" for number in range(64)])
    unknown = traps.path_of(f"{HOST}/unknown?id=1")
    assert admit(traps, f"{HOST}/unknown?id=64", 2, unknown) == (None, -1, True)
    own = HOST + "/product?id=0"
    assert admit(traps, own, 2, None) == (None, 0, False)
    traps.count_urls([f"{HOST}/product?id={number}" for number in range(1, 64)] + [f"{HOST}/about"])
    assert admit(traps, f"{HOST}/product?id=64", 2, traps.path_of(own)) == (None, -1, True)
    found = [admit(traps, f"{HOST}/product?id={number}", 2, None)[0] for number in range(65, 75)]
    assert found == [None] * 8 + [PATTERN_URLS] * 2, "this worker has followed two of them before"


def test_the_number_of_urls_of_a_pattern_can_be_limited():
    traps = TrapDetector(Settings(max_urls_per_pattern=10))
    found = [admit(traps, f"{HOST}/p?id={number}", 1, None)[0] for number in range(12)]
    assert found == [None] * 10 + [PATTERN_URLS] * 2


def test_the_same_content_at_another_url_is_a_duplicate(traps):
    assert not traps.is_duplicate(f"{HOST}/a", b"same")
    assert not traps.is_duplicate(f"{HOST}/a", b"same"), "the same page again"
    assert traps.is_duplicate(f"{HOST}/b", b"same")
    assert not traps.is_duplicate("http://other.test/b", b"same")
    assert not traps.is_duplicate(f"{HOST}/c", b"")


def test_memory_is_bounded(traps):
    for number in range(120_000):
        admit(traps, f"{HOST}/{letters(number)}{number}x/?id=1", 1, None)
        traps.is_duplicate(f"{HOST}/{number}", b"%d" % number)
    assert len(traps._patterns) <= 50_000
    assert len(traps._paths) <= 50_000
    assert len(traps._shapes) <= 50_000
    assert len(traps._contents) <= 100_000


def test_links_that_are_judged_together_are_judged_as_one_by_one():
    urls = [f"{HOST}/a/{number}?p={number}" for number in range(1, 200, 7)]
    urls += [f"{HOST}/x/x/x/x", f"{HOST}:8080/a/100", f"{HOST}0/a/1", "http://127.0.0.1/a/20", f"{HOST}/"]
    for links in (urls, urls[:20], urls[:1]):
        together, singly = TrapDetector(Settings()), TrapDetector(Settings())
        verdicts = [verdict for amount, verdict in together.admit_all(links, 1, None) for _ in range(amount)]
        assert verdicts == [admit(singly, url, 1, None) for url in links]
        assert [together.path_of(url) is None for url in links] == [
            singly.path_of(url) is None for url in links
        ]
    assert together.path_of(f"{HOST}/a/20?p=7") is together.path_of(f"{HOST}/a/1?p=3")


@given(st.lists(st.tuples(st.sampled_from([b"a", b"aa", b"", b"b"]), st.integers(1, 40)), min_size=1))
def test_equal_lines_in_a_row_are_counted(parts):
    lines = [line for line, amount in parts for _ in range(amount)]
    runs = list(_runs(b"\n".join(lines)))
    assert [line for line, amount in runs for _ in range(amount)] == lines
    assert all(line != following for (line, _), (following, _) in pairwise(runs))


SPELLINGS = st.builds(
    "{}/{}/{}".format,
    st.sampled_from([HOST, HOST, HOST, f"{HOST}0", "http://127.0.0.1:8000"]),
    st.sampled_from(["a", "a", "b/1", "x/x/x/x/x", "x/1/x/2/x"]),
    st.one_of(st.integers(0, 2_000).map(str), st.sampled_from(["c", "00", "1?p=1", "2?p=2", "3?q=1"])),
)


@given(st.lists(SPELLINGS, min_size=1, max_size=150), st.sampled_from([None, 1, 3, 70]), st.booleans())
def test_links_in_any_order_are_judged_as_one_by_one(links, max_urls, is_repetitive):
    detectors = [TrapDetector(Settings(max_urls_per_pattern=max_urls)) for _ in range(2)]
    for detector in detectors:
        admit(detector, f"{HOST}/a/1", 1, None)
        if is_repetitive:
            detector._find(f"{HOST}/a/1").path.stale = 50
    together, singly = detectors
    judged = together.admit_all(links, 1, together.path_of(links[0]))
    verdicts = [verdict for amount, verdict in judged for _ in range(amount)]
    parent = singly.path_of(links[0])
    assert verdicts == [admit(singly, url, 1, parent) for url in links]
    assert together.path_of(f"{HOST}1/a/20?p=7") is None
