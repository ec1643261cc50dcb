"""Fetchers: they send requests and return responses."""
