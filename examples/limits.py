"""Limit rules: slow for one host, fast for another. The first matching rule applies."""

from skitter import Spider


class Gentle(Spider):
    start_urls = ["http://127.0.0.1:8000/quotes/"]
    custom_settings = {
        "concurrency_per_slot": 8,
        "limit_rules": [
            # At most two fetches in flight, 0.1 to 0.2 s apart, and at most 5 per second.
            {
                "domain_glob": "127.0.0.1",
                "concurrency_per_slot": 2,
                "delay": 0.1,
                "jitter": 0.1,
                "rates": ["5/s"],
            },
            # One pool for all hosts of a provider.
            {"domain_glob": "*.example.net", "rates": ["1/2s", "20/m"], "unit": "rule"},
            # Each registered domain separately.
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
