"""A login form for any number of workers: the cookie travels with the requests and survives a restart."""

from http.cookies import SimpleCookie

from skitter import Request, Spider


class LoginFleet(Spider):
    site = "http://127.0.0.1:8000"
    custom_settings = {"allowed_statuses": [303]}  # let the response to the form come to a callback

    async def start(self):
        yield Request(f"{self.site}/login", callback=self.log_in)

    def log_in(self, response):
        yield response.form({"user": "ann", "password": "wonder"}, self.enter)

    def enter(self, response):
        cookies = {name: morsel.value for name, morsel in SimpleCookie(response.header("set-cookie")).items()}
        yield response.follow(response.header("location"), cookies=cookies)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield response.follow_all("a", cookies=response.request.cookies)
