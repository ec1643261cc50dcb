"""A login form. The cookie stays in the cookie jar of the session, which all workers and runs of the job share."""

from skitter import Request, Spider


class Members(Spider):
    site = "http://127.0.0.1:8000"
    user = "ann"
    password = "wonder"  # noqa: S105 - of the example's site

    async def start(self):
        yield Request(f"{self.site}/login", callback=self.log_in, session="ann")

    def log_in(self, response):
        # Hidden fields are sent too. The response redirects to the members' area, with the same session and callback.
        yield response.form({"user": self.user, "password": self.password}, self.parse, session="ann")

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield response.follow_all("a", session="ann")
