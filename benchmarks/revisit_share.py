"""How fresh the copies of pages stay if each daily pass fetches only a share of them (``revisit_share``).

A simulation: pages change at random, each at a rate of its own, and passes choose pages with skitter's own schedule, in equal
turns, by the adaptive intervals of Nutch, or with the true rates. *Fresh* is the mean share of the copies that are equal to
their page; *changed* is the share of the fetches that found a change.

Usage: ``python revisit_share.py [--pages 5000] [--passes 90] [--share 0.1 --share 0.25]``.
"""

import argparse
import heapq
import random
import statistics
import sys

from skitter.worker.page import ChangeHistory
from skitter.worker.revisit import SAMPLE_SIZE, RevisitSchedule

DAY = 86_400.0


def mixtures(pages, rng):
    """Yield kinds of sites, each with the changes per day of its pages."""
    yield "log-uniform, 0.001 to 10 a day", [10 ** rng.uniform(-3, 1) for _ in range(pages)]
    yield (
        "half static, half 0.01 to 5 a day",
        [0.001 if rng.random() < 0.5 else 10 ** rng.uniform(-2, 0.7) for _ in range(pages)],
    )
    yield "gamma, mean 0.1 a day", [max(rng.gammavariate(0.5, 0.2), 1e-4) for _ in range(pages)]
    yield "a fifth 2 a day, the rest 0.02", [2.0 if rng.random() < 0.2 else 0.02 for _ in range(pages)]


class Turns:
    """Each page after the same number of passes."""

    def __init__(self, rates, share, _rng):
        self.pages, self.amount, self.next = len(rates), round(len(rates) * share), 0

    def choose(self, _now, _number):
        chosen = [(self.next + place) % self.pages for place in range(self.amount)]
        self.next = (self.next + self.amount) % self.pages
        return chosen

    def record(self, page, now, changed):
        pass


class Nutch:
    """AdaptiveFetchSchedule: 0.8 times the interval after a change, 1.2 times otherwise; the most overdue pages first."""

    def __init__(self, rates, share, rng):
        self.amount = round(len(rates) * share)
        self.intervals = [DAY / share] * len(rates)
        self.due = [(rng.random() * DAY / share, page) for page in range(len(rates))]
        heapq.heapify(self.due)

    def choose(self, now, _number):
        chosen = []
        while self.due and self.due[0][0] <= now and len(chosen) < self.amount:
            chosen.append(heapq.heappop(self.due)[1])
        return chosen

    def record(self, page, now, changed):
        interval = self.intervals[page] * (0.8 if changed else 1.2)
        self.intervals[page] = min(max(interval, 60.0), 365 * DAY)
        heapq.heappush(self.due, (now + self.intervals[page], page))


class Skitter:
    """``revisit_share``: the schedule of a worker, and what it remembers of each page."""

    def __init__(self, rates, share, rng):
        self.share = share
        self.histories = [self.first(rate, -rng.random()) for rate in rates]
        self.rng = rng

    def first(self, _rate, fetched):
        return ChangeHistory(fetched)

    def choose(self, now, number):
        sample = self.rng.sample(self.histories, min(SAMPLE_SIZE, len(self.histories)))
        schedule = RevisitSchedule(self.share, number, sample, now)
        return [page for page, history in enumerate(self.histories) if schedule.is_due(history)]

    def record(self, page, now, changed):
        self.histories[page] = self.histories[page].after(now, is_changed=changed)


class KnownRate:
    """The history of a page whose rate is known."""

    gain, age = ChangeHistory.gain, ChangeHistory.age

    def __init__(self, rate, fetched):
        self.known, self.fetched = rate, fetched

    def rate(self, _now):
        return self.known

    def after(self, now, **_result):
        return KnownRate(self.known, now)


class TrueRates(Skitter):
    """The same choice with the true rate of each page, which no crawler knows."""

    def first(self, rate, fetched):
        return KnownRate(rate / DAY, fetched)


def simulate(policy, rates, passes, rng):
    """Return how fresh the copies were, and which share of the fetches found a change. The first third does not count."""
    stale_at = [rng.expovariate(rate / DAY) for rate in rates]
    fresh, found, fetched = [], 0, 0
    for number in range(2, passes + 2):
        now = number * DAY
        for place, page in enumerate(policy.choose(now, number)):
            fetched_at = now + place / 100  # pages are fetched one after the other
            changed = stale_at[page] <= fetched_at
            policy.record(page, fetched_at, changed)
            stale_at[page] = fetched_at + rng.expovariate(rates[page] / DAY)
            if number > passes // 3:
                fetched += 1
                found += changed
        if number > passes // 3:
            fresh.append(statistics.fmean(min(max((at - now) / DAY, 0), 1) for at in stale_at))
    return statistics.fmean(fresh), found / fetched


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=5_000)
    parser.add_argument("--passes", type=int, default=90)
    parser.add_argument("--share", type=float, action="append")
    options = parser.parse_args()
    policies = {"in turns": Turns, "Nutch": Nutch, "skitter": Skitter, "true rates": TrueRates}
    fresh, found = {name: [] for name in policies}, {name: [] for name in policies}
    for share in options.share or [0.1, 0.25]:
        for kind, rates in mixtures(options.pages, random.Random(1)):
            print(f"share {share}, changes {kind}:")
            for name, policy in policies.items():
                result = simulate(
                    policy(rates, share, random.Random(2)), rates, options.passes, random.Random(3)
                )
                fresh[name].append(result[0])
                found[name].append(result[1])
                print(f"  {name:<12} fresh {result[0]:.3f}, changed {result[1]:.2f}", flush=True)
    met = True
    for text, figures, other, goal in (
        ("fresh, beside pages in turns", fresh, "in turns", 1.0),
        ("fresh, beside Nutch", fresh, "Nutch", 1.0),
        ("changes per fetch, beside pages in turns", found, "in turns", 1.2),
    ):
        ratios = [own / base for own, base in zip(figures["skitter"], figures[other], strict=True)]
        mean = statistics.geometric_mean(ratios)
        met = met and mean >= goal
        word = "met   " if mean >= goal else "MISSED"
        print(f"{word} {text}: {mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal at least {goal}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
