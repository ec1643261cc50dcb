"""HTML and XML documents: parsers and selectors."""
