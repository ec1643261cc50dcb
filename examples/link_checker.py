"""Broken links of a site, with all pages that contain them: ``python link_checker.py http://127.0.0.1:8000/``."""

import sys
from collections import defaultdict

import skitter


class Links(skitter.Spider):
    custom_settings = {"allowed_statuses": [301, 302, 303, 307, 308]}  # a redirect is a page with one link

    def parse(self, response):
        links = response.links() if response.ok else [response.urljoin(response.header("location"))]
        yield {"page": response.url, "links": links}
        own = [url for url in links if url.startswith(self.start_urls[0])]
        yield response.follow_all(own, errback=self.broken)
        yield response.follow_all(set(links) - set(own), callback=self.ignore, errback=self.broken)

    def ignore(self, response):
        """Do not follow the links of other sites."""

    def broken(self, request, error):
        yield {"broken": request.url, "error": str(error)}


def broken_links(site):  # each with its error and the pages that contain it
    pages, errors = defaultdict(set), {}
    for item in skitter.iter_items(Links, arguments={"start_urls": [site]}):
        if "broken" in item:
            errors[item["broken"]] = item["error"]
        for link in item.get("links", ()):
            pages[link].add(item["page"])
    return {link: (error, sorted(pages[link])) for link, error in errors.items()}


if __name__ == "__main__":
    for link, (error, found_on) in sorted(broken_links(sys.argv[1]).items()):
        print(f"{link}: {error}", *found_on, sep="\n  ")
