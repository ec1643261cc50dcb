"""HTTP dates: Retry-After with seconds, dates and invalid values, and Last-Modified."""

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.web.headers import parse_retry_after, strong_last_modified

NOW = "Tue, 14 Nov 2023 22:13:20 GMT"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        (" 120 ", 120),
        ("007", 7),
        ("86400", 86_400),
        ("86401", 86_400),
        ("9" * 5000, 86_400),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0),
        ("Tue, 14 Nov 2023 21:00:00 GMT", 0),
        ("Tuesday, 14-Nov-23 22:14:20 GMT", 60),
        ("Tue Nov 14 22:14:20 2023", 60),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
    ],
)
def test_both_forms_give_seconds_from_now_within_a_day(value, seconds):
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    "value", [None, "", "soon", "-5", "1.5", "+3", "٣", "1e3", "Tue, 99 Nov 2023", "0x10"]
)
def test_any_other_value_returns_none(value):
    assert parse_retry_after(value, NOW) is None


@pytest.mark.parametrize("date", [None, "", "today"])
def test_without_a_valid_date_header_the_clock_of_the_machine_counts(date):
    assert 118 <= parse_retry_after(formatdate(time.time() + 120, usegmt=True), date) <= 121


@given(st.text())
def test_no_value_raises_an_error(value):
    seconds = parse_retry_after(value, value)
    assert seconds is None or 0 <= seconds <= 86_400


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def local_zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("local_zone")
@pytest.mark.parametrize(
    ("modified", "is_strong"),
    [("Sun Nov  6 08:49:37 1994", False), ("Sun Nov  6 07:49:37 1994", True), ("a b c", False)],
)
def test_a_date_without_a_zone_is_in_utc(modified, is_strong):
    found = strong_last_modified(modified, "Sun, 06 Nov 1994 08:49:37 GMT")
    assert found == (modified if is_strong else "")
