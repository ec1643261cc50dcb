"""A login that is repeated when the session has expired, in the middle of a crawl."""

from skitter import Request, Spider


class Relogin(Spider):
    site = "http://127.0.0.1:8000"

    async def start(self):
        yield self.of_ann(Request(f"{self.site}/members/"))

    def of_ann(self, request):
        return request.replace(session="ann", meta={"page": request.url}, fingerprint_keys=("page",))

    def parse(self, response):
        if response.url.endswith("/login"):
            fields = {"user": "ann", "password": "wonder"}
            yield response.form(fields, self.logged_in, session="ann", meta=response.meta, dont_filter=True)
            return
        yield {"url": response.url}
        for request in response.follow_all("a"):
            yield self.of_ann(request)

    def logged_in(self, response):
        if response.url.endswith("/login"):
            raise ValueError("the login failed")
        yield self.of_ann(Request(response.meta["page"], dont_filter=True))
