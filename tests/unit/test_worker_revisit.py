"""Data that a worker remembers of a page, and conditional requests for it."""

import gzip
import math
import time
from datetime import UTC, datetime

import msgspec
import pytest
import xxhash

from skitter.frontier.records import Lease, PageChange, PageVisit, Resolution
from skitter.links import Links
from skitter.request import Request, encode_request
from skitter.response import Response
from skitter.settings import Settings
from skitter.worker.page import ChangeHistory, Page, PageMemory
from skitter.worker.retry import RetryDecision
from skitter.worker.revisit import (
    MAX_TRUST,
    Revisits,
    RevisitSchedule,
    latest_change,
    pack_links,
    trusts_lastmod,
    unpack_links,
    visit_of,
)

URL = "http://h.test/page"
DIGEST = xxhash.xxh3_128_digest(b"body", 200)
OLD, DATE = "Tue, 01 Jan 2030 00:00:00 GMT", "Tue, 01 Jan 2030 00:00:10 GMT"


def page_of(request=None, memory=None):
    request = request or Request(URL)
    lease = Lease(1, bytes(16), "h.test", request.url, encode_request(request), 0, 0, 0.0, None, memory)
    return Page(lease, request, lease.fingerprint)


def revisits(number=2, **settings):
    settings.setdefault("changes", "all")
    found = Revisits(Settings(**settings), renders_pages=False)
    found.begin_pass(number, None)
    return found


def visited(asker, headers=(), body=b"body", items=(), results=(), memory=None, status=200):
    """Process a page to its end, and return it."""
    page = page_of(memory=memory)
    asker.begin(page)
    page.response = Response(URL, status, headers=dict(headers), body=body)
    if not asker.is_unchanged(page, page.response):
        page.items = asker.select(list(items), page)
        page.visit = asker.visit(page, results, ())
    return page


def sent_again(headers, request=None, **settings):
    """Return the headers of the second request for a page whose first answer had these headers."""
    first = visited(revisits(1), headers)
    asker = revisits(**settings)
    page = page_of(request, first.visit.memory)
    asker.begin(page)
    return asker.conditional(page, page.request).headers


def test_validators_are_sent_as_they_came():
    assert sent_again({"ETag": 'W/"x"', "Last-Modified": OLD, "Date": DATE}) == {
        "If-None-Match": 'W/"x"', "If-Modified-Since": OLD,
    }  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Last-Modified": DATE, "Date": DATE},
        {"Last-Modified": DATE, "Date": OLD},
        {"Last-Modified": "yesterday", "Date": DATE},
    ],
)
def test_a_date_that_is_not_older_than_the_response_is_not_a_validator(headers):
    assert sent_again(headers) == {}


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, method="POST"),
        Request(URL, headers={"range": "bytes=0-9"}),
        Request(URL, fetcher="browser"),
        Request(URL, browsing={"wait_until": "load"}),
        Request(URL, dont_filter=True),
    ],
)
def test_some_requests_are_never_conditional(request_):
    assert sent_again({"ETag": '"x"'}, request_) == dict(request_.headers)


def test_a_request_that_a_rule_gives_to_a_browser_is_not_conditional():
    rules = ({"domain_glob": "*.test", "fetcher": "browser"},)
    assert sent_again({"ETag": '"x"'}, fetcher_rules=rules) == {}


def test_the_memory_of_another_version_only_means_that_the_page_is_known():
    for memory in (b"", b"\xc1", msgspec.msgpack.encode(PageMemory(version=99, digest=DIGEST))):
        page = visited(revisits(), memory=memory)
        assert page.visit.change is PageChange.CHANGED


def test_the_status_belongs_to_the_content():
    memory = visited(revisits(1)).visit.memory
    assert visited(revisits(), memory=memory).visit is None  # unchanged; the pipeline records it
    assert visited(revisits(), memory=memory, status=203).visit.change is PageChange.CHANGED


def test_a_file_that_was_only_compressed_again_is_unchanged():
    first = visited(revisits(1), body=gzip.compress(b"<urlset/>", mtime=1))
    again = visited(revisits(), body=gzip.compress(b"<urlset/>", mtime=2), memory=first.visit.memory)
    assert again.visit is None
    other = visited(revisits(), body=gzip.compress(b"<urlset> </urlset>", mtime=1), memory=first.visit.memory)
    assert other.visit.change is PageChange.CHANGED


