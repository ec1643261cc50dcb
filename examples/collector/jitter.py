"""Wait between two fetches of a host, plus a random extra delay of up to the same length."""

import sys

from skitter import Collector

crawler = Collector()
crawler.limit(domain_glob="*", delay=0.1, jitter=0.1, concurrency_per_slot=2)

if __name__ == "__main__":
    for number in range(6):
        crawler.visit(f"{sys.argv[1]}book/{number}")
    print(crawler.run().counters["pages"])
