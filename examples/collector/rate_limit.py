"""At most two fetches in half a second and five in two seconds, for all hosts together."""

import sys

from skitter import Collector, LimitRule

crawler = Collector()
crawler.limit(LimitRule(domain_glob="*", delay=0, rates=("2/0.5s", "5/2s"), unit="rule"))

if __name__ == "__main__":
    for number in range(6):
        crawler.visit(f"{sys.argv[1]}book/{number}")
    print(crawler.run().counters["pages"])
