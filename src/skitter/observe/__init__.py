"""Observe: counters, progress and summaries."""
