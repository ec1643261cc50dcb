"""All results of a search form, page by page: ``skitter run search_form.py -a words=2 -o results.jsonl``."""

from skitter import Request, Spider


class Search(Spider):
    site = "http://127.0.0.1:8000"
    words = "2"

    async def start(self):
        yield Request(f"{self.site}/", callback=self.search)

    def search(self, response):
        for word in self.words.split(","):
            yield response.form({"q": word}, self.parse, css="form[action='/search']", meta={"word": word})

    def parse(self, response):
        for link in response.css("ol a"):
            yield {
                "word": response.meta["word"],
                "title": link.css("::text").get(),
                "url": response.urljoin(link),
            }
        yield response.follow_all("a[rel=next]", meta=response.meta)
