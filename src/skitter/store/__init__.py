"""Stores: write each item exactly once."""
