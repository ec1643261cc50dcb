"""Item schemas: violations by field and kind, for every kind of schema."""

import dataclasses
import decimal
from datetime import date
from typing import Annotated, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.errors import SettingsError
from skitter.item_schema import make_item_schema

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Offer(msgspec.Struct):
    price: Positive


class StructShop(msgspec.Struct):
    title: str
    offers: list[Offer]
    day: date | None = None


@dataclasses.dataclass
class DataclassOffer:
    price: Positive


@dataclasses.dataclass
class DataclassShop:
    title: str
    offers: list[DataclassOffer]
    day: date | None = None


@attrs.define
class AttrsShop:
    title: str
    offers: list[Offer]
    day: date | None = None


class TypedShop(TypedDict):
    title: str
    offers: list[Offer]


class ModelOffer(pydantic.BaseModel):
    price: float = pydantic.Field(gt=0)


class ModelShop(pydantic.BaseModel):
    title: str
    offers: list[ModelOffer]
    day: date | None = None


JSON_SCHEMA = {
    "type": "object",
    "required": ["title", "offers"],
    "properties": {
        "title": {"type": "string"},
        "offers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["price"],
                "properties": {"price": {"type": "number", "exclusiveMinimum": 0}},
            },
        },
    },
}
SCHEMAS = [StructShop, DataclassShop, AttrsShop, TypedShop, ModelShop, JSON_SCHEMA]
GOOD = {"title": "x", "offers": [{"price": 1.5}, {"price": 2}]}


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: getattr(schema, "__name__", "json"))
@pytest.mark.parametrize(
    ("item", "violation"),
    [
        (GOOD, None),
        ({"offers": []}, ("title", "missing")),
        ({"title": 7, "offers": []}, ("title", "type")),
        ({"title": "x", "offers": [{"price": 1}, {}]}, ("offers.price", "missing")),
        ({"title": "x", "offers": [{"price": 1}, {"price": "much"}]}, ("offers.price", "type")),
        ({"title": "x", "offers": [{"price": 0}, {"price": -1}]}, ("offers.price", "value")),
    ],
)
def test_violations_are_named_by_field_and_kind(schema, item, violation):
    assert make_item_schema(schema).violations(item) == ([] if violation is None else [violation])


@pytest.mark.parametrize("schema", SCHEMAS[:3] + SCHEMAS[4:])
def test_items_of_other_classes_are_checked_by_what_is_stored(schema):
    day = date(2026, 1, 2)
    assert make_item_schema(schema).violations(StructShop("x", [Offer(1.0)], day)) == []
    assert make_item_schema(schema).violations({**GOOD, "day": day}) == []
    assert make_item_schema(schema).violations(DataclassShop("x", [DataclassOffer(-1.0)])) == [
        ("offers.price", "value")
    ]


def test_keys_may_be_numbers_and_dates():
    class Prices(msgspec.Struct):
        by_size: dict[int, float] = {}
        by_day: dict[date, float] = {}

    schema = make_item_schema(Prices)
    assert schema.violations(Prices({42: 1.0}, {date(2026, 1, 2): 2.0})) == []
    assert schema.violations({"by_size": {"large": 1.0}}) == [("by_size", "type")]


def test_a_strict_class_names_fields_that_it_does_not_know():
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        price: decimal.Decimal

    assert make_item_schema(Strict).violations({"price": decimal.Decimal("1.5")}) == []
    assert make_item_schema(Strict).violations({"price": "1.5", "x": 1}) == [("x", "extra")]
    assert make_item_schema({"additionalProperties": False}).violations({"x": 1}) == [("", "extra")]


def test_a_dotted_path_names_a_class():
    assert make_item_schema("skitter.politeness:HostLimits").violations({"delay": "x"}) == [("delay", "type")]


@pytest.mark.parametrize(
    "given", [7, "nowhere:Name", "skitter.politeness:Missing", {"type": "nothing"}, int, [GOOD]]
)
def test_an_invalid_schema_is_rejected(given):
    with pytest.raises(SettingsError) as refused:
        make_item_schema(given)
    assert refused.value.field in {"item_schema", ""}


class Shop(Spider):
    """Half of its prices are texts, and one is missing."""

    item_schema = ModelOffer

    async def start(self):
        for number in range(8):
            yield Request(f"{self.url}{number}")

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        yield {"price": 1.0, "number": number}
        if number % 2:
            yield {"price": "cheap", "number": number}
        if number == 0:
            yield {"number": number}


PAGES = {f"/{number}": [] for number in range(8)}


@pytest.mark.parametrize(("policy", "items", "letters"), [("keep", 13, 0), ("drop", 8, 0), ("fail", 3, 5)])
async def test_invalid_items_are_counted_and_kept_dropped_or_fail_their_page(
    serve, tmp_path, policy, items, letters
):
    spider = Shop(url=serve(Scripted(PAGES)).url)
    ran = await CrawlHarness(spider, tmp_path, invalid_items=policy).run(2)
    assert (len(ran.items), len(ran.letters)) == (items, letters)
    assert ran.counters.get("items", 0) == items
    assert ran.counters["invalid"] == 5
    assert ran.counters.get("dropped_items/invalid", 0) == (5 if policy == "drop" else 0)
    assert (ran.counters["invalid/price/type"], ran.counters["invalid/price/missing"]) == (4, 1)
    assert {error.partition(":")[0] for error in ran.letters.values()} <= {"invalid"}
