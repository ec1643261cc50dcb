"""The loop of one worker process: lease, fetch, call back, store, commit."""

DRAIN_SECONDS = 15.0
"""Maximum time to wait for fetches in flight when a crawl stops; unfinished leases are released."""
