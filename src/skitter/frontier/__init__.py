"""Frontier: what to fetch next; the only durable truth of a job."""
