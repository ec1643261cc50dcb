"""A login form. The cookie stays in the session's cookie jar, in the process that logged in: one worker only."""

from urllib.parse import urlencode

from skitter import Request, Spider

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Members(Spider):
    site = "http://127.0.0.1:8000"
    user = "ann"
    password = "wonder"  # noqa: S105 - of the example's site

    async def start(self):
        yield Request(f"{self.site}/login", callback=self.log_in, session="ann")

    def log_in(self, response):
        given = {
            "csrf": response.css("input[name=csrf]::attr(value)").get(),
            "user": self.user,
            "password": self.password,
        }
        # The answer redirects to the members' area; the redirected request keeps its session and callback.
        yield response.follow(
            "/login", self.parse, method="POST", body=urlencode(given), headers=FORM, session="ann"
        )

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield response.follow_all("a", session="ann")
