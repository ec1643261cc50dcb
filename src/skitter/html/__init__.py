"""Parsers and selectors for HTML and XML documents."""
