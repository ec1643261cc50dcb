"""A paginated JSON API that uses POST. Each body is a separate request; items are dataclasses."""

from dataclasses import dataclass

from skitter import Request, Spider


@dataclass
class Quote:
    id: int
    author: str
    text: str


class Api(Spider):
    site = "http://127.0.0.1:8000"
    token = "secret"  # noqa: S105 - of the example's site

    async def start(self):
        yield self.page(after=0)

    def page(self, after):
        return Request.json(f"{self.site}/api", {"after": after}, headers={"X-Token": self.token})

    def parse(self, response):
        found = response.json()
        for quote in found["quotes"]:
            yield Quote(**quote)
        if found["next"] is not None:
            yield self.page(after=found["next"])