def test_only_items_with_new_content_are_delivered():
    settings = {"changes": "changed"}
    first = visited(revisits(1, **settings), items=[{"a": 1}, {"a": 2}])
    assert first.items == [{"a": 1}, {"a": 2}]
    second = visited(revisits(**settings), body=b"2", items=[{"a": 2}, {"a": 3}], memory=first.visit.memory)
    assert second.items == [{"a": 3}]
    third = visited(revisits(**settings), body=b"3", items=[{"a": 2}, {"a": 1}], memory=second.visit.memory)
    assert third.items == [{"a": 1}]


def test_keys_of_items_differ_by_pass_unless_items_are_replaced():
    keys = {visited(revisits(number, changes="changed")).item_key for number in (1, 2, 3)}
    assert len(keys) == 3
    assert {visited(revisits(number)).item_key for number in (1, 2, 3)} == {bytes(16)}


def test_links_are_replayed_as_the_callback_yielded_them():
    results = [
        {"an": "item"},
        Links(URL, ["a", "../b#c"], {"callback": "parse_b", "meta": {"k": [1]}, "priority": 3}),
        Request("http://h.test/1", callback="parse_c"),
        Request("http://h.test/2", callback="parse_c"),
        Request("http://user:word@h.test/3", callback="parse_c"),
        Request("http://h.test/4", method="POST", body=b"x", dont_filter=True),
    ]
    hop = Request("http://h.test/hop", redirects=(URL,), depth=2)
    found, hops = unpack_links(PageMemory(links=pack_links(results, [hop])), URL)
    links, requests, secret, post = found
    assert (links.base_url, links.hrefs, links.fields) == (URL, ["a", "../b#c"], results[1].fields)
    assert list(requests) == results[2:4]
    assert secret == results[4]
    assert list(post) == [results[5]]
    assert hops == [hop]


def test_a_page_without_links_remembers_none():
    assert pack_links([{"an": "item"}, None], []) == b""
    assert unpack_links(PageMemory(), URL) == ([], [])


def test_a_page_whose_items_cannot_be_stored_keeps_the_visit_before():
    page = visited(revisits(1))
    page.finish(RetryDecision(Resolution.FAILED, "store: full"))
    assert (visit_of(page).change, visit_of(page).memory) == (PageChange.UNCHECKED, None)
    page.finish(RetryDecision(Resolution.RETRY, "again"))
    assert visit_of(page) is None


# --- the pages that a pass fetches again --------------------------------------------------------------------

DAY = 86_400.0


class Notes:
    """The two methods of a frontier's notes that a schedule uses."""

    def __init__(self):
        self.value = None

    async def get(self, key):
        return self.value

    async def put(self, key, value, ttl):
        self.value = value


def checked(times, changes, interval=DAY):
    """Return the history of a page that was fetched and compared at equal intervals, the last time at the time 0."""
    history = ChangeHistory(-times * interval)
    for number in range(times):
        history = history.after((number + 1 - times) * interval, is_changed=number < changes)
    return history


