"""Optional: a fetcher that loads pages in Chromium, and one that does so only for pages that need JavaScript."""
