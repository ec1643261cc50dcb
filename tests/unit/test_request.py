"""Request: immutable, stored without loss or refused, and with one identity."""

import copy
import datetime as dt
import enum
import pickle
from collections import OrderedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skitter.browsing import Browsing, Click, Fill, Wait
from skitter.errors import MissingFingerprintKey, RequestError, UndecodableRecord
from skitter.request import (
    RECORD_VERSION,
    Request,
    decode_request,
    encode_request,
    fingerprint,
    fingerprint_of_url,
)

FULL = {
    "url": "https://h.example/p?b=2&a=1",
    "callback": "parse_page",
    "method": "POST",
    "headers": {"X-A": "1", "Accept": "text/html"},
    "body": b"\x00\xffbody",
    "errback": "on_failure",
    "cb_kwargs": {"page": 3, "names": ["a", "b"]},
    "meta": {
        "when": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "deep": {"x": [1.5, None, True, b"\x00"], "7": -(2**63)},
    },
    "encoding": "cp1252",
    "max_body": 5_000_000,
    "truncate_body": True,
    "lastmod": "2026-11-01",
    "priority": -5,
    "queue": "details",
    "depth": 4,
    "dont_filter": True,
    "cookies": {"sid": "x"},
    "session": "alice",
    "fingerprint_keys": ("when",),
    "delay": 1.5,
    "not_before": 1e9,
    "timeout": 7.5,
    "max_retries": 0,
    "proxy": "http://u:p@proxy:3128",
    "referer": "https://h.example/",
    "redirects": ("https://h.example/old",),
    "cookie_hop": 1,
    "depth_limit": 3,
    "fetcher": "browser",
    "browsing": Browsing("commit", Wait("h1"), (Click("#more"), Fill("#q", "x")), keep_page=True),
}


def stored(request):
    return decode_request(request.url, encode_request(request))


def parse_page():
    """A callback."""


def test_every_field_is_stored():
    assert {*FULL, "retries", "is_last_attempt"} == set(Request.__struct_fields__)
    request = Request(**FULL)
    assert stored(request) == request
    assert all(getattr(stored(request), name) == value for name, value in FULL.items())


SURROGATE = "\ud800"


@pytest.mark.parametrize("name", [name for name in FULL if name != "url"])
def test_each_field_is_stored_alone(name):
    request = Request(FULL["url"], **{name: FULL[name]})
    assert stored(request) == request != Request(FULL["url"])


def test_the_number_of_the_attempt_is_not_stored():
    request = Request("http://h/", retries=3, is_last_attempt=True)
    assert stored(request) == Request("http://h/")
    assert encode_request(request) == encode_request(Request("http://h/"))


def test_defaults_are_not_stored():
    assert encode_request(Request("http://h/")) == encode_request(Request("http://other/x"))
    assert len(encode_request(Request("http://h/"))) < 10


def test_the_record_begins_with_its_version():
    assert encode_request(Request("http://h/"))[0] == RECORD_VERSION


