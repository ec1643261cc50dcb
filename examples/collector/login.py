"""Log in with a form, then crawl the protected pages. The cookie stays in the session's cookie jar."""

import sys

from skitter import Collector

crawler = Collector()
members = crawler.clone("members")


@crawler.on_response
def logged_in(response):
    # Wait for the response: visits that start together are fetched at the same time.
    response.request.visit("/members/", via=members)


@crawler.on_error
def refused(response, error):
    print("the login was refused:", response.text)


@members.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))


@members.on_response
def page(response):
    return {"url": response.url, "title": response.css("title::text").get()}


@crawler.seeds
def begin(site="http://127.0.0.1:8000/"):
    crawler.post(site + "login", {"user": "ann", "password": "wonder"})


if __name__ == "__main__":
    crawler.run(arguments={"site": sys.argv[1]}, outputs=["members.jsonl"], fresh=True)
