"""A login form for any number of workers: the cookie travels with the requests and survives a restart."""

from http.cookies import SimpleCookie
from urllib.parse import urlencode

from skitter import Request, Spider

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Members(Spider):
    site = "http://127.0.0.1:8000"
    custom_settings = {"allowed_statuses": [303]}  # let the answer to the form come to a callback

    async def start(self):
        yield Request(f"{self.site}/login", callback=self.log_in)

    def log_in(self, response):
        token = response.css("input[name=csrf]::attr(value)").get()
        body = urlencode({"csrf": token, "user": "ann", "password": "wonder"})
        yield response.follow("/login", self.enter, method="POST", body=body, headers=FORM)

    def enter(self, response):
        cookies = {name: morsel.value for name, morsel in SimpleCookie(response.header("set-cookie")).items()}
        yield response.follow(response.header("location"), cookies=cookies)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield response.follow_all("a", cookies=response.request.cookies)