@pytest.mark.parametrize("version", [0, RECORD_VERSION + 1, 255])
def test_another_version_is_refused_and_named(version):
    record = bytes([version]) + encode_request(Request("http://h/"))[1:]
    with pytest.raises(UndecodableRecord, match=rf"version {version}\b") as caught:
        decode_request("http://h/", record)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "record",
    [b"", bytes([RECORD_VERSION]), encode_request(Request(**FULL))[:-1], bytes([RECORD_VERSION]) + b"\xc1",
     bytes([RECORD_VERSION]) + msgspec.msgpack.encode({"url": "", "depth": "deep"}),
     bytes([RECORD_VERSION]) + msgspec.msgpack.encode([1])],
)  # fmt: skip
def test_a_damaged_record_is_refused(record):
    with pytest.raises(UndecodableRecord):
        decode_request("http://h/", record)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_a_damaged_record_decodes_to_a_request_or_an_error(junk, place):
    whole = encode_request(Request(**FULL))
    for record in (whole[:place] + junk + whole[place + len(junk) :], bytes([RECORD_VERSION]) + junk):
        try:
            assert isinstance(decode_request("http://h/", record), Request)
        except UndecodableRecord as refusal:
            assert str(refusal)


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("meta", "path"),
    [
        ({"a": object()}, r"meta\['a'\] is an object"),
        ({"a": {"b": [1, {2}]}}, r"meta\['a'\]\['b'\]\[1\] is a set"),
        ({"when": dt.datetime(2026, 1, 1)}, r"meta\['when'\] is a datetime"),  # noqa: DTZ001 - naive on purpose
        ({"c": Colour.RED}, r"meta\['c'\] is a Colour"),
        ({(1, 2): {3}}, r"meta\[\(1, 2\)\] is a set"),
        ({"r": Request("http://h/")}, r"meta\['r'\] is a Request"),
    ],
)
def test_a_value_that_would_not_come_back_is_refused_and_named(meta, path):
    with pytest.raises(RequestError, match=path) as caught:
        encode_request(Request("http://h/", meta=meta))
    assert caught.value.remedy
    with pytest.raises(RequestError, match=path.replace("meta", "cb_kwargs", 1)):
        encode_request(Request("http://h/", cb_kwargs=meta))


@pytest.mark.parametrize(
    "fields",
    [{"meta": {"a": 2**64}}, {"meta": {"a": "\ud800"}}, {"priority": "high"}, {"headers": {"X": 1}}, {"headers": None},
     {"delay": "1"}, {"fingerprint_keys": "page"}, {"cookies": []}, {"callback": "x", "depth": 1.5}, {"proxy": 1}],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_refused_before_it_is_stored(fields):
    with pytest.raises(RequestError, match="http://h/") as caught:
        encode_request(Request("http://h/", **fields))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"headers": {"X-Name": SURROGATE}}, "headers"),
        ({"cookies": {"name": SURROGATE}}, "cookies"),
        ({"meta": {"name": SURROGATE}}, "meta"),
        ({"cb_kwargs": {SURROGATE: 1}}, "cb_kwargs"),
        ({"session": SURROGATE}, "session"),
    ],
)
def test_a_field_with_a_lone_surrogate_is_refused_and_named(fields, name):
    with pytest.raises(RequestError, match=f"http://h/.*: {name} contains a lone surrogate") as caught:
        encode_request(Request("http://h/", **fields))
    assert caught.value.remedy


def test_a_body_with_a_lone_surrogate_is_refused():
    with pytest.raises(RequestError, match="body contains a lone surrogate"):
        Request("http://h/", method="POST", body=SURROGATE)


@pytest.mark.parametrize("fields", [{"name": SURROGATE}, {SURROGATE: "value"}, {"name": ["good", SURROGATE]}])
def test_a_form_field_with_a_lone_surrogate_is_refused_and_named(fields):
    (name,) = fields
    with pytest.raises(RequestError) as caught:
        Request.form("http://h/", fields)
    assert str(caught.value) == f"the form field {name!r} contains a lone surrogate"


def test_an_endless_meta_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(RequestError):
        encode_request(Request("http://h/", meta={"a": endless}))


def test_callbacks_are_kept_by_name():
    class Spider:
        def parse_it(self):
            """A callback."""

    request = Request("http://h/", Spider().parse_it, errback=parse_page)
    assert (request.callback, request.errback) == ("parse_it", "parse_page")
    assert request.replace(callback=parse_page).callback == "parse_page"
    assert copy.deepcopy(request) == pickle.loads(pickle.dumps(request)) == request
    assert type(decode_request(request.url, encode_request(request)).callback) is str


@pytest.mark.parametrize("callback", [lambda response: None, 5, object()])
def test_a_callback_without_a_name_is_refused(callback):
    for name in ("callback", "errback"):
        with pytest.raises(RequestError, match="no name"):
            Request("http://h/", **{name: callback})


