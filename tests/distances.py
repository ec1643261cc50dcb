"""Checks the delay between requests, using the log of a server that may be suspended at any time."""


def assert_distance(hits, seconds, parallel=1):
    """Check that a client waited ``seconds`` between pages, with up to ``parallel`` pages in progress at a time.

    The first hit is robots.txt. A busy server may notice a request long after it was sent, so the interval between two
    arrivals proves nothing. But a client sends a request only after all but the last of the previous requests were answered.
    """
    ends = sorted(hit.ended for hit in hits)
    for place in range(1, len(hits)):
        sent_after = ends[max(0, place - parallel)]
        for number, later in enumerate(hits[place + 1 :], 1):
            assert later.received - sent_after >= number * seconds, (place, number)
