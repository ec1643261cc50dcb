"""The time between the requests of a client, according to the log of a server that the machine may suspend at any time."""


def assert_distance(hits, seconds, parallel=1):
    """Check that a client left ``seconds`` between its pages, of which up to ``parallel`` were in progress at a time.

    The first hit is that of robots.txt. A server may notice a request long after it was sent, so the times of two arrivals
    say nothing. But a client sends a request after the answers to all but the last of the requests before it.
    """
    ends = sorted(hit.ended for hit in hits)
    for place in range(1, len(hits)):
        sent_after = ends[max(0, place - parallel)]
        for number, later in enumerate(hits[place + 1 :], 1):
            assert later.received - sent_after >= number * seconds, (place, number)