def test_a_page_that_has_not_changed_is_not_taken_for_static():
    rates = [checked(times, 0).rate(0.0) for times in (1, 4, 16)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


@pytest.mark.parametrize(("times", "changes"), [(10, 0), (10, 5), (10, 10), (30, 3)])
def test_the_rate_is_that_of_the_published_estimator(times, changes):
    expected = -math.log((times - changes + 0.5) / (times + 1))
    assert checked(times, changes).rate(0.0) * DAY == pytest.approx(expected)


def test_the_rate_follows_a_page_that_begins_to_change():
    history = checked(64, 0)
    for day in range(1, 33):
        history = history.after(day * DAY, is_changed=True)
    assert history.rate(32 * DAY) * DAY > 0.5


def test_a_fetch_gains_more_the_longer_it_is_ago():
    history = checked(5, 2)
    gains = [history.gain(days * DAY) for days in (0, 0.5, 1, 2, 10)]
    assert gains == sorted(gains)
    assert gains[0] < 1


def test_a_page_that_changes_all_the_time_gains_less_than_one_that_changes_now_and_then():
    always, sometimes, hardly = checked(20, 20), checked(20, 5), checked(20, 0)
    assert sometimes.gain(5 * DAY) > always.gain(5 * DAY)
    assert sometimes.gain(2 * DAY) > hardly.gain(2 * DAY)


def histories(amount):
    return [ChangeHistory(-DAY - number) for number in range(amount)]


@pytest.mark.parametrize(("share", "due"), [(0.1, 50), (0.5, 250), (0.001, 1), (0.999, 500)])
def test_a_schedule_chooses_the_share_that_gains_most(share, due):
    pages = histories(500)
    schedule = RevisitSchedule(share, 2, pages, 0.0)
    chosen = [page for page in pages if schedule.is_due(page)]
    assert chosen == pages[-due:], "the pages that were fetched first"


async def test_the_next_pass_chooses_by_the_pages_that_the_last_one_has_met():
    notes, pages = Notes(), histories(100)
    first = await RevisitSchedule.load(notes, 0.2, 1)
    assert all(first.is_due(page) for page in pages), "nothing is known yet"
    for page in pages:
        first.record(page)
    await first.save(notes)
    second = await RevisitSchedule.load(notes, 0.2, 2)
    assert [page for page in pages if second.is_due(page)] == pages[-20:]


async def test_a_worker_that_starts_during_a_pass_makes_the_same_choice():
    notes, pages = Notes(), histories(100)
    first = await RevisitSchedule.load(notes, 0.2, 1)
    for page in pages:
        first.record(page)
    await first.save(notes)
    second = await RevisitSchedule.load(notes, 0.2, 2)
    for page in pages[-20:]:
        second.record(page.after(0.0, is_changed=False))
    await second.save(notes)
    late = await RevisitSchedule.load(notes, 0.2, 2)
    assert [page for page in pages if late.is_due(page)] == pages[-20:]


async def test_a_worker_that_meets_the_last_pages_of_a_pass_continues_the_sample():
    notes, pages = Notes(), histories(100)
    first = await RevisitSchedule.load(notes, 0.2, 1)
    for page in pages[:-1]:
        first.record(page)
    await first.save(notes)
    again = await RevisitSchedule.load(notes, 0.2, 1)
    again.record(pages[-1])
    await again.save(notes)
    second = await RevisitSchedule.load(notes, 0.2, 2)
    assert [page for page in pages if second.is_due(page)] == pages[-20:]


async def test_a_sample_is_drawn_from_all_pages():
    notes = Notes()
    first = await RevisitSchedule.load(notes, 0.2, 1)
    pages = histories(20_000)
    for page in pages:
        first.record(page)
    await first.save(notes)
    second = await RevisitSchedule.load(notes, 0.2, 2)
    due = sum(map(second.is_due, pages))
    assert 0.1 * len(pages) < due < 0.3 * len(pages)
    assert len(notes.value) < 20_000


def schedule_for_none():
    """Return a schedule that skips all pages that it may skip."""
    return RevisitSchedule(0.5, 2, [ChangeHistory(-1e9)], 0.0)


def asker_with(schedule, **options):
    found = Revisits(Settings(changes="all"), renders_pages=False, **options)
    found.begin_pass(2, schedule)
    return found


def memory_with(history=ChangeHistory(0.0), digest=DIGEST):  # noqa: B008 - immutable
    return msgspec.msgpack.encode(PageMemory(digest=digest, history=history))


@pytest.mark.parametrize(
    ("request_", "memory"),
    [
        (Request(URL, depth=1), None),
        (Request(URL, depth=1), memory_with(history=None)),
        (Request(URL, depth=1), memory_with(digest=b"")),
        (Request(URL, depth=1, dont_filter=True), memory_with()),
        (Request(URL), memory_with()),
        (Request(URL, callback="parse_sitemap", depth=2), memory_with()),
    ],
    ids=["new", "no history", "items missing", "not remembered", "seed", "sitemap"],
)
def test_some_pages_are_always_due(request_, memory):
    asker = asker_with(schedule_for_none(), listing_callbacks=("parse_sitemap",))
    page = page_of(request_, memory)
    asker.begin(page)
    assert asker.is_due(page)


def test_a_page_that_gains_too_little_is_skipped():
    asker = asker_with(schedule_for_none())
    page = page_of(Request(URL, depth=1), memory_with())
    asker.begin(page)
    assert not asker.is_due(page)
    asker.skip(page)
    assert (page.visit, page.counters) == (PageVisit(PageChange.SKIPPED), {"visits/skipped": 1})
    assert not asker.settle(page), "it is not unchecked"


def test_each_comparison_becomes_part_of_the_history():
    asker = asker_with(RevisitSchedule(0.5, 2, [], 0.0))
    memory = visited(asker).visit.memory
    for body, comparisons, changes in ((b"body", 1, 0), (b"new", 2, 1), (b"new", 3, 1)):
        page = visited(asker, body=body, memory=memory)
        if page.visit is None:
            asker.mark_unchanged(page, 200)
        memory = page.visit.memory
        found = msgspec.msgpack.decode(memory, type=PageMemory).history
        assert (found.comparisons, found.changes) == (comparisons, changes)


def test_without_a_share_no_history_is_kept():
    page = visited(revisits(), memory=visited(revisits(1)).visit.memory)
    revisits().mark_unchanged(page, 304)
    assert page.visit == PageVisit(PageChange.UNCHANGED, 304)


# --- the lastmod of sitemaps --------------------------------------------------------------------------------

HOUR = 3600.0
NOON = datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp()
LATER = NOON + 400 * DAY


def moment(text):
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("lastmod", "latest"),
    [
        ("2026-11-10T12:00:00Z", "2026-11-10T12:00:01Z"),
        ("2026-11-10T12:00:00.25z", "2026-11-10T12:00:01Z"),
        ("2026-11-10T12:00Z", "2026-11-10T12:01:00Z"),
        ("2026-11-10T21:00:00+09:00", "2026-11-10T12:00:01Z"),
        ("2026-11-10T08:30:00-0330", "2026-11-10T12:00:01Z"),
        (" 2026-11-10 12:00:00 +00:00\n", "2026-11-10T12:00:01Z"),
        ("2026-11-10T12:00:00", "2026-11-11T00:00:01Z"),
        ("2026-11-10", "2026-11-11T12:00:00Z"),
        ("2026-11", "2026-12-01T12:00:00Z"),
        ("2026-12", "2027-01-01T12:00:00Z"),
        ("2026", "2027-01-01T12:00:00Z"),
    ],
)
def test_a_lastmod_means_its_latest_possible_time_plus_an_hour(lastmod, latest):
    assert latest_change(lastmod, LATER) == moment(latest) + HOUR


