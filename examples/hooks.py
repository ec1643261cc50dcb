"""Hooks and hook actions: a header for each request, items changed before they are stored, an expected error."""

from skitter import HookAction, Request, Spider


class Stamp:
    """A collection of hooks that several spiders can share."""

    def before_save(self, response, items):
        items[:] = [{**item, "fetched_from": response.ip} for item in items]


class Tokens(Spider):
    site = "http://127.0.0.1:8000"
    hooks = [Stamp()]

    async def start(self):
        for after in (0, 10, 20):
            yield Request.json(f"{self.site}/api", {"after": after}, errback=self.given_up)
        yield f"{self.site}/no-such-page"
        yield Request(f"{self.site}/also-missing", errback=self.given_up)

    def before_request(self, request):
        # The frontier stores the request without the token, so the token is on no disk and in no dead letter.
        return request.replace(headers={**request.headers, "X-Token": "secret"})

    async def on_error(self, request, error):
        if request.url.endswith("/no-such-page") and getattr(error, "status", None) == 404:
            return HookAction.DROP  # we know; no dead letter
        return None

    def parse(self, response):
        yield {"count": len(response.json()["quotes"])}

    def given_up(self, request, error):
        yield {"url": request.url, "error": str(error)}
