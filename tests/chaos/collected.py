"""A collector for the kill test: one collector follows lists, its clone reads odd pages with a context."""

from skitter import Collector

crawler = Collector()
odd = crawler.clone("odd")


@crawler.seeds
def begin(url):
    return url.split()


def follow(element):
    href = element.attr("href")
    element.request.visit(href, via=odd if href.endswith(("1", "3", "5", "7", "9")) else crawler)


def take(response):
    context = response.ctx
    context["steps"] = context.get("steps", 0) + 1
    return {"url": response.url, "steps": context["steps"], "depth": response.request.depth}


for collector in (crawler, odd):
    collector.on_response(take)
    collector.on_html("a[href]", follow)
