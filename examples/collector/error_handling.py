"""What fails: a page that is not there, a host that is not there. Neither ends the crawl."""

import sys

from skitter import Collector

# A host that is not there has no robots.txt either, which is asked for again for minutes: not in this example.
crawler = Collector(ignore_robots_txt=True, settings={"max_retries": 1, "retry_delay": 0.1})


@crawler.on_error
def failed(response, error):
    # The status is 0 if there was no answer. What is given here stands for the page.
    yield {"url": response.url, "status": response.status, "error": type(error).__name__}


@crawler.on_response
def arrived(response):
    yield {"url": response.url, "status": response.status}


if __name__ == "__main__":
    crawler.visit(sys.argv[1])
    crawler.visit(sys.argv[1] + "gone")
    crawler.visit("http://127.0.0.1:1/")
    summary = crawler.run(outputs=["errors.jsonl"])
    print(summary.state, summary.status.done, summary.status.failed)
