"""Fetch: request in, response out."""
