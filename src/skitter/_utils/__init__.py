"""Small helpers that several packages share. Not part of the public API."""