@pytest.mark.parametrize(
    "lastmod",
    [
        "", "yesterday", "Tue, 10 Nov 2026 12:00:00 GMT", "10.11.2026", "2026-13-01", "2026-00-01", "2026-02-30", "0000",
        "9999", "9999-12", "2026-11-10T25:00Z", "2026-11-10T12:00:00+15:00", "2026-11-10T", "20261110",
        "\uff12026-11-10", "1" * 10_000,
    ],
)  # fmt: skip
def test_an_invalid_lastmod_is_not_used(lastmod):
    assert latest_change(lastmod, LATER) is None


@pytest.mark.parametrize(
    ("lastmod", "is_used"),
    [
        ("2026-11-10T12:59:59Z", True),
        ("2026-11-10T13:00:01Z", False),
        ("2026-11-10", True),
        ("2026-11-11", True),  # it has started in UTC+14
        ("2026-11-12", False),
        ("2026-11", True),
        ("2026-12", False),
        ("9999-12-31", False),
    ],
)
def test_a_lastmod_in_the_future_is_not_used(lastmod, is_used):
    assert (latest_change(lastmod, NOON) is not None) is is_used


def stated(seconds):
    """Return a lastmod that is this number of seconds ago."""
    return datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="seconds")


def lastmod_asker(schedule=None):
    settings = Settings(changes="all", use_lastmod=True)
    found = Revisits(settings, renders_pages=False, listing_callbacks=("parse_sitemap",))
    found.begin_pass(2, schedule)
    return found


@pytest.fixture
def always_trusted(monkeypatch):
    """Otherwise a page is occasionally due despite its lastmod, depending on the hash of its last fetch."""
    monkeypatch.setattr("skitter.worker.revisit.trusts_lastmod", lambda *_: True)


def is_due(asker, lastmod="", fetched=2 * HOUR, **fields):
    """Return whether a page is due that was fetched this number of seconds ago."""
    memory = memory_with(ChangeHistory(time.time() - fetched))
    page = page_of(Request(URL, lastmod=lastmod, **{"depth": 1, **fields}), memory)
    asker.begin(page)
    return asker.is_due(page)


@pytest.mark.usefixtures("always_trusted")
@pytest.mark.parametrize("schedule", [None, schedule_for_none()], ids=["all", "share"])
@pytest.mark.parametrize(
    ("changed", "due"),
    [(0, True), (HOUR, True), (3 * HOUR - 60, True), (3 * HOUR + 60, False), (400 * DAY, False)],
)
def test_a_page_is_due_if_its_lastmod_is_later_than_its_last_fetch(changed, due, schedule):
    assert is_due(lastmod_asker(schedule), stated(changed)) is due


