"""Handle failures: a missing page and an unreachable host. Neither ends the crawl."""

import sys

from skitter import Collector

crawler = Collector(settings={"max_retries": 1, "retry_delay": 0.1})


@crawler.on_error
def failed(response, error):
    # The status is 0 if there was no response. The result is stored in place of the page's items.
    yield {"url": response.url, "status": response.status, "error": type(error).__name__}


@crawler.on_response
def arrived(response):
    yield {"url": response.url, "status": response.status}


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    crawler.visit(sys.argv[1] + "gone")
    crawler.visit("http://127.0.0.1:1/")
    summary = crawler.run(outputs=["errors.jsonl"], fresh=True)
    print(summary.state, summary.status.done, summary.status.failed)
