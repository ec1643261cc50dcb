"""Two accounts at once, each with a session of its own."""

from skitter import Request, Spider


class Accounts(Spider):
    site = "http://127.0.0.1:8000"

    async def start(self):
        for user in ("ann", "bob"):
            yield Request(f"{self.site}/login", self.log_in, **self.account(user))

    def account(self, user):
        return {"session": user, "meta": {"user": user}, "fingerprint_keys": ("user",)}

    def log_in(self, response):
        user = response.meta["user"]
        yield response.form({"user": user, "password": "wonder"}, self.parse, **self.account(user))

    def parse(self, response):
        user = response.meta["user"]
        yield {"user": user, "url": response.url}
        yield response.follow_all("a", **self.account(user))