def test_bodies_become_bytes():
    assert Request("http://h/", body="é").body == "é".encode()
    assert Request("http://h/", body=bytearray(b"a")).body == b"a"
    with pytest.raises(RequestError, match="int"):
        Request("http://h/", body=5)


def test_a_request_cannot_be_changed():
    with pytest.raises(AttributeError):
        Request("http://h/").url = "x"
    assert Request("http://h/").replace(depth=2) == Request("http://h/", depth=2)


def test_a_dict_may_change_after_its_request():
    given = {
        "meta": {"page": 1},
        "cb_kwargs": {"page": 1},
        "headers": {"X-Page": "1"},
        "cookies": {"page": "1"},
    }
    request = Request("http://h.test/", **given)
    copy_of_it = request.replace(priority=1)
    for value in (*given.values(), request.meta, request.headers):
        value.clear()
    assert (request.cb_kwargs, request.cookies) == ({"page": 1}, {"page": "1"})
    assert (copy_of_it.meta, copy_of_it.headers) == ({"page": 1}, {"X-Page": "1"})


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_dict_that_is_filled_after_its_request_is_not_part_of_it(kind):
    meta = kind()
    request = Request("http://h.test/", meta=meta)
    meta["page"] = 2
    assert request.meta == {}


def test_a_method_has_one_spelling():
    assert Request("http://h/", method="post") == Request("http://h/", method="POST")


SEED = 12345


def identity(url="http://h/", **fields):
    return fingerprint(Request(url, **fields), SEED)


def test_a_plain_get_has_the_fingerprint_of_its_canonical_url():
    assert identity("http://H/?b=1&a=2#x") == fingerprint_of_url("http://h/?a=2&b=1", SEED)
    assert len(identity()) == 16


def test_none_of_these_distinguishes_requests():
    same = [
        identity(callback="other"),
        identity(method="get"),
        identity(headers={"A": "b"}),
        identity(meta={"a": 1}),
        identity(priority=3, depth=2, cookies={"a": "b"}, proxy="http://p"),
        identity("HTTP://H:80/#fragment"),
    ]
    assert set(same) == {identity()}


def test_each_of_these_distinguishes_requests():
    different = [
        identity(),
        identity("http://h/a"),
        identity("https://h/"),
        identity(method="POST"),
        identity(method="PUT"),
        identity(body=b"x"),
        identity(method="POST", body=b"x"),
        identity(method="POST", body=b"y"),
        identity(meta={"k": 1}, fingerprint_keys=("k",)),
        identity(meta={"k": 2}, fingerprint_keys=("k",)),
        identity(meta={"k": "1"}, fingerprint_keys=("k",)),
        identity(meta={"j": 1}, fingerprint_keys=("j",)),
        identity(meta={"k": 1, "j": 2}, fingerprint_keys=("k", "j")),
        fingerprint(Request("http://h/"), SEED + 1),
    ]
    assert len(set(different)) == len(different)


def test_the_order_of_keys_does_not_matter():
    first = identity(meta={"k": {"a": 1, "b": 2}, "j": 2}, fingerprint_keys=("k", "j"))
    assert first == identity(meta={"j": 2, "k": {"b": 2, "a": 1}}, fingerprint_keys=["j", "k"])


def test_fingerprints_never_change():
    """They are stored. If you change them, increase FINGERPRINT_VERSION and update these values."""
    assert identity("http://h/?b=%7e&a=%e9").hex() == "541e21ad0e16b13326b85294cf53e4f2"
    assert (
        identity(method="POST", body=b"x", meta={"k": [1, "a"]}, fingerprint_keys=("k",)).hex()
        == "e09635b36074b139d9527e977adeee22"
    )


def test_a_missing_fingerprint_key_is_named():
    with pytest.raises(MissingFingerprintKey, match="'page'") as caught:
        identity(meta={"other": 1}, fingerprint_keys=("page",))
    assert "page" in caught.value.remedy


