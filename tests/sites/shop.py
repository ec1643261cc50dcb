"""A shop with many possible faults, and the monitor that detects each fault."""

import json
from pathlib import Path
from typing import ClassVar

from skitter import Request, Spider
from skitter.testing import Answer

PRODUCTS = 40
FILLER = b"<!-- " + b"x" * 4000 + b" -->"

MONITORS = {
    "gone": "pages + failed >= 0.8 * median(pages + failed, 5)",
    "no_price": "coverage(price) >= 0.95",
    "forbidden": "status(403) / responses <= 0.05",
    "fewer_items": "items / pages >= 0.8 * median(items / pages, 5)",
    "slow": "duration <= 2h",
    "errors": 'failed("status/500") / responses <= 0.05',
    "new_category": "new_values(category) == 0",
    "invalid": "invalid / items <= 0.01",
    "moved": "redirects / responses <= 0.1",
    "sold_out": "stat(sold_out) / items <= 0.5",
    "thin": "bytes / responses >= 0.5 * median(bytes / responses, 5)",
}
"""The monitor that detects each fault, by the name of the fault."""


class Shop:
    """Serves products. ``fault``: the name of the current fault, or an empty string. ``when_slow``: delays responses.

    ``fault_file``: contains the name of the fault, for a shop in a separate process.
    """

    def __init__(self, fault="", when_slow=None, fault_file=None):
        self.fault = fault
        self._fault_file = fault_file and Path(fault_file)
        self._when_slow = when_slow

    def __call__(self, visit):
        if visit.path == "/robots.txt":
            return Answer(status=404)
        if self._fault_file:
            self.fault = self._fault_file.read_text()
        if self.fault == "slow":
            self._when_slow()
        product = visit.path.rpartition("/")[2]
        number = int(product)
        faults = {
            "forbidden": Answer(FILLER, status=403),
            "errors": Answer(FILLER, status=500) if number % 2 else None,
            "moved": None
            if visit.path.startswith("/new/")
            else Answer(FILLER, status=302, headers={"Location": f"/new/{product}"}),
        }
        return faults.get(self.fault) or self._page(number)

    def _page(self, number):
        item = {
            "id": number,
            "price": number + 0.5,
            "category": f"c{number % 4}",
            "sold_out": number % 5 == 0,
        }
        fault = self.fault
        if fault == "no_price":
            item["price"] = None
        elif fault == "new_category" and number == 7:
            item["category"] = "toys"
        elif fault == "invalid":
            item["price"] = "on request"
        elif fault == "sold_out":
            item["sold_out"] = True
        items = [] if fault == "fewer_items" and number % 2 else [item]
        filler = b"" if fault == "thin" else FILLER
        return Answer(b"<p>" + json.dumps(items).encode() + b"</p>" + filler)


class ShopSpider(Spider):
    """``url``: the shop. ``products``: number of products to request."""

    url = ""
    products = PRODUCTS
    monitors = tuple({"name": name, "rule": rule} for name, rule in MONITORS.items())
    item_schema: ClassVar = {"properties": {"price": {"type": ["number", "null"]}}}
    custom_settings: ClassVar = {"robots": False, "delay": 0, "concurrency_per_slot": 8, "max_retries": 0}

    async def start(self):
        for number in range(int(self.products)):
            yield Request(f"{self.url}{number}")

    def parse(self, response):
        for item in json.loads(response.css("p::text").get()):
            if item.pop("sold_out"):
                self.stats.inc_value("sold_out")
            yield item
