"""Limit rules: gentle to one host, brisk with another; the first rule that matches holds."""

from skitter import Spider


class Gentle(Spider):
    start_urls = ["http://127.0.0.1:8000/quotes/"]
    custom_settings = {
        "concurrency_per_slot": 8,
        "limit_rules": [
            # No more than two in flight, 0.1 to 0.2 s apart, and never more than 5 in a second.
            {
                "domain_glob": "127.0.0.1",
                "concurrency_per_slot": 2,
                "delay": 0.1,
                "jitter": 0.1,
                "rates": ["5/s"],
            },
            # One pool for all hosts of a provider.
            {"domain_glob": "*.example.net", "rates": ["1/2s", "20/m"], "unit": "rule"},
            # Each registered domain by itself.
            {"domain_regexp": r".*\.(org|com)", "delay": 1, "unit": "domain"},
        ],
    }

    def __init__(self, site=None, **arguments):
        super().__init__(**arguments)
        if site is not None:
            self.start_urls = [f"{site}/quotes/"]

    def parse(self, response):
        yield {"url": response.url, "quotes": len(response.css("li.quote"))}
        yield response.follow_all("li.next a")