def test_a_url_without_identity_and_a_key_value_without_form_are_refused():
    with pytest.raises(RequestError, match="/relative"):
        identity("/relative")
    with pytest.raises(RequestError, match="http://h/"):
        identity(meta={"k": object()}, fingerprint_keys=("k",))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.builds(
        Request,
        url=st.text(),
        method=st.sampled_from(["GET", "POST"]),
        body=st.binary(),
        headers=st.dictionaries(st.text(), st.text(), max_size=2),
        meta=st.dictionaries(st.text(), PLAIN, max_size=3),
        cb_kwargs=st.dictionaries(st.text(), PLAIN, max_size=3),
        priority=st.integers(-(2**63), 2**63 - 1),
        delay=st.floats(allow_nan=False),
        timeout=st.none() | st.floats(allow_nan=False),
        redirects=st.lists(st.text(), max_size=2).map(tuple),
    )
)
def test_any_request_comes_back_as_it_was(request):
    assert stored(request) == request


# --- forms and JSON --------------------------------------------------------------------------------


def test_a_form_is_sent_as_html_forms_are():
    request = Request.form(
        "https://h.example/login", {"user": "ann", "tags": ["ä b", "c&d"], "n": 3, "x": None}, "parse_page"
    )
    assert request.method == "POST"
    assert request.body == b"user=ann&tags=%C3%A4+b&tags=c%26d&n=3"
    assert request.headers == {"Content-Type": "application/x-www-form-urlencoded"}
    assert request.callback == "parse_page"


def test_a_form_takes_pairs_and_the_other_fields_of_a_request():
    request = Request.form(
        "https://h.example/",
        [("a", b"\xff"), ("a", "2")],
        headers={"content-type": "x/y", "X-A": "1"},
        meta={"k": 1},
    )
    assert request.body == b"a=%FF&a=2"
    assert request.headers == {"content-type": "x/y", "X-A": "1"}
    assert request.meta == {"k": 1}


def test_a_form_with_get_replaces_the_query():
    request = Request.form("https://h.example/search?old=1", {"q": "a b"}, method="get")
    assert request == Request("https://h.example/search?q=a+b")


@pytest.mark.parametrize("value", [{"a": 1}, object(), [["nested"]]])
def test_a_form_refuses_a_value_that_is_not_text(value):
    with pytest.raises(RequestError) as raised:
        Request.form("https://h.example/", {"name": value})
    assert raised.value.field == "fields"
    assert "'name'" in str(raised.value)


@pytest.mark.parametrize("fields", ["a=b", b"a=b", 5, None, ["a"]])
def test_a_form_refuses_what_is_neither_a_dict_nor_pairs(fields):
    with pytest.raises(RequestError) as raised:
        Request.form("https://h.example/", fields)
    assert raised.value.field == "fields"


def test_json_is_sent_with_its_media_type():
    request = Request.json(
        "https://h.example/api", {"b": [1, None, "ä"], "a": dt.date(2026, 1, 2)}, "parse_page", session="ann"
    )
    assert request.method == "POST"
    assert request.body == '{"a":"2026-01-02","b":[1,null,"ä"]}'.encode()
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Accept"].startswith("application/json")
    assert (request.callback, request.session) == ("parse_page", "ann")


def test_equal_json_is_one_request():
    requests = [
        Request.json("https://h.example/api", data, method="PUT")
        for data in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    ]
    assert fingerprint(requests[0], 7) == fingerprint(requests[1], 7)
    assert requests[0].method == "PUT"


def test_headers_of_json_can_be_given():
    request = Request.json(
        "https://h.example/api", {}, headers={"accept": "text/csv", "content-type": "text/json"}
    )
    assert request.headers == {"accept": "text/csv", "content-type": "text/json"}


def test_json_refuses_what_it_cannot_express():
    with pytest.raises(RequestError) as raised:
        Request.json("https://h.example/api", {"a": object()})
    assert raised.value.field == "data"
