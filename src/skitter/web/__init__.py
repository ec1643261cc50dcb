"""The vocabulary of the web: URLs, headers, media types and character encodings."""