@pytest.mark.usefixtures("always_trusted")
@pytest.mark.parametrize(("days", "due"), [(0, True), (1, None), (2, False), (3, False)])
def test_a_page_that_was_fetched_on_the_day_of_its_lastmod_is_due(days, due):
    """A day later, it depends on the hour of the fetch: the date may be that of UTC-12."""
    fetched = time.time() - 5 * DAY
    at = datetime.fromtimestamp(fetched, UTC)
    lastmod = datetime.fromtimestamp(fetched - days * DAY, UTC).date().isoformat()
    assert is_due(lastmod_asker(), lastmod, 5 * DAY) is ((at.hour <= 12) if due is None else due)


@pytest.mark.parametrize("lastmod", ["", "tomorrow", stated(-3 * HOUR)], ids=["none", "invalid", "future"])
def test_a_page_without_a_usable_lastmod_is_fetched_as_usual(lastmod):
    assert is_due(lastmod_asker(), lastmod)
    assert not is_due(lastmod_asker(schedule_for_none()), lastmod)


@pytest.mark.usefixtures("always_trusted")
def test_seeds_and_sitemaps_are_fetched_whatever_their_lastmod():
    old = stated(DAY)
    assert is_due(lastmod_asker(), old, depth=0)
    assert is_due(lastmod_asker(), old, callback="parse_sitemap")
    assert not is_due(lastmod_asker(), old)


def test_without_the_setting_a_lastmod_has_no_effect():
    assert is_due(revisits(), stated(DAY))
    assert not is_due(asker_with(schedule_for_none()), stated(0))


def test_a_page_is_fetched_after_90_days_although_its_lastmod_stays():
    assert is_due(lastmod_asker(), stated(400 * DAY), MAX_TRUST + 1)
    assert is_due(lastmod_asker(), stated(400 * DAY), -60), "the clock was set back"


def test_the_checks_of_many_pages_are_spread_over_the_90_days():
    pages = [number.to_bytes(16, "big") for number in range(10_000)]
    trusted = [sum(trusts_lastmod(page, NOON, NOON + days * DAY) for page in pages) for days in range(91)]
    assert (trusted[0], trusted[90]) == (10_000, 0)
    for days, left in enumerate(trusted):
        assert abs(left - 10_000 * (1 - days / 90)) < 300
    again = sum(trusts_lastmod(page, NOON + 0.5, NOON + 0.5 + DAY) for page in pages if
                not trusts_lastmod(page, NOON, NOON + DAY))  # fmt: skip
    assert again > 50, "the same pages are checked first each time"


def test_a_visit_keeps_the_time_at_which_the_fetch_began():
    asker = lastmod_asker()
    page = page_of(Request(URL, depth=1))
    asker.begin(page)
    page.began = time.monotonic() - 600
    page.response = Response(URL, 200, body=b"body")
    assert not asker.is_unchanged(page, page.response)
    assert page.new_memory.history.fetched == pytest.approx(time.time() - 600, abs=60)


def test_an_unchanged_page_has_a_new_time_of_its_last_fetch():
    asker = lastmod_asker()
    page = page_of(Request(URL, depth=1), memory_with(ChangeHistory(5.0)))
    asker.begin(page)
    asker.mark_unchanged(page, 304)
    assert page.visit.change is PageChange.UNCHANGED
    assert msgspec.msgpack.decode(page.visit.memory, type=PageMemory).history.fetched > 5.0


def test_the_share_is_chosen_from_the_pages_without_a_usable_lastmod():
    schedule = RevisitSchedule(0.5, 2, [], 0.0)
    recorded = []
    schedule.record = recorded.append
    asker = lastmod_asker(schedule)
    for lastmod in (stated(DAY), "never", ""):
        page = page_of(Request(URL, lastmod=lastmod, depth=1), memory_with())
        asker.begin(page)
        asker.skip(page)
        asker.mark_unchanged(page, 304)
    assert len(recorded) == 4


def test_remembered_links_keep_their_lastmod():
    links = Links(URL, ["a"], {"lastmod": "2026-11-01"})
    found, _ = unpack_links(PageMemory(links=pack_links([links], ())), URL)
    assert [request.lastmod for request in found[0]] == ["2026-11-01"]
